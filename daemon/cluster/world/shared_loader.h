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

#include "daemon/cluster/progress/progress.h"
#include "proto/mix_changes.h"
#include "proto/state_token.h"

struct members;
struct rdzv_state;
struct shared_loader;

struct shared_loader_request {
    const struct state_identity *identity; /* what is read and how, on all nodes, */
    const char *job;                       /* and in which job; "": it has no name */
    struct mix_changes *known;             /* borrowed: changed weights, by the rank's client */
    bool fixed;                    /* each rank has an order of its own: nobody can take it over */
    uint64_t local;                /* rank of this node */
    uint64_t asked;                /* ns */
    struct quota_account *account; /* who pays, where the loader is new here */
    const char *name;              /* of the loader, for people */
    uint64_t batch;                /* samples in a step, at most */
    struct resume_request resume;
};

/* The place that the request gets. 0, and *ret, NULL if the request is `fixed`, stays until
 * another rank is placed, or for as long as it is in use; 1: not yet; or a negative errno, as
 * members_place(), or -EDQUOT: the user has too many loaders in use. */
int _nodiscard_ shared_loader_place(struct members *members,
                                    const struct shared_loader_request *request,
                                    struct shared_loader **ret, struct resume_place *ret_place,
                                    struct dl_error *err);
/* The rank has resumed there, with this stream of that session: both are only compared. The loader
 * is in use until shared_loader_leave(). */
void shared_loader_started(struct shared_loader *shared, uint64_t local,
                           const struct resume_place *place, const void *session,
                           const void *stream);
void shared_loader_leave(struct shared_loader *shared);
/* Bounds on the rank's position: at least `behind`, at most `given`. Ignored unless `stream` is
 * its latest. */
void shared_loader_note(struct shared_loader *shared, uint64_t local, const void *stream,
                        const struct progress_point *given, const struct progress_point *behind);
/* What its client does when a rank's stream has ended: */
enum rank_next {
    RANK_RESTS,    /* nothing, as far as is known; */
    RANK_GOES_ON,  /* it asks for the next step, here or, if this daemon ends, the next one; */
    RANK_GOES_AWAY /* it has left the stream by itself: where it asks to begin, it is to begin */
};
/* Its stream has ended before the round did: the position is the `behind` that was noted last, and
 * what it was given beyond that comes again. */
void shared_loader_ended(struct shared_loader *shared, uint64_t local, const void *stream,
                         enum rank_next next);
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
/* The stream, of `steps` steps, has come to the epoch's end. 0: all nodes have had their shares,
 * or continue; 1: not known yet, ask again on `changed`; it was asked first at `since` (ns).
 * -ENOTRECOVERABLE: what is missing. */
int _nodiscard_ shared_loader_finish(struct shared_loader *shared, const struct resume_place *place,
                                     uint64_t steps, uint64_t since, struct dl_error *err);
/* Of its epoch so far: samples at most that nodes which are gone have left out. */
uint64_t shared_loader_left_out(const struct shared_loader *shared,
                                const struct resume_place *place, uint64_t steps);
/* Why the rounds before the latest are over. */
const struct dl_error *shared_loader_why(const struct shared_loader *shared);

/* For members.c. A round is complete: */
void shared_loaders_enter_round(struct members *members);
/* all positions are noted; */
void shared_loaders_publish(struct members *members);
/* how far this node's ranks are; */
void shared_loaders_publish_positions(struct members *members);
/* of the round before, the nodes that are not in the new state have gone; */
void shared_loaders_note_gone(struct members *members, const struct rdzv_state *state);
/* the store may have lost what was published; */
void shared_loaders_republish(struct members *members);
/* the end. */
void shared_loaders_deinit(struct members *members);

#endif
