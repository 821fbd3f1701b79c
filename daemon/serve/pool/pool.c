#include "daemon/serve/base/memory.h"
#include "daemon/serve/pool/pool_private.h"
#include "daemon/serve/pool/usage.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

enum { TICK_MS = 100 }; /* how often hung workers are looked for */

static const char *const worker_states[] = {"starting", "ready", "waiting", "given up"};

/* The task at the front seems to take too long. */
static bool pool_is_overdue(const struct member *m)
{
    return m->process && in_flight(m) > 0 && !m->timed_out &&
           uv_hrtime() - m->front_since >= m->pool->o.spec->timeout_ns;
}

static void pool_on_tick(uv_timer_t *timer)
{
    struct pool *pool = timer->data;
    bool collected = false;

    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = &pool->members[i];
        uint64_t finished = m->finished;

        if (!pool_is_overdue(m))
            continue;
        /* It may have finished and not said so yet, or we were stopped and have not heard it: then
         * the next one has the whole time from now on. */
        member_collect(m);
        collected = collected || m->finished != finished;
        if (!pool_is_overdue(m))
            continue;
        m->timed_out = true;
        process_kill(m->process);
    }
    if (collected)
        pool_changed(pool);
}

static int pool_pack_dirs(const struct config_dirs *dirs, struct dl_buffer *out)
{
    _cleanup_(value_deinit)
    struct value list = {.type = VALUE_ARRAY};
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < dirs->n; i++) {
        struct value *item;
        r = value_push(&list, &item);
        if (r == 0)
            r = value_make_string(item, dirs->paths[i]);
    }
    return r < 0 ? r : value_pack(&list, out);
}

static int pool_pack_inputs(struct pool *pool)
{
    _cleanup_(value_deinit)
    struct value spec = {0};
    int r = spec_to_value(pool->o.spec, &spec);

    if (r == 0)
        r = value_pack(&spec, &pool->spec);
    if (r == 0)
        r = pool_pack_dirs(&pool->o.config->data_roots, &pool->roots);
    if (r == 0)
        r = pool_pack_dirs(&pool->o.config->plugins, &pool->plugins);
    return r;
}

int pool_new(const struct pool_options *options, struct pool **ret, struct dl_error *err)
{
    uint32_t workers = options->spec->workers;
    int r = quota_charge(options->account, QUOTA_WORKERS, workers, err);

    if (r < 0)
        return r;
    struct pool *pool = must_alloc(sizeof *pool);
    pool->o = *options;
    pool->n_members = workers;
    pool->members = must_alloc(workers * sizeof *pool->members);
    pool->next_task = 1;
    if ((r = pool_pack_inputs(pool)) < 0)
        dl_error_set(err, -r, "", "the spec cannot be packed: %s", strerror(-r));

    uv_timer_init(options->loop, &pool->tick);
    pool->tick.data = pool;
    pool->open_handles++;
    if (options->spec->timeout_ns > 0)
        uv_timer_start(&pool->tick, pool_on_tick, TICK_MS, TICK_MS);
    for (uint32_t i = 0; i < workers; i++) {
        struct member *m = &pool->members[i];
        m->pool = pool;
        m->number = i;
        m->tasks = must_alloc(QUEUE_RECORDS * sizeof *m->tasks);
        uv_timer_init(options->loop, &m->backoff);
        m->backoff.data = m;
        pool->open_handles++;
        if (r == 0)
            member_start(m);
    }
    if (r < 0) {
        pool_free(pool);
        return r;
    }
    *ret = pool;
    return 0;
}

static void pool_destroy(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = &pool->members[i];
        assert(m->state == WORKER_GIVEN_UP && !m->process && in_flight(m) == 0);
        assert(!m->segments && !m->mapping);
        free(m->tasks);
        free(m->death_cause);
    }
    assert(!pool->retiring);
    free(pool->members);
    buffer_deinit(&pool->spec);
    buffer_deinit(&pool->roots);
    buffer_deinit(&pool->plugins);
    bad_list_deinit(&pool->bad);
    free(pool);
}

static void pool_on_tick_close(uv_handle_t *handle)
{
    struct pool *pool = handle->data;

    if (--pool->open_handles == 0)
        pool_destroy(pool);
}

static void pool_on_backoff_close(uv_handle_t *handle)
{
    struct pool *pool = ((struct member *)handle->data)->pool;

    if (--pool->open_handles == 0)
        pool_destroy(pool);
}

void pool_end_workers(struct pool *pool)
{
    if (pool->ended)
        return;
    pool->ended = true;
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = &pool->members[i];
        uv_timer_stop(&m->backoff);
        member_become(m, WORKER_GIVEN_UP);
        member_give_tasks_back(m, "the loader is closed");
        m->process = process_free(m->process);
        member_retire_all(m);
    }
    quota_return(pool->o.account, QUOTA_WORKERS, pool->n_members);
}

struct pool *pool_free(struct pool *pool)
{
    if (!pool)
        return NULL;
    pool->freed = true;
    pool_end_workers(pool);
    for (uint32_t i = 0; i < pool->n_members; i++)
        uv_close((uv_handle_t *)&pool->members[i].backoff, pool_on_backoff_close);
    assert(!pool->retiring); /* whoever held a lease gave it back before */
    uv_close((uv_handle_t *)&pool->tick, pool_on_tick_close);
    return NULL;
}

char *pool_take_death_cause(struct pool *pool, uint32_t worker)
{
    return steal_ptr(pool->members[worker].death_cause);
}

bool pool_idle(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        const struct member *m = &pool->members[i];
        if (in_flight(m) > 0 || m->mapping || m->state == WORKER_STARTING ||
            m->state == WORKER_WAITING)
            return false;
    }
    return true;
}

/* ---- views ---------------------------------------------------------------------------------- */

uint32_t pool_workers(const struct pool *pool)
{
    return pool->n_members;
}

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

void pool_mark(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = &pool->members[i];

        m->cpu_wait_ns = pool_cpu_wait(m, &m->cpu_wait_pid, &m->cpu_wait_total);
        recent_mark(&m->recently_busy, m->busy_ns);
        recent_mark(&m->recently_collated, m->collate_ns);
        recent_mark(&m->recently_without_cpu, m->cpu_wait_ns);
    }
}

void pool_recent(const struct pool *pool, uint32_t i, struct verdict_worker *ret)
{
    const struct member *m = &pool->members[i];
    uint64_t total;
    int pid;

    ret->collate_ns = recent_since(&m->recently_collated, m->collate_ns);
    ret->fetch_ns = recent_since(&m->recently_busy, m->busy_ns) - ret->collate_ns;
    ret->cpu_wait_ns = recent_since(&m->recently_without_cpu, pool_cpu_wait(m, &pid, &total));
}

void pool_view_worker(const struct pool *pool, uint32_t i, struct pool_worker_view *ret)
{
    struct member *m = &pool->members[i];
    int pid = m->process ? process_pid(m->process) : 0;
    /* A worker can be quicker than its host, which tells by another socket which process it is. */
    enum worker_state state = m->state == WORKER_READY && !pid ? WORKER_STARTING : m->state;

    *ret = (struct pool_worker_view){.number = m->number,
                                     .pid = pid,
                                     .state = worker_states[state],
                                     .tasks = m->finished,
                                     .restarts = m->restarts,
                                     .in_flight = in_flight(m),
                                     .busy_ns = m->busy_ns,
                                     .collate_ns = m->collate_ns,
                                     .sandbox = state == WORKER_READY ? m->sandbox : 0,
                                     .tag = in_flight(m) ? front_task(m)->tag : NULL};
}
