/*
 * What an iterable dataset has said of where its replicas stand, for a stream: records of
 * proto/dataset_state.h, one that its client brought along and the latest that came with a batch. A
 * worker that begins a replica, be it that of one that died, is given what fits. Pure.
 */
#ifndef DL_STATES_H
#define DL_STATES_H

#include "proto/dataset_state.h"

struct state_record {
    uint8_t *bytes; /* owned; NULL: none */
    size_t len;
    uint64_t round; /* the next one of the replica */
};

struct states {
    struct replica_states {
        struct state_record brought;
        struct state_record latest;
    } * of; /* owned; n of them; NULL: nothing was said */
    uint32_t n;
    uint64_t brought_bytes; /* at most DATASET_STATES_MAX */
    uint64_t latest_bytes;
};

/* Keeps a copy. False: it is no record, or more than may be brought, and what was kept before
 * stays. */
bool states_bring(struct states *states, uint32_t replica, struct dl_span record);
bool states_learn(struct states *states, uint32_t replica, struct dl_span record);

/* The one to begin the replica with where `round` is wanted; empty: there is none. Borrowed. */
struct dl_span states_find(const struct states *states, uint32_t replica, uint64_t round);

uint64_t states_bytes(const struct states *states);

void states_deinit(struct states *states);

#endif
