#include "daemon/worker/python/made.h"

void made_deinit(struct made *made)
{
    PyObject *object = made->object, *state = made->state;

    free(made->numbers);
    bad_list_deinit(&made->bad);
    *made = (struct made){0};
    Py_XDECREF(state);
    Py_XDECREF(object); /* last: it may run anything */
}

static void made_write_numbers(const struct made *made, const struct slot_task *task, void *slot)
{
    for (uint64_t i = 0; made->numbers && i < made->samples; i++)
        slot_indices(slot)[i] = made->numbers[i];
    if (task->stream)
        slot_put_repeated(slot, made->repeated);
}

static bool made_put_state(const struct made *made, void *slot, uint64_t slot_bytes,
                           uint64_t *ret_used)
{
    uint8_t head[DATASET_STATE_HEAD_BYTES];
    char *bytes = NULL;
    Py_ssize_t len = 0;

    if (made->lost)
        slot_put_lost(slot, made->lost);
    if (!made->state || PyBytes_AsStringAndSize(made->state, &bytes, &len) < 0)
        return true;
    dataset_state_write_head(&made->head, head);
    return slot_put_state(slot, slot_bytes, head,
                          (struct dl_span){(const uint8_t *)bytes, (size_t)len}, ret_used);
}

bool made_put_rest(const struct made *made, const struct slot_task *task, void *slot,
                   uint64_t slot_bytes, uint64_t *used)
{
    if (!slot_put_bad(slot, slot_bytes, &made->bad, used) ||
        !made_put_state(made, slot, slot_bytes, used))
        return false;
    made_write_numbers(made, task, slot);
    return true;
}
