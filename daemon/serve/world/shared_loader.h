/*
 * Shared loaders: loaders that are read in the cluster's world. Of each this node knows how far its
 * ranks are, and where they resume when the world has changed; progress.h says how nodes agree.
 *
 * When a round is complete each node publishes its report of each such loader, and reads those of
 * the others. A node whose ranks were cut off reports once they are back to ask, since they alone
 * know what they had; one that is new to the loader, when the first of its ranks asks.
 *
 * Main thread only.
 */
#ifndef DL_SHARED_LOADER_H
#define DL_SHARED_LOADER_H

#include "daemon/cluster/progress.h"
#include "proto/state_token.h"

struct members;
struct shared_loader;

struct shared_loader_request {
    const struct state_identity *identity; /* what is read and how, on all nodes */
    bool fixed;     /* each rank has an order of its own: nobody can take it over */
    uint64_t local; /* rank of this node */
    uint64_t asked; /* ns */
    struct resume_request resume;
};

/* The place that the request gets. 0, and *ret lives as long as `members`, NULL if the request is
 * `fixed`; 1: not yet; or a negative errno, as members_place(). */
int _nodiscard_ shared_loader_place(struct members *members,
                                    const struct shared_loader_request *request,
                                    struct shared_loader **ret, struct resume_place *ret_place,
                                    struct dl_error *err);
/* The rank has resumed there, with this stream of that session: both are only compared. */
void shared_loader_started(struct shared_loader *shared, uint64_t local,
                           const struct resume_place *place, const void *session,
                           const void *stream);
/* Bounds on the rank's position: at least `behind`, at most `given`. Ignored unless `stream` is
 * its latest. */
void shared_loader_note(struct shared_loader *shared, uint64_t local, const void *stream,
                        const struct progress_point *given, const struct progress_point *behind);
/* Its stream has ended before the round did: the position is the `behind` that was noted last, and
 * what it was given beyond that comes again. */
void shared_loader_ended(struct shared_loader *shared, uint64_t local, const void *stream);
/* Its stream was cut off: the rank's client knows the position, and says it by its next request. */
void shared_loader_mark_report_due(struct shared_loader *shared, uint64_t local,
                                   const void *stream);
/* The session is gone: no report of its ranks is waited for. `members` NULL is fine. */
void shared_loaders_forget_session(struct members *members, const void *session);

/* Of an epoch's stream, begun behind `before` in the world of that round: the step that it ends
 * before; UINT64_MAX: none. 1: not known yet; negative: it will not be known. */
int _nodiscard_ shared_loader_limit(const struct shared_loader *shared,
                                    const struct resume_place *place, uint64_t *ret,
                                    struct dl_error *err);
/* Why the rounds before the latest are over. */
const struct dl_error *shared_loader_why(const struct shared_loader *shared);

/* For members.c. A round is complete: */
void shared_loaders_enter_round(struct members *members);
/* all positions are noted; */
void shared_loaders_publish(struct members *members);
/* the store may have lost what was published; */
void shared_loaders_republish(struct members *members);
/* the end. */
void shared_loaders_deinit(struct members *members);

#endif
