#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "daemon/serve/pool/helpers.h"

#include <assert.h>

#include <utlist.h>

/* ---- opening and closing -------------------------------------------------------------------- */

static void loader_say_gone(struct loader *loader)
{
    if (!loader->gone)
        loader->o.events->gone(loader->o.context, loader);
    loader->gone = true;
}

void loader_give_way(struct loader *loader)
{
    uv_timer_stop(&loader->end);
    loader_leave_fair(loader);
    loader_say_gone(loader);
    core_drop_parked(&loader->core);
    loader_execute(loader);
    if (loader->users) /* users that left but still hold leases */
        pool_end_workers(loader->pool);
    else
        loader_free(loader);
}

static void loader_on_end(uv_timer_t *timer)
{
    loader_give_way(timer->data);
}

uint64_t loader_unused_since(const struct loader *loader, bool *ret_parked)
{
    *ret_parked = loader->core.parked;
    return loader_users(loader) > 0 || loader->executing || loader->pumping ? UINT64_MAX
                                                                            : loader->unused_ns;
}

uint32_t loader_gives_back(const struct loader *loader)
{
    return pool_gives_back(loader->pool);
}

uint64_t loader_gives_back_bytes(const struct loader *loader)
{
    return pool_memory(loader->pool) + pictures_list_own_bytes(&loader->pictures);
}

static void loader_end_after(struct loader *loader, uint64_t ms)
{
    uv_timer_start(&loader->end, loader_on_end, ms, 0);
}

static uint32_t loader_count_helpers(const struct loader *loader)
{
    const struct pool_options *o = &loader->o.pool;
    const char *why;
    uint32_t n = helpers_count(o->config, o->spec, o->python, o->foreign, &why);

    if (why)
        log_loader(LOG_INFO, loader->spec.name, loader->o.uid,
                   "%s: this machine's workers load it alone: %s", loader->spec.name, why);
    return n;
}

static int loader_start_pool(struct loader *loader, struct dl_error *err)
{
    struct pool_options *o = &loader->o.pool;

    o->spec = &loader->spec;
    o->python = &loader->o.python;
    o->reader = loader->reader;
    o->pictures = &loader->pictures;
    o->events = &loader_pool_events;
    o->owner = loader;
    o->helpers = loader_count_helpers(loader);
    o->helpers_auto = helpers_are_sized(o->config, o->spec);
    o->pinned = o->spec->helpers < DL_MAX_WORKERS
                    ? (uint32_t)min_u64(o->helpers, o->spec->workers)
                    : 0; /* auto: a share is not worth moving where it is not needed */
    return pool_new(o, &loader->pool, err);
}

int loader_new(const struct loader_options *options, struct dl_spec *spec, struct loader **ret,
               struct dl_error *err)
{
    struct loader *loader = must_alloc(sizeof *loader);
    int r = quota_charge(options->pool.account, QUOTA_LOADERS, 1, err);

    loader->o = *options;
    loader->reader = credentials_copy(options->pool.reader);
    loader->ticks = loader->hold = UINT64_MAX;
    loader->epochs = (struct epoch_set){.payer = {options->pool.account, options->pool.budget},
                                        .crew = options->crew,
                                        .uid = options->uid};
    loader->spec = *spec;
    loader->size.automatic = spec->workers_auto;
    *spec = (struct dl_spec){0};
    if (r < 0)
        goto refused;
    if ((r = spec_fingerprint(&loader->spec, &loader->fingerprint)) < 0 ||
        (r = spec_parts(&loader->spec, loader->identity.parts)) < 0)
        goto charged;
    loader->identity.order = spec_state_order(&loader->spec);
    loader->identity.seed = loader->spec.seed;
    if ((r = pictures_list_make(options->pictures, &loader->spec.dataset, &loader->epochs.payer,
                                &loader->pictures, err)) < 0 ||
        (r = loader_start_pool(loader, err)) < 0)
        goto charged;
    uv_timer_init(options->pool.loop, &loader->end);
    uv_timer_init(options->pool.loop, &loader->tick);
    loader->end.data = loader->tick.data = loader;
    loader->open_handles = 2;
    core_init(&loader->core, &(struct core_options){.spec = &loader->spec,
                                                    .account = options->pool.account,
                                                    .linger_ns = options->pool.config->linger,
                                                    .in_turn = python_in_turn(&loader->spec),
                                                    .helpers = loader->o.pool.helpers});
    loader->core.resting = loader->o.pool.helpers - pool_helpers(loader->pool);
    loader->lately.account = options->pool.account;
    loader->rooms = must_alloc(pool_workers(loader->pool) * sizeof *loader->rooms);
    *ret = loader;
    return 0;

charged:
    pictures_list_deinit(&loader->pictures);
    quota_return(options->pool.account, QUOTA_LOADERS, 1);
refused:
    python_run_deinit(&loader->o.python);
    spec_deinit(&loader->spec);
    free(loader->reader);
    free(loader);
    return r;
}

static void loader_on_closed(uv_handle_t *handle)
{
    struct loader *loader = handle->data;

    if (--loader->open_handles > 0)
        return;
    python_run_deinit(&loader->o.python);
    free(loader->rooms);
    spec_deinit(&loader->spec);
    free(loader->reader);
    free(loader);
}

struct loader *loader_free(struct loader *loader)
{
    struct loader_user *user, *next;
    struct written_file *file, *other;

    if (!loader)
        return NULL;
    loader_headspace_end(loader, NULL);
    loader_leave_fair(loader);
    DL_FOREACH_SAFE (loader->users, user, next) {
        loader_detach(user);
    }
    core_drop_expected(&loader->core, NULL);
    core_drop_parked(&loader->core);
    loader_execute(loader);
    assert(!loader->epochs.epochs);
    loader->pool = pool_free(loader->pool); /* which returns tasks that are not waited for */
    pictures_list_deinit(&loader->pictures);
    loader_execute(loader);
    core_deinit(&loader->core);
    loader->measuring = measuring_free(loader->measuring);
    loader->windows = windows_free(loader->windows);
    loader->lengths = length_table_unref(loader->lengths);
    mix_ruler_deinit(&loader->ruler);
    loader->changes = mix_changes_unref(loader->changes);
    free(loader->sizes);
    lately_book_deinit(&loader->lately);
    LL_FOREACH_SAFE (loader->written, file, other)
        free(file);
    dataset_states_deinit(&loader->carried);
    quota_return(loader->o.pool.account, QUOTA_OVERHEAD, loader->paid_carried);
    quota_return(loader->o.pool.account, QUOTA_LOADERS, 1);
    uv_close((uv_handle_t *)&loader->end, loader_on_closed);
    uv_close((uv_handle_t *)&loader->tick, loader_on_closed);
    return NULL;
}

static void loader_tell_opened(struct loader *loader, struct loader_user *user)
{
    user->answered = true;
    if (loader->state == LOADER_BROKEN) {
        loader_detach(user);
        loader->o.events->opened(user, &loader->why_broken);
    } else {
        loader->o.events->opened(user, NULL);
    }
}

void loader_opened(struct loader *loader)
{
    struct loader_user *user, *next;

    loader->state = LOADER_OPEN;
    loader_size_first(loader);
    loader_join_fair(loader);
    if (loader_is_automatic(loader) || loader_sizes_helpers(loader))
        loader->o.events->automatic(loader->o.context);
    DL_FOREACH_SAFE (loader->users, user, next) {
        loader_tell_opened(loader, user);
    }
}

void loader_break(struct loader *loader, const struct dl_error *err)
{
    struct loader_user *user, *next;

    log_about(LOG_WARNING,
              &(struct log_fields){LOG_EVENT_LOADER_BROKE, .loader = loader->spec.name,
                                   .client_uid = LOG_N(loader->o.uid)},
              "%s: %s%s%s", loader->spec.name, err->path, *err->path ? ": " : "", err->message);
    loader->state = LOADER_BROKEN;
    loader_leave_fair(loader);
    loader->why_broken = *err;
    loader_headspace_end(loader, err);
    core_break(&loader->core, &loader->why_broken);
    loader_execute(loader);
    loader_say_gone(loader);
    DL_FOREACH_SAFE (loader->users, user, next) {
        if (!user->answered)
            loader_tell_opened(loader, user);
    }
    if (!loader->users)
        loader_end_after(loader, 0);
}

void loader_attach(struct loader *loader, struct loader_user *user)
{
    user->loader = loader;
    user->blame = loader->o.blame;
    user->answered = user->leaving = false;
    DL_APPEND(loader->users, user);
    uv_timer_stop(&loader->end);
    if (loader->state != LOADER_OPENING)
        loader_tell_opened(loader, user);
}

/* One user fewer may ask for batches: without any it is not to last. */
static void loader_end_if_unused(struct loader *loader)
{
    if (loader_users(loader) > 0)
        return;
    loader->unused_ns = uv_hrtime();
    core_drop_expected(&loader->core, NULL);
    loader_execute(loader);
    /* A host's loader cannot be requested by others: a trainer's workers end with its loader. */
    bool at_once = loader->state == LOADER_BROKEN || loader->o.python.host_number;
    if (loader->pool)
        loader_end_after(loader, at_once ? 0 : loader->o.pool.config->linger / 1000000);
}

void loader_leave(struct loader_user *user)
{
    user->leaving = true;
    loader_end_if_unused(user->loader);
}

void loader_detach(struct loader_user *user)
{
    struct loader *loader = user->loader;

    if (!loader)
        return;
    DL_DELETE(loader->users, user);
    user->loader = NULL;
    if (!user->leaving)
        loader_end_if_unused(loader);
    else if (!loader->users && loader->pool && !uv_is_active((uv_handle_t *)&loader->end))
        loader_end_after(loader, 0); /* its workers have ended already */
}

void loader_meet_helpers(struct loader *loader)
{
    pool_meet_helpers(loader->pool);
}

void loader_halt(struct loader *loader)
{
    loader->halted = true;
    loader_headspace_end(loader, NULL);
}

/* ---- views ---------------------------------------------------------------------------------- */

const struct dl_spec *loader_spec(const struct loader *loader)
{
    return &loader->spec;
}

bool loader_may_join(const struct loader *loader, const struct credentials *who)
{
    return !loader->o.pool.foreign || !loader->reader || loader->reader->ids[0] == 0 ||
           credentials_equal(loader->reader, who);
}

uid_t loader_uid(const struct loader *loader)
{
    return loader->o.uid;
}

const struct quota_account *loader_account(const struct loader *loader)
{
    return loader->o.pool.account;
}

const char *loader_interpreter(const struct loader *loader)
{
    return loader->o.python.interpreter;
}

uint64_t loader_fingerprint(const struct loader *loader)
{
    return loader->fingerprint;
}

const struct state_identity *loader_identity(const struct loader *loader)
{
    return &loader->identity;
}

uint32_t loader_credits(const struct loader *loader)
{
    uint32_t workers = pool_workers(loader->pool) - loader->core.resting;

    return spec_credits(&loader->spec, loader->core.prefetch,
                        (uint32_t)max_u64(workers, loader->spec.workers));
}

uint64_t loader_measured(const struct loader *loader)
{
    return loader->measuring ? measuring_done(loader->measuring) : UINT64_MAX;
}

const struct pool *loader_pool(const struct loader *loader)
{
    return loader->pool;
}

const struct core *loader_core(const struct loader *loader)
{
    return &loader->core;
}

bool loader_pictures(const struct loader *loader, struct pictures_counts *ret, uint64_t *ret_bytes)
{
    pictures_list_counts(&loader->pictures, ret, ret_bytes);
    return loader->pictures.n > 0;
}

const struct lengths_found *loader_lengths(const struct loader *loader)
{
    return loader->lengths && !loader->measuring ? &loader->found : NULL;
}

void loader_share_pictures(const struct loader *loader, struct pictures_list *list)
{
    if (loader->o.python.host_number)
        pictures_list_share(list, &loader->pictures);
}

const struct slow_list *loader_slowest(const struct loader *loader)
{
    return &loader->slowest;
}

uint64_t loader_starved_ns(const struct loader *loader)
{
    return loader->starved_ns;
}

bool loader_name_task(const struct loader *loader, const void *tag, const struct step **ret_step,
                      char *text, size_t len)
{
    const struct measuring *measuring = loader_measuring_of(loader, tag);
    const struct step *step = tag;

    *ret_step = NULL;
    if (measuring) {
        measuring_name(measuring, tag, text, len);
        return true;
    }
    if (!step->stream)
        return false;
    *ret_step = step;
    core_name_samples(&loader->core, step, text, len);
    return true;
}

const char *loader_state(const struct loader *loader)
{
    static const char *const names[] = {"opening", "open", "broken"};
    return loader->measuring && loader->state == LOADER_OPENING ? "measuring"
                                                                : names[loader->state];
}

uint32_t loader_users(const struct loader *loader)
{
    struct loader_user *user;
    uint32_t n = 0;

    DL_FOREACH (loader->users, user) {
        n += !user->leaving;
    }
    return n;
}
