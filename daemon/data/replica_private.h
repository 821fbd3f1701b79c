/* What replica.c and replica_round.c have of each other. */
#ifndef DL_DATA_REPLICA_PRIVATE_H
#define DL_DATA_REPLICA_PRIVATE_H

#include "daemon/data/replica.h"

#include <uthash.h>

struct replica {
    UT_hash_handle hh; /* by stream */
    uint32_t stream;
    struct dataset_iter *iter; /* owned; NULL: not begun, or it could not be */
    uint64_t rounds;           /* passed, the last one that was made being among them */
    uint64_t position;         /* samples passed */
    uint64_t begun;            /* of them, before the last round */
    uint64_t good;             /* of them, those that could be had */
    bool ended;
    bool retained; /* the last round is in `batch`, because it did not fit */
    uint64_t need;
    struct sample_batch batch;
};

/* What a rank takes of each round; `round` counts the samples of all ranks that have a part in it.
 */
struct part {
    uint64_t round;
    uint64_t first; /* of them */
    uint64_t n;
};
struct part replica_part(const struct replica_set *set, const struct round *round);

/* It begins anew when it is next moved. */
void replica_close(struct replica *replica);

/* How the dataset is to be iterated for the round's rank. */
struct replica_params replica_params_of(const struct replica_set *set, const struct round *round);

/* Whether only good samples count, and a round goes on until it is full. Not where ranks share the
 * samples: there it is by their positions. */
bool replica_substitutes(const struct replica_set *set);

/* Whether what lies before a round has to be made, for it to show where that round begins. */
bool replica_makes_all(const struct replica_set *set);

/* Passes over samples. 0; DATASET_END: there were fewer; -ENOMEM. */
int _nodiscard_ replica_skip(struct replica_set *set, struct dataset_iter *it, uint64_t n);

/* Makes and drops all rounds before this one. */
int _nodiscard_ replica_drop(struct replica_set *set, struct replica *replica,
                             const struct round *round, struct dl_error *err);

int replica_refuse_memory(struct dl_error *err);

/* The round's samples to set->batch, from a replica that stands at the beginning of the round or
 * has ended before it. As replica_round(). */
int _nodiscard_ replica_make(struct replica_set *set, struct replica *replica,
                             const struct round *round, uint64_t *ret_bad, struct dl_error *err);

#endif
