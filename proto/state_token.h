/*
 * The state of an epoch: a token that says what is read, in which order, and how far.
 *
 * It is a msgpack map of at most STATE_TOKEN_MAX bytes, with these keys in this order:
 *
 *   state      version of the token, STATE_TOKEN_VERSION
 *   spec       what the loader spec says: an XXH3-64 of each of its sections dataset, sampler,
 *              batch, collate and shard in canonical form, places and names left out
 *   dataset    fingerprint of the data: of what is in the files, not where they lie
 *   length     samples in the dataset; UINT64_MAX: not known
 *   order      "sequential", "torch", "native", or "client"
 *   seed       in force, given or drawn
 *   workers    of a loader over an iterable dataset; 0: it is map-style
 *   epoch      its number
 *   world      ranks that read it
 *   steps      that each of them was given; over an iterable dataset the number of the next one
 *   rank       if batches may pass others: the one whose state it is, with
 *   passed     the first step that it was not given, and the bits of passed_write() as numbers
 *   before     what other world sizes had before: world, steps, world, steps, …
 *   mark       of batches packed while lengths are taken: its window and rows (history.h), if any
 *   carried    XXH3-64 of the list of the dataset's own states behind the token (dataset_state.h),
 *              if there is one
 *   changes    likewise of a mixture's changed weights (mix_changes.h), which stand before that
 *   sum        XXH3-64 of all bytes before it
 *
 * Without `rank` it serves all ranks: steps are those of each. Pure.
 */
#ifndef DL_STATE_TOKEN_H
#define DL_STATE_TOKEN_H

#include "proto/common/error.h"
#include "proto/history.h"
#include "proto/passed.h"

enum { STATE_TOKEN_VERSION = 1, STATE_TOKEN_MAX = 1023, STATE_JSON_MAX = 4096 };

enum state_part {
    STATE_DATASET,
    STATE_SAMPLER,
    STATE_BATCH,
    STATE_COLLATE,
    STATE_SHARD,
    STATE_PARTS
};
enum state_order { STATE_SEQUENTIAL, STATE_TORCH, STATE_NATIVE, STATE_CLIENT, STATE_ORDERS };

/* The section's name in a spec. */
const char *state_part_name(enum state_part part);
const char *state_order_name(enum state_order order);

/* The properties of a loader that its states depend on. */
struct state_identity {
    uint64_t parts[STATE_PARTS];
    uint64_t dataset;
    uint64_t length;
    enum state_order order;
    uint64_t seed;
    uint64_t workers;
};

struct state_token {
    struct state_identity identity;
    uint64_t epoch;
    uint64_t world;
    uint64_t steps;
    struct history before;
    struct lazy_mark mark;   /* all zero: none */
    bool has_rank;           /* batches may pass others, each rank's in its own order: */
    uint64_t rank;           /* whose state it is, */
    struct passed passed;    /* and which of its steps it had */
    uint64_t dataset_states; /* 0: no states */
    uint64_t changes;        /* 0: no changes */
};

/* What a list of the dataset's own states, or one of changes, is named by; never 0. */
uint64_t state_list_sum(struct dl_span list);

/* Writes the token; *ret_len bytes. -ENOMEM. */
int _nodiscard_ state_token_write(const struct state_token *token,
                                  uint8_t ret[static STATE_TOKEN_MAX], size_t *ret_len);

/*
 * Reads a token of state_token_write(): -EINVAL (not a state, truncated, damaged), -EPROTONOSUPPORT
 * (of another version), -ENOMEM, with `err`.
 */
int _nodiscard_ state_token_read(const void *data, size_t len, struct state_token *ret,
                                 struct dl_error *err);

/* Whether it is a state of that loader. -EINVAL with what differs, by its name in the spec. */
int _nodiscard_ state_token_check(const struct state_token *token,
                                  const struct state_identity *loader, struct dl_error *err);

/* Where it resumes with that many ranks. */
struct state_place {
    uint64_t epoch;
    uint64_t step; /* how many the rank had */
    struct history before;
    struct lazy_mark mark;
    struct passed passed; /* which; without `has_rank` the first ones */
    bool has_rank;        /* as in the token */
    uint64_t rank;
};

/*
 * With as many ranks as before: at its step. With another number: at step 0 of the remaining
 * samples. -EINVAL if each rank has its own order (an iterable dataset, a sampler that is the
 * client, batches that may pass others), or the world size has changed too often.
 */
int _nodiscard_ state_token_place(const struct state_token *token, uint64_t world,
                                  struct state_place *ret, struct dl_error *err);

/* Whether that rank, of as many, may continue from it. -EINVAL: it is another one's. */
int _nodiscard_ state_token_check_rank(const struct state_token *token, uint64_t rank,
                                       struct dl_error *err);

/* As JSON, on one line. As snprintf(): how long it is, which may be more than `size` - 1. At most
 * STATE_JSON_MAX - 1. */
size_t state_token_json(const struct state_token *token, char *buf, size_t size);

#endif
