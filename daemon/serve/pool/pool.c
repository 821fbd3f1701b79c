#include "daemon/base/memory.h"
#include "daemon/serve/pool/helpers.h"
#include "daemon/serve/pool/pool_private.h"
#include "daemon/serve/pool/remotes.h"
#include "daemon/serve/pool/usage.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include <utlist.h>

enum { TICK_MS = 100 }; /* how often hung workers are looked for */

/* A worker that was killed ends within so long, or it is stuck; ns. The second: one that hangs, for
 * which a task waits. */
#define END_NS      (5 * UINT64_C(1000000000))
#define HUNG_END_NS (2 * UINT64_C(1000000000))
/* What opening the dataset again may take beyond workers.timeout and the first time; ns. */
#define OPENING_NS (10 * UINT64_C(1000000000))

static const char *const worker_states[] = {"starting", "ready", "waiting", "given up", "away"};

/* It opens the dataset again, which others have open, and takes too long. */
static bool pool_opens_too_long(const struct member *m)
{
    const struct pool *pool = m->pool;

    return m->state == WORKER_STARTING && pool->opened &&
           uv_hrtime() - m->started_since >=
               pool->o.spec->timeout_ns + max_u64(2 * pool->opening_ns, OPENING_NS);
}

/* The task at the front seems to take too long, or opening the dataset again. */
static bool pool_is_overdue(struct member *m)
{
    if (!m->process || m->timed_out)
        return false;
    if (pool_opening_hangs(m))
        return true;
    if (m->pool->o.spec->timeout_ns == 0)
        return false;
    return (in_flight(m) > 0 && uv_hrtime() - m->front_since >= m->pool->o.spec->timeout_ns) ||
           pool_opens_too_long(m);
}

static bool pool_does_not_end(const struct member *m)
{
    return m->process && m->killed_since &&
           uv_hrtime() - m->killed_since >= (m->timed_out ? HUNG_END_NS : END_NS);
}

static bool pool_has_ready(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        if (pool->members[i]->state == WORKER_READY && !pool->members[i]->killed_since)
            return true;
    }
    return false;
}

static void pool_tell_stalled(struct pool *pool)
{
    const struct dl_spec *spec = pool->o.spec;
    uint64_t attempts = (uint64_t)spec->retries + 1;
    double most = (double)spec->timeout_ns * (double)attempts / 1e9; /* s */
    char cause[256];

    if (pool->hung_since && pool_has_ready(pool))
        pool->hung_since = 0;
    if (!pool->hung_since || (double)(uv_hrtime() - pool->hung_since) / 1e9 < most)
        return;
    pool->hung_since = uv_hrtime();
    snprintf(cause, sizeof cause,
             "no worker has answered for %g s, the time of %llu attempt%s (workers.timeout, "
             "workers.retries): the last one was killed, and its successor has not opened the "
             "dataset; usually the storage does not answer",
             most, (ull)attempts, attempts == 1 ? "" : "s");
    pool->o.events->stalled(pool->o.owner, cause);
    pool_changed(pool);
}

static bool pool_has_to_watch(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        if (pool->members[i]->killed_since)
            return true;
    }
    return pool->o.spec->timeout_ns > 0 || pool->refused.code || pool->look.wanted ||
           pool_opening_is_watched(pool);
}

static void pool_on_tick(uv_timer_t *timer)
{
    struct pool *pool = timer->data;
    bool collected = false;

    if (!pool_has_to_watch(pool))
        uv_timer_stop(timer);
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];
        uint64_t finished = m->finished;

        if (pool_does_not_end(m)) {
            member_leave_stuck(m); /* what follows from it comes first */
            return;
        }
        if (!pool_is_overdue(m))
            continue;
        /* It may have finished and not said so yet, or we were stopped and have not heard it: then
         * the next one has the whole time from now on. */
        member_collect(m);
        collected = collected || m->finished != finished;
        if (!pool_is_overdue(m))
            continue;
        m->timed_out = true;
        member_kill(m);
    }
    if (collected)
        pool_changed(pool);
    if (pool->refused.code && !pool->broken)
        pool_memory_ask_again(pool);
    if (!pool->broken)
        pool_tell_stalled(pool);
    pool_look_check_time(pool);
    pool_opening_check(pool);
}

void pool_watch(struct pool *pool)
{
    if (!uv_is_active((uv_handle_t *)&pool->tick))
        uv_timer_start(&pool->tick, pool_on_tick, TICK_MS, TICK_MS);
}

/* The very files that the site lists, links resolved, as workers compare them. */
static int pool_pack_site_plugins(const struct config_dirs *files, struct dl_buffer *out)
{
    char resolved[PATH_MAX];
    struct config_dirs found = {0};
    int r;

    for (uint32_t i = 0; i < files->n; i++)
        if (realpath(files->paths[i], resolved))
            config_dirs_add(&found, resolved);
    r = config_dirs_pack(&found, out);
    config_dirs_deinit(&found);
    return r;
}

/* Where plug-ins may lie. What a client brings loads its own ones, by its own rights. */
static int pool_pack_plugins(struct pool *pool)
{
    char *anywhere[] = {(char *)"/"};
    const struct config *config = pool->o.config;
    const struct config_dirs all = {.paths = anywhere, .n = 1};
    bool hosted = pool->o.python->host_number != 0;

    if (pool->o.foreign && !hosted)
        return pool_pack_site_plugins(&config->site.plugins, &pool->plugins);
    return config_dirs_pack(config->plugins.n && !pool->o.foreign ? &config->plugins : &all,
                            &pool->plugins);
}

/* A host that a client brought sees the data where that client does. */
static int pool_pack_roots(struct pool *pool)
{
    const struct config_dirs *roots = &pool->o.config->data_roots;
    bool hosted = pool->o.python->host_number != 0, differs = false;
    struct config_dirs places = {0}, seen = {0};

    for (uint32_t i = 0; i < roots->n; i++) {
        const char *as = roots->seen_as[i];

        config_dirs_add(&places, hosted && *as ? as : roots->paths[i]);
        config_dirs_add(&seen, as);
        differs |= *as != 0;
    }
    int r = config_dirs_pack(&places, &pool->roots);
    if (r == 0)
        r = config_dirs_pack(differs && !hosted ? &seen : &(struct config_dirs){0}, &pool->seen_as);
    config_dirs_deinit(&places);
    config_dirs_deinit(&seen);
    return r;
}

static int pool_pack_inputs(struct pool *pool)
{
    _cleanup_(value_deinit) struct value spec = {0};
    struct dl_spec counted = *pool->o.spec; /* borrowed: all that it points to */

    counted.workers_auto = false;
    counted.helpers = DL_MAX_WORKERS; /* auto: no worker's business */
    int r = spec_to_value(&counted, &spec);
    if (r == 0) /* a worker or a host may be of the last release */
        r = spec_to_former(&spec);
    if (r == 0)
        r = value_pack(&spec, &pool->spec);
    if (r == 0)
        r = pool_pack_roots(pool);
    if (r == 0)
        r = pool_pack_plugins(pool);
    return r;
}

static uint64_t pool_count_indices(const struct spec_dataset *dataset)
{
    uint64_t n = dataset->n_indices;

    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        n += pool_count_indices(&dataset->datasets[i]);
    return n;
}

/* The packed one, and the loader's, in which small numbers take more. */
static int pool_pay_for_spec(struct pool *pool, struct dl_error *err)
{
    const struct dl_spec *spec = pool->o.spec;
    uint64_t numbers = pool_count_indices(&spec->dataset) + spec->n_indices + spec->n_weights;
    uint64_t bytes = 2 * pool->spec.len + numbers * sizeof *spec->indices;
    int r = quota_charge(pool->o.account, QUOTA_OVERHEAD, bytes, err);

    pool->paid_bytes = r < 0 ? 0 : bytes;
    return r;
}

/* Samples that a task's batch has at most. */
static uint64_t pool_most_samples(const struct pool_options *options)
{
    const struct dl_spec *spec = options->spec;
    uint64_t most = max_u64(spec_most_samples(spec), spec->batch.tokens ? DL_MAX_LENGTHS : 0);

    if (spec->shard == SHARD_DISPATCH) /* of all ranks */
        most = DL_MAX_BATCH_SIZE;
    /* A client that feeds says itself how many. */
    return python_runs(options->python) ? max_u64(most, DL_MAX_FEED_INDICES) : most;
}

int pool_new(const struct pool_options *options, struct pool **ret, struct dl_error *err)
{
    int r = pool_charge_workers(options->account, options->spec->workers, options->helpers, err);

    if (r < 0)
        return r;
    struct pool *pool = must_alloc(sizeof *pool);
    pool->o = *options;
    pool->size = options->spec->workers + options->helpers;
    pool->helpers = options->helpers_auto ? (uint32_t)min_u64(options->helpers, HELPERS_FIRST)
                                          : options->helpers;
    pool->next_task = 1;
    pool->loader = options->remotes ? remotes_number(options->remotes) : 0;
    pool->most_samples = pool_most_samples(options);
    pool->wanted_indexes = index_list_wanted(&options->spec->dataset);
    if ((r = pool_pack_inputs(pool)) < 0)
        dl_error_set(err, -r, "", "the spec cannot be packed: %s", strerror(-r));
    else
        r = pool_pay_for_spec(pool, err);

    uv_timer_init(options->loop, &pool->tick);
    pool->tick.data = pool;
    pool->open_handles++;
    if (options->spec->timeout_ns > 0)
        pool_watch(pool);
    while (pool->n_members < pool->size)
        (void)pool_add_member(pool);
    for (uint32_t i = 0; r == 0 && i < pool->n_members; i++) {
        struct member *m = pool->members[i];

        if (member_is_helper(m)) {
            (void)member_choose_helper(m);
            member_become(m, WORKER_WAITING);
        } else {
            member_start(m);
        }
    }
    if (r < 0) {
        pool_free(pool);
        return r;
    }
    pool->made = true;
    *ret = pool;
    return 0;
}

static void pool_destroy(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_made; i++) {
        struct member *m = pool->members[i];
        assert(m->state == (i < pool->n_members ? WORKER_GIVEN_UP : WORKER_AWAY));
        assert(!m->process && in_flight(m) == 0 && !m->segments && !m->mapping);
        free(m->tasks);
        free(m->death_cause);
        free(m->helper);
        free(m);
    }
    assert(!pool->retiring && !pool->stuck);
    retired_forget(pool->o.retired, pool);
    free(pool->members);
    buffer_deinit(&pool->spec);
    buffer_deinit(&pool->roots);
    buffer_deinit(&pool->seen_as);
    buffer_deinit(&pool->plugins);
    bad_list_deinit(&pool->bad);
    free(pool);
}

void pool_unref(struct pool *pool)
{
    if (--pool->open_handles == 0)
        pool_destroy(pool);
}

static void pool_on_tick_close(uv_handle_t *handle)
{
    pool_unref(handle->data);
}

static void pool_on_backoff_close(uv_handle_t *handle)
{
    pool_unref(((struct member *)handle->data)->pool);
}

uint32_t pool_gives_back(const struct pool *pool)
{
    const struct stuck *s;
    uint32_t workers = pool->n_members - pool->o.helpers;

    if (pool->ended)
        return 0;
    DL_FOREACH (pool->stuck, s)
        workers -= !s->charged;
    for (uint32_t i = 0; i < pool->n_members; i++)
        workers -= member_may_be_stuck(pool->members[i]);
    return workers;
}

void pool_end_workers(struct pool *pool)
{
    if (pool->ended)
        return;
    pool->ended = true;
    uint32_t kept = 0; /* for those that may not end now */
    struct stuck *s;
    /* One that had no room of its own was not replaced: its worker's is left. */
    DL_FOREACH (pool->stuck, s) {
        kept += !s->charged;
        s->charged = true;
    }
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];
        uv_timer_stop(&m->backoff);
        if (member_may_be_stuck(m)) {
            member_part(m);
            kept++;
        }
        m->killed_since = 0;
        member_become(m, WORKER_GIVEN_UP);
        member_give_tasks_back(m, "the loader is closed");
        m->process = process_free(m->process);
        member_retire_all(m);
    }
    index_list_deinit(&pool->indexes);
    quota_return(pool->o.account, QUOTA_WORKERS, pool->n_members - pool->o.helpers - kept);
    quota_return(pool->o.account, QUOTA_DESCRIPTORS, pool->n_members * POOL_WORKER_DESCRIPTORS);
}

struct pool *pool_free(struct pool *pool)
{
    if (!pool)
        return NULL;
    pool->freed = true;
    quota_return(pool->o.account, QUOTA_OVERHEAD, pool->paid_bytes);
    pool_end_workers(pool);
    for (uint32_t i = 0; i < pool->n_made; i++)
        uv_close((uv_handle_t *)&pool->members[i]->backoff, pool_on_backoff_close);
    assert(!pool->retiring); /* every lease was given back before */
    uv_close((uv_handle_t *)&pool->tick, pool_on_tick_close);
    return NULL;
}

bool pool_idle(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        const struct member *m = pool->members[i];
        bool begins = m->state == WORKER_STARTING || m->state == WORKER_WAITING;
        if (in_flight(m) > 0 || m->mapping || (begins && !member_is_helper(m)))
            return false;
    }
    return true;
}

/* ---- views ---------------------------------------------------------------------------------- */

/* How long the worker had no processor, in all its lives: each process counts from 0. */
static uint64_t pool_cpu_wait(const struct member *m, int *ret_pid, uint64_t *ret_total)
{
    uint64_t had = m->cpu_wait_total;

    *ret_pid = m->process ? process_pid(m->process) : 0;
    *ret_total = had;
    if (*ret_pid == 0 || !usage_read_cpu_wait(*ret_pid, ret_total))
        return m->cpu_wait_ns;
    return m->cpu_wait_ns + *ret_total -
           (*ret_pid == m->cpu_wait_pid ? min_u64(had, *ret_total) : 0);
}

const struct remotes *pool_remotes(const struct pool *pool)
{
    return spec_is_remote(&pool->o.spec->dataset) ? pool->o.remotes : NULL;
}

void pool_mark(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];

        m->cpu_wait_ns = pool_cpu_wait(m, &m->cpu_wait_pid, &m->cpu_wait_total);
        recent_mark(&m->recently_busy, m->busy_ns);
        recent_mark(&m->recently_collated, m->collate_ns);
        recent_mark(&m->recently_slow, m->slow_ns);
        recent_mark(&m->recently_remote, m->remote_ns);
        recent_mark(&m->recently_on_way, m->way.way_ns);
        recent_mark(&m->recently_received, m->way.received_bytes);
        recent_mark(&m->recently_sent, m->way.sent_bytes);
        recent_mark(&m->recently_without_cpu, m->cpu_wait_ns);
        recent_mark(&m->recently_steps, m->steps);
        recent_mark(&m->recently_samples, m->samples);
    }
    recent_mark(&pool->recently_steps, pool->steps);
}

void pool_recent(const struct pool *pool, uint32_t i, struct verdict_worker *ret)
{
    const struct member *m = pool->members[i];
    uint64_t total;
    int pid;

    ret->collate_ns = recent_since(&m->recently_collated, m->collate_ns);
    ret->fetch_ns = recent_since(&m->recently_busy, m->busy_ns) - ret->collate_ns;
    ret->slow_ns = recent_since(&m->recently_slow, m->slow_ns);
    ret->remote_ns = recent_since(&m->recently_remote, m->remote_ns);
    ret->away = m->helper && m->state == WORKER_READY;
    ret->way_ns = recent_since(&m->recently_on_way, m->way.way_ns);
    ret->way_bytes = recent_since(&m->recently_received, m->way.received_bytes);
    ret->served_bytes = recent_since(&m->recently_sent, m->way.sent_bytes);
    ret->cpu_wait_ns = recent_since(&m->recently_without_cpu, pool_cpu_wait(m, &pid, &total));
}

void pool_view_worker(const struct pool *pool, uint32_t i, struct pool_worker_view *ret)
{
    struct member *m = pool->members[i];
    int pid = m->process ? process_pid(m->process) : 0;
    /* A worker can be quicker than its host, which tells by another socket which process it is. */
    enum worker_state state = m->state == WORKER_READY && !pid ? WORKER_STARTING : m->state;

    *ret = (struct pool_worker_view){
        .number = m->number,
        .pid = pid,
        .helper = m->helper             ? m->helper
                  : member_is_helper(m) ? ""
                                        : NULL,
        .state = worker_states[state],
        .tasks = m->finished,
        .restarts = m->restarts,
        .stuck = m->stuck,
        .in_flight = in_flight(m),
        .busy_ns = m->busy_ns,
        .collate_ns = m->collate_ns,
        .slow_ns = m->slow_ns,
        .remote_ns = m->remote_ns,
        .way = m->way,
        .recent = {.steps = recent_since(&m->recently_steps, m->steps),
                   .of_steps = recent_since(&pool->recently_steps, pool->steps),
                   .samples = recent_since(&m->recently_samples, m->samples)},
        .sandbox = state == WORKER_READY ? m->sandbox : 0,
        .tag = in_flight(m) ? front_task(m)->tag : NULL};
}
