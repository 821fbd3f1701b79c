/*
 * How many workers a loader has: as its spec says at first, and any number later where its batches
 * do not depend on it: what somebody says (loader_resize()), or what core/sizing.h decides by what
 * is measured here.
 */
#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_private.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include <utlist.h>

const char *loader_fixed_size(const struct loader *loader)
{
    if (loader->core.iterable)
        return "the order of its samples depends on the number of workers, each of which reads its "
               "own share of the dataset";
    if (python_in_turn(&loader->spec))
        return "worker w makes steps w, w + N, w + 2 N of its N, as PyTorch's do, and what Python "
               "keeps between samples depends on that";
    return NULL;
}

static int size_check(const struct loader *loader, struct dl_error *err)
{
    const char *fixed = loader_fixed_size(loader);

    if (loader->state != LOADER_OPEN)
        return dl_error_set(err, EAGAIN, "workers", "the loader is not open yet, or is broken");
    if (fixed)
        return dl_error_set(err, EINVAL, "workers.count",
                            "%u workers cannot become another number while it is open: %s; open it "
                            "again with another workers.count (num_workers)",
                            pool_size(loader->pool), fixed);
    return 0;
}

static int size_check_least(const struct loader *loader, uint32_t workers, struct dl_error *err)
{
    uint32_t least = pool_size_least(loader->pool);

    if (workers >= least)
        return 0;
    return dl_error_set(err, EINVAL, "workers.count",
                        "%u workers are fewer than the %u that it began with, which it keeps as "
                        "long as helpers make batches of it, too; open it with workers: {helpers: "
                        "0}, or with fewer",
                        workers, least);
}

static int size_change(struct loader *loader, uint32_t workers, struct dl_error *err)
{
    uint32_t before = pool_size(loader->pool);
    int r = pool_resize(loader->pool, workers, err);

    if (r < 0)
        return r;
    uint32_t all = workers + loader->o.pool.helpers;
    if (all > loader->core.workers)
        loader->rooms = must_realloc(loader->rooms, all * sizeof *loader->rooms);
    core_resize(&loader->core, all, loader->core.prefetch);
    if (workers != before)
        log_loader(LOG_INFO, loader->spec.name, loader->o.uid, "%s: workers: %u become %u",
                   loader->spec.name, before, workers);
    return 0;
}

int loader_resize(struct loader *loader, uint32_t workers, struct dl_error *err)
{
    int r = size_check(loader, err);

    if (r == 0)
        r = size_check_least(loader, workers, err);
    if (r == 0)
        r = size_change(loader, workers, err);
    if (r == 0)
        loader_pump(loader);
    return r;
}

/* ---- none, while nobody reads it ------------------------------------------------------------- */

static bool size_is_read(const struct stream *stream)
{
    return stream->sink && stream_rules[stream->phase].is_read && !(stream->told & TOLD_END);
}

static bool size_is_read_by_any(const struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (size_is_read(stream))
            return true;
    }
    return false;
}

/* A worker is about to look at its files. */
static bool size_looks(const struct loader *loader)
{
    return loader->look.begun_ns > 0;
}

static bool size_is_at_rest(const struct loader *loader)
{
    return loader->state == LOADER_OPEN && loader->core.workers == 0;
}

void loader_wake(struct loader *loader)
{
    const struct loader_events *events = loader->o.events;
    int r;

    if (!size_is_at_rest(loader))
        return;
    sizing_wake(&loader->size.sizing, uv_hrtime());
    while ((r = size_change(loader, 1, &loader->size.refused)) == -EDQUOT &&
           events->spare_worker(loader->o.context, loader))
        ;
    if (r == 0)
        loader->size.refused.code = 0;
}

static void size_tell_waiting(struct loader *loader)
{
    const struct dl_error *why = &loader->size.refused;
    char text[sizeof why->path + sizeof why->message + 64];
    struct stream *stream;

    (void)snprintf(text, sizeof text, "waiting for a worker: %s: %s", why->path, why->message);
    DL_FOREACH (loader->core.streams, stream) {
        if (!size_is_read(stream) || stream->told & TOLD_NO_WORKER)
            continue;
        stream->told |= TOLD_NO_WORKER;
        loader->o.events->warning(stream, text);
    }
}

void loader_wake_if_read(struct loader *loader)
{
    if (!size_is_at_rest(loader) || !size_is_read_by_any(loader))
        return;
    loader_wake(loader);
    if (size_is_at_rest(loader))
        size_tell_waiting(loader);
}

/* ---- what the daemon finds ------------------------------------------------------------------- */

int loader_set_automatic(struct loader *loader, bool automatic, struct dl_error *err)
{
    int r = automatic ? size_check(loader, err) : 0;

    if (r < 0)
        return r;
    loader->size.automatic = automatic;
    loader->size.sizing = (struct sizing){0};
    if (automatic)
        loader->o.events->automatic(loader->o.context);
    return 0;
}

bool loader_is_automatic(const struct loader *loader)
{
    return loader->size.automatic && !loader_fixed_size(loader);
}

/* Its trainer waits and has got nothing since the last time: it will say so afterwards. */
static bool size_waits_still(const struct stream *stream)
{
    return stream->in_state[STEP_LEASED] == 0 && stream->in_state[STEP_READY] == 0 &&
           stream->delivered.batches == stream->sized_batches;
}

void loader_size_first(struct loader *loader)
{
    /* New weights take effect behind what is loaded ahead. */
    if (loader->size.automatic && !loader_weights_can_change(loader))
        core_resize(&loader->core, loader->core.workers,
                    sizing_prefetch(loader->spec.prefetch, pool_slot_bytes(loader->pool)));
}

/* As far as there is memory for it, of which others may need the rest. */
static uint32_t size_ahead_most(const struct loader *loader)
{
    uint64_t room = loader->spec.memory_limit / 2 / max_u64(pool_slot_bytes(loader->pool), 1);
    uint64_t most = min_u64(SIZING_FURTHER, room / max_u64(pool_size(loader->pool), 1));

    if (loader_weights_can_change(loader))
        return loader->core.prefetch;
    return (uint32_t)max_u64(loader->core.prefetch, most);
}

double loader_priority(const struct loader *loader)
{
    static const double weights[] = {
        [PRIORITY_NORMAL] = 1, [PRIORITY_HIGH] = 4, [PRIORITY_LOW] = 0.25};
    const struct stream *stream;
    double weight = 0;

    DL_FOREACH (loader->core.streams, stream) {
        if (size_is_read(stream))
            weight = fmax(weight, weights[stream->params.priority]);
    }
    return weight > 0 ? weight : weights[PRIORITY_NORMAL];
}

bool loader_yield_workers(struct loader *loader, bool last)
{
    uint32_t workers = loader->state == LOADER_OPEN ? pool_size(loader->pool) : 0;
    uint32_t least = pool_size_least(loader->pool);
    struct dl_error err;

    if (!last || size_looks(loader))
        least = (uint32_t)max_u64(least, 1);
    if (workers <= least || size_is_read_by_any(loader) || !loader_is_automatic(loader) ||
        loader_resize(loader, least, &err) < 0)
        return false;
    loader->size.waited_ns = 0; /* of those that read it before */
    loader->size.refused.code = 0;
    sizing_yield(&loader->size.sizing, workers);
    return true;
}

/* What it began with it keeps. */
uint32_t loader_spares(const struct loader *loader)
{
    bool gives = loader->state == LOADER_OPEN && loader_is_automatic(loader);
    uint32_t workers = gives ? pool_size(loader->pool) : 0;

    return workers -
           (uint32_t)min_u64(workers, max_u64(pool_size_least(loader->pool), SIZING_FIRST));
}

bool loader_spare_workers(struct loader *loader, uint32_t n)
{
    uint32_t workers = pool_size(loader->pool);
    struct dl_error err;

    assert(n <= loader_spares(loader));
    if (loader_resize(loader, workers - n, &err) < 0)
        return false;
    sizing_give(&loader->size.sizing, workers, uv_hrtime());
    return true;
}

/* Others may wait for those that are about to go. */
static uint32_t size_most(const struct loader *loader, double cpus)
{
    if (pool_leaving(loader->pool) > 0)
        return pool_size(loader->pool);
    return (uint32_t)min_u64(pool_size_most(loader->pool),
                             max_u64((uint64_t)(cpus * SIZING_PER_CPU), SIZING_FIRST));
}

bool loader_look_sizes(struct loader *loader, double cpus, struct sizing_case *ret)
{
    uint64_t now = uv_hrtime(), from = loader->size.at_ns;
    struct stream *stream;

    *ret = (struct sizing_case){0};
    if (loader->state != LOADER_OPEN)
        return false;
    struct pool_spent spent = pool_look_spent(loader->pool), *was = &loader->size.spent;
    ret->measure = (struct sizing_measure){.ns = from ? now - from : 0,
                                           .batches = spent.tasks - was->tasks,
                                           .away = spent.away - was->away,
                                           .away_ns = spent.away_ns - was->away_ns,
                                           .busy_ns = spent.busy_ns - was->busy_ns,
                                           .cpu_ns = spent.cpu_ns - was->cpu_ns,
                                           .cpu_wait_ns = spent.cpu_wait_ns - was->cpu_wait_ns};
    uint64_t waited = loader->size.waited_ns, ns = ret->measure.ns, readers = 0;
    DL_FOREACH (loader->core.streams, stream) {
        if (!size_is_read(stream))
            continue;
        readers++;
        ret->measure.waited_ns += size_waits_still(stream) ? ns : 0;
        stream->sized_batches = stream->delivered.batches;
    }
    /* Short epochs may be over by now, and the next one not begun. */
    ret->read = readers > 0 || waited > 0;
    ret->measure.span_ns = ret->read ? max_u64(readers, 1) * ns : 0;
    ret->measure.waited_ns = min_u64(ret->measure.waited_ns + waited, ret->measure.span_ns);
    loader->size.waited_ns = 0;
    ret->sizing = loader_is_automatic(loader) ? &loader->size.sizing : NULL;
    ret->weight = loader_priority(loader);
    ret->user = loader->o.pool.account;
    ret->user_weight = (double)quota_weight(loader->o.pool.account);
    loader_measure_fair(loader, &ret->measure);
    ret->workers = pool_size(loader->pool);
    ret->ready = pool_ready(loader->pool);
    ret->least = pool_size_least(loader->pool);
    ret->rest_ns = size_looks(loader) ? 0 : max_u64(loader->o.pool.config->linger, 1);
    ret->most = size_most(loader, cpus);
    ret->ahead = loader->core.prefetch;
    ret->ahead_most = size_ahead_most(loader);
    loader->size.cpus = cpus;
    loader->size.at_ns = now;
    loader->size.spent = spent;
    return true;
}

int loader_take_size(struct loader *loader, const struct sizing_case *decided)
{
    if (!decided->sizing)
        return 0;
    if (decided->ret_ahead != decided->ahead) {
        core_resize(&loader->core, loader->core.workers, decided->ret_ahead);
        loader_pump(loader);
    }
    if (decided->ret == decided->workers)
        return 0;
    int r = loader_resize(loader, decided->ret, &loader->size.refused);
    if (r == 0)
        loader->size.refused.code = 0;
    return r;
}

/* ---- helpers --------------------------------------------------------------------------------- */

bool loader_sizes_helpers(const struct loader *loader)
{
    return loader->o.pool.helpers_auto && loader->o.pool.helpers > 1 && !loader->core.iterable;
}

/* What its own workers may gain, they gain first; of two changes at once it would not be known
 * which one did. */
static bool size_is_own_turn(const struct sizing_case *own)
{
    return own->sizing && (own->ret != own->workers || own->sizing->trial_from > 0 ||
                           own->sizing->reason == SIZING_NEW);
}

/* As of its own workers, by what these have made alone, and without this machine's processors. */
void loader_size_helpers(struct loader *loader, const struct sizing_case *own)
{
    enum { WAIT_S = 15 }; /* for those that are tried: their machines may take no more */
    const struct sizing_measure *m = &own->measure;
    struct sizing *sizing = &loader->size.helpers;
    uint64_t now = uv_hrtime();

    if (loader->state != LOADER_OPEN || !loader_sizes_helpers(loader) || size_is_own_turn(own))
        return;
    struct sizing_case c = {.sizing = sizing,
                            .measure = {.ns = m->ns,
                                        .span_ns = m->span_ns,
                                        .waited_ns = m->waited_ns,
                                        .batches = m->away,
                                        .busy_ns = m->away_ns},
                            .weight = 1,
                            .read = own->read,
                            .workers = pool_helpers(loader->pool),
                            .ready = pool_helpers_ready(loader->pool),
                            .most = loader->o.pool.helpers};
    c.ret = c.workers;
    if (c.ready < c.workers && sizing->trial_from > 0 &&
        now - sizing->changed_ns > WAIT_S * UINT64_C(1000000000))
        sizing_give_up(&c, now);
    else
        sizing_decide(&c, 1, DL_MAX_WORKERS, now);
    if (c.ret == c.workers)
        return;
    log_loader(LOG_INFO, loader->spec.name, loader->o.uid, "%s: workers at helpers: %u become %u",
               loader->spec.name, c.workers, c.ret);
    pool_set_helpers(loader->pool, c.ret);
    core_rest(&loader->core, loader->o.pool.helpers - c.ret);
    loader_pump(loader);
}

/* ---- words ----------------------------------------------------------------------------------- */

void loader_size_words(const struct loader *loader, char ret[static SIZING_WORDS])
{
    uint32_t workers = pool_size(loader->pool);
    const char *fixed = loader_fixed_size(loader), *s = workers == 1 ? "" : "s";
    const struct dl_error *lacks = pool_refused(loader->pool), *refused = &loader->size.refused;
    char fair[SIZING_WORDS / 2];
    struct sizing sizing = loader->size.sizing;
    const struct sizing_case found = {
        .sizing = &sizing, .workers = workers, .ahead = loader->core.prefetch};

    if (size_is_at_rest(loader) && size_is_read_by_any(loader))
        (void)snprintf(ret, SIZING_WORDS, "no worker, and it waits for one: %.32s: %.400s",
                       refused->path, refused->message);
    else if (!loader->size.automatic)
        (void)snprintf(ret, SIZING_WORDS, "%u worker%s, as it was told", workers, s);
    else if (fixed)
        (void)snprintf(ret, SIZING_WORDS, "%u worker%s, and no other number: %s", workers, s,
                       fixed);
    else
        sizing_words(&found, loader->size.cpus, uv_hrtime(), ret);
    loader_fair_words(loader, fair, sizeof fair);
    size_t len = strlen(ret);
    len += (size_t)snprintf(ret + len, SIZING_WORDS - len, "%s", fair);
    if (lacks && len < SIZING_WORDS / 2)
        (void)snprintf(ret + len, SIZING_WORDS - len, "; it waits for memory: %.32s: %.400s",
                       lacks->path, lacks->message);
}
