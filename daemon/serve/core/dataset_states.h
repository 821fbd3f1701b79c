/*
 * The states of an iterable dataset's replicas, for one stream: records of proto/dataset_state.h
 * that its client brought, and the latest that came with a batch. A worker that begins a replica,
 * perhaps a dead one's, gets the fitting record. A loader has the same of workers whose dataset's
 * state goes on from stream to stream. Pure.
 */
#ifndef DL_DATASET_STATES_H
#define DL_DATASET_STATES_H

#include "proto/dataset_state.h"

struct state_record {
    uint8_t *bytes; /* owned; may be NULL */
    size_t len;
    uint64_t round;  /* the next one of the replica */
    uint32_t stream; /* that it is of, where it goes on from stream to stream */
};

struct dataset_states {
    struct replica_states {
        struct state_record brought;
        struct state_record latest;
    } * replicas; /* owned; n of them; NULL: no states yet */
    uint32_t n;
    uint64_t brought_bytes; /* at most DATASET_STATES_MAX */
    uint64_t bytes;         /* what all of this takes */
};

/* Keeps a copy. False if it is invalid, or exceeds what may be brought; the former record then
 * stays. */
bool dataset_states_bring(struct dataset_states *states, uint32_t replica, struct dl_span record);
bool dataset_states_learn(struct dataset_states *states, uint32_t replica, struct dl_span record);

/* The same of a replica whose state goes on from stream to stream; not of one before the latest. */
bool dataset_states_carry(struct dataset_states *states, uint32_t replica, uint32_t stream,
                          struct dl_span record);
/* The record to begin it with for `round` of the stream, at first the last one of the stream
 * before; may be empty. Borrowed. */
struct dl_span dataset_states_enter(struct dataset_states *states, uint32_t replica,
                                    uint32_t stream, uint64_t round);

/* The record to begin the replica with for `round`; may be empty. Borrowed. */
struct dl_span dataset_states_find(const struct dataset_states *states, uint32_t replica,
                                   uint64_t round);

void dataset_states_deinit(struct dataset_states *states);

#endif
