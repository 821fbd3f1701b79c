/*
 * The rendezvous as one node sees it: when to read the state that all share (rendezvous_state.h),
 * when and how to change it, and what to tell the owner. Pure: (machine, event, state, local
 * monotonic time) → (machine, what to do with the store, news).
 *
 * Whenever a state was read, all that holds is done, in this order, in one write
 * (rendezvous_turn.c). `self` is this node; what is dead is dead by this node's own watch.
 *
 *   the node wants   the state                           what it does
 *   in               there is none                       restores the last it has seen, or
 *                                                        makes one with itself
 *   in               closed                              is out: CLOSED
 *   in               other min or max, and nodes         is out: FAILED
 *   in               its complete round is not there     OPENED, or EVICTED if it is not in it;
 *                    any more                            not ready until its owner says so
 *   in               of a round that it knows is over    opens one after that
 *   in               in no complete round, deadline      takes itself out, then FAILED
 *                    passed, not one that waits for a
 *                    place in a full round
 *   in               it is not in it                     adds itself: member of an open round
 *                                                        with a place left, else it waits
 *   in               member, not ready; owner is ready   ready
 *   in               others are dead                     takes them out
 *   in               complete, places left, some wait    opens the next round
 *   in               open, members enough and ready,     complete
 *                    last call over
 *   in               complete, it is a member            ROUND, once a round
 *   in               it is in it, beat due               counts its beat up
 *   out              it is in it                         takes itself out, then LEFT
 *   out              it is not in it, or closed          LEFT
 *   closed           not closed                          closes it, then CLOSED
 *   closed           closed                              CLOSED
 *
 * Of every change it follows (rdzv_state_settle): members are enough: last call begins, on each
 * member's own watch; members are as many as can be, and ready: complete at once. Any change of a
 * complete round's members opens the next round.
 *
 * Clocks are never compared. A node is dead when its beat did not change for rdzv_silence() of
 * this node's own time, between when the beat was first seen and when a later read was asked for.
 * Time in which this node did not run, or its clock jumped, does not count, and after it, or after
 * the store failed, all watching starts anew: who slept, or was cut off, takes nobody for dead.
 */
#ifndef DL_RENDEZVOUS_H
#define DL_RENDEZVOUS_H

#include "daemon/cluster/rendezvous_state.h"

struct rdzv_settings {
    uint32_t min, max;     /* nodes of a round */
    uint32_t missed;       /* beats; with 1 poll_ns is an eighth of beat_ns at most */
    uint64_t join_ns;      /* until a round is complete, or FAILED */
    uint64_t last_call_ns; /* for more nodes than `min` */
    uint64_t close_ns;     /* for leaving and closing */
    uint64_t beat_ns;
    uint64_t poll_ns; /* between two reads */
};

/* PyTorch's; of `min` and `max` 1. */
extern const struct rdzv_settings RDZV_DEFAULTS;

/* Half an interval for a beat to travel, where not one may be missed; reads are quick enough then
 * to see it in that time. */
enum { RDZV_POLLS_OF_ONE_MISSED = 8 };

/* How long a beat may stand still: missed × beat_ns; with `missed` 1 half an interval more, as the
 * next beat is not on its way before the first interval is over. */
uint64_t rdzv_silence(const struct rdzv_settings *settings);

/* 0, or -EINVAL with what is wrong. */
int _nodiscard_ rdzv_settings_check(const struct rdzv_settings *settings, struct dl_error *err);

enum rdzv_event_type {
    RDZV_JOIN,    /* the owner wants in, and is ready */
    RDZV_READY,   /* the answer to OPENED and EVICTED */
    RDZV_LEAVE,   /* wants out */
    RDZV_CLOSE,   /* wants that nobody meets any more: `reason` */
    RDZV_SEEN,    /* the store answered a read or a write: `state`, `won` */
    RDZV_FAILING, /* it did not: `error` */
    RDZV_CHANGED, /* the state may be another */
    RDZV_TICK,
};

struct rdzv_event {
    enum rdzv_event_type type;
    bool won;                       /* SEEN: this node wrote it */
    uint64_t now;                   /* ns of the monotonic clock */
    const char *reason;             /* borrowed, as all here */
    const struct rdzv_state *state; /* SEEN: NULL: there is none */
    const struct rdzv_state *last;  /* SEEN: the one seen before; NULL: none was */
    const struct dl_error *error;
};

enum rdzv_do { RDZV_NOTHING, RDZV_READ, RDZV_WRITE };

enum rdzv_news {
    RDZV_NO_NEWS,
    RDZV_ROUND,   /* a round is complete, with this node: ranks are in the state that was seen */
    RDZV_OPENED,  /* that round is over, and a new one open: RDZV_READY when all here stand still */
    RDZV_EVICTED, /* that round goes on without this node, or is over: likewise */
    RDZV_CLOSED,  /* `error` says why; the machine is out, as after the following */
    RDZV_FAILED,  /* `error` */
    RDZV_LEFT,
};

struct rdzv_out {
    enum rdzv_do store; /* answered by SEEN or FAILING before there is another */
    enum rdzv_news news;
    uint64_t wake; /* TICK then, at the latest; UINT64_MAX: never */
    struct dl_error error;
};

struct rdzv_peer {
    uint64_t id, life, beat;
    uint64_t seen; /* when that beat was first seen */
};

enum rdzv_want { RDZV_WANT_NOTHING, RDZV_WANT_IN, RDZV_WANT_OUT, RDZV_WANT_CLOSED };

struct rdzv {
    struct rdzv_settings set;
    struct rdzv_node self; /* id, life, name, local; ready: what the owner said */
    enum rdzv_want want;
    uint32_t lost; /* writes, one after another */
    char reason[RDZV_TEXT_MAX];

    bool busy;     /* the store was asked something, */
    bool writing;  /* and it is a write */
    bool hinted;   /* there was a CHANGED meanwhile */
    bool blind;    /* watching starts anew with what is seen next */
    bool present;  /* in the state that was seen last */
    bool any;      /* it was in a complete round, */
    bool in_round; /* and still is: in `round` */

    /* Time that counts: what passed while the machine was run. The times below are of it. */
    uint64_t clock, now;
    uint64_t asked;     /* when the store was */
    uint64_t answered;  /* latest */
    uint64_t read_at;   /* next */
    uint64_t beat_at;   /* latest of its own that is in the store */
    uint64_t quorum_at; /* when the quorum was first seen; UINT64_MAX: there is none, */
    uint64_t quorum;    /* this one, */
    uint64_t open_round;
    uint64_t deadline; /* UINT64_MAX: none */
    uint64_t draws;    /* random numbers that were used */

    uint64_t round, stamp;   /* of the latest complete round with this node */
    struct dl_error trouble; /* latest of the store; code 0: it answers */
    struct dl_error failure; /* why it is on its way out; code 0: it was asked to leave */

    struct rdzv_peer *peers; /* owned; of the nodes that were seen last, in their order */
    uint32_t n_peers;
};

/* `self`: id (drawn at random), name and local. Settings were checked. */
void rdzv_init(struct rdzv *rdzv, const struct rdzv_settings *settings,
               const struct rdzv_node *self);
void rdzv_deinit(struct rdzv *rdzv);

/*
 * One event. For out->store == RDZV_WRITE, `next` (initialised, and of no meaning else) is to take
 * the place of the event's state.
 */
void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
               struct rdzv_out *out);

#endif
