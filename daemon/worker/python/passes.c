#include "daemon/worker/python/passes.h"

/* One of the first samples of a pass. */
struct first {
    PyObject *sample; /* owned */
    uint64_t number;
};

struct pass {
    struct pass *next;
    uint32_t stream;
    PyObject *iterator; /* owned; NULL: not begun, or it could not be */
    uint64_t position;  /* samples taken */
    uint64_t rounds;    /* rounds passed */
    bool ended;
    struct first *firsts; /* owned; n_firsts of them */
    uint64_t n_firsts;
};

static struct pass **find(struct passes *passes, uint32_t stream)
{
    struct pass **at = &passes->first;

    while (*at && (*at)->stream != stream)
        at = &(*at)->next;
    return at;
}

static bool is_forgotten(const struct passes *passes, uint32_t stream)
{
    for (uint32_t i = 0; i < min_u64(passes->n_forgotten, FORGOTTEN_REMEMBERED); i++)
        if (passes->forgotten[i] == stream)
            return true;
    return false;
}

static struct pass *add(struct passes *passes, uint32_t stream)
{
    struct pass *pass = calloc(1, sizeof *pass);

    if (!pass) {
        PyErr_NoMemory();
        return NULL;
    }
    pass->stream = stream;
    pass->next = passes->first;
    passes->first = pass;
    return pass;
}

static void drop_firsts(struct pass *pass)
{
    struct first *firsts = steal_ptr(pass->firsts);
    uint64_t n = pass->n_firsts;

    pass->n_firsts = 0;
    for (uint64_t i = 0; i < n; i++)
        Py_DECREF(firsts[i].sample);
    free(firsts);
}

void passes_forget(struct passes *passes, uint32_t stream)
{
    struct pass **at = find(passes, stream), *pass = *at;

    passes->forgotten[passes->n_forgotten++ % FORGOTTEN_REMEMBERED] = stream;
    if (!pass)
        return;
    *at = pass->next;
    drop_firsts(pass);
    Py_XDECREF(pass->iterator); /* runs the generator's finally */
    free(pass);
}

void passes_clear(struct passes *passes)
{
    while (passes->first)
        passes_forget(passes, passes->first->stream);
}

/* ---- how ranks share the samples ------------------------------------------------------------ */

static bool is_shared(const struct pass_round *round)
{
    return round->shard != SHARD_STRIDED;
}

static uint32_t rank_of(const struct pass_round *round)
{
    return is_shared(round) ? 0 : round->task->rank;
}

/* Samples of a round, of all ranks that have a part in it. */
static uint64_t whole_round(const struct pass_round *round)
{
    const struct slot_task *task = round->task;
    bool parts = round->shard == SHARD_BATCH || round->shard == SHARD_SPLIT;

    return (uint64_t)task->samples * (parts ? task->world : 1);
}

/* Which of them is the task's first. */
static uint64_t own_part(const struct pass_round *round)
{
    bool parts = round->shard == SHARD_BATCH || round->shard == SHARD_SPLIT;

    return parts ? (uint64_t)round->task->samples * round->task->rank : 0;
}

/* How many of the first samples may be repeated. */
static uint64_t repeats(const struct pass_round *round)
{
    if (!is_shared(round) || !round->even || round->drop_last)
        return 0;
    return round->shard == SHARD_DISPATCH ? round->task->world : whole_round(round);
}

/* Where the task's part ends in a last round of `n` samples, which is filled up as far. */
static uint64_t end_of_last(const struct pass_round *round, uint64_t n)
{
    uint64_t world = round->task->world;

    if (repeats(round) == 0)
        return n;
    if (round->shard == SHARD_DISPATCH)
        return (n + world - 1) / world * world;
    return own_part(round) + round->task->samples;
}

/* ---- samples -------------------------------------------------------------------------------- */

/* For round `number`, which may be one before the round that is wanted. */
static int seed(const struct origin *source, const struct pass_round *round, uint64_t number)
{
    const struct slot_task *task = round->task;
    uint64_t step = task->step - (round->number - number) * round->workers;

    return origin_seed(source, source->seed, task->epoch, rank_of(round), step);
}

/*
 * One that cannot be begun has no samples: its first round tells why, and the next ones end. The
 * first round goes on with the generators as the beginning left them.
 */
static int begin(struct pass *pass, struct origin *source, const struct pass_round *round)
{
    const struct slot_task *task = round->task;

    Py_CLEAR(pass->iterator);
    drop_firsts(pass);
    pass->position = 0;
    pass->rounds = 0;
    pass->ended = false;
    if (seed(source, round, 0) == 0)
        pass->iterator =
            origin_iterate(source, task->epoch, rank_of(round), is_shared(round) ? 1 : task->world);
    pass->ended = !pass->iterator;
    return pass->iterator ? 0 : -1;
}

/* Keeps a sample that may be repeated. */
static int keep(struct pass *pass, PyObject *sample, uint64_t most)
{
    uint64_t n = pass->n_firsts;

    if (n >= most)
        return 0;
    if ((n & (n - 1)) == 0) { /* room for twice as many */
        struct first *firsts = realloc(pass->firsts, max_u64(2 * n, 1) * sizeof *firsts);
        if (!firsts) {
            PyErr_NoMemory();
            return -1;
        }
        pass->firsts = firsts;
    }
    Py_INCREF(sample);
    pass->firsts[pass->n_firsts++] = (struct first){sample, pass->position - 1};
    return 0;
}

/* The next sample, owned; NULL with an exception, or when the pass has ended. */
static PyObject *take(struct pass *pass, const struct origin *source,
                      const struct pass_round *round)
{
    PyObject *sample = origin_next(source, pass->iterator, round->task->epoch);

    if (!sample && !PyErr_Occurred())
        pass->ended = true;
    else
        pass->position++;
    if (sample && keep(pass, sample, repeats(round)) < 0)
        Py_CLEAR(sample);
    return sample;
}

/* Takes and drops what lies before the round. */
static int move_to(struct pass *pass, struct origin *source, const struct pass_round *round)
{
    if (!pass->ended && !pass->iterator && begin(pass, source, round) < 0)
        return -1;
    if (pass->rounds > round->number && begin(pass, source, round) < 0)
        return -1;
    while (!pass->ended && pass->rounds < round->number) {
        if (pass->rounds > 0 && seed(source, round, pass->rounds) < 0)
            return -1;
        for (uint64_t i = 0; !pass->ended && i < whole_round(round); i++) {
            PyObject *sample = take(pass, source, round);
            bool failed = !sample && !pass->ended;
            Py_XDECREF(sample);
            PyErr_Clear();
            if (failed) /* the round ended there when it was made */
                break;
        }
        pass->rounds++;
    }
    return 0;
}

/* ---- a round -------------------------------------------------------------------------------- */

/* All samples of the round, of which the list gets those of the task's part. How many there were;
 * -1 with an exception. */
static int64_t take_round(struct pass *pass, const struct origin *source,
                          const struct pass_round *round, PyObject *list)
{
    uint64_t whole = whole_round(round), own = own_part(round), n = 0;

    while (!pass->ended && n < whole) {
        _cleanup_py_ PyObject *sample = take(pass, source, round);
        bool mine = sample && n >= own && n < own + round->task->samples;
        if ((!sample && !pass->ended) || (mine && PyList_Append(list, sample) < 0))
            return -1;
        n += sample != NULL;
    }
    return (int64_t)n;
}

/* Fills the list up from the beginning of the pass: positions `from` to `to` - 1 of those that the
 * last round lacks. */
static int repeat(const struct pass *pass, PyObject *list, uint64_t from, uint64_t to,
                  struct made *ret)
{
    if (to <= from || pass->n_firsts == 0)
        return 0;
    ret->again = malloc((to - from) * sizeof *ret->again);
    if (!ret->again) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint64_t i = from; i < to; i++) {
        const struct first *first = &pass->firsts[i % pass->n_firsts];
        if (PyList_Append(list, first->sample) < 0)
            return -1;
        ret->again[ret->repeated++] = first->number;
    }
    return 0;
}

/* The task's part of a last round of `n` samples that is not whole. */
static int fill_up(const struct pass *pass, const struct pass_round *round, uint64_t n,
                   PyObject *list, struct made *ret)
{
    uint64_t own = own_part(round), from = max_u64(n, own), to = end_of_last(round, n);

    return repeat(pass, list, from - n, to > from ? to - n : from - n, ret);
}

static int make_round(struct pass *pass, struct origin *source, const struct pass_round *round,
                      struct made *ret)
{
    _cleanup_py_ PyObject *samples = PyList_New(0);
    uint64_t first = pass->position + own_part(round), whole = whole_round(round);

    pass->rounds = round->number + 1;
    if (!samples || (round->number > 0 && seed(source, round, round->number) < 0))
        return -1;
    int64_t n = take_round(pass, source, round, samples);
    if (n < 0)
        return -1;
    if (n == 0 || ((uint64_t)n < whole && round->drop_last))
        return 0;
    if ((uint64_t)n < whole && fill_up(pass, round, (uint64_t)n, samples, ret) < 0)
        return -1;
    ret->samples = (uint64_t)PyList_Size(samples);
    ret->first = first;
    ret->object = steal_ptr(samples);
    return ret->samples > 0;
}

int passes_round(struct passes *passes, struct origin *source, const struct pass_round *round,
                 struct made *ret)
{
    uint32_t stream = round->task->stream;
    struct pass *pass = *find(passes, stream);

    if (!pass && is_forgotten(passes, stream))
        return 0;
    if (!pass)
        pass = add(passes, stream);
    if (!pass)
        return -1;
    if (move_to(pass, source, round) < 0) {
        pass->rounds = round->number + 1;
        return -1;
    }
    return make_round(pass, source, round, ret);
}
