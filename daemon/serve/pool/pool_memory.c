#include "daemon/serve/pool/pool_private.h"
#include "daemon/serve/ring/pictures.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

void pool_settle_segment(struct pool *pool, struct segment *segment)
{
    if (segment->promised)
        budget_settle(pool->o.budget, segment->bytes);
    segment->promised = false;
}

void pool_free_segment(struct pool *pool, struct segment *segment)
{
    pool_settle_segment(pool, segment);
    pool->memory -= segment->bytes;
    retired_end_segment(pool->o.retired, segment, pool->o.account, pool);
}

static uint64_t pool_memory_budget(const struct pool *pool)
{
    uint64_t limit = pool->o.spec->memory_limit;

    return limit > pool->memory ? limit - pool->memory : 0;
}

/* How many slots a segment of at most `bytes` has. */
static uint64_t pool_memory_slots_in(const struct pool *pool, uint64_t bytes)
{
    return bytes > SEGMENT_HEADER_BYTES ? (bytes - SEGMENT_HEADER_BYTES) / pool->slot_bytes : 0;
}

static int pool_memory_refuse(const struct pool *pool, struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, "memory.limit",
                        "%llu bytes are used of %llu and one more slot takes %llu; raise "
                        "memory.limit, release pinned batches, or lower batch.size or "
                        "workers.prefetch",
                        (ull)pool->memory, (ull)pool->o.spec->memory_limit,
                        (ull)segment_bytes(1, pool->slot_bytes));
}

/* Whether so much would be there if the loader's clients had let go of what it has retired, as they
 * were told to. */
static bool pool_memory_retired_suffices(const struct pool *pool, uint64_t bytes)
{
    uint64_t retired = retired_lately(pool->o.retired, pool);
    uint64_t limit = quota_limit(pool->o.account, QUOTA_BYTES);

    return retired > 0 && bytes <= limit &&
           quota_in_use(pool->o.account, QUOTA_BYTES) - retired <= limit - bytes &&
           budget_would_take(pool->o.budget, bytes, retired);
}

/* What the loader keeps decoded is there as long as it is. */
static struct admission_claim pool_memory_less(struct admission_claim claim, uint64_t kept)
{
    claim.in_use -= min_u64(claim.in_use, kept);
    claim.limit -= min_u64(claim.limit, kept);
    return claim;
}

/* Whether it waits, by policy, for what others have. */
static bool pool_memory_waits_for_room(const struct pool *pool, uint64_t bytes)
{
    const struct quota_account *account = pool->o.account;
    const struct pictures_list *kept = pool->o.pictures;
    const struct admission_claim own = {.want = bytes,
                                        .in_use = quota_in_use(account, QUOTA_BYTES),
                                        .limit = quota_limit(account, QUOTA_BYTES)};
    const struct admission_claim claims[] = {
        pool_memory_less(own, pictures_list_bytes(kept, account)),
        pool_memory_less(budget_claim(pool->o.budget, bytes), pictures_list_bytes(kept, NULL))};

    return admission_decide(claims, ARRAY_SIZE(claims),
                            pool->o.config->limits.full == CONFIG_FULL_WAIT) == ADMISSION_WAITS;
}

static int pool_memory_wait(struct pool *pool, const struct dl_error *err)
{
    pool->refused = *err;
    pool_watch(pool);
    return -err->code;
}

/* What others have let go of counts, no matter who pays for it. */
static int pool_memory_take(struct pool *pool, uint64_t bytes, struct dl_error *err)
{
    static const char remedy[] = "lower memory.limit, workers.prefetch or batch.size";
    int r = budget_take(pool->o.budget, bytes, remedy, err);

    if (r < 0) {
        retired_look(pool->o.retired, NULL);
        r = budget_take(pool->o.budget, bytes, remedy, err);
    }
    return r;
}

/* The user's account, and what the system has. */
static int pool_memory_charge(struct pool *pool, uint64_t bytes, struct dl_error *err)
{
    retired_look(pool->o.retired, pool->o.account);
    int r = quota_charge(pool->o.account, QUOTA_BYTES, bytes, err);

    pool->refused.code = 0;
    pool->waits_for_retired = r < 0 && pool_memory_retired_suffices(pool, bytes);
    pool->waits_for_room = r < 0 && pool_memory_waits_for_room(pool, bytes);
    if (r < 0)
        return pool->waits_for_retired || pool->waits_for_room ? pool_memory_wait(pool, err) : r;
    r = pool_memory_take(pool, bytes, err);
    if (r < 0) {
        quota_return(pool->o.account, QUOTA_BYTES, bytes);
        pool->waits_for_room = pool_memory_waits_for_room(pool, bytes);
        pool->waits_for_retired = pool_memory_retired_suffices(pool, bytes);
        return pool_memory_wait(pool, err);
    }
    return 0;
}

/* Sends the worker a segment of `slots` slots; it counts once the worker has mapped it. */
static int pool_memory_add_segment(struct member *m, uint32_t slots, struct dl_error *err)
{
    struct pool *pool = m->pool;
    uint64_t bytes = segment_bytes(slots, pool->slot_bytes);
    int r = pool_memory_charge(pool, bytes, err);

    assert(!m->mapping);
    if (r < 0)
        return r;
    r = segment_new((*pool->o.next_segment)++, m->number, slots, pool->slot_bytes,
                    pool->o.spec->writable, &m->mapping, err);
    if (r < 0) {
        budget_settle(pool->o.budget, bytes);
        budget_return(pool->o.budget, bytes);
        quota_return(pool->o.account, QUOTA_BYTES, bytes);
        return r;
    }
    pool->memory += bytes;
    m->mapping->promised = true;
    m->mapping->filler = m->process;
    process_send_segment(m->process, m->mapping);
    return 0;
}

/*
 * A worker's first segment: as many slots as all workers together need for one stream's window;
 * fewer where its share of memory.limit is smaller.
 */
void member_add_first_segment(struct member *m)
{
    struct pool *pool = m->pool;
    const struct dl_spec *spec = pool->o.spec;
    uint64_t share = spec->memory_limit / pool_at_work(pool);
    uint64_t fit = min_u64(pool_memory_slots_in(pool, pool_memory_budget(pool)),
                           max_u64(pool_memory_slots_in(pool, share), 1));
    struct dl_error err = {0};

    m->wants_memory = fit == 0;
    if (fit == 0) {
        pool->o.events->reclaim(pool->o.owner);
        return;
    }
    uint32_t slots = (uint32_t)min_u64(spec_slots(spec, pool_at_work(pool)), fit);
    int r;

    while ((r = pool_memory_add_segment(m, slots, &err)) == -EDQUOT &&
           pool->o.events->make_way(pool->o.owner))
        err = (struct dl_error){0};
    if (r < 0 && pool->refused.code &&
        (member_has_stand_in(m) || pool->waits_for_retired || pool->waits_for_room))
        m->wants_memory = true; /* what others have may come back, and nobody says so */
    else if (r < 0)
        member_without_memory(m, &err);
}

/* Whether the worker can do something, or is about to. */
static bool pool_memory_serves(const struct member *m)
{
    const struct segment *segment;

    if (m->mapping || m->state == WORKER_STARTING || m->state == WORKER_WAITING)
        return true;
    DL_FOREACH (m->segments, segment) {
        if (segment->slot_bytes >= m->pool->slot_bytes)
            return true;
    }
    return false;
}

/* Memory of others may come back at any time without notice: a pool that can wait asks again. One
 * without memory of its own, for which no other worker stands in, would wait for strangers; not if
 * its own clients have still to let go of some. */
void pool_memory_ask_again(struct pool *pool)
{
    struct dl_error err = pool->refused;
    bool waits = pool->retiring || pool->waits_for_room ||
                 (pool->waits_for_retired && retired_lately(pool->o.retired, pool) > 0);

    pool->refused.code = 0;
    for (uint32_t i = 0; err.code && !waits && i < pool->n_members; i++) {
        const struct member *m = pool->members[i];
        if (m->state == WORKER_READY && !pool_memory_serves(m) && !member_has_stand_in(m)) {
            pool_break(pool, &err);
            return;
        }
    }
    if (err.code)
        pool_changed(pool);
}

void member_feed(struct member *m)
{
    if (m->wants_memory && m->state == WORKER_READY && !m->mapping &&
        pool_memory_slots_in(m->pool, pool_memory_budget(m->pool)) > 0)
        member_add_first_segment(m);
}

void pool_settle_retiring(struct pool *pool, struct segment *segment)
{
    uint32_t id = segment->id;

    if (!slot_table_retire(&segment->slots))
        return;
    DL_DELETE(pool->retiring, segment);
    struct member *m = pool->members[segment->worker];
    if (m->process == segment->filler)
        process_send_unmap(m->process, id);
    pool_free_segment(pool, segment);
    pool->o.events->retired(pool->o.owner, id);
}

static void member_retire_segment(struct member *m, struct segment *segment)
{
    DL_DELETE(m->segments, segment);
    segment->active = false;
    DL_APPEND(m->pool->retiring, segment);
    pool_settle_retiring(m->pool, segment);
}

/* Moves the worker's segments with slots below `slot_bytes` out of use. */
void member_retire_segments(struct member *m, uint64_t slot_bytes)
{
    struct segment *segment;
    struct segment *next;

    DL_FOREACH_SAFE (m->segments, segment, next) {
        if (segment->slot_bytes < slot_bytes)
            member_retire_segment(m, segment);
    }
}

void member_retire_all(struct member *m)
{
    if (m->mapping)
        pool_free_segment(m->pool, steal_ptr(m->mapping));
    member_retire_segments(m, UINT64_MAX);
}

/* Segments that no batch is in give way. */
static void pool_memory_retire_free(struct pool *pool)
{
    struct segment *segment, *next;

    for (uint32_t i = 0; i < pool->n_members; i++) {
        DL_FOREACH_SAFE (pool->members[i]->segments, segment, next) {
            if (segment->slots.in_state[SLOT_FREE] == segment->slots.count)
                member_retire_segment(pool->members[i], segment);
        }
    }
}

/* How many slots there is memory for. `bare`: the worker that they are for has none, and nothing
 * that is released helps it. */
static uint64_t pool_memory_fit(struct pool *pool, bool bare)
{
    uint64_t fit = pool_memory_slots_in(pool, pool_memory_budget(pool));

    if (fit == 0 && pool->retiring) {
        /* What is ready there may wait for just the step that there is no memory for. */
        pool->o.events->reclaim(pool->o.owner);
        fit = pool_memory_slots_in(pool, pool_memory_budget(pool));
    }
    if (fit == 0 && bare) {
        pool_memory_retire_free(pool);
        fit = pool_memory_slots_in(pool, pool_memory_budget(pool));
    }
    return fit;
}

bool pool_grow(struct pool *pool, uint32_t worker, struct dl_error *err)
{
    struct member *best = NULL;
    uint32_t best_slots = UINT32_MAX;

    for (uint32_t i = 0; i < pool->size; i++) {
        struct member *m = pool->members[i];
        struct segment *segment;
        uint32_t slots = 0;

        if ((worker != POOL_ANY && worker != i) || member_rests(m))
            continue;
        if (m->mapping ||
            (!member_is_helper(m) && (m->state == WORKER_STARTING || m->state == WORKER_WAITING)))
            return true; /* something is coming already */
        DL_FOREACH (m->segments, segment) {
            slots += segment->slots.count;
        }
        if (m->state == WORKER_READY && slots < best_slots) {
            best = m;
            best_slots = slots;
        }
    }
    if (!best)
        return dl_error_set(err, EIO, "workers", "no worker is alive") == 0;
    uint64_t fit = pool_memory_fit(pool, best_slots == 0);
    if (fit == 0)
        return pool_memory_refuse(pool, err) == 0;
    int r = pool_memory_add_segment(
        best, (uint32_t)min_u64(spec_slots(pool->o.spec, pool_at_work(pool)), fit), err);
    if (r < 0)
        r = pool_memory_add_segment(best, 1, err);
    return r == 0;
}

const struct segment *pool_next_segment(const struct pool *pool, const struct segment *after)
{
    bool take = after == NULL;
    const struct segment *segment;

    for (uint32_t i = 0; i <= pool->n_members; i++) {
        const struct segment *list =
            i < pool->n_members ? pool->members[i]->segments : pool->retiring;
        DL_FOREACH (list, segment) {
            if (take)
                return segment;
            take = segment == after;
        }
    }
    return NULL;
}

uint64_t pool_memory(const struct pool *pool)
{
    return pool->memory;
}

const struct dl_error *pool_refused(const struct pool *pool)
{
    return pool->refused.code ? &pool->refused : NULL;
}

uint64_t pool_slot_bytes(const struct pool *pool)
{
    return pool->slot_bytes;
}
