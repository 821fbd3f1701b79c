#include "daemon/serve/loader/weight_tables.h"

#include "daemon/base/memory.h"

#include <errno.h>

#include <utlist.h>

/* ---- those that are here --------------------------------------------------------------------- */

struct table_entry {
    struct weight_table table;       /* what users refer to: the mapped one's weights */
    struct table_entry *prev, *next; /* weight_tables.tables */
    struct weight_tables *set;       /* borrowed, outlives it */
    struct weight_table *mapped;     /* counted */
    struct charge charge;
    uint32_t uid;
};

static void weight_tables_drop(struct weight_table *table)
{
    struct table_entry *entry = container_of(table, struct table_entry, table);

    DL_DELETE(entry->set->tables, entry);
    weight_table_unref(entry->mapped);
    charge_return(&entry->charge);
    free(entry);
}

/* Takes both over. */
static struct weight_table *weight_tables_keep(const struct table_wanted *wanted,
                                               struct weight_table *mapped, struct charge *charge)
{
    struct table_entry *entry = must_alloc(sizeof *entry);

    entry->table = *mapped;
    entry->table.refs = 1;
    entry->table.free = weight_tables_drop;
    entry->set = wanted->tables;
    entry->mapped = mapped;
    entry->charge = *charge;
    entry->uid = wanted->uid;
    charge_settle(&entry->charge);
    *charge = (struct charge){.bytes = 0};
    DL_APPEND(entry->set->tables, entry);
    return &entry->table;
}

struct weight_table *weight_tables_find(const struct weight_tables *tables, uint32_t uid,
                                        uint64_t n, uint64_t sum)
{
    struct table_entry *entry;

    DL_FOREACH (tables->tables, entry) {
        if (entry->uid == uid && entry->table.n == n && entry->table.sum == sum)
            return weight_table_ref(&entry->table);
    }
    return NULL;
}

/* ---- bringing a table ------------------------------------------------------------------------ */

struct table_bringing {
    struct crew_job job;
    struct table_wanted wanted;
    struct charge charge;
    int fd; /* owned */
    table_brought *done;
    void *owner; /* NULL: it is gone */
    struct weight_table *mapped;
    struct dl_error why; /* if it failed */
};

static void table_bringing_free(struct table_bringing *bringing)
{
    weight_table_unref(bringing->mapped);
    charge_return(&bringing->charge);
    close_fdp(&bringing->fd);
    free(bringing);
}

static void table_bringing_run(struct crew_job *job)
{
    struct table_bringing *bringing = container_of(job, struct table_bringing, job);

    (void)!weight_table_map(bringing->fd, bringing->wanted.n, bringing->wanted.sum,
                            &bringing->mapped, &bringing->why);
}

static void table_bringing_end(struct crew_job *job)
{
    struct table_bringing *bringing = container_of(job, struct table_bringing, job);
    struct weight_table *table = NULL;

    if (bringing->owner && bringing->mapped)
        table =
            weight_tables_keep(&bringing->wanted, steal_ptr(bringing->mapped), &bringing->charge);
    if (bringing->owner)
        bringing->done(bringing->owner, table, &bringing->why);
    table_bringing_free(bringing);
}

struct table_bringing *weight_tables_bring(const struct table_wanted *wanted, int fd,
                                           table_brought *done, void *owner)
{
    struct table_bringing *bringing = must_alloc(sizeof *bringing);

    bringing->wanted = *wanted;
    bringing->fd = fd;
    bringing->done = done;
    bringing->owner = owner;
    if (charge_take(&bringing->charge, &wanted->payer, wanted->n * sizeof(double),
                    "close loaders whose weights were changed", &bringing->why) < 0) {
        table_bringing_end(&bringing->job);
        return NULL;
    }
    crew_start(wanted->crew, wanted->uid, &bringing->job, table_bringing_run, table_bringing_end);
    return bringing;
}

void table_bringing_forget(struct table_bringing *bringing)
{
    if (!bringing)
        return;
    bringing->owner = NULL;
    if (crew_cancel(&bringing->job))
        table_bringing_free(bringing);
}
