/*
 * Row groups, decoded column by column, and kept while room lasts.
 *
 * If there is room for all, or other workers may use them (shared.h), each is decoded whole. Else,
 * if the files have page indexes, a group is decoded by pages: of each column the page with the
 * present row. It is decoded whole if it would still be cached at its next use: once its rows were
 * requested twice in a row so soon after each other that it would have stayed. That happens in
 * sequential order, and in a shuffle of nearby blocks. In random order it happens only by chance:
 * each group that was dropped before it was used doubles the number of times required.
 */
#include "daemon/data/files/remote.h"
#include "daemon/data/kinds/parquet/table.h"

#include "daemon/data/collate/collate_batch.h"

#include <errno.h>
#include <utlist.h>

struct parquet_decoded *parquet_decoded_ref(struct parquet_decoded *decoded)
{
    decoded->refs++;
    return decoded;
}

static void cache_free_values(struct parquet_values *values)
{
    if (values)
        parquet_values_deinit(values);
    free(values);
}

static void cache_free_paged(struct parquet_decoded *decoded)
{
    for (uint32_t c = 0; decoded->paged && c < decoded->n_columns; c++) {
        struct parquet_paged *paged = &decoded->paged[c];
        for (uint32_t i = 0; paged->values && i < paged->pages.n; i++)
            cache_free_values(paged->values[i]);
        free(paged->values);
        parquet_pages_deinit(&paged->pages);
        parquet_shared_deinit(&paged->shared);
    }
    free(decoded->paged);
}

static void cache_drop_columns(struct parquet_decoded *decoded)
{
    for (uint32_t i = 0; i < decoded->n_columns; i++) {
        cache_free_values(decoded->columns[i]);
        decoded->columns[i] = NULL;
    }
}

void parquet_decoded_unref(void *what)
{
    struct parquet_decoded *decoded = what;

    if (!decoded || --decoded->refs > 0)
        return;
    cache_drop_columns(decoded);
    cache_free_paged(decoded);
    free(decoded->own_rows);
    free(decoded);
}

static bool cache_wants_pages(const struct parquet_table *table, const struct parquet_group *group)
{
    const uint32_t rows = 2; /* requested soon after each other */

    return !table->shared && group->indexed && table->all_bytes > table->most_bytes &&
           group->soon < rows << table->strikes;
}

/* Whether the group comes back before others take its room. */
static void cache_note_use(struct parquet_table *table, struct parquet_group *group)
{
    uint64_t each = max_u64(table->all_bytes / table->n_groups, 1);
    uint64_t soon = 2 * max_u64(table->most_bytes / each, 1);

    if (group->seen == 0 || table->clock - group->seen > soon)
        group->soon = 0;
    else if (group->soon < UINT32_MAX)
        group->soon++;
    group->seen = ++table->clock;
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
    if (cache_wants_pages(table, group)) {
        decoded->paged = calloc(max_u64(table->n_columns, 1), sizeof *decoded->paged);
        if (!decoded->paged) {
            free(decoded);
            return NULL;
        }
    }
    group->decoded = decoded;
    DL_PREPEND(table->cached, decoded);
    return decoded;
}

/* Forgets it, and learns whether it was worth it. */
static void cache_drop(struct parquet_table *table, struct parquet_decoded *decoded)
{
    enum { STRIKES = 6 };
    struct parquet_group *group = &table->groups[decoded->group];

    if (!decoded->paged && decoded->uses >= table->n_pages)
        table->strikes = 0;
    else if (!decoded->paged && table->strikes < STRIKES)
        table->strikes++;
    DL_DELETE(table->cached, decoded);
    table->cached_bytes -= decoded->bytes;
    group->decoded = NULL;
    parquet_decoded_unref(decoded);
}

/* Those that were of no use for longest, but the first one. */
static void cache_forget(struct parquet_table *table)
{
    while (table->cached_bytes > table->most_bytes && table->cached->next)
        cache_drop(table, table->cached->prev); /* of the head: the last one */
}

/* Numbers that are null become what the spec says, once and for all; whether it fits their type was
 * looked at when the dataset was opened. Texts stay null. */
static void cache_fill(const struct parquet_table *table, const struct parquet_column *column,
                       struct parquet_values *values)
{
    uint8_t element[16];

    if (!table->nulls.fill || !values->defs || column->sort != PARQUET_NUMBER ||
        collate_element(table->nulls.value, column->dtype, element) < 0)
        return;
    for (uint64_t i = 0; i < values->n; i++)
        if (values->defs[i] < column->max_def)
            memcpy(values->fixed + i * column->bytes, element, column->bytes);
    free(values->defs);
    values->defs = NULL;
}

static int cache_no_memory(const struct parquet_table *table, const struct parquet_group *group,
                           struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, table->files.list.paths[group->file],
                        "out of memory for a row group");
}

static const struct parquet_chunk *cache_chunk(const struct parquet_table *table,
                                               const struct parquet_group *group, uint32_t column)
{
    const struct parquet_file *file = &table->file[group->file];

    return &file->footer.chunks[(uint64_t)group->number * table->n_columns + file->slots[column]];
}

static uint64_t cache_rows(const struct parquet_table *table, const struct parquet_group *group)
{
    return table->file[group->file].footer.groups[group->number].rows;
}

static struct parquet_place cache_place(const struct parquet_table *table,
                                        const struct parquet_group *group)
{
    return (struct parquet_place){.path = table->files.list.paths[group->file],
                                  .data = table->file[group->file].source.data,
                                  .group = group->number,
                                  .rows = cache_rows(table, group)};
}

/* Remote ones come together, instead of one after another. */
static void cache_expect_columns(const struct parquet_table *table,
                                 const struct parquet_group *group)
{
    const uint8_t *data = table->file[group->file].source.data;

    for (uint32_t i = 0; i < table->n_read; i++) {
        const struct parquet_chunk *chunk = cache_chunk(table, group, i);
        remote_expect(data + chunk->first, chunk->bytes);
    }
}

/* Whether the group's samples are read by pages. */
static bool cache_is_paged(const struct parquet_table *table, const struct parquet_group *group)
{
    return group->decoded ? group->decoded->paged != NULL : cache_wants_pages(table, group);
}

void parquet_table_expect(struct parquet_table *table, uint64_t row)
{
    const struct parquet_group *group;

    if (!remote_has_maps)
        return;
    group = parquet_table_group(table, row);
    const uint8_t *data = table->file[group->file].source.data;
    if (!cache_is_paged(table, group)) {
        if (!group->decoded)
            cache_expect_columns(table, group);
        return;
    }
    for (uint32_t i = 0; i < table->n_read; i++) {
        const struct parquet_chunk *chunk = cache_chunk(table, group, i);
        remote_expect(data + chunk->index, chunk->index_bytes);
    }
}

/* Of a column the page with a row of the group, and the dictionary before the first one. */
static void cache_expect_page(const struct parquet_table *table, const struct parquet_group *group,
                              uint32_t column, uint64_t row)
{
    const uint8_t *data = table->file[group->file].source.data;
    const struct parquet_chunk *chunk = cache_chunk(table, group, column);
    struct parquet_pages pages;

    if (parquet_pages_read(data, chunk, cache_rows(table, group), &pages) < 0 || pages.n == 0)
        return;
    const struct parquet_page_place *place = &pages.places[parquet_pages_find(&pages, row)];
    remote_expect(data + chunk->first, pages.places[0].at - chunk->first);
    remote_expect(data + place->at, place->bytes);
    parquet_pages_deinit(&pages);
}

void parquet_table_locate(struct parquet_table *table, uint64_t row)
{
    const struct parquet_group *group;

    if (!remote_has_maps)
        return;
    group = parquet_table_group(table, row);
    for (uint32_t i = 0; cache_is_paged(table, group) && i < table->n_read; i++)
        cache_expect_page(table, group, i, row - group->first);
}

/* A column of the group; or, if `paged` is not NULL, its page of that number. */
static int cache_decode(const struct parquet_table *table, const struct parquet_group *group,
                        uint32_t number, struct parquet_paged *paged, uint32_t page,
                        struct parquet_values **ret, struct dl_error *err)
{
    const struct parquet_column *column = &table->file[group->file].columns[number];
    const struct parquet_chunk *chunk = cache_chunk(table, group, number);
    struct parquet_place place = cache_place(table, group);
    struct parquet_values *values = calloc(1, sizeof *values);
    int r;

    if (!values)
        return cache_no_memory(table, group, err);
    if (paged) {
        const struct parquet_page_place *at = &paged->pages.places[page];
        place.rows = parquet_pages_end(&paged->pages, page, place.rows) - at->first;
        r = parquet_chunk_decode_page(&place, column, chunk, at, &paged->shared, values, err);
    } else {
        cache_expect_columns(table, group);
        r = parquet_chunk_decode(&place, column, chunk, values, err);
    }
    if (r < 0) {
        free(values);
        return r;
    }
    cache_fill(table, column, values);
    *ret = values;
    return 0;
}

static void cache_count(struct parquet_table *table, struct parquet_decoded *decoded,
                        uint64_t bytes)
{
    decoded->bytes += bytes;
    table->cached_bytes += bytes;
    cache_forget(table);
}

void parquet_table_touch(struct parquet_table *table, const struct parquet_group *group)
{
    if (!group->decoded || table->cached == group->decoded)
        return;
    DL_DELETE(table->cached, group->decoded);
    DL_PREPEND(table->cached, group->decoded);
}

int parquet_table_column(struct parquet_table *table, struct parquet_group *group, uint32_t column,
                         const struct parquet_values **ret, struct dl_error *err)
{
    struct parquet_decoded *decoded = group->decoded;

    if (!decoded && !(decoded = cache_new(table, group)))
        return cache_no_memory(table, group, err);
    parquet_table_touch(table, group);
    if (!decoded->columns[column]) {
        int r = cache_decode(table, group, column, NULL, 0, &decoded->columns[column], err);
        if (r < 0)
            return r;
        cache_count(table, decoded, decoded->columns[column]->bytes);
    }
    *ret = decoded->columns[column];
    return 0;
}

/* ---- pages ---------------------------------------------------------------------------------- */

int parquet_table_settle(struct parquet_table *table, struct parquet_group *group,
                         struct dl_error *err)
{
    cache_note_use(table, group);
    if (group->decoded && group->decoded->paged && !cache_wants_pages(table, group))
        cache_drop(table, group->decoded);
    if (!group->decoded && !cache_new(table, group))
        return cache_no_memory(table, group, err);
    group->decoded->uses++;
    return 0;
}

/* The column's index, if it was not looked for. */
static int cache_look(struct parquet_table *table, struct parquet_group *group, uint32_t column,
                      struct dl_error *err)
{
    const struct parquet_file *file = &table->file[group->file];
    struct parquet_paged *paged = &group->decoded->paged[column];

    if (paged->looked)
        return 0;
    if (parquet_pages_read(file->source.data, cache_chunk(table, group, column),
                           cache_rows(table, group), &paged->pages) < 0)
        return cache_no_memory(table, group, err);
    if (paged->pages.n > 0 &&
        !(paged->values = calloc(paged->pages.n, sizeof(struct parquet_values *)))) {
        parquet_pages_deinit(&paged->pages);
        return cache_no_memory(table, group, err);
    }
    paged->looked = true;
    group->indexed = group->indexed && paged->pages.n > 0;
    table->n_pages = (uint32_t)max_u64(table->n_pages, paged->pages.n);
    cache_count(table, group->decoded,
                paged->pages.n * (sizeof *paged->pages.places + sizeof *paged->values));
    return 0;
}

/* The page with the row; *ret is NULL if the column has no index. */
static int cache_page(struct parquet_table *table, struct parquet_group *group, uint32_t column,
                      uint64_t row, const struct parquet_values **ret, struct dl_error *err)
{
    struct parquet_paged *paged = &group->decoded->paged[column];
    int r = cache_look(table, group, column, err);

    *ret = NULL;
    if (r < 0 || paged->pages.n == 0)
        return r;
    uint32_t page = parquet_pages_find(&paged->pages, row);
    if (!paged->values[page]) {
        uint64_t shared = paged->shared.bytes;
        r = cache_decode(table, group, column, paged, page, &paged->values[page], err);
        if (r < 0)
            return r;
        cache_count(table, group->decoded,
                    paged->values[page]->bytes + paged->shared.bytes - shared);
    }
    *ret = paged->values[page];
    return 0;
}

int parquet_table_part(struct parquet_table *table, struct parquet_group *group, uint32_t column,
                       uint64_t row, const struct parquet_values **ret, struct dl_error *err)
{
    int r;

    if (group->decoded && group->decoded->paged && !group->decoded->columns[column]) {
        parquet_table_touch(table, group);
        r = cache_page(table, group, column, row, ret, err);
        if (r < 0 || *ret)
            return r;
    }
    return parquet_table_column(table, group, column, ret, err);
}

void parquet_table_keep_rows(struct parquet_table *table, struct parquet_group *group,
                             const uint8_t *rows, uint8_t *own, uint64_t bytes)
{
    struct parquet_decoded *decoded = group->decoded;

    table->cached_bytes = table->cached_bytes - decoded->bytes + bytes;
    cache_drop_columns(decoded);
    decoded->bytes = bytes;
    decoded->rows = rows;
    decoded->own_rows = own;
    cache_forget(table);
}
