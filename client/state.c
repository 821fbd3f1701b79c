/* States: where an epoch stands, as a token, and the way back to it. */
#include "client/internal.h"
#include "proto/dataset_state.h"
#include "proto/mix_changes.h"

#include <errno.h>
#include <inttypes.h>

/* Reads a token and the list that may follow it. *ret_list borrows it. */
static int state_read_whole(struct dl_span state, struct state_token *ret, struct dl_span *ret_list,
                            struct dl_error *err)
{
    *ret_list = dataset_state_split(&state);
    struct dl_span changes = mix_changes_split(&state);
    int r = state_token_read(state.data, state.len, ret, err);
    if (r == 0 && ret->changes != (changes.len > 0 ? state_list_sum(changes) : 0))
        return dl_error_set(err, EINVAL, "state",
                            "the changed weights of its mixture are missing or damaged; pass the "
                            "state as it was written");
    if (r == 0 && ret_list->len > 0 && ret->dataset_states != state_list_sum(*ret_list))
        return dl_error_set(err, EINVAL, "state",
                            "the dataset's own state is damaged, or belongs to another token; "
                            "pass the state as it was written");
    return r;
}

static int state_read(struct dl_loader *loader, const void *state, size_t len,
                      struct state_token *ret)
{
    struct dl_error err = {0};
    struct dl_span list;
    int r = state_read_whole((struct dl_span){state, len}, ret, &list, &err);

    if (r == 0)
        r = state_token_check(ret, &loader->identity, &err);
    return r < 0 ? client_fail_with(loader->client, &err) : 0;
}

/* The step at which the state of the options resumes: its own, or 0 in another world. */
static int state_find(struct dl_loader *loader, const struct dl_epoch_options *o, bool is_start,
                      struct state_place *ret)
{
    struct state_token token;
    struct dl_error err = {0};
    int r = state_read(loader, o->state, o->state_len, &token);

    if (r < 0)
        return r;
    r = state_token_place(&token, epoch_options_world(o), ret, &err);
    if (r == 0 && ret->step > 0 && is_start && o->world != DL_WORLD_CLUSTER)
        r = state_token_check_rank(&token, o->rank, &err);
    return r < 0 ? client_fail_with(loader->client, &err) : 0;
}

int state_find_place(struct dl_loader *loader, const struct dl_epoch_options *divided,
                     struct state_place *ret)
{
    *ret = (struct state_place){
        .epoch = divided->epoch, .step = divided->step, .passed = {.head = divided->step}};
    return divided->state ? state_find(loader, divided, true, ret) : 0;
}

int state_take_dataset_states(struct dl_epoch *epoch, const struct dl_epoch_options *o)
{
    struct dl_span state = {o->state ? o->state : o->dataset_states,
                            o->state ? o->state_len : o->dataset_states_len};
    struct dl_span list = {0};

    if (state.data && epoch->first > 0)
        list = dataset_state_split(&state);
    if (list.len == 0 || saved_states_take(epoch, list) == 0)
        return 0;
    return client_fail(epoch->loader->client, EINVAL, "state",
                       "the dataset's own state belongs to another loader");
}

/* What stands behind the token: changed weights, and what the dataset says. */
static int state_write_lists(struct dl_span changes, struct dl_span list, struct dl_buffer *ret)
{
    int r = mix_changes_attach(changes, ret);

    return r < 0 || list.len == 0 ? r : buffer_append(ret, list.data, list.len);
}

static int state_write(struct dl_loader *loader, const struct state_place *place, uint64_t world,
                       struct dl_span list, struct dl_span changes, void *buf, size_t *len)
{
    _cleanup_(buffer_deinit) struct dl_buffer behind = {0};
    struct state_token token = {.identity = loader->identity,
                                .epoch = place->epoch,
                                .world = world,
                                .steps = place->step,
                                .before = place->before,
                                .mark = place->mark,
                                .has_rank = place->has_rank,
                                .rank = place->rank,
                                .passed = place->passed,
                                .dataset_states = list.len > 0 ? state_list_sum(list) : 0,
                                .changes = changes.len > 0 ? state_list_sum(changes) : 0};
    uint8_t bytes[STATE_TOKEN_MAX];
    size_t size = 0, room = *len;

    if (state_token_write(&token, bytes, &size) < 0 ||
        state_write_lists(changes, list, &behind) < 0)
        return client_fail(loader->client, ENOMEM, "", "no memory for a state");
    *len = size + behind.len;
    if (*len > room)
        return client_fail(loader->client, ENOSPC, "state",
                           "it needs %zu bytes, and the buffer has %zu", *len, room);
    memcpy(buf, bytes, size);
    if (behind.len > 0)
        memcpy((uint8_t *)buf + size, behind.data, behind.len);
    return 0;
}

/* If batches may pass others: the epoch's steps at a place where it was. */
static int state_find_passed(const struct dl_epoch *epoch, struct state_place *place)
{
    if (epoch->loader->in_order || place->step == 0)
        return 0;
    place->has_rank = true;
    place->rank = epoch->rank;
    if (came_is_kept(epoch) && came_at(epoch, place->step, &place->passed))
        return 0;
    return client_fail(epoch->loader->client, ENOTSUP, "workers.in_order",
                       "which batches have come is not known: %s; take the state between epochs, "
                       "or let them come in order",
                       epoch->came.lost ? "one was passed by too many, or memory was lacking"
                                        : "an iterable dataset, or a client that is the sampler, "
                                          "has no steps that could be left out");
}

/* The same of a loader, which knows what its state says. */
static int state_check_order(struct dl_loader *loader, const struct state_place *place)
{
    if (loader->in_order || place->step == 0 || place->has_rank)
        return 0;
    return client_fail(loader->client, ENOTSUP, "workers.in_order",
                       "batches may pass others, so a number of steps does not tell which ones "
                       "came; take the state of the epoch");
}

enum { STATE_READS = 16 };

/* The socket may hold weights changed by another rank, which a state must include. The next call
 * reports other errors. */
static void state_hear(struct dl_loader *loader)
{
    struct dl_client *client = loader->client;
    int r = !loader->local && client->fd >= 0 ? 1 : 0;

    for (int reads = 0; r > 0 && reads < STATE_READS && !client_is_away(client); reads++)
        r = client_pump(client);
}

/* At `step`, or (DL_UNKNOWN) where the epoch is; `whole`: with the dataset's own states. */
static int state_write_epoch(struct dl_epoch *epoch, uint64_t step, bool whole, void *buf,
                             size_t *len)
{
    _cleanup_(buffer_deinit) struct dl_buffer list = {0};
    struct state_place place = {
        .epoch = epoch->number,
        .step = step == DL_UNKNOWN ? epoch->position : step,
        .before = epoch->before,
    };
    int r = 0;

    place.mark = epoch_mark_at(epoch, place.step);

    state_hear(epoch->loader);
    if (step == DL_UNKNOWN && epoch->outcome == EPOCH_HAD_ALL && epoch->number < UINT64_MAX)
        place = (struct state_place){.epoch = epoch->number + 1};
    else
        r = state_find_passed(epoch, &place);
    if (r == 0 && whole && place.epoch == epoch->number &&
        saved_states_write(epoch, place.step, &list) < 0)
        r = client_fail(epoch->loader->client, ENOMEM, "", "no memory for a state");
    if (r < 0)
        return r;
    return state_write(epoch->loader, &place, epoch->world, (struct dl_span){list.data, list.len},
                       weights_of(epoch->loader), buf, len);
}

int dl_epoch_state(struct dl_epoch *epoch, void *buf, size_t *len)
{
    int r = client_begin(epoch->loader->client);

    return r < 0 ? r : state_write_epoch(epoch, DL_UNKNOWN, false, buf, len);
}

int dl_epoch_whole_state(struct dl_epoch *epoch, uint64_t step, void *buf, size_t *len)
{
    int r = client_begin(epoch->loader->client);

    if (r == 0 && step != DL_UNKNOWN && (step < epoch->begun || step > epoch->position))
        r = client_fail(epoch->loader->client, EINVAL, "step",
                        "%" PRIu64 " is none between the first, %" PRIu64 ", and what was given "
                        "out, %" PRIu64,
                        step, epoch->begun, epoch->position);
    return r < 0 ? r : state_write_epoch(epoch, step, true, buf, len);
}

int dl_epoch_has_dataset_state(const struct dl_epoch *epoch)
{
    return epoch->saved_states.workers != NULL;
}

/* Divides the ranks as epoch_divide_ranks() does: a state counts ranks of the samples. */
static int state_divide_ranks(struct dl_loader *loader, struct dl_epoch_options *o)
{
    uint64_t world = epoch_options_world(o);

    if (world == 0)
        return client_fail(loader->client, EINVAL, "world",
                           "a state needs a number; for a running epoch take dl_epoch_world()");
    if (world > DL_MAX_WORLD_SIZE)
        return client_fail(loader->client, EINVAL, "world", "%" PRIu64 " is above %" PRIu64, world,
                           DL_MAX_WORLD_SIZE);
    return epoch_divide_ranks(loader, o);
}

/* A running epoch knows by what mark that place may be found. */
static void state_find_mark(const struct dl_loader *loader, uint64_t world,
                            struct state_place *place)
{
    for (const struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next) {
        struct lazy_mark mark = epoch_mark_at(epoch, place->step);

        if (epoch->number == place->epoch && epoch->world == world &&
            history_equal(&epoch->before, &place->before) && mark.window > place->mark.window)
            place->mark = mark;
    }
}

int dl_loader_state(struct dl_loader *loader, const struct dl_epoch_options *options, void *buf,
                    size_t *len)
{
    struct dl_epoch_options o = {0};
    struct state_place place = {0};
    int r = client_begin(loader->client);

    if (r == 0)
        r = epoch_take_options(loader->client, options, &o);
    if (r == 0)
        r = state_divide_ranks(loader, &o);
    if (r == 0)
        r = o.state ? state_find(loader, &o, false, &place) : state_find_place(loader, &o, &place);
    if (r < 0)
        return r;
    state_hear(loader);
    place.has_rank = place.has_rank && (!o.state || o.step == 0 || o.step == place.step);
    if (o.state && o.step > 0)
        place.step = o.step;
    if ((r = state_check_order(loader, &place)) < 0)
        return r;
    state_find_mark(loader, epoch_options_world(&o), &place);
    return state_write(loader, &place, epoch_options_world(&o), (struct dl_span){0},
                       weights_for(loader, &o), buf, len);
}

int dl_loader_find_state(struct dl_loader *loader, const void *state, size_t len, uint32_t world,
                         uint64_t *ret_epoch, uint64_t *ret_step)
{
    struct dl_epoch_options o = {.world = world, .state = state, .state_len = len};
    struct state_place place = {0};
    int r = client_begin(loader->client);

    if (r == 0)
        r = epoch_divide_ranks(loader, &o);
    if (r == 0)
        r = state_find(loader, &o, false, &place);
    if (r < 0)
        return r;
    *ret_epoch = place.epoch;
    *ret_step = place.step;
    return 0;
}

int dl_state_json(const void *state, size_t len, char *buf, size_t size)
{
    struct state_token token;
    struct dl_span list;
    int r = state_read_whole((struct dl_span){state, len}, &token, &list, NULL);

    return r < 0 ? r : (int)state_token_json(&token, buf, size);
}
