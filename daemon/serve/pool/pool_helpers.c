/* The members of a pool that run on other machines: which, and when others are there. */
#include "daemon/base/memory.h"
#include "daemon/serve/pool/helpers.h"
#include "daemon/serve/pool/pool_private.h"

static const char *pool_helpers_address(const struct member *m)
{
    const struct pool_options *o = &m->pool->o;

    uint32_t first = member_is_helper(m) ? o->spec->workers : o->spec->workers - o->pinned;

    return helpers_address(o->config, o->found, m->number - first, m->attempts);
}

bool member_is_home(const struct member *m)
{
    const struct pool_options *o = &m->pool->o;

    return m->attempts >= (uint64_t)o->config->helpers.addresses.n + o->found->n;
}

bool member_choose_helper(struct member *m)
{
    bool home = member_is_pinned(m) && member_is_home(m);
    const char *address = home ? NULL : pool_helpers_address(m);

    free(m->helper);
    m->helper = address ? must_strdup(address) : NULL;
    return address;
}

/* The first of them, if any: they have the numbers behind those of the workers that the loader
 * began with, whatever it got later. */
static uint32_t pool_helpers_first(const struct pool *pool)
{
    return pool->o.spec->workers;
}

static uint32_t pool_helpers_end(const struct pool *pool)
{
    return pool->o.spec->workers + pool->o.helpers;
}

/* Where each worker has its own share, some of them move there. */
void pool_start_helpers(struct pool *pool)
{
    if (pool_has_own_shares(pool))
        pool->helpers = 0;
    for (uint32_t i = 0; i < pool->o.spec->workers; i++)
        pool->members[i]->moves =
            member_is_pinned(pool->members[i]) && !member_is_home(pool->members[i]);
    for (uint32_t i = pool_helpers_first(pool); i < pool_helpers_end(pool) && !pool->broken; i++) {
        if (member_rests(pool->members[i]))
            member_become(pool->members[i], WORKER_AWAY);
        else
            member_start(pool->members[i]);
    }
}

/* They have done what they had: it costs nobody a task. */
void pool_move_helpers(struct pool *pool)
{
    for (uint32_t i = 0; i < pool_helpers_end(pool); i++) {
        struct member *m = pool->members[i];

        if (pool->ended || pool->broken || in_flight(m) > 0)
            continue;
        if (pool->opened && member_rests(m) && m->state <= WORKER_WAITING)
            member_rest(m);
        if (!m->moves || m->state != WORKER_READY)
            continue;
        m->deaths = (struct deaths){0};
        m->process = process_free(m->process);
        member_lose(m, "other helpers are there", true);
        m->attempts = 0;
    }
}

void pool_set_helpers(struct pool *pool, uint32_t n)
{
    assert(n <= pool->o.helpers && pool->opened);
    pool->helpers = n;
    for (uint32_t i = pool_helpers_first(pool); i < pool_helpers_end(pool) && !pool->broken; i++) {
        struct member *m = pool->members[i];

        if (!pool->ended && !member_rests(m) && m->state == WORKER_AWAY)
            member_start(m);
    }
    pool_move_helpers(pool);
}

uint32_t pool_helpers(const struct pool *pool)
{
    return pool->helpers;
}

bool pool_rests(const struct pool *pool, uint32_t worker)
{
    return member_rests(pool->members[worker]);
}

uint32_t pool_helpers_ready(const struct pool *pool)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pool->helpers; i++) {
        const struct member *m = pool->members[pool_helpers_first(pool) + i];

        n += m->state == WORKER_READY && m->segments;
    }
    return n;
}

void pool_meet_helpers(struct pool *pool)
{
    for (uint32_t i = 0; i < pool_helpers_end(pool); i++) {
        struct member *m = pool->members[i];

        if (!pool->opened || pool->ended || pool->broken)
            return;
        if (!member_is_helper(m) && !member_is_pinned(m))
            continue;
        m->attempts = 0;
        const char *address = pool_helpers_address(m);
        if (m->state == WORKER_WAITING) {
            uv_timer_stop(&m->backoff);
            member_start(m);
        } else if (m->state <= WORKER_READY) {
            m->moves =
                address && (m->helper ? strcmp(address, m->helper) != 0 : member_is_pinned(m));
        }
    }
    pool_move_helpers(pool);
}
