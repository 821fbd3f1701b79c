/*
 * How often a worker may die before it is given up, and how long it waits before the next life.
 * Pure.
 *
 * Deaths count until a task is finished: a worker that never finishes one is in a loop that no
 * further attempt ends. A life that was well for a while is worth something, too: each minute of it
 * makes up for one death, so that a worker that is killed now and then while it has nothing to do
 * is never given up, and one that dies as soon as it is there soon is. The time that it took to
 * start, and that of the task which it died at, is not part of it: a dataset that kills after hours
 * of work is in such a loop, however slow.
 */
#ifndef DL_DEATHS_H
#define DL_DEATHS_H

#include "proto/common/base.h"

#define DEATHS_MAX              5 /* in a row; one more is too many */
#define DEATHS_FORGIVEN_EACH_NS (60 * UINT64_C(1000000000))
#define DEATHS_PAUSE_MS         UINT64_C(50)

/* All zero: none. So again when a task is finished. */
struct deaths {
    uint32_t count;
};

/*
 * It has died once more, after a life that was well for `well_ns`. False: it is given up. Else
 * *ret_pause_ms is how long it waits: not at all for the first time, and then longer each time.
 */
static inline bool _nodiscard_ deaths_add(struct deaths *deaths, uint64_t well_ns,
                                          uint64_t *ret_pause_ms)
{
    uint32_t forgiven = (uint32_t)min_u64(well_ns / DEATHS_FORGIVEN_EACH_NS, deaths->count);
    uint32_t count = deaths->count - forgiven;

    deaths->count = count + 1;
    if (deaths->count > DEATHS_MAX)
        return false;
    *ret_pause_ms = count == 0 ? 0 : DEATHS_PAUSE_MS << (count - 1);
    return true;
}

#endif
