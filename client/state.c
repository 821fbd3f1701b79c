/* States: where an epoch stands, as a token, and the way back to it. */
#include "client/internal.h"

#include <errno.h>
#include <inttypes.h>

static int read_state(struct dl_loader *loader, const void *state, size_t len,
                      struct state_token *ret)
{
    struct dl_error err = {0};
    int r = state_token_read(state, len, ret, &err);

    if (r == 0)
        r = state_token_check(ret, &loader->identity, &err);
    return r < 0 ? client_fail_with(loader->client, &err) : 0;
}

/* Where a state goes on; its own step, or in another world 0. */
static int find_state(struct dl_loader *loader, const void *state, size_t len, uint64_t world,
                      struct state_place *ret)
{
    struct state_token token;
    struct dl_error err = {0};
    int r = read_state(loader, state, len, &token);

    if (r < 0)
        return r;
    return state_token_place(&token, world, ret, &err) < 0 ? client_fail_with(loader->client, &err)
                                                           : 0;
}

int state_find_place(struct dl_loader *loader, const struct dl_epoch_options *o,
                     struct state_place *ret)
{
    *ret = (struct state_place){.epoch = o->epoch, .step = o->step};
    return o->state ? find_state(loader, o->state, o->state_len, o->world ? o->world : 1, ret) : 0;
}

static int write_state(struct dl_loader *loader, const struct state_place *place, uint64_t world,
                       void *buf, size_t *len)
{
    struct state_token token = {.of = loader->identity,
                                .epoch = place->epoch,
                                .world = world,
                                .steps = place->step,
                                .before = place->before};
    uint8_t bytes[STATE_TOKEN_MAX];
    size_t size = 0;

    if (state_token_write(&token, bytes, &size) < 0)
        return client_fail(loader->client, ENOMEM, "", "no memory for a state");
    if (size > *len)
        return client_fail(loader->client, ENOSPC, "state", "it takes %zu bytes, and there are %zu",
                           size, *len);
    memcpy(buf, bytes, size);
    *len = size;
    return 0;
}

static int check_order(struct dl_loader *loader)
{
    if (loader->in_order)
        return 0;
    return client_fail(loader->client, ENOTSUP, "workers.in_order",
                       "false: batches come as they are ready, so that no number says which were "
                       "given out; take the state between epochs, or write true");
}

int dl_epoch_state(struct dl_epoch *epoch, void *buf, size_t *len)
{
    struct dl_loader *loader = epoch->loader;
    struct state_place place = {
        .epoch = epoch->number, .step = epoch->position, .before = epoch->before};
    int r = client_begin(loader->client);

    if (r < 0)
        return r;
    if (epoch->ended && epoch->number < UINT64_MAX)
        place = (struct state_place){.epoch = epoch->number + 1};
    else if (epoch->received > 0)
        r = check_order(loader);
    if (r < 0)
        return r;
    return write_state(loader, &place, epoch->world, buf, len);
}

int dl_loader_state(struct dl_loader *loader, const struct dl_epoch_options *options, void *buf,
                    size_t *len)
{
    static const struct dl_epoch_options defaults;
    const struct dl_epoch_options *o = options ? options : &defaults;
    uint64_t world = o->world ? o->world : 1;
    struct state_place place = {0};
    int r = client_begin(loader->client);

    if (r == 0 && world > DL_MAX_WORLD_SIZE)
        r = client_fail(loader->client, EINVAL, "world", "%" PRIu64 " is above %" PRIu64, world,
                        DL_MAX_WORLD_SIZE);
    if (r == 0)
        r = state_find_place(loader, o, &place);
    if (r < 0)
        return r;
    if (o->state && o->step > 0)
        place.step = o->step;
    if (place.step > 0 && (r = check_order(loader)) < 0)
        return r;
    return write_state(loader, &place, world, buf, len);
}

int dl_loader_find_state(struct dl_loader *loader, const void *state, size_t len, uint32_t world,
                         uint64_t *ret_epoch, uint64_t *ret_step)
{
    struct state_place place = {0};
    int r = client_begin(loader->client);

    if (r == 0)
        r = find_state(loader, state, len, world ? world : 1, &place);
    if (r < 0)
        return r;
    *ret_epoch = place.epoch;
    *ret_step = place.step;
    return 0;
}

int dl_state_json(const void *state, size_t len, char *buf, size_t size)
{
    struct state_token token;
    int r = state_token_read(state, len, &token, NULL);

    return r < 0 ? r : (int)state_token_json(&token, buf, size);
}
