#include "daemon/serve/loader/length_table.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cache/cache_room.h"
#include "daemon/cache/lengths_cache.h"

#include <assert.h>
#include <errno.h>

int length_table_new(uint64_t n, const struct payer *payer, struct length_table **ret,
                     struct dl_error *err)
{
    struct length_table *table = NULL;
    struct charge charge = {0};
    int r = charge_take(&charge, payer, length_table_bytes(n),
                        "take a subset or a split of the dataset", err);

    if (r < 0)
        return r;
    if (n <= (SIZE_MAX - sizeof *table) / sizeof table->values[0])
        table = calloc(1, sizeof *table + n * sizeof table->values[0]);
    if (!table) {
        charge_return(&charge);
        return dl_error_set(err, ENOMEM, "batch.tokens",
                            "no memory for the lengths of %llu samples", (ull)n);
    }
    table->n = n;
    table->charge = charge;
    table->refs = 1;
    *ret = table;
    return 0;
}

struct length_table *length_table_ref(struct length_table *table)
{
    if (table)
        table->refs++;
    return table;
}

struct length_table *length_table_unref(struct length_table *table)
{
    if (!table)
        return NULL;
    assert(table->refs > 0);
    if (--table->refs > 0)
        return NULL;
    charge_return(&table->charge);
    free(table);
    return NULL;
}

/* ---- the cache ------------------------------------------------------------------------------ */

void length_cache_locate(char **dir)
{
    const char *given = getenv("CACHE_DIRECTORY");
    char own[PATH_MAX];

    if (strcmp(*dir, "auto") != 0)
        return;
    disk_cache_dir(own);
    free(*dir);
    *dir = must_strdup(given && given[0] == '/' ? given : own);
}

/* One use of it, which a thread is at, or will be. */
struct use {
    struct crew_job job;
    char *dir; /* owned */
    uint64_t size;
    uint64_t fingerprint;
    struct length_table *table; /* counted */
    struct dl_error err;
    int r;
};

struct length_cache_load {
    struct use use;
    struct lengths_rule rule;
    struct lengths_found found;
    length_cache_done done; /* NULL: the owner is gone */
    void *owner;
};

struct store {
    struct use use;
    char *label; /* owned */
    uint32_t uid;
};

static void length_table_use_init(struct use *use, const struct length_cache_for *cache,
                                  uint64_t fingerprint, struct length_table *table)
{
    *use = (struct use){.dir = must_strdup(cache->dir),
                        .size = cache->size,
                        .fingerprint = fingerprint,
                        .table = length_table_ref(table)};
}

static void length_table_use_deinit(struct use *use)
{
    length_table_unref(use->table);
    free(use->dir);
}

static void length_table_free_load(struct length_cache_load *l)
{
    length_table_use_deinit(&l->use);
    free(l);
}

static void length_table_thread_load(struct crew_job *job)
{
    struct length_cache_load *l = container_of(job, struct length_cache_load, use.job);
    struct use *use = &l->use;

    use->r = lengths_cache_load(use->dir, use->fingerprint, use->table->n, use->table->values);
    if (use->r == 0)
        use->r =
            lengths_check(&l->rule, 0, use->table->values, use->table->n, &l->found, &use->err);
}

static void length_table_loaded(struct crew_job *job)
{
    struct length_cache_load *l = container_of(job, struct length_cache_load, use.job);

    if (l->done)
        l->done(l->owner, l->use.r, &l->found, &l->use.err);
    length_table_free_load(l);
}

struct length_cache_load *length_cache_load(const struct length_cache_for *cache,
                                            uint64_t fingerprint, struct length_table *table,
                                            const struct lengths_rule *rule, length_cache_done done,
                                            void *owner)
{
    struct length_cache_load *l = must_alloc(sizeof *l);

    l->rule = *rule;
    l->done = done;
    l->owner = owner;
    length_table_use_init(&l->use, cache, fingerprint, table);
    crew_start(cache->crew, cache->uid, &l->use.job, length_table_thread_load, length_table_loaded);
    return l;
}

void length_cache_forget(struct length_cache_load *load)
{
    if (!load)
        return;
    load->done = NULL;
    if (crew_cancel(&load->use.job))
        length_table_free_load(load);
}

static void length_table_thread_put(struct crew_job *job)
{
    struct use *use = container_of(job, struct use, job);

    use->r = lengths_cache_store(use->dir, use->fingerprint, use->table->n, use->table->values,
                                 &use->err);
    cache_room_make(use->dir, use->size);
}

static void length_table_was_put(struct crew_job *job)
{
    struct store *store = container_of(job, struct store, use.job);

    if (store->use.r < 0)
        log_loader(LOG_WARNING, store->label, store->uid,
                   "%s: the lengths of its samples are not cached: %s: %s", store->label,
                   store->use.err.path, store->use.err.message);
    length_table_use_deinit(&store->use);
    free(store->label);
    free(store);
}

void length_cache_store(const struct length_cache_for *cache, uint64_t fingerprint,
                        struct length_table *table, const char *label)
{
    struct store *store = must_alloc(sizeof *store);

    store->label = must_strdup(label);
    store->uid = cache->uid;
    length_table_use_init(&store->use, cache, fingerprint, table);
    crew_start(cache->crew, cache->uid, &store->use.job, length_table_thread_put,
               length_table_was_put);
}
