/*
 * The cluster's world has changed: an epoch with DL_FOLLOW_ANY continues in the new world. This
 * does for the user what dl_epoch_state(), dl_epoch_end() and dl_epoch_start() do together, with
 * the same epoch object. If the others have passed the end of the epoch meanwhile, it ends.
 *
 * So does DL_FOLLOW_SAME as long as rank and world stay the same: its user learns of the change
 * after the last step of the old world, as all ranks do, and not at all if the rank is the same
 * again, as after a restart of a daemon.
 */
#include "client/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static bool world_change_is_in_order(const struct dl_epoch *epoch)
{
    return !epoch->loader->iterable && !epoch->feed.on;
}

static bool world_change_is_it(const struct dl_epoch *epoch)
{
    return epoch->outcome >= EPOCH_BROKEN && (epoch->outcome == EPOCH_CUT || epoch->count == 0) &&
           strcmp(epoch->loader->client->error.path, "world") == 0;
}

static void world_change_forget_stream(struct dl_epoch *epoch)
{
    (void)!came_begin(epoch, 0, &(struct passed){0}); /* nothing that takes memory */
    epoch_apply(epoch, EPOCH_ANEW);
    epoch->outcome = EPOCH_OPEN;
    epoch->received = 0;
    epoch->lent = 0;
    epoch_drop_position(epoch);
}

/* The daemon starts no stream for it any more: next() says the error, then DL_END. The loader owns
 * the epoch again, and ends it where the user does not. */
static int world_change_stay_behind(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    char why[sizeof client->error_text];

    epoch->world_over = false;
    epoch_apply(epoch, EPOCH_DROPPED);
    epoch->outcome = EPOCH_BROKEN;
    epoch->next = epoch->loader->epochs;
    epoch->loader->epochs = epoch;
    if (connection_check(&client->conn) < 0)
        return client_fatal(client);
    memcpy(why, client->error_text, sizeof why);
    return client_fail(client, -DL_E_WORLD_CHANGED, "world",
                       "changed, and this rank cannot follow (%s); start the epoch again from its "
                       "state",
                       why);
}

/* The stream belongs to a later epoch, which the user has not requested. */
static int world_change_end_early(struct dl_epoch *epoch, uint64_t was)
{
    char text[256];

    epoch_leave_stream(epoch);
    epoch_apply(epoch, EPOCH_DROPPED);
    epoch->outcome = EPOCH_HAD_ALL;
    (void)snprintf(
        text, sizeof text,
        "epoch %llu ends early for this rank: the other nodes are in epoch %llu, and what "
        "was left of its share is not loaded",
        (ull)was, (ull)epoch->number);
    epoch_set_warning(epoch, text);
    return DL_END;
}

/* The rank is another one, or of another world: that is what its user does not want. */
static int world_change_tell(struct dl_epoch *epoch, const struct dl_error *why)
{
    epoch_leave_stream(epoch);
    epoch_drop_position(epoch);
    epoch_apply(epoch, EPOCH_DROPPED);
    epoch->outcome = EPOCH_BROKEN;
    epoch->world_over = true;
    return client_fail_with(epoch->loader->client, why);
}

/* 0: the epoch has a place in the new world; DL_END: which is in a later one; or the error. */
static int world_change_enter(struct dl_epoch *epoch)
{
    struct history before = epoch->before;
    uint64_t number = epoch->number;
    int r;

    if (!history_add(&before, epoch->world, epoch->position))
        return client_fail(epoch->loader->client, -DL_E_WORLD_CHANGED, "world",
                           "changed more often than an epoch can follow; end the epoch");
    epoch_leave_stream(epoch);
    epoch_unlink(epoch);
    world_change_forget_stream(epoch);
    epoch->before = before;
    do
        r = epoch_start_remote(epoch);
    while (r == DL_E_WORLD_CHANGED); /* once more, while it was being started */
    if (r < 0)
        return world_change_stay_behind(epoch);
    epoch->world_over = false;
    return epoch->number == number ? 0 : world_change_end_early(epoch, number);
}

static int world_change_follow_any(struct dl_epoch *epoch)
{
    int r = world_change_enter(epoch);

    epoch->changes += r == 0;
    return r;
}

static int world_change_follow_same(struct dl_epoch *epoch)
{
    const struct dl_error why = epoch->loader->client->error;
    const struct history before = epoch->before;
    const uint32_t rank = epoch->rank, world = epoch->world;
    int r = world_change_enter(epoch);

    if (r == 0 &&
        (epoch->rank != rank || epoch->world != world || !history_equal(&epoch->before, &before)))
        return world_change_tell(epoch, &why);
    return r;
}

static int (*const world_change_ways[])(struct dl_epoch *epoch) = {
    [DL_FOLLOW_NOT] = NULL,
    [DL_FOLLOW_ANY] = world_change_follow_any,
    [DL_FOLLOW_SAME] = world_change_follow_same,
};

bool world_change_may_follow(struct dl_epoch *epoch)
{
    bool is = world_change_is_it(epoch);

    epoch->world_over = epoch->world_over || is;
    return is && world_change_ways[epoch->follow] && world_change_is_in_order(epoch);
}

int world_change_follow(struct dl_epoch *epoch)
{
    return world_change_ways[epoch->follow](epoch);
}

int dl_epoch_wait_world(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    int r = client_begin(client);

    if (r < 0)
        return r;
    if (!epoch->cluster || !world_change_is_in_order(epoch))
        return client_fail(client, EINVAL, "world",
                           "this epoch is not in a cluster's world, or each of its ranks has its "
                           "own order; start another one");
    return epoch->world_over ? world_change_follow_any(epoch) : 0;
}
