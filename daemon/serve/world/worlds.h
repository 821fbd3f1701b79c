/*
 * Worlds: of each loader that is read in the cluster's world, how far this node's ranks are, and
 * where they go on when the world has changed; progress.h says how that is agreed on.
 *
 * When a round is complete each node says its word of each such loader, and hears the others'. One
 * whose ranks were cut off says it once they are back to ask, since they alone know what they had;
 * one that is new, when the first of its ranks asks.
 *
 * Main thread only.
 */
#ifndef DL_WORLDS_H
#define DL_WORLDS_H

#include "daemon/cluster/progress.h"
#include "proto/state_token.h"

struct members;
struct world;

struct world_wish {
    const struct state_identity *what; /* is read and how, on all nodes */
    bool fixed;     /* each rank has an order of its own: nobody can take it over */
    uint64_t local; /* rank of this node */
    uint64_t asked; /* ns */
    struct resume_request of;
};

/* Where the wish is granted. 0, and *ret lives as long as `members`, NULL if the wish is `fixed`;
 * 1: not yet; or a negative errno, as members_place(). */
int _nodiscard_ worlds_place(struct members *members, const struct world_wish *wish,
                             struct world **ret, struct resume_place *ret_place,
                             struct dl_error *err);
/* The rank has gone there, with this stream of that session: both are only compared. */
void worlds_started(struct world *world, uint64_t local, const struct resume_place *place,
                    const void *session, const void *stream);
/* It was given nothing behind `given`, and is behind `behind` for sure. Nothing is noted if it has
 * gone elsewhere since. */
void worlds_note(struct world *world, uint64_t local, const void *stream,
                 const struct progress_point *given, const struct progress_point *behind);
/* Its stream has ended before the world did: what was noted last of it counts, and what it was
 * given beyond that comes again. */
void worlds_ended(struct world *world, uint64_t local, const void *stream);
/* Its stream was cut off, and it knows itself what it had. */
void worlds_owe(struct world *world, uint64_t local, const void *stream);
/* The session is gone: its ranks say nothing more. `members` NULL is fine. */
void worlds_left(struct members *members, const void *session);

/* Of an epoch's stream, begun behind `before` in the world of that round: the step at which it is
 * over; UINT64_MAX: none. 1: that is not known yet; negative: nor will it be. */
int _nodiscard_ worlds_limit(const struct world *world, const struct resume_place *place,
                             uint64_t *ret, struct dl_error *err);
/* Why the rounds before the latest are over. */
const struct dl_error *worlds_why(const struct world *world);

/* For members.c: there is a round; all was noted; the store may have lost what was said; the end.
 */
void worlds_enter(struct members *members);
void worlds_speak(struct members *members);
void worlds_say_again(struct members *members);
void worlds_deinit(struct members *members);

#endif
