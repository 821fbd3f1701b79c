/*
 * Passes over an iterable Python dataset: one iterator for each stream under way.
 *
 * Round r of a pass is its r-th batch of this worker. Rounds are made in order; one that comes
 * again, or too early because its worker was replaced, makes the pass begin anew and take and drop
 * what lies before. An error takes its round; the next one goes on with whatever next() gives. With
 * workers.on_error skip or substitute the round goes on instead, as in daemon/data/replica.h.
 *
 * Where ranks share the samples (daemon/data/replica.h has the rules), each has a pass of its own
 * over all of them, as rank 0 of 1, and each makes the samples of all ranks for a round, in the
 * same step: what the dataset draws, and where an error ends a round, is the same for all of them.
 * The first samples of a pass are kept for its last round, which repeats them.
 *
 * A dataset that knows its own place is asked for it behind each round. With what it said a pass
 * begins there, and drops what lies between that and the round that is wanted. Where the first
 * samples are needed at the end it begins with them all the same.
 */
#ifndef DL_WORKER_PASSES_H
#define DL_WORKER_PASSES_H

#include "daemon/worker/python/kept.h"
#include "daemon/worker/python/origin.h"

enum { FORGOTTEN_REMEMBERED = 256 };

struct passes {
    struct pass *first; /* owned */
    uint32_t forgotten[FORGOTTEN_REMEMBERED];
    uint32_t n_forgotten; /* ever */
};

struct pass_round {
    const struct slot_task *task;
    uint64_t number;
    uint64_t workers; /* steps from one round to the next */
    enum shard_mode shard;
    bool drop_last;
    bool even;
    enum on_error on_error;
};

/*
 * The list of the round's samples, in ret->object. The task's samples are those of a full round. 1;
 * 0: the pass has no such round, nor later ones; -1 with an exception.
 */
int passes_round(struct passes *passes, struct origin *source, const struct pass_round *round,
                 struct made *ret);

void passes_forget(struct passes *passes, uint32_t stream);
void passes_clear(struct passes *passes);

#endif
