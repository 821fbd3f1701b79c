/* How many workers a pool has, while it runs: more start, or the last ones go. */
#include "daemon/base/memory.h"
#include "daemon/serve/pool/pool_private.h"
#include "daemon/serve/pool/usage.h"

#include <errno.h>

#include <utlist.h>

int pool_charge_workers(struct quota_account *account, uint32_t n, uint32_t helpers,
                        struct dl_error *err)
{
    uint64_t descriptors = ((uint64_t)n + helpers) * POOL_WORKER_DESCRIPTORS;
    int r = quota_charge(account, QUOTA_WORKERS, n, err);

    if (r == 0 && (r = quota_charge(account, QUOTA_DESCRIPTORS, descriptors, err)) < 0)
        quota_return(account, QUOTA_WORKERS, n);
    return r;
}

static struct member *pool_size_make_member(struct pool *pool)
{
    struct member *m = must_alloc(sizeof *m);

    m->pool = pool;
    m->number = pool->n_made++;
    m->tasks = must_alloc(QUEUE_RECORDS * sizeof *m->tasks);
    uv_timer_init(pool->o.loop, &m->backoff);
    m->backoff.data = m;
    pool->open_handles++;
    pool->members = must_realloc(pool->members, pool->n_made * sizeof(struct member *));
    pool->members[m->number] = m;
    return m;
}

struct member *pool_add_member(struct pool *pool)
{
    uint32_t number = pool->n_members++;

    return number < pool->n_made ? pool->members[number] : pool_size_make_member(pool);
}

/* One that hangs keeps its place in limits.workers until it ends: itself, or one before it that had
 * no room of its own. */
static bool member_leaves_room(struct member *m)
{
    struct stuck *s;

    DL_FOREACH (m->pool->stuck, s) {
        if (s->worker != m->number || s->charged)
            continue;
        s->charged = true;
        return false;
    }
    if (!member_may_be_stuck(m))
        return true;
    member_part(m);
    return false;
}

void member_rest(struct member *m)
{
    struct pool *pool = m->pool;

    uv_timer_stop(&m->backoff);
    m->process = process_free(m->process);
    member_retire_all(m);
    member_become(m, WORKER_AWAY);
    m->opens = m->timed_out = m->hangs = m->condemned = m->to_ring = m->wants_memory = false;
    m->moves = false;
    m->killed_since = 0;
    m->open_error.code = 0;
    m->deaths = (struct deaths){0};
    if (pool->heard == m)
        pool->heard = NULL;
    member_look_no_more(m);
}

/* It has nothing to do, and is not to get anything. */
static void member_dismiss(struct member *m)
{
    struct pool *pool = m->pool;
    bool ends = member_leaves_room(m);

    member_rest(m);
    quota_return(pool->o.account, QUOTA_WORKERS, ends);
    quota_return(pool->o.account, QUOTA_DESCRIPTORS, POOL_WORKER_DESCRIPTORS);
}

void pool_let_go(struct pool *pool)
{
    while (!pool->ended && !pool->broken && pool->n_members > pool->size &&
           in_flight(pool->members[pool->n_members - 1]) == 0)
        member_dismiss(pool->members[--pool->n_members]);
}

/* Each worker has to have room for a batch. */
static int pool_size_check_memory(const struct pool *pool, uint32_t workers, struct dl_error *err)
{
    uint64_t one = segment_bytes(1, pool->slot_bytes), limit = pool->o.spec->memory_limit;

    if (workers <= pool->size || one <= limit / workers)
        return 0;
    return dl_error_set(err, ENOMEM, "memory.limit",
                        "%llu bytes are less than one batch for each of %u workers, of %llu bytes; "
                        "%llu workers fit",
                        (ull)limit, workers, (ull)one, (ull)(limit / one));
}

int pool_resize(struct pool *pool, uint32_t workers, struct dl_error *err)
{
    uint32_t all = workers + pool->o.helpers;
    uint32_t more = all - (uint32_t)min_u64(all, pool->n_members);

    assert(workers >= pool_size_least(pool) && pool->opened && !pool->ended);
    int r = pool_size_check_memory(pool, all, err);
    if (r == 0)
        r = pool_charge_workers(pool->o.account, more, 0, err);
    if (r < 0)
        return r;
    pool->size = all;
    while (more-- > 0)
        member_start(pool_add_member(pool));
    return 0;
}

uint32_t pool_size(const struct pool *pool)
{
    return pool->size - pool->o.helpers;
}

uint32_t pool_leaving(const struct pool *pool)
{
    return pool->n_members - (uint32_t)min_u64(pool->n_members, pool->size);
}

uint32_t pool_ready(const struct pool *pool)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pool->size; i++) {
        const struct member *m = pool->members[i];

        n += m->state == WORKER_READY && m->segments && !member_is_helper(m);
    }
    return n;
}

uint32_t pool_busy(const struct pool *pool)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pool->n_members; i++)
        n += in_flight(pool->members[i]) > 0 && !member_is_helper(pool->members[i]);
    return n;
}

uint32_t pool_size_least(const struct pool *pool)
{
    return pool->o.helpers > 0 ? pool->o.spec->workers : 0;
}

uint32_t pool_size_most(const struct pool *pool)
{
    uint64_t memory = pool->o.spec->memory_limit / segment_bytes(2, pool->slot_bytes);
    uint32_t least = pool_size_least(pool), helpers = pool->o.helpers;
    uint64_t limit = quota_limit(pool->o.account, QUOTA_WORKERS);
    uint64_t in_use = quota_in_use(pool->o.account, QUOTA_WORKERS);
    uint64_t left = pool->n_members - helpers + (limit - min_u64(limit, in_use));
    uint64_t most = min_u64(memory - min_u64(memory, helpers), DL_MAX_WORKERS - helpers);

    return (uint32_t)max_u64(min_u64(most, left), max_u64(least, 1));
}

/* ---- what they have used --------------------------------------------------------------------- */

static void pool_size_look_member(struct pool *pool, struct member *m)
{
    int pid = m->process ? process_pid(m->process) : 0;
    struct usage usage;
    uint64_t wait_ns;

    if (pid == 0 || !usage_read(pid, &usage) || !usage_read_cpu_wait(pid, &wait_ns))
        return;
    bool same = pid == m->spent_pid; /* else it counts from 0 */
    pool->spent.cpu_ns += usage.cpu_ns - (same ? min_u64(m->spent_cpu, usage.cpu_ns) : 0);
    pool->spent.cpu_wait_ns += wait_ns - (same ? min_u64(m->spent_wait, wait_ns) : 0);
    m->spent_pid = pid;
    m->spent_cpu = usage.cpu_ns;
    m->spent_wait = wait_ns;
}

struct pool_spent pool_look_spent(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++)
        pool_size_look_member(pool, pool->members[i]);
    struct pool_spent spent = pool->spent;
    for (uint32_t i = 0; i < pool->n_made; i++) {
        const struct member *m = pool->members[i];

        spent.tasks += m->finished;
        if (member_is_helper(m)) {
            spent.away += m->finished;
            spent.away_ns += m->busy_ns;
        } else {
            spent.busy_ns += m->busy_ns;
        }
    }
    return spent;
}
