/*
 * The jobs that read a loader: whether their ranks agree, and each rank's position. Pure.
 *
 * Agreement: ranks with the same job name and world size form one job; without a name they are
 * compared only if there are several. In a job, no rank may be more than one epoch ahead of
 * another. A named job has one world size, and each rank reads an epoch only once at a time. Where
 * nodes assign the ranks, different rounds have different ranks, and nothing is compared.
 *
 * Positions: the first step of each rank that was not released. If a client is lost with several
 * epochs open, the earliest unfinished one counts. At most POSITIONS_MAX are kept, as far as the
 * user's share of the daemon's memory allows; the oldest is dropped first. A rank's position is
 * forgotten when its number of sharers changes.
 *
 * Ranks that were stopped together come back together and train in lock step, so they must resume
 * at one step. So the first rank that comes back while no rank reads sets all positions of the job
 * to the least of them. Steps behind it are delivered again. A rank that comes back while others
 * keep reading resumes at its own position.
 */
#ifndef DL_JOBS_H
#define DL_JOBS_H

#include "daemon/base/quota.h"
#include "daemon/serve/core/stream.h"
#include "proto/common/error.h"

/* ---- agreement ------------------------------------------------------------------------------- */

/* Checks `one` against the `n` others, whose epochs have not ended: 0, or -EINVAL or -EBUSY with
 * `err`. */
int _nodiscard_ ranks_check(const struct stream_params *const *others, size_t n,
                            const struct stream_params *one, struct dl_error *err);

/* ---- positions ------------------------------------------------------------------------------- */

enum { POSITIONS_MAX = 1024, POSITIONS_FREE = 8 };

struct position {
    char job[DL_BOUND_NAME_BYTES + 1];
    uint64_t rank, world;     /* ranks of the samples, whose steps are counted, */
    uint32_t size;            /* samples of each step, where jobs differ in that; else 0 */
    uint32_t sharer, sharers; /* and its number among those that share the rank */
    uint64_t epoch, step;
    bool lost;      /* noted when a client was gone, and no epoch was started since */
    uint64_t noted; /* counts up */
};

struct positions {
    struct quota_account *account; /* borrowed: pays beyond POSITIONS_FREE; may be NULL */
    struct position *all;          /* owned */
    uint32_t count, cap;
    uint64_t notes;
};

void positions_deinit(struct positions *positions);

/* The position of the rank, or of a sharer, which has its own; NULL: unknown. Valid until the next
 * change. */
struct position *positions_find(const struct positions *positions,
                                const struct stream_params *rank);

/* Where the job was left by another number of ranks, the last of them; NULL: it was not, or ranks
 * of this number are known. */
const struct position *positions_find_other_world(const struct positions *positions,
                                                  const struct stream_params *rank);

/* No rank of the job reads: sets all positions to the least of them. */
void positions_level(struct positions *positions, const struct stream_params *rank);

/* The rank is there: it starts there, or has stopped there. */
void positions_set(struct positions *positions, const struct stream_params *rank, uint64_t epoch,
                   uint64_t step);

/* Its client is gone and left the rank's epoch there, or (`done`) at its end. */
void positions_lose(struct positions *positions, const struct stream_params *rank, uint64_t step,
                    bool done);

/* What was known of the rank is of no use any more. */
void positions_forget(struct positions *positions, const struct stream_params *rank);

#endif
