/*
 * The daemon as a node of a cluster: it joins the rendezvous that its configuration names, and
 * knows which ranks of the cluster's world are on this node. A request that has to wait for other
 * nodes gets 1; `changed` says when to ask again.
 *
 * A rendezvous that has failed is tried again after longer and longer pauses; one that is closed is
 * not.
 *
 * Main thread only. Events come from the loop.
 */
#ifndef DL_MEMBERS_H
#define DL_MEMBERS_H

#include "daemon/base/quota.h"
#include "daemon/cluster/member.h"
#include "daemon/cluster/world/world_rules.h"
#include "proto/value.h"

#include <uv.h>

struct members;

struct members_events {
    void (*changed)(void *context);
    /* All streams in the world of members_place() are treated as world_actions[] says; `why` is for
     * their clients, NULL with WORLD_NOTED. WORLD_LEFT does not come from here. */
    void (*happened)(void *context, enum world_event event, const struct dl_error *why);
    /* After members_tell_peers(): who has told the like, this node included, as
     * daemon/fetcher/peers.h has it. */
    void (*peers)(void *context, const char *list);
};

/* Checks the configuration of the rendezvous: 0, or -EINVAL. `for_helpers`: helpers are found in
 * its store (discovery.h), so that it need not have an id: then this daemon is in no cluster. */
int _nodiscard_ members_check(const struct config_rendezvous *config, bool for_helpers,
                              struct dl_error *err);
/* The name of a run, in `path`: 0, or -EINVAL. */
int _nodiscard_ members_check_name(const char *path, const char *text, struct dl_error *err);

/* *ret NULL: by its configuration this daemon is alone. `config` was checked, and is not used after
 * the call. */
int _nodiscard_ members_new(uv_loop_t *loop, const struct config_rendezvous *config,
                            const struct members_events *events, void *context,
                            struct members **ret, struct dl_error *err);
/* The configuration was read again, and checked: etcd's endpoints and password are those of `now`;
 * all else is as it was, with a word in the log where `now` differs. NULL is fine. */
int _nodiscard_ members_reload(struct members *members, const struct config_rendezvous *before,
                               const struct config_rendezvous *now, struct dl_error *err);
/* Before members_join(): what the others are told of where this node gives blocks of remote files.
 * Copied. */
struct peer_card;
void members_tell_peers(struct members *members, const struct peer_card *card);
/* Joins the rendezvous. In the file at `path` daemons of one socket note which node they are, so
 * that the next one takes its place at once (predecessor.h). `members` NULL is fine. */
void members_join(struct members *members, const char *path);
/*
 * Closes the run for all nodes permanently: streams in its world end, and no node can join under
 * this id any more. The view `members` says when that is done, or has failed. `members` NULL:
 * -ENOTSUP.
 */
int _nodiscard_ members_close(struct members *members, struct dl_error *err);
/*
 * Leaves. The loop goes on until the other nodes know, or timeouts.close is over. No events come
 * any more. NULL is fine; returns NULL.
 */
struct members *members_end(struct members *members);

struct members_place {
    uint64_t rank;
    uint64_t world;
};

/*
 * The place of rank `local` of this node in the round that is complete. 1: not yet. Else
 * a negative errno: there is no such rank, the rendezvous is closed, or what was asked for at
 * `asked` (ns of uv_hrtime()) has waited for timeouts.join. `members` NULL: -ENOTSUP.
 */
int _nodiscard_ members_place(struct members *members, uint64_t local, uint64_t asked,
                              struct members_place *ret, struct dl_error *err);

/* Draws a seed where no spec gives one. Below 2^53, since Python and JSON lose digits above that;
 * torch's limit is 2^63. */
#define SEED_MAX ((UINT64_C(1) << 53) - 1)
int _nodiscard_ seed_draw(uint64_t *ret, struct dl_error *err);

/*
 * The number that all nodes of a run have agreed on, the same one for ever: the seeds of specs that
 * give none are derived from it. 1: the store is being asked. Negative: it has failed since
 * `asked`.
 */
int _nodiscard_ members_seed(struct members *members, uint64_t asked, uint64_t *ret,
                             struct dl_error *err);

/* Whether trainers get batches of the cluster's world; else why not, in words. NULL: yes. */
bool members_are_ready(const struct members *members, char *why, size_t size);

/* The view `members`; 0 or -ENOMEM. `members` NULL: it says that this daemon is alone. */
int _nodiscard_ members_view(const struct members *members, struct value *ret);

#endif
