/*
 * The cluster's world has changed: an epoch with the option `follow` goes on in the new world. This
 * does for the user what dl_epoch_state(), dl_epoch_end() and dl_epoch_start() do together, and the
 * epoch stays the same object.
 */
#include "client/internal.h"

#include <errno.h>

bool world_change_may_follow(const struct dl_epoch *epoch, int error)
{
    return error == DL_E_WORLD_CHANGED && epoch->follow && epoch->outcome >= EPOCH_BROKEN &&
           (epoch->outcome == EPOCH_CUT || epoch->count == 0) && !epoch->loader->iterable &&
           !epoch->feed.on && strcmp(epoch->loader->client->error.path, "world") == 0;
}

static void world_change_forget_stream(struct dl_epoch *epoch)
{
    step_set_deinit(&epoch->arrived);
    epoch->arrived = (struct step_set){0};
    epoch->phase = EPOCH_RUNNING;
    epoch->outcome = EPOCH_OPEN;
    epoch->resumed = false;
    epoch->first = epoch->expected = epoch->position = 0;
    epoch->delivered = epoch->received = 0;
    epoch->lent = 0;
}

/* The daemon starts no stream for it any more: next() says the error, then DL_END. The loader owns
 * the epoch again, and ends it where the user does not. */
static int world_change_stay_behind(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    char why[sizeof client->error_text];

    epoch->phase = EPOCH_LEFT;
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

int world_change_follow(struct dl_epoch *epoch)
{
    struct history before = epoch->before;
    int r;

    if (!history_add(&before, epoch->world, epoch->position))
        return client_fail(epoch->loader->client, -DL_E_WORLD_CHANGED, "world",
                           "changed more often than an epoch can follow; end the epoch");
    epoch_leave_stream(epoch);
    epoch_unlink(epoch);
    world_change_forget_stream(epoch);
    epoch->before = before;
    r = epoch_start_remote(epoch);
    if (r < 0)
        return world_change_stay_behind(epoch);
    epoch->changes++;
    return 0;
}
