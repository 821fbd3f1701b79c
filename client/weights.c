/*
 * Changed weights of a mixture or of samples, as the client keeps them for a loader: the list
 * (proto/mix_changes.h) in force at the daemon, or in a state. It follows each state and is sent
 * before each START; dl_loader_mix() requests another change.
 */
#include "client/internal.h"
#include "proto/dataset_state.h"
#include "proto/mix_changes.h"
#include "proto/value.h"

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
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *now = NULL;
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *then = NULL;
    struct dl_span list = weights_of(loader);

    if (!o->state)
        return list;
    if (loader->weights.known && mix_changes_read(list, &now) == 0 &&
        mix_changes_read(weights_behind(o), &then) == 0 && mix_changes_within(then, now))
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

/* ---- asking for a change --------------------------------------------------------------------- */

static int weights_pack(struct dl_client *client, const struct dl_mix_weight *weights, size_t n,
                        struct dl_buffer *ret)
{
    _cleanup_(value_deinit)
    struct value map = {.type = VALUE_MAP};
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++) {
        if (!weights[i].dataset || !*weights[i].dataset)
            return client_fail(client, EINVAL, "weights", "number %zu has no dataset's name", i);
        if (value_get(&map, weights[i].dataset))
            return client_fail(client, EINVAL, weights[i].dataset, "has two weights");
        r = value_set_float(&map, weights[i].dataset, weights[i].weight);
    }
    if (r == 0)
        r = value_pack(&map, ret);
    return r < 0 ? client_fail(client, -r, "weights", "cannot be sent: %s", strerror(-r)) : 0;
}

int dl_client_mix(struct dl_client *client, const char *loader, const struct dl_mix_weight *weights,
                  size_t n, uint64_t epoch, uint64_t step, const void **ret_data, size_t *ret_len)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer packed = {0};
    struct dl_message msg = {.number = DL_MSG_MIX};
    int r = client_begin(client);

    if (r == 0 && (!loader || !*loader || strlen(loader) > DL_MAX_NAME_BYTES))
        r = client_fail(client, EINVAL, "loader", "a loader's name has 1 to %llu bytes",
                        (unsigned long long)DL_MAX_NAME_BYTES);
    if (r == 0 && (n == 0 || n > DL_MAX_MIX_CHILDREN))
        r = client_fail(client, EINVAL, "weights", "%zu weights, but a mix has 1 to %llu datasets",
                        n, (unsigned long long)DL_MAX_MIX_CHILDREN);
    if (r == 0)
        r = weights_pack(client, weights, n, &packed);
    if (r < 0)
        return r;
    msg.mix.loader = span_str(loader);
    msg.mix.epoch = epoch;
    msg.mix.step = step;
    msg.mix.weights = (struct dl_span){packed.data, packed.len};
    r = client_ask(client, &msg, &msg.mix.request, REQUEST_TIMEOUT);
    if (r < 0)
        return r;
    *ret_data = client->answer.data;
    *ret_len = client->answer.len;
    return 0;
}

int weights_read_answer(struct dl_client *client, const void *data, size_t len, uint64_t *epoch,
                        uint64_t *step)
{
    _cleanup_(value_deinit)
    struct value view = {0};

    if (value_unpack(data, len, &view, NULL) < 0)
        return client_fail(client, ENOMEM, "", "no memory for the daemon's answer");
    *epoch = value_count(value_get(&view, "epoch"));
    *step = value_count(value_get(&view, "step"));
    return 0;
}

int weights_begin(struct dl_loader *loader)
{
    int r = client_begin(loader->client);

    if (r == 0 && loader->local)
        r = client_fail(loader->client, ENOTSUP, "workers.count",
                        "0 loads in this process alone, and other ranks would go on with the old "
                        "weights; write 1 or more");
    return r;
}

int dl_loader_mix(struct dl_loader *loader, const struct dl_mix_weight *weights, size_t n,
                  uint64_t *epoch, uint64_t *step)
{
    const void *data;
    size_t len;
    int r = weights_begin(loader);

    if (r == 0)
        r = dl_client_mix(loader->client, loader->name, weights, n, *epoch, *step, &data, &len);
    return r < 0 ? r : weights_read_answer(loader->client, data, len, epoch, step);
}
