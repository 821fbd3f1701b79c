/*
 * Measuring: before a loader of token batches opens, its workers measure the lengths of all
 * samples, unless a cache has them; or, while it is read, those of a window (loader_windows.c). A
 * run of samples is a task like a batch, in a slot of the ring, so that workers that die, hang or
 * refuse are handled as usual.
 */
#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "proto/common/figures.h"

#include "proto/limits.h"
#include "proto/slot_fill.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

enum {
    CHUNK_FIRST = 64,
    CHUNK_NS = 20 * 1000 * 1000, /* a chunk that takes less lets the next one be larger */
    KEEP_NS = 250 * 1000 * 1000, /* what took less is not worth a file in the cache */
    TELL_NS = 200 * 1000 * 1000, /* between two words of progress */
};

/* A run of samples whose lengths a worker measures. */
struct chunk {
    struct chunk *prev, *next; /* measuring.again or .running (utlist) */
    uint64_t first;            /* of what is measured */
    uint64_t n;
    uint64_t begun_ns;
    uint32_t attempts;
    uint32_t slot;
    struct segment *segment; /* borrowed while it runs */
};

struct measuring {
    struct loader *loader;
    struct length_table *table; /* borrowed: the loader's lengths */
    struct lengths_rule rule;
    struct length_cache_load *load;
    uint64_t fingerprint;
    uint64_t begun_ns;
    uint64_t told_ns;
    uint64_t *list;        /* owned; the samples to measure; NULL: all, in turn */
    uint64_t n;            /* how many these are */
    uint64_t next;         /* the first of the next chunk */
    uint64_t done;         /* measured */
    uint64_t size;         /* of the next chunk */
    uint64_t most;         /* that one may have */
    uint32_t n_running;    /* chunks that a worker has */
    struct chunk *running; /* owned list: these */
    struct chunk *again;   /* owned list: those whose worker died */
};

static uint64_t measure_sample(const struct measuring *m, uint64_t i)
{
    return m->list ? m->list[i] : i;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void measure_scan(struct measuring *m)
{
    m->begun_ns = m->told_ns = uv_hrtime();
    pool_measures(m->loader->pool, true);
}

static void measure_log_lengths(const struct measuring *m)
{
    const char *name = m->loader->spec.name;
    uint32_t uid = m->loader->o.uid;
    char took[UNITS_MAX];

    format_seconds((double)(uv_hrtime() - m->begun_ns) / 1e9, took, sizeof took);
    if (m->begun_ns)
        log_loader(LOG_INFO, name, uid, "%s: %llu lengths were taken in %s", name, (ull)m->table->n,
                   took);
    else
        log_loader(LOG_INFO, name, uid, "%s: %llu lengths were in the cache", name,
                   (ull)m->table->n);
    const struct lengths_found *found = &m->loader->found;

    if (found->empty > 0)
        log_loader(LOG_INFO, name, uid, "%s: %llu samples have no tokens and are left out", name,
                   (ull)found->empty);
    if (found->overlong > 0)
        log_loader(LOG_INFO, name, uid, "%s: %llu samples have more than %u tokens and are %s",
                   name, (ull)found->overlong, plan_tokens_limit(&m->rule.tokens),
                   m->rule.tokens.truncate ? "cut" : "left out");
}

static void measure_finish(struct measuring *m)
{
    struct loader *loader = m->loader;
    struct length_cache_for cache = loader_length_cache(loader);

    measure_log_lengths(m);
    pool_measures(loader->pool, false);
    charge_settle(&m->table->charge);
    if (m->fingerprint && *cache.dir && m->begun_ns && uv_hrtime() - m->begun_ns > KEEP_NS)
        length_cache_store(&cache, m->fingerprint, m->table, loader->spec.name);
    loader->measuring = measuring_free(m);
    loader_opened(loader);
}

static void measure_on_loaded(void *owner, int r, const struct lengths_found *found,
                              const struct dl_error *err)
{
    struct measuring *m = owner;
    struct loader *loader = m->loader;

    m->load = NULL;
    if (r == -EINVAL) {
        loader_break(loader, err);
        return;
    }
    if (r == 0) {
        m->done = m->next = m->table->n;
        loader->found = *found;
    } else {
        measure_scan(m);
    }
    loader_pump(loader);
}

static struct measuring *measure_new(struct loader *loader, uint64_t n)
{
    struct measuring *m = must_alloc(sizeof *m);

    m->loader = loader;
    m->table = loader->lengths;
    m->rule = lengths_rule_of(&loader->spec);
    m->n = n;
    m->size = CHUNK_FIRST;
    m->most = DL_MAX_LENGTHS;
    return m;
}

struct measuring *measuring_new(struct loader *loader, uint64_t *list, uint64_t n)
{
    struct measuring *m = measure_new(loader, n);

    m->list = list;
    m->begun_ns = uv_hrtime();
    m->most = MEASURING_MOST;
    m->size = max_u64(min_u64(n / (4 * (uint64_t)pool_size(loader->pool)), m->most), 1);
    return m;
}

int loader_measure(struct loader *loader, uint64_t fingerprint, struct dl_error *err)
{
    struct length_cache_for cache = loader_length_cache(loader);
    int r = lengths_check_count(loader->core.length, err);

    if (r == 0)
        r = length_table_new(loader->core.length, &loader->epochs.payer, &loader->lengths, err);
    if (r < 0)
        return r;
    struct measuring *m = measure_new(loader, loader->core.length);
    loader->measuring = m;
    m->fingerprint = fingerprint;
    if (fingerprint && *cache.dir)
        m->load = length_cache_load(&cache, fingerprint, m->table, &m->rule, measure_on_loaded, m);
    if (!m->load)
        measure_scan(m);
    return 0;
}

struct measuring *measuring_free(struct measuring *m)
{
    struct chunk *chunk, *next;

    if (!m)
        return NULL;
    assert(m->n_running == 0);
    DL_FOREACH_SAFE (m->again, chunk, next)
        free(chunk);
    length_cache_forget(m->load);
    free(m->list);
    free(m);
    return NULL;
}

uint64_t measuring_done(const struct measuring *m)
{
    return m->done;
}

bool measuring_is_over(const struct measuring *m, uint64_t *ret_ns)
{
    *ret_ns = uv_hrtime() - m->begun_ns;
    return m->done == m->n;
}

const uint64_t *measuring_list(const struct measuring *m, uint64_t *ret_n)
{
    *ret_n = m->n;
    return m->list;
}

bool measuring_runs(const struct measuring *m)
{
    return m->n_running > 0;
}

bool measuring_has(const struct measuring *m, const void *tag)
{
    const struct chunk *chunk;

    DL_FOREACH (m->running, chunk) {
        if (chunk == tag)
            return true;
    }
    return false;
}

/* What runs still is passed over. */
static bool measure_failed(const struct measuring *m)
{
    return m->loader->state == LOADER_BROKEN;
}

void loader_tell_progress(const struct loader *loader, uint64_t done, uint64_t all,
                          const char *what)
{
    struct loader_user *user, *next;

    DL_FOREACH_SAFE (loader->users, user, next)
        loader->o.events->progress(user, done, all, what);
}

static void measure_tell(struct measuring *m)
{
    uint64_t now = uv_hrtime();

    if (now - m->told_ns < TELL_NS)
        return;
    m->told_ns = now;
    loader_tell_progress(m->loader, m->done, m->n, "lengths");
}

/* ---- handing out ---------------------------------------------------------------------------- */

static struct chunk *measure_next_chunk(struct measuring *m)
{
    struct chunk *chunk = m->again;

    if (chunk) {
        DL_DELETE(m->again, chunk);
        return chunk;
    }
    chunk = must_alloc(sizeof *chunk);
    chunk->first = m->next;
    chunk->n = min_u64(m->size, m->n - m->next);
    m->next += chunk->n;
    return chunk;
}

static void measure_run(struct measuring *m, struct chunk *chunk, const struct place *place)
{
    void *slot = segment_slot(place->segment, place->slot);
    bool fits = slot_prepare(slot, place->segment->slot_bytes,
                             &(struct slot_task){
                                 .generation = place->segment->slots.slots[place->slot].generation,
                                 .indices = m->list ? m->list + chunk->first : &chunk->first,
                                 .samples = (uint32_t)chunk->n,
                                 .what = m->list ? SLOT_LENGTHS_OF : SLOT_LENGTHS,
                             });

    assert(fits); /* one index does; and see measuring_new() */
    chunk->segment = place->segment;
    chunk->slot = place->slot;
    chunk->begun_ns = uv_hrtime();
    DL_APPEND(m->running, chunk);
    m->n_running++;
    pool_run(m->loader->pool, place, chunk);
}

void measuring_hand_out(struct measuring *m, uint32_t most)
{
    struct pool *pool = m->loader->pool;
    struct place place;

    while ((m->again || m->next < m->n) && m->n_running < most && pool_take(pool, POOL_ANY, &place))
        measure_run(m, measure_next_chunk(m), &place);
    pool_flush(pool);
}

void loader_measure_pump(struct loader *loader)
{
    struct measuring *m = loader->measuring;

    if (measure_failed(m) || m->load)
        return;
    measuring_hand_out(m, MEASURING_EACH * pool_size(loader->pool));
    if (m->done == m->n)
        measure_finish(m);
    else
        measure_tell(m);
}

void measuring_name(const struct measuring *m, const void *tag, char *text, size_t len)
{
    const struct chunk *chunk = tag;
    uint64_t first = measure_sample(m, chunk->first);

    if (m->list)
        snprintf(text, len, "lengths of sample %llu and %llu others", (ull)first,
                 (ull)(chunk->n - 1));
    else
        snprintf(text, len, "lengths of samples %llu to %llu", (ull)first,
                 (ull)(first + chunk->n - 1));
}

/* ---- what workers answer -------------------------------------------------------------------- */

/* The answer lies in shared memory: it is read once. */
static bool measure_take_lengths(struct measuring *m, const struct chunk *chunk)
{
    const char *slot = segment_slot(chunk->segment, chunk->slot);
    uint64_t off = ((const volatile struct slot_header *)(const void *)slot)->data_off;
    uint64_t bytes = chunk->n * sizeof(uint32_t);

    if (off > chunk->segment->slot_bytes || bytes > chunk->segment->slot_bytes - off)
        return false;
    if (!m->list)
        memcpy(m->table->values + chunk->first, slot + off, bytes);
    for (uint64_t i = 0; m->list && i < chunk->n; i++)
        memcpy(&m->table->values[m->list[chunk->first + i]], slot + off + i * sizeof(uint32_t),
               sizeof(uint32_t));
    return true;
}

static int measure_check_chunk(struct measuring *m, const struct chunk *chunk, struct dl_error *err)
{
    uint64_t each = m->list ? 1 : chunk->n;
    int r = 0;

    for (uint64_t i = 0; i < chunk->n && r == 0; i += each) {
        uint64_t first = measure_sample(m, chunk->first + i);

        r = lengths_check(&m->rule, first, m->table->values + first, each, &m->loader->found, err);
    }
    return r;
}

/* A worker has it no more. */
static void measure_end_chunk(struct measuring *m, struct chunk *chunk)
{
    DL_DELETE(m->running, chunk);
    m->n_running--;
}

void measuring_took(struct measuring *m, void *tag)
{
    struct chunk *chunk = tag;
    struct dl_error err = {0};

    measure_end_chunk(m, chunk);
    bool sound = measure_take_lengths(m, chunk);
    pool_slot(m->loader->pool, chunk->segment, chunk->slot, SLOT_DISCARD);
    if (!sound)
        dl_error_set(&err, EPROTO, "batch.tokens", "a worker's answer is invalid");
    if (!measure_failed(m) && (!sound || measure_check_chunk(m, chunk, &err) < 0))
        loader_break(m->loader, &err);
    m->done += chunk->n;
    if (chunk->n == m->size && uv_hrtime() - chunk->begun_ns < CHUNK_NS)
        m->size = min_u64(2 * m->size, m->most);
    free(chunk);
}

void measuring_refused(struct measuring *m, void *tag, const struct dl_error *err)
{
    measure_end_chunk(m, tag);
    free(tag);
    if (!measure_failed(m))
        loader_break(m->loader, err);
}

void measuring_lost(struct measuring *m, void *tag, bool culprit, const char *cause)
{
    struct loader *loader = m->loader;
    struct chunk *chunk = tag;
    struct dl_error err = {0};
    char what[96];

    measure_end_chunk(m, chunk);
    chunk->attempts += culprit;
    loader->core.totals.retries += culprit;
    if (measure_failed(m)) {
        free(chunk);
        return;
    }
    DL_APPEND(m->again, chunk);
    if (chunk->attempts <= loader->spec.retries)
        return;
    measuring_name(m, chunk, what, sizeof what);
    dl_error_set(&err, EIO, spec_dataset_label(&loader->spec.dataset),
                 "the %s cannot be taken: %s; given up after %u attempt%s (workers.retries)", what,
                 cause, chunk->attempts, chunk->attempts == 1 ? "" : "s");
    loader_break(loader, &err);
}
