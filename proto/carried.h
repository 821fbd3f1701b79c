/*
 * States of iterable datasets that know their own place.
 *
 * What such a dataset says of a replica, behind a round of it, is *carried*: by the worker into the
 * slot of the round, by the client beside the state of an epoch, and from there, when it is gone on
 * with, into the slots of the first tasks. A replica then begins there, and not at its first
 * sample. A record that is older than what is wanted is as good: the rounds between are passed
 * over.
 *
 *   record   head (CARRIED_HEAD_BYTES) | the dataset's own bytes, at most CARRIED_STATE_MAX
 *   list     for each worker that has one: worker u64, bytes u64, record | bytes of all that u64,
 *            CARRIED_MARK
 *
 * Numbers are little-endian. A list stands behind a token, which names it by its sum
 * (state_token.h). Only the dataset looks into its own bytes; all else is checked here. Pure.
 */
#ifndef DL_CARRIED_H
#define DL_CARRIED_H

#include "proto/codec.h"

enum {
    CARRIED_HEAD_BYTES = 48,
    CARRIED_STATE_MAX = 64 * 1024,
    CARRIED_MAX = CARRIED_HEAD_BYTES + CARRIED_STATE_MAX,
    /* Of all records before one START; replicas whose record is left out are passed over. */
    CARRIED_SAID_MAX = 2 * 1024 * 1024,
};

/* Why a slot has no state, where the dataset has one. */
enum carried_lost {
    CARRIED_KEPT,
    CARRIED_TOO_LARGE, /* more than CARRIED_STATE_MAX */
    CARRIED_NOT_PLAIN, /* a Python object that is no plain value */
    CARRIED_LOST_END,
};

struct carried {
    uint64_t round;    /* the next one of the replica */
    uint64_t position; /* samples that were passed */
    uint64_t good;     /* of these, where only good ones count */
    uint32_t rank;     /* of the replica: 0 of 1 where all ranks have equal ones */
    uint32_t world;
    bool ended; /* it has no more samples */
    struct dl_span state;
};

/* The record's head, to stand before its state. */
void carried_write_head(const struct carried *carried, uint8_t ret[static CARRIED_HEAD_BYTES]);
/* False: it is none. *ret borrows its state. */
bool _nodiscard_ carried_read(struct dl_span record, struct carried *ret);

/* A list: its records in the order of their workers, then carried_list_end(). -ENOMEM. */
int _nodiscard_ carried_list_add(struct dl_buffer *list, uint32_t worker, struct dl_span record);
int _nodiscard_ carried_list_end(struct dl_buffer *list);

/* Cuts a list off that stands at the end of `state`; an empty one: none does. */
struct dl_span carried_split(struct dl_span *state);

/* The next record of the list from *at on, first 0: 1; 0: there are no more; -EINVAL: it is none.
 */
int _nodiscard_ carried_list_next(struct dl_span list, size_t *at, uint32_t *ret_worker,
                                  struct dl_span *ret_record);

#endif
