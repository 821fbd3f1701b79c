/*
 * What nodes agree on: who takes part, with which rank, and who waits; and what each says of
 * itself. Pure. In the store (backend.h) lie
 *
 *   the state   one value, changed as a whole, and only when nodes come, go or are ready
 *   its head    a few numbers of it, for those who only have to know whether it concerns them
 *   places      of a complete round of many: who has which ranks, in pages, so that a node that
 *               needs no more reads the page of its id
 *   cards       of each node one, which it alone writes: that it lives, and what it wants
 *
 * A node that looks at all cards brings the state up to date with them, for all nodes at once
 * (rendezvous.h).
 *
 * A round is open or complete. In an open round members gather: each has to say that it is ready
 * before the round can be complete. A complete round never changes: a node that leaves it, or is
 * let in, opens the next one, which those that stay are members of, not ready yet. A node that
 * finds no place waits.
 *
 * There is no time in it. A node shows that it lives by counting up the `beat` of its card.
 *
 * As bytes these are msgpack, arrays:
 *   state   format, seq, writer, nonce, round, flags, stamp, quorum, min, max, beat_ns, missed,
 *           closed, why, nodes (rendezvous_nodes.h)
 *   head    format, nonce, round, flags, stamp, n, min, max, beat_ns, missed, why,
 *           the third of those in front, members, the first, the second
 *   places  format, stamp, members, world, entries; each an array: id, life, index, rank, first
 *   card    2, id, life, beat, flags, ready_for, rules, local, name, least, greatest, replaces
 *
 * A release that has more to say adds fields at the end of an array, of a node's, too, and takes
 * those that are missing for what they were not: so nodes of old and new releases are in one run,
 * and agree on what the oldest knows. A release that does not know the fields steps over them, and
 * does not write them again. What cannot be said in this way is another format, which the state and
 * its head begin with. All releases read a card, for it says which formats its node knows, from the
 * least to the greatest: those of 2 alone do not say so. The state is written in the greatest that
 * all nodes know (rendezvous_format.h). Format 1 had the beats in the state, and neither heads nor
 * cards. From format 3 on nodes in front say for all what they have read (allgather.h, sights.h);
 * from 4 on the state has its nodes by columns.
 */
#ifndef DL_RENDEZVOUS_STATE_H
#define DL_RENDEZVOUS_STATE_H

#include "proto/codec.h"

enum {
    RDZV_CARD = 2,    /* what a card begins with, and the format of who says of none */
    RDZV_SUMS = 3,    /* the first format of whose nodes those in front say what they have read */
    RDZV_COLUMNS = 4, /* the first that has the nodes by columns */
    RDZV_NODES_MAX = 4096,
    RDZV_LOCAL_MAX = 4096,      /* ranks on one node */
    RDZV_NAME_MAX = 64,         /* bytes with the final NUL */
    RDZV_TEXT_MAX = 160,        /* likewise */
    RDZV_BLOB_MAX = 640 * 1024, /* bytes that a state can take */
    RDZV_FRONT = 3,             /* nodes that look at all cards in each turn */
    RDZV_LISTED_MAX = 32,       /* of more members there are pages of places, */
    RDZV_PAGE_NODES = 12,       /* nodes of a page, */
    RDZV_PAGES_MAX = 100,       /* or of more where these are not enough */
};

/* Numbers of a state are below it, so that counting up never ends. */
#define RDZV_NUMBER_MAX ((uint64_t)INT64_MAX)
#define RDZV_NO_RANK    UINT32_MAX

struct rdzv_node {
    uint64_t id;    /* drawn by the node */
    uint64_t life;  /* how often it came anew, after others took it for dead */
    uint32_t rank;  /* in an open round: that of the last complete one, or RDZV_NO_RANK */
    uint32_t local; /* ranks of the epoch that are on it */
    bool member;    /* else it waits */
    bool ready;
    char name[RDZV_NAME_MAX];
};

/* Of the state and its head: those from the least to the greatest. */
struct rdzv_formats {
    uint32_t least, greatest;
};

/* Those that this release writes and reads. */
extern const struct rdzv_formats RDZV_FORMATS;

/* What all nodes of a run must have alike. */
struct rdzv_rules {
    uint32_t min, max; /* nodes of a round */
    uint32_t missed;   /* beats, and a node is dead */
    uint64_t beat_ns;  /* between two */
};

struct rdzv_state {
    uint32_t format; /* that it has as bytes; 0: the least of RDZV_FORMATS */
    uint64_t seq;    /* counts what was written */
    uint64_t writer; /* id of the node that wrote it; with its nonce, no two are alike */
    uint64_t nonce;
    uint64_t round;
    bool complete;
    bool enough;     /* of an open round: members are at least `min` */
    uint64_t stamp;  /* drawn when the round was complete; else 0 */
    uint64_t quorum; /* counts how often members became enough */
    struct rdzv_rules rules;
    char closed[RDZV_TEXT_MAX]; /* why nobody shall meet here any more; "": it is not closed */
    char why[RDZV_TEXT_MAX];    /* the round was opened */
    struct rdzv_node *nodes;    /* owned; by id */
    uint32_t n, cap;
};

struct rdzv_head {
    uint64_t nonce; /* of the state: another one, another state */
    uint64_t round, stamp;
    bool complete, closed;
    uint32_t n; /* nodes */
    struct rdzv_rules rules;
    char why[RDZV_TEXT_MAX]; /* of an open round: it was opened; "": that is not said */
    /* Ids of the first nodes; of fewer, the last one again. 0: not said; an earlier release says
     * the last one alone. */
    uint64_t front[RDZV_FRONT];
    uint32_t members; /* 0: not said */
};

struct rdzv_card {
    uint64_t id, life, beat;
    bool in;            /* it wants to take part; else it leaves */
    bool ready;         /* for whichever round it is let into */
    uint64_t ready_for; /* and for this one that it is in already, and one more; 0: none */
    uint64_t rules;     /* rdzv_rules_hash() */
    uint32_t local;
    char name[RDZV_NAME_MAX];
    struct rdzv_formats formats;
    uint64_t replaces; /* id of a node that is dead, as this one knows; 0: of none */
};

bool rdzv_rules_same(const struct rdzv_rules *a, const struct rdzv_rules *b);
uint64_t rdzv_rules_hash(const struct rdzv_rules *rules);

void rdzv_state_deinit(struct rdzv_state *state); /* frees all below; zeroes state */
void rdzv_state_copy(const struct rdzv_state *from, struct rdzv_state *to);

/* NULL: no node has that id. */
struct rdzv_node *rdzv_state_find(const struct rdzv_state *state, uint64_t id);

/* The node was removed since the last complete round, and let in again: it has no rank of that
 * round, which others still have. Where the store has lost its state, nobody has one. */
bool rdzv_state_is_let_in_again(const struct rdzv_state *state, const struct rdzv_node *node);

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
 * left", "sent no heartbeat for 6 s".
 */
void rdzv_state_gone(const struct rdzv_state *before, const struct rdzv_state *now,
                     const struct rdzv_node *node, char ret[RDZV_TEXT_MAX]);

/* Opens the round after this one, or after `known` if that is later. */
void rdzv_state_open(struct rdzv_state *state, uint64_t known, const char *why);

/* The open round is complete: its members, all ready, get ranks from 0. Those who had one of them
 * keep it; the others take what is left, in the order of their names. */
void rdzv_state_complete(struct rdzv_state *state);

/*
 * To be called when all changes are made: nodes that wait take the places that are free in an open
 * round, and a round that is full, with all ready, is complete.
 */
void rdzv_state_settle(struct rdzv_state *state);

/* Of a member of a complete round: the first rank of the epoch that is on it, and all of them. */
struct rdzv_place {
    uint64_t first, world;
    uint32_t rank, nodes;
};
struct rdzv_place rdzv_state_place(const struct rdzv_state *state, uint64_t id);

/* What a page says of a node. */
struct rdzv_found {
    uint64_t stamp; /* of the round */
    uint64_t life;
    uint32_t index; /* among all nodes, by id */
    struct rdzv_place place;
};
/* Pages of a complete round of that many members; 0: it has no pages. A node's page has the number
 * id modulo pages. */
uint32_t rdzv_pages(uint32_t members);

/* Drawn from numbers that are a step apart, as splitmix64 does it. */
#define RDZV_MIX_STEP ((uint64_t)0x9e3779b97f4a7c15)
uint64_t rdzv_mix(uint64_t n);

/* node7 before node66. */
int rdzv_name_compare(const char *a, const char *b);
/* Of pointers to nodes, for qsort(): those who had a rank come first, in its order; then names;
 * equal names by who drew less. */
int rdzv_state_compare_nodes(const void *a, const void *b);

/* The place of that id among the nodes, or where it would be. */
uint32_t rdzv_state_place_of(const struct rdzv_state *state, uint64_t id);

/* Ids of the first nodes; where they are fewer, the last one again; 0: the state has no nodes. */
void rdzv_state_front(const struct rdzv_state *state, uint64_t ret[static RDZV_FRONT]);

/* The node of that id is one of the first, or may be as far as the head says; false where it says
 * nothing. */
bool rdzv_head_is_in_front(const struct rdzv_head *head, uint64_t id);

/* These append bytes. */
void rdzv_state_pack(const struct rdzv_state *state, struct dl_buffer *out);
void rdzv_head_pack(const struct rdzv_state *state, struct dl_buffer *out);
void rdzv_card_pack(const struct rdzv_card *card, struct dl_buffer *out);
void rdzv_page_pack(const struct rdzv_state *state, uint32_t page, struct dl_buffer *out);

/* Replaces what `ret` (initialised) holds. -EBADMSG (no state), -EPROTONOSUPPORT (of a format that
 * is none of RDZV_FORMATS), with `err`; `ret` is then empty. */
int _nodiscard_ rdzv_state_unpack(struct dl_span data, struct rdzv_state *ret,
                                  struct dl_error *err);
/* False: it is none, or of such a format. */
bool rdzv_head_unpack(struct dl_span data, struct rdzv_head *ret);
bool rdzv_card_unpack(struct dl_span data, struct rdzv_card *ret);
/* False: it is none, or says nothing of that node. */
bool rdzv_page_find(struct dl_span data, uint64_t id, struct rdzv_found *ret);

#endif
