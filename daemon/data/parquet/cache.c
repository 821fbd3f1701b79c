/* Row groups that are decoded, column by column, and kept as long as there is room for them. */
#include "daemon/data/parquet/table.h"

#include "daemon/data/collate/collate_batch.h"

#include <errno.h>
#include <utlist.h>

struct parquet_decoded *parquet_decoded_ref(struct parquet_decoded *decoded)
{
    decoded->refs++;
    return decoded;
}

static void cache_drop_columns(struct parquet_decoded *decoded)
{
    for (uint32_t i = 0; i < decoded->n_columns; i++) {
        if (decoded->columns[i])
            parquet_values_deinit(decoded->columns[i]);
        free(decoded->columns[i]);
        decoded->columns[i] = NULL;
    }
}

void parquet_decoded_unref(void *what)
{
    struct parquet_decoded *decoded = what;

    if (!decoded || --decoded->refs > 0)
        return;
    cache_drop_columns(decoded);
    free(decoded->rows);
    free(decoded);
}

static struct parquet_decoded *cache_new(struct parquet_table *table, struct parquet_group *group)
{
    struct parquet_decoded *decoded =
        calloc(1, sizeof *decoded + table->n_columns * sizeof *decoded->columns);

    if (!decoded)
        return NULL;
    decoded->refs = 1;
    decoded->group = (uint64_t)(group - table->groups);
    decoded->columns = (struct parquet_values **)(void *)(decoded + 1);
    decoded->n_columns = table->n_columns;
    group->decoded = decoded;
    DL_PREPEND(table->kept, decoded);
    return decoded;
}

/* Those that were of no use for longest, but the first one. */
static void cache_forget(struct parquet_table *table)
{
    while (table->kept_bytes > table->most_bytes && table->kept->next) {
        struct parquet_decoded *oldest = table->kept->prev; /* of the head: the last one */
        DL_DELETE(table->kept, oldest);
        table->kept_bytes -= oldest->bytes;
        table->groups[oldest->group].decoded = NULL;
        parquet_decoded_unref(oldest);
    }
}

/* Nulls become what the spec says, once and for all; whatever cannot stays null, and is told when
 * such a row is wanted. */
static void cache_fill(const struct parquet_table *table, const struct parquet_column *column,
                       struct parquet_values *values)
{
    uint8_t element[16];

    if (!table->nulls.fill)
        return;
    free(values->row_valid); /* a list that is null has no elements */
    values->row_valid = NULL;
    if (!values->valid)
        return;
    if (column->sort == PARQUET_NUMBER) {
        if (collate_element(table->nulls.value, column->dtype, element) < 0)
            return;
        for (uint64_t i = 0; i < values->n; i++)
            if (!values->valid[i])
                memcpy(values->fixed + i * column->bytes, element, column->bytes);
    }
    free(values->valid);
    values->valid = NULL;
}

static int cache_decode(struct parquet_table *table, struct parquet_group *group, uint32_t column,
                        struct parquet_values **ret, struct dl_error *err)
{
    const struct parquet_file *file = &table->file[group->file];
    const struct parquet_footer *footer = &file->footer;
    const struct parquet_place place = {.path = table->files.list.paths[group->file],
                                        .data = file->source.data,
                                        .group = group->number,
                                        .rows = footer->groups[group->number].rows};
    const struct parquet_chunk *chunk =
        &footer->chunks[(uint64_t)group->number * table->n_columns + file->slots[column]];
    struct parquet_values *values = calloc(1, sizeof *values);

    if (!values)
        return dl_error_set(err, ENOMEM, place.path, "out of memory for a row group");
    int r = parquet_chunk_decode(&place, &file->columns[column], chunk, values, err);
    if (r < 0) {
        free(values);
        return r;
    }
    cache_fill(table, &file->columns[column], values);
    *ret = values;
    return 0;
}

void parquet_table_touch(struct parquet_table *table, const struct parquet_group *group)
{
    if (!group->decoded || table->kept == group->decoded)
        return;
    DL_DELETE(table->kept, group->decoded);
    DL_PREPEND(table->kept, group->decoded);
}

int parquet_table_column(struct parquet_table *table, struct parquet_group *group, uint32_t column,
                         const struct parquet_values **ret, struct dl_error *err)
{
    struct parquet_decoded *decoded = group->decoded;

    if (!decoded && !(decoded = cache_new(table, group)))
        return dl_error_set(err, ENOMEM, table->files.list.paths[group->file],
                            "out of memory for a row group");
    parquet_table_touch(table, group);
    if (!decoded->columns[column]) {
        int r = cache_decode(table, group, column, &decoded->columns[column], err);
        if (r < 0)
            return r;
        decoded->bytes += decoded->columns[column]->bytes;
        table->kept_bytes += decoded->columns[column]->bytes;
        cache_forget(table);
    }
    *ret = decoded->columns[column];
    return 0;
}

void parquet_table_keep_rows(struct parquet_table *table, struct parquet_group *group,
                             uint8_t *rows, uint64_t bytes)
{
    struct parquet_decoded *decoded = group->decoded;

    table->kept_bytes = table->kept_bytes - decoded->bytes + bytes;
    cache_drop_columns(decoded);
    decoded->bytes = bytes;
    decoded->rows = rows;
    cache_forget(table);
}
