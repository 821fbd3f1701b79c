#include "daemon/data/kinds/parquet/shared.h"

#include "daemon/data/kinds/parquet/rows.h"

#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void parquet_shared_init(struct parquet_table *table, const struct spec_dataset *spec,
                         const struct data_env *env)
{
    for (uint32_t i = 0; env && spec->shared > 0 && i < env->n_pictures; i++) {
        if (strcmp(env->pictures[i].root, spec->files[0].path) == 0)
            table->shared = &env->pictures[i].cache;
    }
    table->env = env;
}

/* What the group's rows are made of, besides the file; not 0. */
static uint64_t parquet_shared_part(const struct parquet_table *table,
                                    const struct parquet_layout *layout, uint32_t group)
{
    const struct parquet_nulls *nulls = &table->nulls;
    uint64_t filled = 0, hash;

    if (nulls->fill)
        memcpy(&filled, &nulls->value, sizeof filled);
    const uint64_t head[] = {group, layout->n, nulls->fill, filled};
    hash = XXH3_64bits(head, sizeof head);
    for (uint32_t i = 0; i < layout->n; i++) {
        const struct parquet_column *column = table->columns[layout->columns[i]];
        const uint32_t sort[] = {(uint32_t)column->dtype, column->bytes, (uint32_t)column->convert};
        hash = XXH3_64bits_withSeed(column->path, strlen(column->path), hash);
        hash = XXH3_64bits_withSeed(sort, sizeof sort, hash);
    }
    return hash ? hash : 1;
}

/* Written to so lately that another write might leave the times as they are: file systems count
 * them in ticks of some milliseconds. */
static bool parquet_shared_is_settled(const struct pictures_key *key)
{
    enum { SETTLED_NS = 100 * 1000 * 1000 };
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - key->changed_ns;
    return age < -SETTLED_NS || age > SETTLED_NS;
}

/* Of the file that is open, if its path is still its name. */
static bool parquet_shared_key(const struct parquet_table *table,
                               const struct parquet_layout *layout,
                               const struct parquet_group *group, struct pictures_key *ret)
{
    const struct parquet_file *file = &table->file[group->file];
    struct stat st;

    if (!table->shared ||
        source_stat(table->files.list.paths[group->file], true, table->env, &st) < 0)
        return false;
    pictures_key_of(&st, ret);
    if (!file->is_known || memcmp(ret, &file->identity, sizeof *ret) != 0)
        return false;
    ret->part = parquet_shared_part(table, layout, group->number);
    return true;
}

static uint64_t parquet_shared_rows(const struct parquet_table *table,
                                    const struct parquet_group *group)
{
    return table->file[group->file].footer.groups[group->number].rows;
}

const uint8_t *parquet_shared_find(const struct parquet_table *table,
                                   const struct parquet_layout *layout,
                                   const struct parquet_group *group)
{
    struct pictures_entry entry;
    struct pictures_key key;

    if (!parquet_shared_key(table, layout, group, &key) ||
        !pictures_cache_find(table->shared, &key, &entry) ||
        entry.height != parquet_shared_rows(table, group) || entry.width != layout->bytes)
        return NULL;
    return entry.pixels;
}

const uint8_t *parquet_shared_add(const struct parquet_table *table,
                                  const struct parquet_layout *layout,
                                  const struct parquet_group *group, const uint8_t *rows)
{
    uint64_t n = parquet_shared_rows(table, group);
    struct pictures_room room;
    struct pictures_key key;

    if (n > UINT32_MAX || !parquet_shared_key(table, layout, group, &key) ||
        !parquet_shared_is_settled(&key) ||
        !pictures_cache_wants(table->shared, &key, (uint32_t)n, layout->bytes, table->n_groups) ||
        !pictures_cache_take(table->shared, &key, (uint32_t)n, layout->bytes, &room))
        return NULL;
    memcpy(room.pixels, rows, n * layout->bytes);
    /* The slower worker uses the other one's result. */
    return pictures_cache_publish(table->shared, &room) ? room.pixels
                                                        : parquet_shared_find(table, layout, group);
}
