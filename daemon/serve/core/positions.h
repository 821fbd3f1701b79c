/*
 * How far the ranks of jobs have come with a loader: the first step of each that was not given
 * back. What a client asks for that comes back with its job's name. Pure.
 *
 * Of a rank whose client is gone with several epochs in its hands, the earliest counts that is not
 * done. At most POSITIONS_MAX are known; the one that was noted longest ago gives way.
 */
#ifndef DL_POSITIONS_H
#define DL_POSITIONS_H

#include "proto/base.h"
#include "proto/limits.h"

enum { POSITIONS_MAX = 1024 };

struct position {
    char job[DL_BOUND_NAME_BYTES + 1];
    uint64_t rank;
    uint64_t world;
    uint64_t epoch;
    uint64_t step;
    bool lost;      /* noted when a client was gone, and no epoch was started since */
    uint64_t noted; /* counts up */
};

struct positions {
    struct position *all; /* owned */
    uint32_t count, cap;
    uint64_t notes;
};

void positions_deinit(struct positions *positions);

/* NULL: not known. Valid until something is noted. */
const struct position *positions_find(const struct positions *positions, const char *job,
                                      uint64_t rank, uint64_t world);

/* The rank is there: it starts there, or has stopped there. */
void positions_set(struct positions *positions, const char *job, uint64_t rank, uint64_t world,
                   uint64_t epoch, uint64_t step);

/* Its client is gone and left this epoch there, or (`done`) at its end. */
void positions_lose(struct positions *positions, const char *job, uint64_t rank, uint64_t world,
                    uint64_t epoch, uint64_t step, bool done);

/* What was known of the rank is of no use any more. */
void positions_forget(struct positions *positions, const char *job, uint64_t rank, uint64_t world);

#endif
