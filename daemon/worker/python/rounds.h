/*
 * Rounds of an iterable Python dataset, as lists of its objects. daemon/data/replica.h makes them,
 * in sequence; each is seeded as the step that it is, also when it is made only to be dropped.
 */
#ifndef DL_WORKER_ROUNDS_H
#define DL_WORKER_ROUNDS_H

#include "daemon/worker/python/iterator.h"
#include "daemon/worker/python/made.h"

#include "daemon/data/replica.h"

/* How batches are made. */
struct engine_batches {
    uint64_t size; /* 0: not batched */
    uint64_t seed;
    uint32_t worker;
    uint32_t workers;
    enum shard_mode shard;
    bool drop_last;
    bool even;
    enum on_error on_error;
    uint64_t tokens;       /* of a batch; 0: size counts */
    const char *length_of; /* as dl_spec.batch.length_of; copied */
};
struct rounds {
    struct dataset base; /* what the replicas iterate over */
    struct replica_set replicas;
    struct py_dataset *source; /* borrowed */
    struct python_step *step;  /* borrowed */
    uint64_t workers;          /* steps from one round to the next */
};

/* In place, since replicas point into it. */
void rounds_open(struct rounds *rounds, struct py_dataset *source, struct python_step *step,
                 const struct engine_batches *batches);
void rounds_close(struct rounds *rounds); /* all zero is fine */

/*
 * The list of the samples of the task's round, in ret->object. 1; 0: there is no such round, nor
 * later ones; -1 with an exception, or with step->last.
 */
int rounds_make(struct rounds *rounds, const struct slot_task *task, struct made *ret);

/* The pass is over. */
void rounds_forget(struct rounds *rounds, uint32_t stream);

#endif
