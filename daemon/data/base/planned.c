#include "daemon/data/base/planned.h"

#include "proto/common/array.h"

#include <errno.h>

void planned_deinit(struct planned *planned)
{
    free(planned->lists);
    *planned = (struct planned){0};
}

static int planned_refuse(const char *what, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "", "the slot's header is damaged: %s", what);
}

static int planned_check_lengths(const struct planned *planned, uint64_t samples,
                                 struct dl_error *err)
{
    for (uint64_t i = 0; i < samples; i++)
        if (planned->lengths[i] == 0 || (planned->cut && planned->lengths[i] > planned->cut))
            return planned_refuse("a planned length is invalid", err);
    return 0;
}

static int planned_check_rows(const struct planned *planned, uint64_t samples, struct dl_error *err)
{
    uint64_t sum = 0;

    for (uint32_t row = 0; row < planned->rows; row++) {
        if (planned->in_row[row] == 0)
            return planned_refuse("a planned row is empty", err);
        sum += planned->in_row[row];
    }
    return planned->rows > 0 && sum != samples
               ? planned_refuse("the planned rows are those of other samples", err)
               : 0;
}

int planned_read(struct planned *planned, void *slot, const struct slot_task *task,
                 struct dl_error *err)
{
    const struct slot_planned *from = slot_planned(slot, task->samples);
    uint64_t n;
    int r;

    if (task->planned < sizeof *from)
        return planned_refuse("the plan is cut off", err);
    planned->cut = __atomic_load_n(&from->cut, __ATOMIC_RELAXED);
    planned->rows = __atomic_load_n(&from->rows, __ATOMIC_RELAXED);
    bool split = planned->cut & SLOT_SPLIT;
    uint64_t more = planned->rows + (split ? task->samples : UINT64_C(0));
    planned->cut &= ~SLOT_SPLIT;
    if (slot_planned_bytes(task->samples, more) > task->planned)
        return planned_refuse("the plan is cut off", err);
    n = task->samples + more;
    if (!array_reserve(planned->lists, planned->room, n) /* n: of a slot */)
        return dl_error_set(err, ENOMEM, "", "out of memory for a batch");
    memcpy(planned->lists, from->lists, n * sizeof *planned->lists);
    planned->lengths = planned->lists;
    planned->in_row = planned->lists + task->samples;
    planned->begins = split ? planned->in_row + planned->rows : NULL;
    r = planned_check_lengths(planned, task->samples, err);
    return r < 0 ? r : planned_check_rows(planned, task->samples, err);
}
