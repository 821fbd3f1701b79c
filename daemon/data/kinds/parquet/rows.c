#include "daemon/data/kinds/parquet/rows.h"

#include "daemon/data/kinds/parquet/shared.h"

#include <errno.h>

enum { TILE = 128 }; /* rows that are put together at a time: they stay in the nearest cache */

int parquet_layout_add(struct parquet_layout *layout, const struct parquet_table *table,
                       uint32_t column)
{
    uint32_t *columns = reallocarray(layout->columns, layout->n + 1, sizeof *columns);
    uint32_t *offsets;

    if (columns)
        layout->columns = columns;
    offsets = reallocarray(layout->offsets, layout->n + 1, sizeof *offsets);
    if (offsets)
        layout->offsets = offsets;
    if (!columns || !offsets)
        return -ENOMEM;
    columns[layout->n] = column;
    offsets[layout->n++] = layout->bytes;
    layout->bytes += table->columns[column]->bytes;
    return 0;
}

void parquet_layout_deinit(struct parquet_layout *layout)
{
    free(layout->columns);
    free(layout->offsets);
    *layout = (struct parquet_layout){0};
}

/* `n` values of one column to where they are in rows. */
static void rows_put(const uint8_t *from, uint64_t n, uint32_t bytes, uint32_t stride, uint8_t *to)
{
    if (bytes == 8)
        for (uint64_t i = 0; i < n; i++, to += stride)
            memcpy(to, from + 8 * i, 8);
    else if (bytes == 4)
        for (uint64_t i = 0; i < n; i++, to += stride)
            memcpy(to, from + 4 * i, 4);
    else
        for (uint64_t i = 0; i < n; i++, to += stride)
            memcpy(to, from + i * bytes, bytes);
}

static void rows_fill(const struct parquet_table *table, const struct parquet_layout *layout,
                      const struct parquet_decoded *decoded, uint64_t n, uint8_t *rows)
{
    for (uint64_t first = 0; first < n; first += TILE) {
        uint64_t take = min_u64(n - first, TILE);
        for (uint32_t c = 0; c < layout->n; c++) {
            uint32_t column = layout->columns[c], bytes = table->columns[column]->bytes;
            rows_put(decoded->columns[column]->fixed + first * bytes, take, bytes, layout->bytes,
                     rows + first * layout->bytes + layout->offsets[c]);
        }
    }
}

/* All columns of the layout, decoded. */
static int rows_decode(struct parquet_table *table, const struct parquet_layout *layout,
                       struct parquet_group *group, struct dl_error *err)
{
    const struct parquet_values *values;
    int r = 0;

    for (uint32_t c = 0; r == 0 && c < layout->n; c++) {
        r = parquet_table_column(table, group, layout->columns[c], &values, err);
        if (r == 0 && values->defs)
            group->decoded->has_nulls = true;
    }
    return r;
}

int parquet_rows_take(struct parquet_table *table, const struct parquet_layout *layout,
                      struct parquet_group *group, const uint8_t **ret, struct dl_error *err)
{
    const struct parquet_footer *footer = &table->file[group->file].footer;
    uint64_t n = footer->groups[group->number].rows;

    *ret = NULL;
    if (layout->n == 0) /* samples that consist only of partitions */
        return 0;
    if (parquet_rows_are_there(group)) {
        *ret = group->decoded->rows;
        return 0;
    }
    *ret = parquet_shared_find(table, layout, group);
    if (*ret) {
        parquet_table_keep_rows(table, group, *ret, NULL, 0);
        return 0;
    }
    int r = rows_decode(table, layout, group, err);
    if (r < 0 || group->decoded->has_nulls)
        return r;
    /* No more bytes than the columns have, whose number was checked. */
    uint8_t *rows = malloc(max_u64(n * layout->bytes, 1));
    if (!rows)
        return dl_error_set(err, ENOMEM, table->files.list.paths[group->file],
                            "out of memory for a row group");
    rows_fill(table, layout, group->decoded, n, rows);
    *ret = parquet_shared_add(table, layout, group, rows);
    if (*ret) {
        free(rows);
        parquet_table_keep_rows(table, group, *ret, NULL, 0);
    } else {
        parquet_table_keep_rows(table, group, rows, rows, n * layout->bytes);
        *ret = rows;
    }
    return 0;
}
