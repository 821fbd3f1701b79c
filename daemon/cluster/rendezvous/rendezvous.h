/*
 * The rendezvous as one node sees it: when to read what all share (rendezvous_state.h), when and
 * how to change it, and what to tell the owner. Pure: (machine, event, what was read, local
 * monotonic time) → (machine, what to do with the store, news).
 *
 * Each node writes its own card: with each beat, and when what it wants is another. The answer to
 * that is the state's head, which says whether the state concerns it and has to be read.
 *
 * Nodes look at all cards in turn, and who looks does for all what is to be done, in this order, in
 * one write (rendezvous_turn.c). So the state changes a few times where a thousand nodes come at
 * once. `self` is this node; what is dead is dead by this node's own watch.
 *
 *   the node wants   what it sees                        what it does
 *   in               no state                            restores the last it has seen, or
 *                                                        makes one
 *   in               closed                              is out: CLOSED
 *   in               other rules, and nodes              is out: FAILED
 *   in               a state of a format that it does    waits until the others write another, or
 *                    not know                            is out: FAILED
 *   in               its complete round is not there     OPENED, or EVICTED if it is not in it, or
 *                    any more                            was removed and is in again; not ready
 *                                                        until its owner says so
 *   in               of a round that it knows is over    opens one after that
 *   in               in no complete round, deadline      leaves, then FAILED
 *                    passed, not one that waits for a
 *                    place in a full round
 *   in               cards of nodes that want in, are    adds them: members of an open round with
 *                    not, and know a format that all     a place left, else they wait
 *                    know
 *   in               cards of members that are ready     ready
 *                    for this round
 *   in, or out       cards of nodes that want out        takes them out
 *   in               others are dead, or replaced        takes them out
 *   in               complete, places left, some wait    opens the next round
 *   in               open, members enough and ready,     complete
 *                    last call over
 *   in               complete, it is a member            ROUND, once a round
 *   out              it is not in it, or closed          LEFT
 *   closed           not closed                          closes it, then CLOSED
 *   closed           closed                              CLOSED
 *
 * Of every change it follows (rdzv_state_settle): members are enough: last call begins, on each
 * member's own watch; members are as many as can be, and ready: complete at once. Any change of a
 * complete round's members opens the next round.
 *
 * How often a node looks follows from its place among the nodes: the first three in each poll_ns,
 * those behind them more rarely, by the square of the place. So all looks together are a few in
 * each poll_ns however many nodes there are, and if those in front die the next one sees to it. A
 * node that finds others silent looks in each poll_ns until it knows.
 *
 * Among many nodes the head is enough to know that a round is over, and which is open: its owner
 * learns of it, and answers, before the state is read. Each of a thousand nodes reads that in its
 * turn.
 *
 * Where the store has pages of places, and the owner needs no list of the nodes, a node of many
 * reads a page in the place of a state of a thousand nodes; those in front read the state, to look.
 *
 * A node that has just come writes its card and waits for those that are in; if none sees to it, it
 * looks itself. Where nobody is in, each waits for a time that it draws: few draw a short one, and
 * of many the first one or two look while the others wait. A node that has waited asks for the head
 * before it looks at the cards of many; one that was not the first to write leaves it to that one.
 * A state is written on the grounds of cards that are not older than it.
 *
 * Clocks are never compared. A node is dead when its beat did not change for rdzv_silence() of this
 * node's own time, between when the beat was first seen and when a later look began. Of time in
 * which this node did not run, or its clock jumped, or the store was stuck, only an eighth of
 * rdzv_silence() counts, and after it who may have slept, too, has time to show that it lives. So
 * it is, too, where a call of the store failed, if there is room for a beat after it. Else, and
 * where it has failed for a whole silence, all watching starts anew: a node that was cut off takes
 * no other for dead.
 *
 * A node whose owner knows that another one is dead, as a daemon does of the one before it, says so
 * on its card: it replaces that one, which the next node that looks takes out at once, however
 * short its silence. No node is ever there again under the id of a dead one, so that this stays
 * true.
 */
#ifndef DL_RENDEZVOUS_H
#define DL_RENDEZVOUS_H

#include "daemon/cluster/rendezvous/rendezvous_state.h"

struct rdzv_settings {
    uint32_t min, max;     /* nodes of a round */
    uint32_t missed;       /* beats; with 1 poll_ns is an eighth of beat_ns at most */
    uint64_t join_ns;      /* until a round is complete, or FAILED */
    uint64_t last_call_ns; /* for more nodes than `min` */
    uint64_t close_ns;     /* for leaving and closing */
    uint64_t beat_ns;
    uint64_t poll_ns; /* between two looks */
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
    RDZV_HEAD,    /* the store answered a PEEK or a POST: `head` */
    RDZV_SEEN,    /* a READ or a WRITE: `state`, `won` */
    RDZV_FOUND,   /* a FIND: `found` */
    RDZV_LOOKED,  /* a LOOK: `head` and `cards`; `state` is the one seen last */
    RDZV_FAILING, /* it did not: `error` */
    RDZV_CHANGED, /* the state may be another: `head`; NULL: whatever it is */
    RDZV_TICK,
};

struct rdzv_event {
    enum rdzv_event_type type;
    bool won;                       /* SEEN: this node wrote it */
    uint64_t now;                   /* ns of the monotonic clock */
    const char *reason;             /* borrowed, as all here */
    const struct rdzv_state *state; /* SEEN, LOOKED; NULL: the store has none */
    const struct rdzv_state *last;  /* likewise: the one seen before; NULL: none was */
    const struct rdzv_head *head;   /* NULL: there is none */
    const struct rdzv_found *found; /* FOUND: NULL: the page says nothing of this node */
    const struct rdzv_card *cards;  /* by id */
    uint32_t n_cards;
    const struct dl_error *error;
};

enum rdzv_do {
    RDZV_NOTHING,
    RDZV_PEEK,  /* reads the head */
    RDZV_POST,  /* writes out->card, and reads the head */
    RDZV_READ,  /* reads the state */
    RDZV_FIND,  /* reads the page of this node's place: of rdzv_pages(out->members) */
    RDZV_LOOK,  /* reads the head and all cards */
    RDZV_WRITE, /* the state and its head */
};

enum rdzv_news {
    RDZV_NO_NEWS,
    RDZV_ROUND,   /* a round is complete, with this node: ranks are in the state that was seen */
    RDZV_PLACED,  /* likewise, at out->place; the state was not read. ROUND follows when it is */
    RDZV_OPENED,  /* that round is over, and a new one open: RDZV_READY when all here stand still */
    RDZV_EVICTED, /* that round continues without this node, or is over: likewise */
    RDZV_CLOSED,  /* `error` says why; the machine is out, as after the following */
    RDZV_FAILED,  /* `error` */
    RDZV_LEFT,
};

struct rdzv_out {
    enum rdzv_do store; /* answered by an event or FAILING before there is another */
    enum rdzv_news news;
    uint64_t wake; /* TICK then, at the latest; UINT64_MAX: never */
    struct rdzv_card card;
    uint32_t members; /* FIND: of the round that the head tells of */
    struct rdzv_place place;
    bool drops; /* the card of the node `dropped` has no use any more; not answered */
    uint64_t dropped;
    /* OPENED: as the head says it, borrowed until the next step; NULL: the state that was seen
     * does. */
    const char *why;
    struct dl_error error;
    struct dl_error notice; /* for the log; code 0: nothing */
};

struct rdzv_peer {
    uint64_t id, life, beat;
    uint64_t seen; /* when that beat was first seen */
    bool counts;   /* it was seen to change */
    bool suspect;  /* it was silent for too long, though perhaps not for long enough */
    bool spared;   /* since then it was given time after a nap of this node */
    bool replaced; /* another says that it is dead */
    bool in_state, has_card;
    bool refused; /* it was said that it has no format in common with the others */
};

enum rdzv_want { RDZV_WANT_NOTHING, RDZV_WANT_IN, RDZV_WANT_OUT, RDZV_WANT_CLOSED };

struct rdzv {
    struct rdzv_settings set;
    struct rdzv_node self;       /* id, life, name, local; ready: what the owner said */
    struct rdzv_formats formats; /* that it knows */
    uint64_t replaces;           /* a dead node's id; 0: none */
    enum rdzv_want want;
    uint32_t lost; /* writes, one after another */
    char reason[RDZV_TEXT_MAX];

    enum rdzv_do doing; /* what the store was asked; NOTHING: it is not busy */
    bool polls;         /* nobody says CHANGED */
    bool blind;         /* watching starts anew with what is seen next, */
    bool napped;        /* or leaves out the time since what was seen last */
    bool present;       /* in the state that was seen last */
    bool any;           /* it was in a complete round, */
    bool in_round;      /* and still is: in `round` */

    /* Time that counts: what passed while the machine was run. The times below are of it, and
     * UINT64_MAX is never. */
    uint64_t clock, now;
    uint64_t asked;      /* when the store was */
    uint64_t latency;    /* of its calls, lately */
    uint64_t heard;      /* latest answer, */
    uint64_t answered;   /* latest look */
    uint64_t told_at;    /* the latest head, */
    uint64_t told_nonce; /* of that nonce */
    uint64_t skim_at;    /* next read of a state that only concerns who is in front */
    uint64_t peek_at, post_at, read_at, find_at, look_at; /* next */
    uint64_t not_before;                                  /* any of them: the store fails */
    uint32_t failures;                                    /* of it, one after another */
    uint64_t quorum_at; /* when the quorum was first seen; UINT64_MAX: no quorum, */
    uint64_t quorum;    /* this one, */
    uint64_t open_round;
    uint64_t deadline; /* UINT64_MAX: none */
    uint64_t draws;    /* random numbers that were used */

    struct rdzv_card card; /* as it was written last */
    struct rdzv_head head; /* seen last */
    bool has_card;         /* it was written */
    bool has_head;         /* there was one */
    bool has_news;         /* it came after the store was asked */
    bool finds;      /* the store has pages of places, and the owner takes a place for enough: */
    bool wants_list; /* not any more */
    bool unlisted;   /* the round that it is in was not read */
    bool suspects;   /* somebody is silent */
    bool again;      /* a state was read for a look that found another head */
    bool has_read;   /* a state, which was: */
    uint64_t read_nonce, read_round, read_stamp;
    uint64_t changed_at;     /* when that state was first seen */
    uint32_t place, n_nodes; /* among those in that state; n_nodes: it is not */
    uint32_t queue;          /* place among those who wait for others to let them in */

    uint64_t round, stamp;      /* of the latest complete round with this node */
    struct dl_error unreadable; /* the state is of a format that is not known, since: */
    uint64_t unreadable_since;
    struct dl_error trouble; /* latest of the store; code 0: it answers */
    struct dl_error failure; /* why it is on its way out; code 0: it was asked to leave */

    struct rdzv_peer *peers; /* owned; by id: of all nodes and cards of the latest look */
    uint32_t n_peers;
};

/* `self`: id (drawn at random), name and local. Settings were checked. `polls`: the store cannot
 * say when something has changed. */
void rdzv_init(struct rdzv *rdzv, const struct rdzv_settings *settings,
               const struct rdzv_node *self, bool polls);
void rdzv_deinit(struct rdzv *rdzv);

struct rdzv_rules rdzv_rules_of(const struct rdzv_settings *settings);

/* The next look is due, though the node's turn has not come. */
void rdzv_look_soon(struct rdzv *rdzv);
/* The state is read next, though nothing says that it is another. */
static inline void rdzv_read_soon(struct rdzv *rdzv)
{
    if (rdzv->want == RDZV_WANT_IN)
        rdzv->read_at = min_u64(rdzv->read_at, rdzv->clock);
}

/* This node comes in the place of the one of that id, which is dead: its process has ended. Before
 * RDZV_JOIN; 0: of none. */
void rdzv_replace(struct rdzv *rdzv, uint64_t id);

/* The owner needs no more of a round of many than its place, until rdzv_want_list(). */
void rdzv_go_by_places(struct rdzv *rdzv);
/* From now on each round is read as a whole, the one that it is in, too. */
void rdzv_want_list(struct rdzv *rdzv);

/* The watch over the node of that id; NULL: it was in no look. */
const struct rdzv_peer *rdzv_peer(const struct rdzv *rdzv, uint64_t id);

/*
 * One event. For out->store == RDZV_WRITE, `next` (initialised, and of no meaning else) is to take
 * the place of the event's state.
 */
void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_state *next,
               struct rdzv_out *out);

#endif
