#include "daemon/serve/loader/length_table.h"

#include "daemon/cache/lengths_cache.h"
#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"

#include <assert.h>
#include <errno.h>

struct length_table *length_table_new(uint64_t n)
{
    struct length_table *table = NULL;

    if (n <= (SIZE_MAX - sizeof *table) / sizeof table->values[0])
        table = calloc(1, sizeof *table + n * sizeof table->values[0]);
    if (!table)
        return NULL;
    table->n = n;
    table->refs = 1;
    return table;
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
    if (--table->refs == 0)
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
    lengths_cache_dir(own);
    free(*dir);
    *dir = must_strdup(given && given[0] == '/' ? given : own);
}

/* One use of it, which a thread is at. */
struct use {
    uv_work_t work;
    char *dir; /* owned */
    uint64_t fingerprint;
    struct length_table *table; /* counted */
    struct dl_error err;
    int r;
};

struct length_cache_load {
    struct use use;
    struct lengths_rule rule;
    struct lengths_found found;
    length_cache_done done; /* NULL: nobody waits any more */
    void *owner;
};

struct store {
    struct use use;
    char *label; /* owned */
};

static void length_table_use_init(struct use *use, const char *dir, uint64_t fingerprint,
                                  struct length_table *table)
{
    *use = (struct use){
        .dir = must_strdup(dir), .fingerprint = fingerprint, .table = length_table_ref(table)};
}

static void length_table_use_deinit(struct use *use)
{
    length_table_unref(use->table);
    free(use->dir);
}

static void length_table_thread_load(uv_work_t *work)
{
    struct length_cache_load *l = container_of(work, struct length_cache_load, use.work);
    struct use *use = &l->use;

    use->r = lengths_cache_load(use->dir, use->fingerprint, use->table->n, use->table->values);
    if (use->r == 0)
        use->r =
            lengths_check(&l->rule, 0, use->table->values, use->table->n, &l->found, &use->err);
}

static void length_table_loaded(uv_work_t *work, int status)
{
    struct length_cache_load *l = container_of(work, struct length_cache_load, use.work);

    (void)status; /* nobody cancels it */
    if (l->done)
        l->done(l->owner, l->use.r, &l->found, &l->use.err);
    length_table_use_deinit(&l->use);
    free(l);
}

struct length_cache_load *length_cache_load(uv_loop_t *loop, const char *dir, uint64_t fingerprint,
                                            struct length_table *table,
                                            const struct lengths_rule *rule, length_cache_done done,
                                            void *owner)
{
    struct length_cache_load *l = must_alloc(sizeof *l);

    l->rule = *rule;
    l->done = done;
    l->owner = owner;
    length_table_use_init(&l->use, dir, fingerprint, table);
    if (uv_queue_work(loop, &l->use.work, length_table_thread_load, length_table_loaded) == 0)
        return l;
    length_table_use_deinit(&l->use);
    free(l);
    return NULL;
}

void length_cache_forget(struct length_cache_load *load)
{
    if (load)
        load->done = NULL;
}

static void length_table_thread_put(uv_work_t *work)
{
    struct use *use = container_of(work, struct use, work);

    use->r = lengths_cache_store(use->dir, use->fingerprint, use->table->n, use->table->values,
                                 &use->err);
}

static void length_table_was_put(uv_work_t *work, int status)
{
    struct store *store = container_of(work, struct store, use.work);

    (void)status;
    if (store->use.r < 0)
        log_loader(LOG_WARNING, store->label, "%s: its samples' lengths are not kept: %s: %s",
                   store->label, store->use.err.path, store->use.err.message);
    length_table_use_deinit(&store->use);
    free(store->label);
    free(store);
}

void length_cache_store(uv_loop_t *loop, const char *dir, uint64_t fingerprint,
                        struct length_table *table, const char *label)
{
    struct store *store = must_alloc(sizeof *store);

    store->label = must_strdup(label);
    length_table_use_init(&store->use, dir, fingerprint, table);
    if (uv_queue_work(loop, &store->use.work, length_table_thread_put, length_table_was_put) == 0)
        return;
    length_table_use_deinit(&store->use);
    free(store->label);
    free(store);
}
