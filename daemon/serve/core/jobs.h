/*
 * What is known of the jobs that read a loader: whether their ranks agree, and how far each rank
 * has come. Pure.
 *
 * Agreement: ranks with the same job name and world size are of one job; without a name they are
 * compared only if there are several of them. Of such ranks none may be more than one epoch ahead
 * of another. With a name, all are of one world size, and a rank reads an epoch once at a time.
 * Where nodes give out the ranks, those of different rounds are not the same ones, and nothing is
 * compared.
 *
 * Positions: the first step of each rank that was not released. Of a rank whose client is gone
 * with several epochs in its hands, the earliest counts that is not done. At most POSITIONS_MAX are
 * known, and no more than the loader's user may have of the daemon's memory; the one that was noted
 * longest ago gives way. Of a rank that is read by another number of sharers than before, what was
 * known is forgotten.
 *
 * Ranks that were stopped together come back together, and train in lock step: they have to resume
 * at one step. So the first of them that comes back while none reads sets all of the job to the
 * least of their positions, where the others find it. What lies behind it is given again. A rank
 * that comes back while others read on finds its own position.
 */
#ifndef DL_JOBS_H
#define DL_JOBS_H

#include "daemon/serve/base/quota.h"
#include "daemon/serve/core/stream.h"
#include "proto/common/error.h"

/* ---- agreement ------------------------------------------------------------------------------- */

/* `one` beside the `n` others, whose epochs are not at their end: 0, or -EINVAL or -EBUSY with
 * `err`. */
int _nodiscard_ ranks_check(const struct stream_params *const *others, size_t n,
                            const struct stream_params *one, struct dl_error *err);

/* ---- positions ------------------------------------------------------------------------------- */

enum { POSITIONS_MAX = 1024, POSITIONS_FREE = 8 };

struct position {
    char job[DL_BOUND_NAME_BYTES + 1];
    uint64_t rank, world;     /* of the samples, whose steps are counted, */
    uint32_t sharer, sharers; /* and which of those that read them it is */
    uint64_t epoch, step;
    bool lost;      /* noted when a client was gone, and no epoch was started since */
    uint64_t noted; /* counts up */
};

struct positions {
    struct quota_account *account; /* borrowed: pays QUOTA_OVERHEAD beyond POSITIONS_FREE; NULL:
                                      nobody does */
    struct position *all;          /* owned */
    uint32_t count, cap;
    uint64_t notes;
};

void positions_deinit(struct positions *positions);

/* Of the rank that has these; a sharer has a position of its own. NULL: not known. Valid until
 * something is noted. */
struct position *positions_find(const struct positions *positions,
                                const struct stream_params *rank);

/* Where the job was left by another number of ranks, the last of them; NULL: it was not, or ranks
 * of this number are known. */
const struct position *positions_find_other_world(const struct positions *positions,
                                                  const struct stream_params *rank);

/* None of the job's ranks reads: all of them are to resume at the least of their positions. */
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
