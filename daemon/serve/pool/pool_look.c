/*
 * Whether the files are those that they were when they were first opened: workers that open them
 * look at them before, until one has said how they are, so that the first that is ready has looked.
 * One that is asked later looks again; where none is there, one that starts, before it opens them.
 */
#include "daemon/serve/pool/pool_private.h"

/* Who opens a loader that another has opened does not wait longer; ns. */
#define LOOK_NS (10 * UINT64_C(1000000000))

static bool pool_look_reads(const struct spec_dataset *dataset)
{
    bool reads = dataset->kind != DATASET_RANGE && dataset->kind != DATASET_PYTHON &&
                 dataset->n_datasets == 0;

    for (uint32_t i = 0; !reads && i < dataset->n_datasets; i++)
        reads = pool_look_reads(&dataset->datasets[i]);
    return reads;
}

/* A host that its client has brought serves nobody else, and may be of another release. */
bool pool_has_files(const struct pool *pool)
{
    return !pool->o.python->host_number &&
           (pool_look_reads(&pool->o.spec->dataset) || pool->o.spec->collate.path);
}

bool pool_look_first(struct member *m)
{
    struct look *look = &m->pool->look;

    if (m->helper || !pool_has_files(m->pool))
        return false;
    if (look->identity == 0)
        return true;
    if (!look->wanted || look->by)
        return false;
    look->by = m;
    return true;
}

static void pool_look_tell(struct pool *pool, enum pool_files files)
{
    pool->look.wanted = false;
    pool->look.by = NULL;
    pool->o.events->looked(pool->o.owner, files);
}

void pool_look_on_looked(void *owner, uint64_t identity)
{
    struct member *m = owner;
    struct pool *pool = m->pool;

    if (m->state == WORKER_STARTING && pool->look.identity == 0) {
        pool->look.identity = identity;
        return;
    }
    if (pool->look.by != m)
        return;
    /* Where it is not known how they were, nothing can be said for them. */
    bool same = identity != 0 && identity == pool->look.identity;
    pool_look_tell(pool, same ? POOL_FILES_SAME : POOL_FILES_CHANGED);
}

/* The one with least to do. */
void pool_look_go_on(struct pool *pool)
{
    struct member *best = NULL;

    if (!pool->look.wanted || pool->look.by)
        return;
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];
        if (m->state == WORKER_READY && !m->killed_since && !m->helper &&
            (!best || in_flight(m) < in_flight(best)))
            best = m;
    }
    if (!best)
        return;
    pool->look.by = best;
    process_send_look(best->process, (struct dl_span){pool->spec.data, pool->spec.len});
}

void pool_look(struct pool *pool)
{
    assert(pool->opened && !pool->look.wanted);
    pool->look.wanted = true;
    pool->look.since = uv_hrtime();
    pool_watch(pool);
    pool_look_go_on(pool);
}

void member_look_no_more(struct member *m)
{
    struct look *look = &m->pool->look;

    if (look->by != m)
        return;
    look->by = NULL;
    pool_look_go_on(m->pool);
}

void pool_look_check_time(struct pool *pool)
{
    if (pool->look.wanted && uv_hrtime() - pool->look.since >= LOOK_NS)
        pool_look_tell(pool, POOL_FILES_UNKNOWN);
}
