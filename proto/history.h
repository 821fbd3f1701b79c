/*
 * The history of an epoch: how many steps of it were consumed by which world sizes, before the one
 * that resumes it. Together with the number of steps since it says where in the global order
 * the epoch stands, for whatever number of ranks.
 *
 * Stretches stand in their order. One of no steps is no stretch, and two of the same world size are
 * one, so that an epoch whose number of ranks came back has the history that it had.
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

/* Each stretch on the wire: two numbers, u64 little-endian. */
enum { HISTORY_UNIT = 16, HISTORY_BYTES = DL_BOUND_HISTORY * HISTORY_UNIT };

/* Behind what there is. False, and nothing changed: there is no room for another stretch. */
bool _nodiscard_ history_add(struct history *history, uint64_t world, uint64_t steps);

bool history_equal(const struct history *a, const struct history *b);

/* Returns how many bytes were written. */
size_t history_write(const struct history *history, uint8_t ret[static HISTORY_BYTES]);

/* False: it is none, or not written by history_write(). */
bool _nodiscard_ history_read(struct dl_span bytes, struct history *ret);

#endif
