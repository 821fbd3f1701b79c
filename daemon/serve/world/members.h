/*
 * The daemon among others: it joins as it is configured, and knows which ranks of the cluster's
 * world are on this node. What cannot be had now and may come later is waited for by whoever asks,
 * who is told by `changed` to ask again.
 *
 * A rendezvous that has failed is tried again, later and later; one that is closed is not.
 *
 * Main thread only. Events come from the loop.
 */
#ifndef DL_MEMBERS_H
#define DL_MEMBERS_H

#include "daemon/cluster/member.h"
#include "daemon/serve/base/config.h"
#include "proto/value.h"

#include <uv.h>

struct members;

struct members_events {
    void (*changed)(void *context);
    /* The world that members_place() spoke of is none any more, and those who were in it stay:
     * what its ranks have been given they may go on with, and nothing else until `changed`. */
    void (*paused)(void *context, const struct dl_error *why);
    /* Likewise, but not all stay, or nobody knows: nothing may go on in it. */
    void (*over)(void *context, const struct dl_error *why);
    /* There is another world: shared_loader_note() is due for all ranks that have not done with the
     * one before. */
    void (*round)(void *context);
};

/* Whether what the configuration says of the rendezvous can be: 0, or -EINVAL. */
int _nodiscard_ members_check(const struct config_rendezvous *config, struct dl_error *err);

/* *ret NULL: by its configuration this daemon is alone. `config` was checked, and is not used after
 * the call. */
int _nodiscard_ members_new(uv_loop_t *loop, const struct config_rendezvous *config,
                            const struct members_events *events, void *context,
                            struct members **ret, struct dl_error *err);
/* Begins to take part. NULL is fine. */
void members_join(struct members *members);
/*
 * Closes the run for all nodes and for good: who works in its world is told that it is over, and
 * nobody meets under this id any more. The view `members` says when that is done, or has failed.
 * `members` NULL: -ENOTSUP.
 */
int _nodiscard_ members_close(struct members *members, struct dl_error *err);
/*
 * Leaves, and is gone when the others know, or timeouts.close is over: until then the loop has
 * something to do. No events come any more. NULL is fine; returns NULL.
 */
struct members *members_end(struct members *members);

struct members_place {
    uint64_t rank;
    uint64_t world;
};

/*
 * The place of rank `local` of this node in the round that is complete. 1: there is none yet. Else
 * a negative errno: there is no such rank, the rendezvous is closed, or what was asked for at
 * `asked` (ns of uv_hrtime()) has waited for timeouts.join. `members` NULL: -ENOTSUP.
 */
int _nodiscard_ members_place(struct members *members, uint64_t local, uint64_t asked,
                              struct members_place *ret, struct dl_error *err);

/* A seed that nobody has given. Below 2^53: Python and JSON have trouble above that, torch above
 * 2^63, and enough are left. */
int _nodiscard_ seed_draw(uint64_t *ret, struct dl_error *err);

/*
 * The seed that all nodes use for what `key` names, the same one for ever. 1: it is being asked
 * for. Negative: since `asked` the store was of no help.
 */
int _nodiscard_ members_seed(struct members *members, const char *key, uint64_t asked,
                             uint64_t *ret, struct dl_error *err);

/* The view `members`; 0 or -ENOMEM. `members` NULL: nothing but that this daemon is alone. */
int _nodiscard_ members_view(const struct members *members, struct value *ret);

#endif
