/*
 * The history of an epoch: how many of its steps each earlier world size consumed, before the one
 * that resumes it. Together with the steps taken since, it locates the epoch in the global order
 * for any number of ranks.
 *
 * Stretches are in chronological order. A stretch has at least one step, and adjacent stretches of
 * the same world size are merged, so that an epoch that returns to its former number of ranks has
 * its former history.
 */
#ifndef DL_HISTORY_H
#define DL_HISTORY_H

#include "proto/common/base.h"
#include "proto/limits.h"

struct dl_span;

struct history_stretch {
    uint64_t world; /* 1 to DL_MAX_WORLD_SIZE */
    uint64_t steps; /* ≥ 1 */
};

struct history {
    uint32_t n; /* at most DL_MAX_HISTORY */
    struct history_stretch stretches[DL_BOUND_HISTORY];
};

/*
 * Of an epoch that is packed while lengths are taken (daemon/plan/plan_lazy.h): a window that needs
 * none before it, and the rows of those. All zero: the first window. Rows are those of any world.
 */
struct lazy_mark {
    uint64_t window;
    uint64_t rows;
};

/* Each stretch on the wire: two numbers, u64 little-endian. */
enum { HISTORY_UNIT = 16, HISTORY_BYTES = DL_BOUND_HISTORY * HISTORY_UNIT };

/* Appends a stretch. False, changing nothing, if there is no room. */
bool _nodiscard_ history_add(struct history *history, uint64_t world, uint64_t steps);

bool history_equal(const struct history *a, const struct history *b);

/* Returns how many bytes were written. */
size_t history_write(const struct history *history, uint8_t ret[static HISTORY_BYTES]);

/* False unless history_write() wrote these bytes. */
bool _nodiscard_ history_read(struct dl_span bytes, struct history *ret);

#endif
