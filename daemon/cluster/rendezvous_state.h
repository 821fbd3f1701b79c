/*
 * What nodes agree on: who takes part, with which rank, and who waits. One value in the store,
 * which every node reads and changes as a whole (backend.h). Pure.
 *
 * A round is open or complete. In an open round members gather: each has to say that it is ready
 * before the round can be complete. A complete round never changes: whoever leaves it, or is let
 * in, opens the next one, which those who stay are members of, not ready yet. Who finds no place
 * waits.
 *
 * There is no time in it. A node shows that it lives by counting up `beat`.
 *
 * As bytes it is msgpack, an array: version, seq, writer, nonce, round, flags, stamp, quorum, min,
 * max, closed, why, nodes; each node an array: id, life, beat, 0, rank, local, flags, name.
 */
#ifndef DL_RENDEZVOUS_STATE_H
#define DL_RENDEZVOUS_STATE_H

#include "proto/codec.h"

enum {
    RDZV_VERSION = 1,
    RDZV_NODES_MAX = 4096,
    RDZV_LOCAL_MAX = 4096,      /* ranks on one node */
    RDZV_NAME_MAX = 64,         /* bytes with the final NUL */
    RDZV_TEXT_MAX = 160,        /* likewise */
    RDZV_BLOB_MAX = 640 * 1024, /* bytes that a state can take */
};

/* Numbers of a state are below it, so that counting up never ends. */
#define RDZV_NUMBER_MAX ((uint64_t)INT64_MAX)
#define RDZV_NO_RANK    UINT32_MAX

struct rdzv_node {
    uint64_t id;   /* drawn by the node */
    uint64_t life; /* how often it came anew, after others took it for dead */
    uint64_t beat;
    uint32_t rank;  /* in an open round: that of the last complete one, or RDZV_NO_RANK */
    uint32_t local; /* ranks of the epoch that are on it */
    bool member;    /* else it waits */
    bool ready;
    char name[RDZV_NAME_MAX];
};

struct rdzv_state {
    uint64_t seq;    /* counts what was written */
    uint64_t writer; /* id of the node that wrote it; with its nonce, no two are alike */
    uint64_t nonce;
    uint64_t round;
    bool complete;
    bool enough;     /* of an open round: members are at least `min` */
    uint64_t stamp;  /* drawn when the round was complete; else 0 */
    uint64_t quorum; /* counts how often members became enough */
    uint32_t min, max;
    char closed[RDZV_TEXT_MAX]; /* why nobody shall meet here any more; "": it is not closed */
    char why[RDZV_TEXT_MAX];    /* the round was opened */
    struct rdzv_node *nodes;    /* owned; by id */
    uint32_t n, cap;
};

void rdzv_state_deinit(struct rdzv_state *state); /* frees all below; zeroes state */
void rdzv_state_copy(const struct rdzv_state *from, struct rdzv_state *to);

/* NULL: there is none of that id. */
struct rdzv_node *rdzv_state_find(const struct rdzv_state *state, uint64_t id);

struct rdzv_count {
    uint32_t members, ready, waiting;
};
struct rdzv_count rdzv_state_count(const struct rdzv_state *state);

/*
 * Adds a node, in place of an earlier one of its id. -ENOSPC: there are RDZV_NODES_MAX, or more
 * ranks than an epoch can have.
 */
int _nodiscard_ rdzv_state_add(struct rdzv_state *state, const struct rdzv_node *node);

/* Takes it out; a complete round that it was a member of is followed by an open one. */
void rdzv_state_remove(struct rdzv_state *state, uint64_t id, const char *why);

/*
 * How a node of `before` came not to be in `now`, which was seen next, as far as the two tell: "has
 * left", "gave no sign of life for 6 s".
 */
void rdzv_state_gone(const struct rdzv_state *before, const struct rdzv_state *now,
                     const struct rdzv_node *node, char ret[RDZV_TEXT_MAX]);

/* Opens the round after this one, or after `known` if that is later. */
void rdzv_state_open(struct rdzv_state *state, uint64_t known, const char *why);

/* The open round is complete: its members, all ready, get ranks from 0. Those who had one of them
 * keep it; the others take what is left, in the order of their names. */
void rdzv_state_complete(struct rdzv_state *state);

/*
 * To be called when all changes are made: who waits takes the places that are free in an open
 * round, and one that is full, with all ready, is complete.
 */
void rdzv_state_settle(struct rdzv_state *state);

/* Of a member of a complete round: the first rank of the epoch that is on it, and all of them. */
struct rdzv_place {
    uint64_t first, world;
    uint32_t rank, nodes;
};
struct rdzv_place rdzv_state_place(const struct rdzv_state *state, uint64_t id);

/* Drawn from numbers that are a step apart, as splitmix64 does it. */
#define RDZV_MIX_STEP ((uint64_t)0x9e3779b97f4a7c15)
uint64_t rdzv_mix(uint64_t n);

/* node7 before node66. */
int rdzv_name_compare(const char *a, const char *b);

/* Appends its bytes. */
void rdzv_state_pack(const struct rdzv_state *state, struct dl_buffer *out);

/* Replaces what `ret` (initialised) holds. -EBADMSG (no state), -EPROTONOSUPPORT (of another
 * version), with `err`; `ret` is then empty. */
int _nodiscard_ rdzv_state_unpack(struct dl_span data, struct rdzv_state *ret,
                                  struct dl_error *err);

#endif
