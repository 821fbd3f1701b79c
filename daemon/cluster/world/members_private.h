/*
 * The inside of the members, shared by members.c (rounds that come and go), members_config.c,
 * members_backend.c (stores), members_seed.c and newcomers.c (what is agreed on besides),
 * members_view.c, which shows it, and shared_loader.c, which works with it. Nobody else includes
 * it.
 */
#ifndef DL_MEMBERS_PRIVATE_H
#define DL_MEMBERS_PRIVATE_H

#include "daemon/base/predecessor.h"
#include "daemon/cluster/progress/agree.h"
#include "daemon/cluster/progress/allgather.h"
#include "daemon/cluster/world/left_out.h"
#include "daemon/cluster/world/members.h"
#include "daemon/cluster/world/shared_loader.h"
#include "daemon/cluster/world/sights.h"

#include <uthash.h>

/* What is known of the nodes of the latest round: whether all have said what they know, and one of
 * them knows of any loader where an earlier round began. */
enum newcomers { NEWCOMERS_UNKNOWN, NEWCOMERS_NOT_ALL, NEWCOMERS_ALL };

enum members_state { MEMBERS_JOINING, MEMBERS_IN, MEMBERS_FAILED, MEMBERS_CLOSED };

/* What all nodes derive their seeds from. */
struct root_seed {
    struct agreement *agreement; /* while it is asked for, or put back */
    bool known;
    bool putting; /* back; it is known */
    uint64_t number;
    struct dl_error failure; /* of the last time it was asked for */
    uint64_t failed_ns;
};

enum { MEMBERS_TEXT_MAX = RDZV_TEXT_MAX + 64 };

struct members {
    uv_loop_t *loop;
    const struct members_events *events;
    void *context;
    const char *backend_name;
    bool forgets;                  /* the store, all, when it ends */
    char *id;                      /* owned */
    char self_name[RDZV_NAME_MAX]; /* this node's */
    struct backend *backend;       /* the member's */
    struct member *member;
    uint64_t join_ns, poll_ns;
    uint32_t min, max, local;
    enum members_state state;
    struct rdzv_place place; /* MEMBERS_IN, or placed */
    bool placed; /* in `round`, as MEMBERS_IN but for the list of nodes, which nobody has needed yet
                  */
    uint64_t round;
    struct allgather_node *nodes; /* owned; members of that round */
    struct left_out_node *shares; /* owned; of the same, with their ranks */
    uint32_t n_nodes, self;       /* `self`: which of them this node is */
    bool sums;                    /* their releases all know RDZV_SUMS */
    bool paused;              /* that round is over, and what was given in it may be done with */
    struct dl_error why_over; /* the latest round that was */
    struct progress progress; /* of this node, in the latest rounds */
    struct shared_loader *shared_loaders; /* owned */
    struct shared_loader *restarting; /* of which it is asked whether all ranks start again; NULL */
    char there[512];                  /* names of who was there, this node first */
    uint32_t n_there;
    struct dl_error failure; /* latest; code 0: none, or there was a round since */
    uint64_t failed_ns;
    uint64_t pause_ms;   /* until it is tried again */
    uv_timer_t again;    /* then */
    uv_timer_t patience; /* when somebody has waited for long enough */
    uv_timer_t watch;    /* each poll_ns */
    uint64_t fence_ns, beat_ns;
    bool fenced;        /* without the store for so long: nothing is given out, */
    uint64_t fenced_ns; /* since then; */
    bool fenced_over;   /* and the streams have ended */
    uint64_t published_ns;
    uint64_t ticked_ns, woke_ns; /* `watch` was due; and after the node had been stopped */
    struct sights sights;        /* of the others' heartbeats */
    char trouble[sizeof(struct dl_error)]; /* of the store or what lies there; "": none */
    struct left_out *left_outs;            /* the shared loaders' */
    struct left_out_call *left_out_calls;  /* owned */
    struct peers_told *peers_told;         /* owned; NULL: nothing is told of blocks */
    struct given_compare *given_compares;  /* owned */
    uint64_t left_out;                     /* samples, said so far */
    uint64_t rounds;                       /* complete ones, with this node */
    bool is_newcomer; /* it knew nothing before this round; and so it is with the others: */
    enum newcomers newcomers;
    struct dl_buffer word;  /* by this node */
    struct dl_buffer *said; /* owned; by each of them; NULL: not heard, or in vain */
    uint32_t n_said;
    struct newcomers_word *newcomers_words; /* owned: of this round, or of earlier ones */
    struct root_seed root;
    bool joined;
    struct predecessor *predecessor; /* owned; NULL: nothing is noted for the next daemon */
    bool ending, leaving;            /* `leaving`: once the store has what this node has to say */
    unsigned closing;                /* timers that are not closed yet */
};

/* ---- members.c ------------------------------------------------------------------------------ */

/* Nothing here goes on by itself; and the store has what it is to have. */
void members_be_ready(struct members *m);
/* 1: the request of `asked` (ns) waits; `changed` says when to repeat it, at the latest after
 * `patience_ns`. Once these are over: a negative errno, by what it waited for. */
int _nodiscard_ members_wait(struct members *m, uint64_t asked, uint64_t patience_ns,
                             struct dl_error *err);

/* The node ends: it leaves as soon as nothing is being written. */
void members_go_on_leaving(struct members *m);

/* Arms the timer of `patience`: at `at`, those that wait repeat their requests. */
void members_be_patient(struct members *m, uint64_t now, uint64_t at);

/* ---- members_watch.c ------------------------------------------------------------------------ */

/* When this node was run again after it had been stopped, or its machine had slept; 0: it was not.
 */
uint64_t members_watch_woke_ns(struct members *m);
/* Begins, once there is a member; ends with the timer `watch`. */
void members_watch_begin(struct members *m);
/* What this node sees of another of its latest round; late: with its heartbeat. One that is gone is
 * replaced if another daemon of that name is there: then *ret_heir is its id, else 0. */
enum members_sight { MEMBERS_THERE, MEMBERS_LATE, MEMBERS_GONE, MEMBERS_REPLACED };
enum members_sight members_look_for(struct members *m, const struct left_out_node *node,
                                    uint64_t *ret_heir);
/* By this node's own looks. */
bool members_watch_is_late(const struct members *m, uint64_t id);

/* ---- restarts.c ----------------------------------------------------------------------------- */

/* Now and then: what the store did not take. */
void restarts_say_again(struct members *m);
/* The node is gone permanently. */
void restarts_forget(struct members *m, const char *loader, uint64_t node);

/* ---- given_weights.c ------------------------------------------------------------------------ */

/* Now and then; the round is over; the backend is freed next. */
void given_weights_tick(struct members *m);
void given_weights_leave_rounds(struct members *m);
void given_weights_deinit(struct members *m);

/* ---- peers_told.c --------------------------------------------------------------------------- */

void peers_told_enter_round(struct members *m);
void peers_told_tick(struct members *m, uint64_t now);
void peers_told_deinit(struct members *m); /* the backend is gone */

/* ---- members_config.c ----------------------------------------------------------------------- */

/* This node's name: as given, or the host's. */
void members_name_self(const struct config_rendezvous *config, char ret[RDZV_NAME_MAX]);
struct rdzv_settings members_settings(const struct config_rendezvous *config);
uint64_t members_fence_ns(const struct config_rendezvous *config);

/* ---- members_seed.c ------------------------------------------------------------------------- */

/* The store may have lost what seeds are derived from: if this node knows it, it proposes it again.
 */
void members_put_seed_back(struct members *m);

/* ---- newcomers.c ---------------------------------------------------------------------------- */

/* The node is in a round, and says whether it knows anything of earlier ones. `wanted`: somebody
 * waits for the round's list; if that is for the first loader, the node asks at once, too. */
void newcomers_enter_round(struct members *m, bool wanted);
/* No node of this round knows anything of earlier ones. False: one does, or it is not known yet;
 * then it is found out, and `changed` says when. */
bool newcomers_are_all(struct members *m);
/* The store may have lost what was said. */
void newcomers_republish(struct members *m);
/* All nodes of this round have said what they know; or not in time: then they may know all. False:
 * likewise. */
bool newcomers_are_heard(struct members *m);
/* Once they are: that node of the round knows something of the loader of that key. */
bool newcomers_knows(const struct members *m, uint32_t node, const char *key);
/* The backend is freed next. */
void newcomers_deinit(struct members *m);

/* ---- members_backend.c ---------------------------------------------------------------------- */

/* Whether the endpoint can be one: 0, or -EINVAL. */
int _nodiscard_ members_backend_check(const struct config_rendezvous *config, struct dl_error *err);
/* Where etcd is from now on, and its password. */
int _nodiscard_ members_backend_move(struct members *m, const struct config_rendezvous *config,
                                     struct dl_error *err);
/* Sets backend, backend_name and forgets. */
int _nodiscard_ members_backend_open(struct members *m, const struct config_rendezvous *config,
                                     struct dl_error *err);

#endif
