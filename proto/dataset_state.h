/*
 * The state of an iterable dataset that can save one, for one worker's replica after a round.
 *
 * The worker writes it into the slot of the round. The client keeps it with the state of its epoch
 * and sends it when the epoch resumes; the daemon then puts it into the slots of the first tasks,
 * and each replica starts from its state instead of its first sample. An older state also works:
 * the replica skips the rounds in between.
 *
 *   record   head (DATASET_STATE_HEAD_BYTES) | the dataset's own bytes, at most
 * DATASET_STATE_BYTES_MAX list     for each worker that has one: worker u64, bytes u64, record |
 * bytes of all that u64, DATASET_STATE_MARK
 *
 * Numbers are little-endian. A list follows a token, which names it by its checksum
 * (state_token.h). The dataset's own bytes are opaque; all else is checked here. Pure.
 */
#ifndef DL_DATASET_STATE_H
#define DL_DATASET_STATE_H

#include "proto/common/bytes.h"

enum {
    DATASET_STATE_HEAD_BYTES = 48,
    DATASET_STATE_BYTES_MAX = 64 * 1024,
    DATASET_STATE_MAX = DATASET_STATE_HEAD_BYTES + DATASET_STATE_BYTES_MAX,
    /* Of all records before one START; a replica whose record is left out skips its samples. */
    DATASET_STATES_MAX = 2 * 1024 * 1024,
};

/* Why a slot has no state although the dataset can save one. */
enum dataset_state_loss {
    DATASET_STATE_SAVED,
    DATASET_STATE_TOO_LARGE, /* more than DATASET_STATE_BYTES_MAX */
    DATASET_STATE_NOT_PLAIN, /* a Python object that is not a plain value */
    DATASET_STATE_LOSS_END,
};

struct dataset_state {
    uint64_t round;    /* the next one of the replica */
    uint64_t position; /* samples that were passed */
    uint64_t good;     /* of these, where only good ones count */
    uint32_t rank;     /* of the replica: 0 of 1 where all ranks have equal ones */
    uint32_t world;
    bool ended; /* it has no more samples */
    struct dl_span state;
};

/* The head of the record; the dataset's own bytes follow it. */
void dataset_state_write_head(const struct dataset_state *state,
                              uint8_t ret[static DATASET_STATE_HEAD_BYTES]);
/* False if the record is malformed. *ret borrows the dataset's state. */
bool _nodiscard_ dataset_state_read(struct dl_span record, struct dataset_state *ret);
/* The same, or one of round 0: what the dataset has of earlier epochs, with which one begins. */
bool _nodiscard_ dataset_state_read_first(struct dl_span record, struct dataset_state *ret);

/* A list: its records in the order of their workers, then dataset_state_list_end(). -ENOMEM. */
int _nodiscard_ dataset_state_list_add(struct dl_buffer *list, uint32_t worker,
                                       struct dl_span record);
int _nodiscard_ dataset_state_list_end(struct dl_buffer *list);

/* Cuts a list off the end of `state`; empty if `state` does not end with one. */
struct dl_span dataset_state_split(struct dl_span *state);

/* Reads the record at *at, which starts at 0. Returns 1, 0 at the end, or -EINVAL if it is
 * malformed. */
int _nodiscard_ dataset_state_list_next(struct dl_span list, size_t *at, uint32_t *ret_worker,
                                        struct dl_span *ret_record);

#endif
