#include "daemon/worker/python/kept.h"

void made_deinit(struct made *made)
{
    PyObject *object = made->object, *state = made->state;

    free(made->numbers);
    bad_list_deinit(&made->bad);
    *made = (struct made){0};
    Py_XDECREF(state);
    Py_XDECREF(object); /* last: it may run anything */
}

static void drop(struct kept *kept, uint32_t at)
{
    struct made made = kept->batches[at].made;

    free(kept->batches[at].indices);
    kept->n--;
    memmove(&kept->batches[at], &kept->batches[at + 1], (kept->n - at) * sizeof *kept->batches);
    made_deinit(&made);
}

static bool is_of(const struct kept_batch *batch, const struct slot_task *task)
{
    return batch->stream == task->stream && batch->rank == task->rank &&
           batch->world == task->world && batch->epoch == task->epoch &&
           batch->step == task->step && batch->n == task->samples &&
           (!batch->indices ||
            memcmp(batch->indices, task->indices, batch->n * sizeof *batch->indices) == 0);
}

bool kept_take(struct kept *kept, const struct slot_task *task, struct made *ret)
{
    for (uint32_t i = 0; i < kept->n; i++) {
        if (!is_of(&kept->batches[i], task))
            continue;
        *ret = kept->batches[i].made;
        kept->batches[i].made = (struct made){0};
        drop(kept, i);
        return true;
    }
    return false;
}

void kept_put(struct kept *kept, const struct slot_task *task, struct made *made)
{
    struct kept_batch batch = {.stream = task->stream,
                               .rank = task->rank,
                               .world = task->world,
                               .epoch = task->epoch,
                               .step = task->step,
                               .n = task->samples,
                               .made = *made};

    *made = (struct made){0};
    if (task->stream == 0) {
        batch.indices = malloc(task->samples * sizeof *batch.indices);
        if (!batch.indices) { /* it will be made again */
            made_deinit(&batch.made);
            return;
        }
        memcpy(batch.indices, task->indices, task->samples * sizeof *batch.indices);
    }
    if (kept->n == KEPT_MAX)
        drop(kept, 0);
    kept->batches[kept->n++] = batch;
}

void kept_settle(struct kept *kept, uint32_t stream, uint64_t settled)
{
    for (uint32_t i = kept->n; i-- > 0;)
        if (kept->batches[i].stream == stream && kept->batches[i].step < settled)
            drop(kept, i);
}

void kept_clear(struct kept *kept)
{
    while (kept->n > 0)
        drop(kept, kept->n - 1);
}
