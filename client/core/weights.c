/*
 * Changed weights of a mixture or of samples, as the client keeps them for a loader: the list
 * (proto/mix_changes.h) in force at the daemon, or in a state. It follows each state and is sent
 * before each START; ask.c requests another change.
 */
#include "client/core/core.h"
#include "proto/dataset_state.h"
#include "proto/mix_changes.h"

#include <errno.h>

int weights_set(struct dl_loader *loader, struct dl_span list)
{
    struct dl_buffer copy = {0};

    if (list.len > 0 && buffer_append(&copy, list.data, list.len) < 0)
        return -ENOMEM;
    buffer_deinit(&loader->weights.list);
    loader->weights.list = copy;
    loader->weights.known = true;
    loader->weights.sent_to = 0;
    return 0;
}

struct dl_span weights_of(const struct dl_loader *loader)
{
    return (struct dl_span){loader->weights.list.data, loader->weights.list.len};
}

/* A state's list; may be empty. */
static struct dl_span weights_behind(const struct dl_epoch_options *o)
{
    struct dl_span state = {o->state, o->state_len};

    (void)dataset_state_split(&state);
    return mix_changes_split(&state);
}

struct dl_span weights_for(const struct dl_loader *loader, const struct dl_epoch_options *o)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *now = NULL;
    _cleanup_(mix_changes_unrefp) struct mix_changes *then = NULL;
    struct dl_span list = weights_of(loader);

    if (!o->state)
        return list;
    if (loader->weights.known && mix_changes_read(list, &now) == 0 &&
        mix_changes_read(weights_behind(o), &then) == 0 &&
        (mix_changes_within(then, now) || mix_changes_is_placed(then, now)))
        return list;
    return weights_behind(o);
}

int weights_take(struct dl_loader *loader, const struct dl_epoch_options *o)
{
    struct dl_span list = {0};
    bool begins = o->epoch == 0 && o->step == 0;

    if (!o->state && !begins && o->epoch != DL_RESUME)
        return 0; /* as it is known by now */
    if (o->state)
        list = weights_behind(o);
    if (weights_set(loader, list) < 0)
        return client_fail(loader->client, ENOMEM, "", "no memory for the state's weights");
    loader->weights.known = o->epoch != DL_RESUME;
    return 0;
}

void weights_send(struct dl_loader *loader)
{
    struct dl_message msg = {.number = DL_MSG_CHANGES};

    if (!loader->weights.known || loader->weights.list.len == 0)
        return;
    msg.changes.loader = loader->id;
    msg.changes.changes = weights_of(loader);
    client_send(loader->client, &msg);
}
