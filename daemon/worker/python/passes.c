#include "daemon/worker/python/passes.h"

struct pass {
    struct pass *next;
    uint32_t stream;
    PyObject *iterator; /* owned; NULL: not begun, or it could not be */
    uint64_t position;  /* samples taken */
    uint64_t rounds;    /* rounds passed */
    bool ended;
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

void passes_forget(struct passes *passes, uint32_t stream)
{
    struct pass **at = find(passes, stream), *pass = *at;

    passes->forgotten[passes->n_forgotten++ % FORGOTTEN_REMEMBERED] = stream;
    if (!pass)
        return;
    *at = pass->next;
    Py_XDECREF(pass->iterator); /* runs the generator's finally */
    free(pass);
}

void passes_clear(struct passes *passes)
{
    while (passes->first)
        passes_forget(passes, passes->first->stream);
}

/* For round `number`, which may be one before the round that is wanted. */
static int seed(const struct origin *source, const struct pass_round *round, uint64_t number)
{
    const struct slot_task *task = round->task;
    uint64_t step = task->step - (round->number - number) * round->workers;

    return origin_seed(source, source->seed, task->epoch, task->rank, step);
}

/*
 * One that cannot be begun has no samples: its first round tells why, and the next ones end. The
 * first round goes on with the generators as the beginning left them.
 */
static int begin(struct pass *pass, struct origin *source, const struct pass_round *round)
{
    const struct slot_task *task = round->task;

    Py_CLEAR(pass->iterator);
    pass->position = 0;
    pass->rounds = 0;
    pass->ended = false;
    if (seed(source, round, 0) == 0)
        pass->iterator = origin_iterate(source, task->epoch, task->rank, task->world);
    pass->ended = !pass->iterator;
    return pass->iterator ? 0 : -1;
}

/* The next sample, owned; NULL with an exception, or when the pass has ended. */
static PyObject *take(struct pass *pass, const struct origin *source, const struct slot_task *task)
{
    PyObject *sample = origin_next(source, pass->iterator, task->epoch);

    if (!sample && !PyErr_Occurred())
        pass->ended = true;
    else
        pass->position++;
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
        for (uint64_t i = 0; !pass->ended && i < round->size; i++) {
            PyObject *sample = take(pass, source, round->task);
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

static int make_round(struct pass *pass, struct origin *source, const struct pass_round *round,
                      struct made *ret)
{
    _cleanup_py_ PyObject *samples = PyList_New(0);
    uint64_t n = 0, first = pass->position;

    pass->rounds = round->number + 1;
    if (round->number > 0 && seed(source, round, round->number) < 0)
        return -1;
    while (samples && !pass->ended && n < round->size) {
        _cleanup_py_ PyObject *sample = take(pass, source, round->task);
        if ((!sample && !pass->ended) || (sample && PyList_Append(samples, sample) < 0))
            return -1;
        n += sample != NULL;
    }
    if (!samples)
        return -1;
    if (n == 0 || (n < round->size && round->drop_last))
        return 0;
    *ret = (struct made){.object = steal_ptr(samples), .first = first, .samples = n};
    return 1;
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
