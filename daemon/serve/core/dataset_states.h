/*
 * What an iterable dataset has said of where its replicas stand, for a stream: records of
 * proto/dataset_state.h, one that its client brought along and the latest that came with a batch. A
 * worker that begins a replica, be it that of one that died, is given what fits. Pure.
 */
#ifndef DL_DATASET_STATES_H
#define DL_DATASET_STATES_H

#include "proto/dataset_state.h"

struct state_record {
    uint8_t *bytes; /* owned; NULL: none */
    size_t len;
    uint64_t round; /* the next one of the replica */
};

struct dataset_states {
    struct replica_states {
        struct state_record brought;
        struct state_record latest;
    } * replicas; /* owned; n of them; NULL: nothing was said */
    uint32_t n;
    uint64_t brought_bytes; /* at most DATASET_STATES_MAX */
    uint64_t bytes;         /* what all of this takes */
};

/* Keeps a copy. False: it is no record, or more than may be brought, and what was kept before
 * stays. */
bool dataset_states_bring(struct dataset_states *states, uint32_t replica, struct dl_span record);
bool dataset_states_learn(struct dataset_states *states, uint32_t replica, struct dl_span record);

/* The one to begin the replica with where `round` is wanted; empty: there is none. Borrowed. */
struct dl_span dataset_states_find(const struct dataset_states *states, uint32_t replica,
                                   uint64_t round);

void dataset_states_deinit(struct dataset_states *states);

#endif
