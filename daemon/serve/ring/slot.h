/*
 * The slots of one segment: which process may touch each, at any time. Pure.
 *
 *   event →      ASSIGN    FILLED   ABORT   LEASE    RELEASE       RECALL   DISCARD   RETIRE
 *   FREE         FILLING   –        –       –        –             –        –         RETIRED
 *   FILLING      –         READY    FREE    –        –             –        –         –
 *   READY        –         –        –       LEASED   –             –        FREE      –
 *   LEASED       –         –        –       LEASED   LEASED/FREE   READY    –         –
 *   RETIRED      –         –        –       –        –             –        –         –
 *
 * FREE: not read or written. FILLING: one worker writes it. READY: complete, not read. LEASED:
 * `leases` clients read it; the last RELEASE frees it; RECALL takes back the only lease, whose
 * client was lost before it finished. RETIRED: never used again. A transition not in the table is a
 * bug of the daemon: slot_apply() asserts.
 *
 * `generation` counts the assignments of a slot, so that a stale descriptor is recognised.
 */
#ifndef DL_SLOT_H
#define DL_SLOT_H

#include "proto/common/base.h"

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_LEASED, SLOT_RETIRED };
enum { SLOT_STATES = 5 };

enum slot_event {
    SLOT_ASSIGN,
    SLOT_FILLED,
    SLOT_ABORT,
    SLOT_LEASE,
    SLOT_RELEASE,
    SLOT_RECALL,
    SLOT_DISCARD,
    SLOT_RETIRE,
};
enum { SLOT_EVENTS = 8 };

struct slot {
    uint64_t generation;
    enum slot_state state;
    uint32_t leases;
    uint32_t next_free; /* of the free list, when FREE */
};

struct slot_table {
    struct slot *slots; /* owned */
    uint32_t count;
    uint32_t free_head;             /* may be SLOT_NONE */
    uint32_t in_state[SLOT_STATES]; /* how many slots are in each state */
};

#define SLOT_NONE UINT32_MAX

void slot_table_init(struct slot_table *table, uint32_t count);
void slot_table_deinit(struct slot_table *table);

/*
 * Assigns the slot that was freed last: its memory is the likeliest to be in the cache. Returns its
 * number, or SLOT_NONE.
 */
uint32_t slot_assign(struct slot_table *table);

/* Every event but ASSIGN and RETIRE, which choose their slots. Returns the new state. */
enum slot_state slot_apply(struct slot_table *table, uint32_t slot, enum slot_event event);

/* Retires all FREE slots; true when every slot is retired. */
bool slot_table_retire(struct slot_table *table);

/* Tasks that a worker can take: set by its pool, used up by the core. */
struct worker_room {
    uint32_t slots;   /* free ones, which are large enough */
    uint32_t tasks;   /* that it may be given */
    uint32_t has;     /* tasks that it has */
    bool bare;        /* it could be given some, but it has no memory yet for what they make */
    uint32_t ahead;   /* steps that one stream may run before others have their turn, by what the
                         worker's last ones took: 0 when they take long */
    uint64_t cost_ns; /* what a task takes it, with the way to another machine; 0: not known */
};

const char *slot_state_name(enum slot_state state);

#endif
