/*
 * Who opens the dataset when. What a worker finds out about files, others share (ring/indexes.h):
 * so of a dataset that has such indexes one worker at a time opens it, while the processes of the
 * others start and wait, until all indexes are there or one has it open.
 */
#include "daemon/base/log.h"
#include "daemon/serve/pool/pool_private.h"

#include <errno.h>

static bool pool_indexes_are_there(const struct pool *pool)
{
    return pool->opened || pool->indexes.n >= pool->wanted_indexes;
}

static bool pool_indexes_waits(const struct member *m)
{
    return m->state == WORKER_STARTING && m->process && !m->opens && !m->killed_since;
}

static bool pool_indexes_are_made(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        if (pool->members[i]->state == WORKER_STARTING && pool->members[i]->opens)
            return true;
    }
    return false;
}

void pool_let_open(struct pool *pool)
{
    if (pool->broken || pool->ended)
        return;
    for (uint32_t i = 0; i < pool->n_members; i++) {
        if (!pool_indexes_are_there(pool) && pool_indexes_are_made(pool))
            return;
        if (pool_indexes_waits(pool->members[i]))
            member_open(pool->members[i]);
    }
}

void pool_indexes_on_indexed(void *owner, const struct dl_msg_w_indexed *what, int fd)
{
    struct member *m = owner;
    struct pool *pool = m->pool;
    struct dl_error err = {0};

    /* What comes later is of a worker that cannot read those that are there: a newer one. */
    if (m->state != WORKER_STARTING || pool->opened || pool->broken) {
        close_fdp(&fd);
        return;
    }
    const struct payer payer = {pool->o.account, pool->o.budget};
    uint32_t n = pool->indexes.n;
    int r = index_list_add(&pool->indexes, &payer, what->place, (uint32_t)what->form, fd, &err);
    if (r == -EPROTO) {
        log_about(LOG_WARNING,
                  &(struct log_fields){.loader = pool->o.spec->name,
                                       .worker = LOG_N(m->number),
                                       .worker_pid = LOG_N(process_pid(m->process)),
                                       .client_uid = LOG_N(quota_uid(pool->o.account))},
                  "%s: worker %u (pid %d) is killed: %s: %s", pool->o.spec->name, m->number,
                  process_pid(m->process), err.path, err.message);
        member_kill(m);
    } else if (r < 0) {
        pool_break(pool, &err);
    } else if (what->key && pool->indexes.n > n && n < pool->wanted_indexes) {
        pool->o.events->indexed(pool->o.owner, what->key, pool->indexes.items[n].fd);
    }
    pool_let_open(pool);
}
