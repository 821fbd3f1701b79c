#include "daemon/worker/python/rounds.h"

#include <assert.h>
#include <errno.h>

/* ---- objects as samples --------------------------------------------------------------------- */

static void rounds_release(void *object)
{
    Py_DECREF((PyObject *)object);
}

static int rounds_give(struct sample *ret, PyObject *object)
{
    sample_object(ret, Py_NewRef(object), rounds_release);
    return 0;
}

static int rounds_iterate(struct dataset *base, const struct replica_params *params,
                          struct dataset_iter **ret, struct dl_error *err)
{
    struct rounds *rounds = container_of(base, struct rounds, base);
    const struct iterator_open how = {rounds->source, rounds->step, rounds_give};

    return iterator_begin(&how, params, ret, err);
}

static const struct dataset_ops rounds_ops = {.iterate = rounds_iterate};

static void rounds_enter(void *context, uint64_t number)
{
    struct rounds *rounds = context;
    struct python_step *step = rounds->step;

    step->step = number * rounds->workers + step->step % rounds->workers;
    step->is_seeded = false;
}

void rounds_open(struct rounds *rounds, struct py_dataset *source, struct python_step *step,
                 const struct engine_batches *batches)
{
    step->seed = source->seed;
    *rounds = (struct rounds){.base = {.ops = &rounds_ops,
                                       .length = source->length,
                                       .saves_state = source->keeper != NULL},
                              .source = source,
                              .step = step,
                              .workers = batches->workers};
    rounds->replicas = (struct replica_set){.dataset = &rounds->base,
                                            .seed = batches->seed,
                                            .worker = batches->worker,
                                            .workers = batches->workers,
                                            .shard = batches->shard,
                                            .drop_last = batches->drop_last && batches->size,
                                            .even = batches->even,
                                            .in_sequence = true,
                                            .on_error = batches->on_error,
                                            .enter = rounds_enter,
                                            .context = rounds};
}

void rounds_close(struct rounds *rounds)
{
    replica_set_deinit(&rounds->replicas);
    assert(!rounds->replicas.replicas);
}

void rounds_forget(struct rounds *rounds, uint32_t stream)
{
    replica_forget(&rounds->replicas, stream);
}

/* ---- a round -------------------------------------------------------------------------------- */

/* Moves the round's samples to *ret. */
static int rounds_move(struct sample_batch *batch, struct made *ret)
{
    ret->object = PyList_New((Py_ssize_t)batch->n);
    ret->numbers = malloc(batch->n * sizeof *ret->numbers);
    if (!ret->object || !ret->numbers) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < batch->n; i++)
        if (PyList_SetItem(ret->object, (Py_ssize_t)i, sample_take_object(&batch->samples[i])) < 0)
            return -1;
    memcpy(ret->numbers, batch->numbers, batch->n * sizeof *ret->numbers);
    ret->samples = batch->n;
    ret->repeated = batch->repeated;
    ret->bad = batch->bad;
    batch->bad = (struct bad_list){0};
    return 0;
}

/* Where the dataset says that it stands behind the round. */
static int rounds_ask_state(struct rounds *rounds, const struct round *round, struct made *ret,
                            struct dl_error *err)
{
    int r = replica_save(&rounds->replicas, round, &ret->head, &ret->lost, err);

    if (r < 0 || ret->head.round == 0)
        return r;
    ret->state = PyBytes_FromStringAndSize((const char *)ret->head.state.data,
                                           (Py_ssize_t)ret->head.state.len);
    ret->head.state = (struct dl_span){0};
    return ret->state ? 0 : -1;
}

/* An error that no exception of the dataset's has led to becomes one. */
static void rounds_raise(const struct rounds *rounds, const struct dl_error *err)
{
    if (PyErr_Occurred() || python_step_failed_with(rounds->step, err))
        return;
    if (err->code == ENOMEM)
        PyErr_NoMemory();
    else
        PyErr_SetString(PyExc_RuntimeError, err->message);
}

int rounds_make(struct rounds *rounds, const struct slot_task *task, struct made *ret)
{
    const struct round round = {.stream = task->stream,
                                .rank = task->rank,
                                .world = task->world,
                                .epoch = task->epoch,
                                .size = task->samples,
                                .number = task->step / rounds->workers,
                                .state = task->state};
    bool apart = rounds->replicas.shard == SHARD_STRIDED;
    struct dl_error err = {0};
    struct sample_batch *batch;
    uint64_t bad;

    python_step_begin(rounds->step, task, apart ? task->rank : 0, task->step);
    int r = replica_round(&rounds->replicas, &round, &batch, &bad, &err);
    if (r == DATASET_END || (r == 0 && batch->n == 0))
        return 0;
    if (r == 0)
        r = rounds_move(batch, ret);
    if (r == 0)
        r = rounds_ask_state(rounds, &round, ret, &err);
    if (r == 0)
        return 1;
    assert(r != -EAGAIN); /* no round is ever kept here */
    rounds_raise(rounds, &err);
    return -1;
}
