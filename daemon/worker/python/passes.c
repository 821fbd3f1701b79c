#include "daemon/worker/python/passes.h"

#include "daemon/worker/python/refused.h"

/* One of the first samples of a pass. */
struct first {
    PyObject *sample;     /* owned; NULL: it is bad */
    struct slot_bad *bad; /* owned; why */
    uint64_t number;
};

struct pass {
    struct pass *next;
    uint32_t stream;
    PyObject *iterator; /* owned; NULL: not begun, or it could not be */
    uint64_t position;  /* samples taken */
    uint64_t rounds;    /* rounds passed */
    bool ended;
    bool stateless;       /* it does not know where it stands */
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
    for (uint64_t i = 0; i < n; i++) {
        free(firsts[i].bad);
        Py_XDECREF(firsts[i].sample);
    }
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

static uint32_t world_of(const struct pass_round *round)
{
    return is_shared(round) ? 1 : round->task->world;
}

/* Whether the pass can begin where the round's task says. */
static bool find_state(const struct origin *source, const struct pass_round *round,
                       struct carried *ret)
{
    return source->keeper && repeats(round) == 0 && carried_read(round->task->state, ret) &&
           ret->round <= round->number && ret->rank == rank_of(round) &&
           ret->world == world_of(round);
}

/*
 * One that cannot be begun has no samples: its first round tells why, and the next ones end. The
 * first round goes on with the generators as the beginning left them.
 */
static int begin(struct pass *pass, struct origin *source, const struct pass_round *round)
{
    struct carried from = {0};

    Py_CLEAR(pass->iterator);
    drop_firsts(pass);
    pass->stateless = !source->keeper || repeats(round) > 0;
    if (!find_state(source, round, &from))
        from = (struct carried){0};
    pass->position = from.position;
    pass->rounds = from.round;
    pass->ended = from.ended;
    if (pass->ended)
        return 0;
    if (seed(source, round, 0) == 0)
        pass->iterator =
            origin_iterate(source, round->task->epoch, rank_of(round), world_of(round), from.state);
    pass->ended = !pass->iterator;
    return pass->iterator ? 0 : -1;
}

/* Asks where the pass stands behind the round. */
static int ask_state(struct pass *pass, const struct origin *source, const struct pass_round *round,
                     struct made *ret)
{
    if (pass->stateless || !pass->iterator)
        return 0;
    _cleanup_py_ PyObject *state = origin_state(source, pass->iterator);
    if (!state)
        return -1;
    pass->stateless = state == Py_False;
    if (PyBytes_Check(state)) {
        ret->state = Py_NewRef(state);
        ret->at = (struct carried){.round = round->number + 1,
                                   .position = pass->position,
                                   .rank = rank_of(round),
                                   .world = world_of(round),
                                   .ended = pass->ended};
    } else if (PyLong_CheckExact(state)) {
        ret->lost = (enum carried_lost)PyLong_AsLong(state);
    }
    return 0;
}

/* Keeps a sample that may be repeated, or (taking it over) why there is none. */
static int keep(struct pass *pass, PyObject *sample, struct slot_bad *bad)
{
    uint64_t n = pass->n_firsts;

    if ((n & (n - 1)) == 0) { /* room for twice as many */
        struct first *firsts = realloc(pass->firsts, max_u64(2 * n, 1) * sizeof *firsts);
        if (!firsts) {
            PyErr_NoMemory();
            return -1;
        }
        pass->firsts = firsts;
    }
    Py_XINCREF(sample);
    pass->firsts[pass->n_firsts++] = (struct first){sample, bad, pass->position - 1};
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
    if (sample && pass->n_firsts < repeats(round) && keep(pass, sample, NULL) < 0)
        Py_CLEAR(sample);
    return sample;
}

static int list_bad(struct bad_list *list, const struct slot_bad *bad, uint64_t position)
{
    struct dl_error err = {0};

    dl_error_set(&err, (int)bad->code, "", "%s", bad->text);
    if (bad_list_add(list, bad->index, position, &err) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/*
 * The round goes on without the sample at hand, whose exception is set: it is listed if there is a
 * list. 0, or -1 with the exception that ends the round.
 */
static int leave_out(struct pass *pass, const struct origin *source, const struct pass_round *round,
                     uint64_t position, struct bad_list *list)
{
    _cleanup_(bad_list_deinit)
    struct bad_list one = {0};

    if (!refused_take(source, round->on_error, NULL, pass->position - 1, position, &one))
        return -1;
    if (pass->n_firsts < repeats(round)) {
        struct slot_bad *bad = malloc(sizeof *bad);
        if (bad)
            *bad = one.items[0];
        else
            PyErr_NoMemory();
        if (!bad || keep(pass, NULL, bad) < 0) {
            free(bad);
            return -1;
        }
    }
    return list ? list_bad(list, &one.items[0], position) : 0;
}

static bool substitutes(const struct pass_round *round)
{
    return round->on_error == ON_ERROR_SUBSTITUTE && !is_shared(round);
}

/*
 * All samples of the round: those of the task's part into ret->object, or (NULL) dropped.
 * *ret_taken of the round count. 0, or -1 with the exception that ends the round.
 */
static int take_round(struct pass *pass, const struct origin *source,
                      const struct pass_round *round, struct made *ret, uint64_t *ret_taken)
{
    uint64_t own = own_part(round), in_a_row = 0;

    for (*ret_taken = 0; !pass->ended && *ret_taken < whole_round(round);) {
        _cleanup_py_ PyObject *sample = take(pass, source, round);
        uint64_t position = *ret_taken - own;
        bool mine = ret->object && *ret_taken >= own && position < round->task->samples;
        if (pass->ended)
            break;
        if (!sample && leave_out(pass, source, round, position, mine ? &ret->bad : NULL) < 0)
            return -1;
        if (sample && mine) {
            ret->numbers[ret->samples++] = pass->position - 1;
            if (PyList_Append(ret->object, sample) < 0)
                return -1;
        }
        *ret_taken += sample || !substitutes(round);
        in_a_row = sample ? 0 : in_a_row + 1;
        pass->ended = substitutes(round) && in_a_row == BAD_IN_A_ROW;
    }
    return 0;
}

/* Takes and drops what lies before the round. */
static int move_to(struct pass *pass, struct origin *source, const struct pass_round *round)
{
    if (!pass->ended && !pass->iterator && begin(pass, source, round) < 0)
        return -1;
    if (pass->rounds > round->number && begin(pass, source, round) < 0)
        return -1;
    while (!pass->ended && pass->rounds < round->number) {
        struct made dropped = {0};
        uint64_t taken;
        if (pass->rounds > 0 && seed(source, round, pass->rounds) < 0)
            return -1;
        /* With an error the round ended there when it was made. */
        (void)!take_round(pass, source, round, &dropped, &taken);
        made_deinit(&dropped);
        PyErr_Clear();
        pass->rounds++;
    }
    return 0;
}

/* ---- a round -------------------------------------------------------------------------------- */

/* Fills the task's part of a last round of `n` samples, which is not whole, up from the beginning
 * of the pass. */
static int fill_up(const struct pass *pass, const struct pass_round *round, uint64_t n,
                   struct made *ret)
{
    uint64_t own = own_part(round), to = end_of_last(round, n);

    for (uint64_t at = max_u64(n, own); pass->n_firsts > 0 && at < to; at++) {
        const struct first *first = &pass->firsts[(at - n) % pass->n_firsts];
        if (first->bad) {
            if (list_bad(&ret->bad, first->bad, at - own) < 0)
                return -1;
            continue;
        }
        if (PyList_Append(ret->object, first->sample) < 0)
            return -1;
        ret->numbers[ret->samples++] = first->number;
        ret->repeated++;
    }
    return 0;
}

static int make_round(struct pass *pass, struct origin *source, const struct pass_round *round,
                      struct made *ret)
{
    uint64_t taken, whole = whole_round(round);

    pass->rounds = round->number + 1;
    if (round->number > 0 && seed(source, round, round->number) < 0)
        return -1;
    ret->object = PyList_New(0);
    ret->numbers = malloc(round->task->samples * sizeof *ret->numbers);
    if (!ret->object || !ret->numbers) {
        PyErr_NoMemory();
        return -1;
    }
    if (take_round(pass, source, round, ret, &taken) < 0)
        return -1;
    if (taken == 0 || (taken < whole && round->drop_last)) {
        Py_CLEAR(ret->object);
        return 0;
    }
    if (taken < whole && fill_up(pass, round, taken, ret) < 0)
        return -1;
    if (ask_state(pass, source, round, ret) < 0)
        return -1;
    if (ret->samples > 0)
        return 1;
    if (ret->bad.n == 0) {
        Py_CLEAR(ret->object);
        return 0;
    }
    refused_all(&ret->bad);
    return -1;
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
    if (!pass->stateless && pass->iterator && origin_enter(source, pass->iterator) < 0) {
        pass->rounds = round->number + 1;
        return -1;
    }
    if (move_to(pass, source, round) < 0) {
        pass->rounds = round->number + 1;
        return -1;
    }
    return make_round(pass, source, round, ret);
}
