/*
 * Decides whose session is handled next. Sessions with messages take turns: first between users,
 * the one that has used the least time so far; then between a user's sessions, one after another. A
 * turn is charged afterwards, so that a user of expensive requests gets fewer turns.
 *
 * A turn cannot be cut short, and other users may have their request only a moment later. So after
 * a long turn its user pauses, several times as long for each of the others.
 *
 * Connections to be accepted have a place among the users, too: the door. The next one's user is
 * not known; it is charged to the user who came last, so that a user who connects endlessly pays
 * for that, instead of gaining a second share of the time.
 *
 * Pure: time is passed in. Users without a waiting session cost nothing, and save nothing up.
 */
#ifndef DL_TURNS_H
#define DL_TURNS_H

#include "proto/common/base.h"

#include <uthash.h>

struct turn;

enum {
    TURN_LONG_NS = 200 * 1000,
    TURN_PAUSE = 4,               /* times as long, */
    TURN_OTHERS_MAX = 4,          /* for at most this many of the others */
    TURN_CREDIT_NS = 1000 * 1000, /* that one may have used less than another, and catch up */
};

struct turn_user {
    UT_hash_handle hh;             /* turns.users, by uid */
    struct turn_user *prev, *next; /* turns.waiting, while `first` is set */
    struct turn *first;            /* of its sessions that wait (utlist) */
    uint32_t uid;
    uint32_t sessions; /* that count it */
    uint64_t used_ns;  /* compared with that of other users */
    uint64_t pause_ns; /* no turn before then */
};

/* A session's place; embedded in it. */
struct turn {
    struct turn *prev, *next; /* user->first, while `waits` */
    struct turn_user *user;   /* counted */
    bool waits;
};

/* All zero is empty. */
struct turns {
    struct turn_user *users;   /* by uid */
    struct turn_user *waiting; /* borrowed list: those with a session that waits */
    struct turn_user door;     /* not a user, and not in `users` */
    uint64_t floor_ns;         /* the least that any waiting user has used */
    uint64_t most_ns;          /* the most that any user has used */
};

void turns_add(struct turns *turns, struct turn *turn, uint32_t uid);
/* The place for connections to be accepted; there is one. */
void turns_add_door(struct turns *turns, struct turn *turn);
void turns_remove(struct turns *turns, struct turn *turn);

/* The session has something to say: it waits for its turn. */
void turns_wait(struct turns *turns, struct turn *turn);
void turns_wait_no_more(struct turns *turns, struct turn *turn);

/* Whose turn it is at `now_ns`; it then waits no more. NULL: no user waits, or all that wait
 * pause. */
struct turn *turns_next(struct turns *turns, uint64_t now_ns);
/* A turn of that user took so long, and ended at `now_ns`. */
void turns_charge(struct turns *turns, struct turn_user *user, uint64_t ns, uint64_t now_ns);
/* So long was spent on that user outside of turns. */
void turns_add_time(struct turns *turns, struct turn_user *user, uint64_t ns);
/* A connection of that user was let in, or turned away, which took so long. */
void turns_let_in(struct turns *turns, uint32_t uid, uint64_t ns);
/* When a turn is next possible; UINT64_MAX: no user waits. */
uint64_t turns_due(const struct turns *turns);

#endif
