/*
 * What surrounds daemon/cluster/world in a simulation: a store, a clock, timers, and the rendezvous
 * as far as it tells a node of rounds. Nothing happens by itself: the simulation says which call is
 * answered next, how late it is, and which round begins. One simulation at a time.
 */
#ifndef DL_TEST_WORLD_AROUND_H
#define DL_TEST_WORLD_AROUND_H

#include "tests/lib/world_names.h"

#include "daemon/cluster/member.h"
#include "daemon/cluster/progress/allgather.h"
#include "daemon/cluster/world/members_private.h"

/* What one daemon has: its members_new() takes the one that around_enter() named. */
struct around {
    struct backend backend;    /* the first: it is one */
    struct around_call *calls; /* owned; of the store, in order */
    struct allgather *gathers; /* owned */
    bool gathers_first;        /* before calls, in this step */
    struct around_timer *timers;
    struct around *prev, *next; /* all */
    struct member *member;
    bool cut;        /* the store is not reached, */
    uint64_t cut_ns; /* since then; */
    bool unread;     /* it is reached again, and the state was not read since, */
    bool reads;      /* which is asked for; */
    bool dead;       /* nothing is answered any more */
};

/* Of the member, as who simulates sees and sets it. */
struct member {
    const struct member_events *events;
    void *owner;
    uint64_t id;
    char name[64];
    uint32_t local;
    struct rdzv_state state; /* as last seen */
    struct around *around;
    bool ready, leaving;
};

/* Clears all, and sets the clock. */
void around_begin(void);
void around_end(void);
void around_enter(struct around *around);
/* Its daemon has ended: what it asked for is not answered. */
void around_drop(struct around *around);
/* Later, in ns. */
void around_pass(uint64_t ns);

/* The oldest call is done and answered, or the oldest gathering goes on, in turn. False: there is
 * none that can be. */
bool around_step(struct around *around);
/* Timers that are due. */
void around_ring(struct around *around);

extern bool around_verbose;

#endif
