/*
 * This node as a member of a run: the rendezvous (rendezvous.h) with time, a store and an owner.
 *
 * Its owner joins, and learns of each round that is complete with this node, and when that round is
 * over; it then stops what works with those ranks and says that it is ready for the next. Main
 * thread only. Callbacks come from the loop, never from inside a call; the owner may do anything in
 * them. After member_free() none comes.
 */
#ifndef DL_MEMBER_H
#define DL_MEMBER_H

#include "daemon/cluster/rendezvous/rendezvous.h"
#include "daemon/cluster/store/backend.h"

struct member;

struct member_events {
    /* A round is complete, with this node at that place. */
    void (*round)(void *owner, const struct rdzv_state *state, const struct rdzv_place *place);
    /* It is over; `why` says so for the log. member_ready() when nothing works with it any more. */
    void (*over)(void *owner, bool evicted, const char *why);
    /* The node is out: RDZV_LEFT, or RDZV_CLOSED or RDZV_FAILED with `err`. */
    void (*ended)(void *owner, enum rdzv_news how, const struct dl_error *err);
    /* What was seen is another state than before, of which NULL is none; for logs: nothing of the
     * member may be called. NULL: not told. */
    void (*changed)(void *owner, const struct rdzv_state *before, const struct rdzv_state *now);
    /* A few words for the log. NULL: not told. Likewise. */
    void (*notice)(void *owner, const struct dl_error *words);
    /* The store has begun to fail, or with NULL: is of use again. Likewise. */
    void (*store)(void *owner, const struct dl_error *trouble);
    /* A round is complete, with this node at that place; the list of its nodes was not read, and
     * round() follows once it is, by member_list(). NULL: all rounds are told by round(). Among few
     * nodes, and in stores other than etcd, they are all the same. */
    void (*placed)(void *owner, uint64_t round, const struct rdzv_place *place);
};

struct member_options {
    uv_loop_t *loop;
    struct backend *backend;              /* consumed, also on failure */
    const char *run;                      /* id of the run; the key in the store is made of it */
    const struct rdzv_settings *settings; /* checked here */
    const char *name;                     /* of the node */
    uint32_t local;                       /* ranks that are on it */
    const struct member_events *events;   /* borrowed, static */
    void *owner;
};

int _nodiscard_ member_new(const struct member_options *options, struct member **ret,
                           struct dl_error *err);
/* Without a word to the others. NULL is fine; returns NULL. */
struct member *member_free(struct member *member);

/* Before member_join(): this node takes the place of the one of that id, whose process has ended.
 */
void member_replace(struct member *member, uint64_t id);
void member_join(struct member *member);
void member_ready(struct member *member);
void member_leave(struct member *member);
void member_close(struct member *member, const char *reason);

/* The owner needs the lists of the rounds from now on, and of the one that it was told by placed().
 */
void member_list(struct member *member);
/* The state as last seen; NULL: none was; of a round that was told by placed() it is another. Valid
 * until the loop runs. */
const struct rdzv_state *member_state(const struct member *member);
uint64_t member_id(const struct member *member);
/* The beat of that node, and how long it has been the same, as seen from here at the latest look;
 * false: it was in none. */
bool member_beat(const struct member *member, uint64_t id, uint64_t *ret_beat, uint64_t *ret_age);
/* How long its beat had been the same at the latest look; UINT64_MAX: it was in none. */
uint64_t member_beat_age(const struct member *member, uint64_t id);
/* Looks at the beats soon, though its turn has not come. */
void member_look(struct member *member);
/* Reads the state soon, likewise. */
void member_read(struct member *member);
/* When the store was last asked for something that it then did, by uv_hrtime(): to show the beats
 * of all; for a write of this node, its heartbeats above all; and for a read. 0: never. */
uint64_t member_looked_ns(const struct member *member);
uint64_t member_wrote_ns(const struct member *member);
uint64_t member_read_ns(const struct member *member);

#endif
