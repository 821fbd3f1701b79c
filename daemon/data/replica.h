/*
 * Replicas of an iterable dataset: one worker's share of each pass that is under way.
 *
 * Round q of a replica is its q-th batch. How ranks share the samples is the shard mode's:
 *
 *   strided    The dataset divides them: each rank has replicas of its own. Round q is samples
 *              q·size … q·size + size − 1, the last one being shorter or, with drop_last, left out.
 *   batch,     All ranks have equal replicas, of rank 0 of 1. Rank r's round q is samples q·G + r·b
 *   split      … q·G + (r + 1)·b − 1, where b is the size of its batch and G = b · world. That is
 *              how a plan deals an order (daemon/plan/shard.h), whose rules for the last round hold
 *              here too: with `even` the first samples are repeated, drop_last leaves out a round
 *              that not all ranks have, and else each rank takes what lies in its part.
 *   dispatch   Round q is samples q·G … q·G + G − 1, of all ranks together, as one task; G is a
 *              multiple of world. The last one has fewer: with `even` filled up to a multiple of
 *              world from the beginning, with drop_last left out.
 *
 * Other ranks' samples are passed over. Accelerate's IterableDatasetShard does the same, in each
 * worker of a DataLoader; so the rules hold for each replica by itself.
 *
 * Rounds are asked for in order; one that comes again, or too early because its worker was
 * replaced, makes the replica begin anew and pass over what lies before. So a round is the same
 * in any process. Repeated samples are made again, by the same rule.
 *
 * Bad samples are left out of their round where workers.on_error says so, and counted as if they
 * were there: a round may be shorter, and all others are what they are. With substitute, only good
 * samples count, and a round goes on until it is full; to begin anew is then to take all samples
 * again, since none can be passed over unseen.
 *
 * Python's rounds are in sequence instead, as PyTorch's DataLoader has them: an error ends its
 * round there, for all ranks that share the samples, and the next round goes on with whatever
 * next() gives. What lies before a round is made and dropped, step by step, with the same errors.
 *
 * A dataset that saves its state does so behind a round. With the state a replica begins there, and
 * skips what lies between that and the round that is wanted.
 *
 * A round that did not fit its slot is kept until it is asked for again, or cannot be asked for any
 * more.
 */
#ifndef DL_DATA_REPLICA_H
#define DL_DATA_REPLICA_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/base/sample_batch.h"
#include "daemon/data/base/slow_watch.h"

enum { REPLICAS_REMEMBERED = 256 };

struct replica_set {
    struct dataset *dataset;    /* borrowed */
    struct replica *replicas;   /* owned; of the streams under way (uthash) */
    struct sample_batch batch;  /* of the round that was made last */
    struct sample_batch passed; /* for samples that are made to be passed over */
    uint64_t seed;
    uint32_t worker;
    uint32_t workers;
    enum shard_mode shard;
    bool drop_last;
    bool even;
    bool in_sequence;
    enum on_error on_error;
    /* Round `number` of a replica is begun, or what lies before it; may be NULL. */
    void (*enter)(void *context, uint64_t number);
    void *context;
    struct guard *guard;      /* borrowed; of what the dataset maps; may be NULL */
    struct slow_watch *watch; /* borrowed; of the round at hand, which its owner begins and ends, of
                               * samples that have a name; NULL: nobody wants to know */
    uint8_t *state;           /* owned; memory for a record, once one was there */
    /* The last streams that were forgotten: a task of one of them is late. */
    uint32_t forgotten[REPLICAS_REMEMBERED];
    uint32_t n_forgotten; /* ever */
};

/* Which round of which pass. */
struct round {
    uint32_t stream;
    uint32_t rank;
    uint32_t world;
    uint64_t epoch;
    uint64_t size; /* samples of a full one, at least 1: the rank's, or with dispatch all ranks' */
    uint64_t number;
    uint64_t settled; /* no round before this one will be asked for again */
    struct dl_span
        state; /* a record that the replica may begin with (proto/dataset_state.h), or empty */
};

void replica_set_deinit(struct replica_set *set);

/*
 * The samples of a round, in *ret, borrowed until the next call on the set. 0; DATASET_END: the
 * replica has no such round, nor later ones; -EAGAIN: an earlier round is kept and must go first;
 * or a negative errno with `err` and *ret_bad = number of the sample at fault, UINT64_MAX if it is
 * not one sample's: the round is lost, and the next one is as it would have been.
 */
int _nodiscard_ replica_round(struct replica_set *set, const struct round *round,
                              struct sample_batch **ret, uint64_t *ret_bad, struct dl_error *err);

/* The round made last did not fit: `need` bytes. It stays until it goes, or is settled. */
void replica_retain(struct replica_set *set, const struct round *round, uint64_t need);
/* What the round that goes first (-EAGAIN) needs. */
uint64_t replica_retained_bytes(const struct replica_set *set, uint32_t stream);

/*
 * The dataset's state behind the round that was made last: 0 and *ret, borrowed until the next call
 * on the set, empty where the dataset has none, and *ret_lost if it cannot be saved; or a negative
 * errno with `err`: the round is lost.
 */
int _nodiscard_ replica_save(struct replica_set *set, const struct round *round,
                             struct dataset_state *ret, enum dataset_state_loss *ret_lost,
                             struct dl_error *err);

/* The pass is over; rounds of it that were on their way find DATASET_END. */
void replica_forget(struct replica_set *set, uint32_t stream);

#endif
