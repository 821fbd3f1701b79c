#include "daemon/data/kinds/parquet/table.h"

#include "daemon/data/kinds/parquet/filter.h"
#include "proto/common/bisect.h"

#include <errno.h>

static int table_no_memory(const struct parquet_table *table, struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, table->files.list.paths[0], "out of memory for the dataset");
}

static void table_close_file(const struct parquet_table *table, struct parquet_file *file)
{
    for (uint32_t i = 0; file->keys && i < table->n_keys; i++)
        free(file->keys[i].text);
    for (uint32_t i = 0; file->columns && i < table->n_columns; i++)
        free(file->columns[i].above);
    free(file->keys);
    free(file->slots);
    free(file->columns);
    parquet_footer_deinit(&file->footer);
    source_close(&file->source);
}

void parquet_table_deinit(struct parquet_table *table)
{
    for (uint64_t i = 0; i < table->n_groups; i++)
        parquet_decoded_unref(table->groups[i].decoded);
    for (uint32_t i = 0; table->file && i < table->files.list.n; i++)
        table_close_file(table, &table->file[i]);
    for (uint32_t i = 0; table->keys && i < table->n_keys; i++)
        free(table->keys[i]);
    parquet_schema_deinit(&table->schema);
    parquet_files_deinit(&table->files);
    free(table->columns);
    free(table->key_is_text);
    free(table->groups);
    free(table->file);
    free(table->keys);
}

/* ---- partitions ----------------------------------------------------------------------------- */

uint32_t parquet_table_find_key(const struct parquet_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->n_keys; i++)
        if (strcmp(table->keys[i], name) == 0)
            return i;
    return UINT32_MAX;
}

/* What the first file's path has, the others' must have as well. */
static int table_name_keys(struct parquet_table *table, struct dl_error *err)
{
    const char *path = table->files.list.paths[0], *at = path + table->files.from[0];
    struct parquet_partition partition;
    size_t n = 0;

    for (const char *more = at; parquet_partition_next(&more, &partition);)
        n++;
    table->keys = calloc(max_u64(n, 1), sizeof *table->keys);
    table->key_is_text = calloc(max_u64(n, 1), sizeof *table->key_is_text);
    if (!table->keys || !table->key_is_text)
        return table_no_memory(table, err);
    while (parquet_partition_next(&at, &partition)) {
        if (parquet_table_find_key(table, partition.name) != UINT32_MAX)
            return dl_error_set(err, EINVAL, path, "has the partition %s twice", partition.name);
        table->keys[table->n_keys] = strdup(partition.name);
        if (!table->keys[table->n_keys++])
            return table_no_memory(table, err);
    }
    return 0;
}

/* As a whole number, if it is written as one. */
static bool table_parse_key(const char *text, int64_t *ret)
{
    const char *digits = text + (*text == '-');
    char *end;

    if (*digits < '0' || *digits > '9' || (*digits == '0' && digits[1]))
        return *text == '\0'; /* null is typeless */
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static int table_read_keys(struct parquet_table *table, uint32_t i, struct dl_error *err)
{
    const char *path = table->files.list.paths[i], *at = path + table->files.from[i];
    struct parquet_key_value *keys = calloc(max_u64(table->n_keys, 1), sizeof *keys);
    struct parquet_partition partition;
    uint32_t n = 0;

    table->file[i].keys = keys;
    if (!keys)
        return table_no_memory(table, err);
    for (; parquet_partition_next(&at, &partition); n++) {
        uint32_t key = parquet_table_find_key(table, partition.name);
        if (key == UINT32_MAX || keys[key].text)
            break;
        keys[key].text = strdup(partition.value);
        if (!keys[key].text)
            return table_no_memory(table, err);
        table->key_is_text[key] |= !table_parse_key(partition.value, &keys[key].number);
    }
    if (n == table->n_keys && !parquet_partition_next(&at, &partition))
        return 0;
    return dl_error_set(err, EINVAL, path, "is not below the same partitions as %s",
                        table->files.list.paths[0]);
}

/* ---- the first file ------------------------------------------------------------------------- */

static int table_open_file(struct parquet_table *table, uint32_t i, const struct data_env *env,
                           struct dl_error *err)
{
    const char *path = table->files.list.paths[i];
    struct parquet_file *file = &table->file[i];
    struct stat before, after;
    bool known = table->shared && source_stat(path, true, env, &before) == 0;
    int r = source_open(path, env, &file->source, err);

    if (r < 0)
        return r;
    /* The same before and behind: it is what was opened meanwhile. */
    if (known && source_stat(path, true, env, &after) == 0) {
        struct pictures_key key;
        pictures_key_of(&before, &key);
        pictures_key_of(&after, &file->identity);
        file->is_known = memcmp(&key, &file->identity, sizeof key) == 0;
    }
    return parquet_footer_open(file->source.data, file->source.bytes, path, &file->footer, err);
}

int parquet_table_open(struct parquet_table *table, const struct spec_dataset *spec,
                       const struct data_env *env, struct dl_error *err)
{
    int r = parquet_files_make(spec, env, &table->files, err);

    if (r < 0)
        return r;
    table->file = calloc(table->files.list.n, sizeof *table->file);
    if (!table->file)
        return table_no_memory(table, err);
    r = table_open_file(table, 0, env, err);
    if (r == 0)
        r = parquet_schema_make(&table->file[0].footer, table->files.list.paths[0], &table->schema,
                                err);
    if (r == 0)
        r = parquet_schema_set_types(&table->schema, table->types, table->place, err);
    if (r == 0)
        r = table_name_keys(table, err);
    for (uint32_t i = 0; r == 0 && i < table->files.list.n; i++)
        r = table_read_keys(table, i, err);
    if (r < 0)
        return r;
    table->columns = calloc(max_u64(table->schema.n, 1), sizeof *table->columns);
    return table->columns ? 0 : table_no_memory(table, err);
}

int parquet_table_use(struct parquet_table *table, const struct parquet_column *column,
                      uint32_t *ret, struct dl_error *err)
{
    if (column->refused)
        return dl_error_set(err, EINVAL, table->files.list.paths[0],
                            "its column %s %s; choose others with dataset.fields", column->path,
                            column->refused);
    for (*ret = 0; *ret < table->n_columns; (*ret)++)
        if (table->columns[*ret] == column)
            return 0;
    table->columns[table->n_columns++] = column;
    return 0;
}

/* ---- row groups ----------------------------------------------------------------------------- */

struct table_leaf {
    uint32_t leaf;
    uint32_t column;
};

static int table_compare_leaves(const void *a, const void *b)
{
    const struct table_leaf *left = a, *right = b;

    return (left->leaf > right->leaf) - (left->leaf < right->leaf);
}

static int table_match_column(const struct parquet_table *table, uint32_t i,
                              const struct parquet_schema *schema, uint32_t column,
                              struct parquet_column *ret, struct dl_error *err)
{
    const struct parquet_column *first = table->columns[column];
    const struct parquet_column *found = parquet_schema_find(schema, first->path);
    const char *path = table->files.list.paths[i];

    if (!found)
        return dl_error_set(err, EINVAL, path, "has no column %s, which %s has", first->path,
                            table->files.list.paths[0]);
    if (!parquet_columns_equal(first, found))
        return dl_error_set(err, EINVAL, path,
                            "its column %s has another type than that of %s; write them alike, or "
                            "choose other columns with dataset.fields",
                            first->path, table->files.list.paths[0]);
    uint64_t bytes = found->n_above * sizeof *found->above;
    struct parquet_above *above = malloc(max_u64(bytes, 1));
    if (!above)
        return table_no_memory(table, err);
    memcpy(above, found->above, bytes);
    *ret = *found;
    ret->path = first->path; /* the schema is not kept */
    ret->above = above;
    return 0;
}

/* Where this file has the columns, and its row groups. */
static int table_read_groups(struct parquet_table *table, uint32_t i,
                             const struct parquet_schema *schema, struct dl_error *err)
{
    struct parquet_file *file = &table->file[i];
    uint64_t n = max_u64(table->n_columns, 1);
    _cleanup_free_ struct table_leaf *leaves = calloc(n, sizeof *leaves);
    _cleanup_free_ uint32_t *numbers = calloc(n, sizeof *numbers);
    int r = 0;

    file->columns = calloc(n, sizeof *file->columns);
    file->slots = calloc(n, sizeof *file->slots);
    if (!leaves || !numbers || !file->columns || !file->slots)
        return table_no_memory(table, err);
    for (uint32_t c = 0; r == 0 && c < table->n_columns; c++) {
        r = table_match_column(table, i, schema, c, &file->columns[c], err);
        leaves[c] = (struct table_leaf){.leaf = file->columns[c].leaf, .column = c};
    }
    if (r < 0)
        return r;
    qsort(leaves, table->n_columns, sizeof *leaves, table_compare_leaves);
    for (uint32_t k = 0; k < table->n_columns; k++) {
        numbers[k] = leaves[k].leaf;
        file->slots[leaves[k].column] = k;
    }
    r = parquet_footer_groups(&file->footer, numbers, table->n_columns, file->source.bytes,
                              table->files.list.paths[i], err);
    free(file->footer.elements); /* only the groups are needed from here on */
    file->footer.elements = NULL;
    return r;
}

static int table_open_next(struct parquet_table *table, uint32_t i, const struct data_env *env,
                           struct dl_error *err)
{
    struct parquet_schema schema = {0};
    int r = 0;

    if (i == 0)
        return table_read_groups(table, 0, &table->schema, err);
    r = table_open_file(table, i, env, err);
    if (r == 0)
        r = parquet_schema_make(&table->file[i].footer, table->files.list.paths[i], &schema, err);
    if (r == 0)
        r = parquet_schema_set_types(&schema, table->types, NULL, err);
    if (r == 0)
        r = table_read_groups(table, i, &schema, err);
    parquet_schema_deinit(&schema);
    return r;
}

/* ---- what a filter leaves ------------------------------------------------------------------- */

static bool table_key_may(const struct parquet_table *table, uint32_t i, uint32_t key,
                          const struct value *wanted)
{
    const struct parquet_key_value *value = &table->file[i].keys[key];
    struct parquet_bounds bounds = {.least = (double)value->number,
                                    .greatest = (double)value->number,
                                    .is_text = table->key_is_text[key]};

    if (!*value->text)
        return false;
    bounds.first.data = (const uint8_t *)value->text;
    bounds.first.bytes = (uint32_t)strlen(value->text);
    bounds.last = bounds.first;
    return parquet_filter_may(wanted, &bounds);
}

static bool table_keeps_file(const struct parquet_table *table, uint32_t i,
                             const struct value *filter)
{
    for (uint32_t k = 0; k < filter->count; k++) {
        uint32_t key = parquet_table_find_key(table, filter->items[k].key);
        if (key != UINT32_MAX && !table_key_may(table, i, key, &filter->items[k]))
            return false;
    }
    return true;
}

/* `columns`: for each part of the filter that is of a column, its number; else UINT32_MAX. */
static bool table_keeps_group(const struct parquet_table *table, uint32_t i, uint32_t group,
                              const struct value *filter, const uint32_t *columns)
{
    const struct parquet_file *file = &table->file[i];
    const struct parquet_chunk *chunks = file->footer.chunks + (uint64_t)group * table->n_columns;
    struct parquet_bounds bounds;

    for (uint32_t k = 0; k < filter->count; k++) {
        if (columns[k] == UINT32_MAX)
            continue;
        if (parquet_filter_bounds(&file->columns[columns[k]], &chunks[file->slots[columns[k]]],
                                  &bounds) &&
            !parquet_filter_may(&filter->items[k], &bounds))
            return false;
    }
    return true;
}

/* Columns of the filter are used only for their statistics. */
static int table_use_filter(struct parquet_table *table, const struct value *filter,
                            uint32_t *columns, struct dl_error *err)
{
    int r = 0;

    for (uint32_t k = 0; r == 0 && k < filter->count; k++) {
        const char *name = filter->items[k].key;
        const struct parquet_column *column = parquet_schema_find(&table->schema, name);
        columns[k] = UINT32_MAX;
        if (parquet_table_find_key(table, name) != UINT32_MAX)
            continue;
        if (!column || column->max_rep > 0)
            return dl_error_set(err, EINVAL, table->files.list.paths[0],
                                "has no flat column and no partition %s; see dataset.filter", name);
        r = parquet_table_use(table, column, &columns[k], err);
    }
    return r;
}

/* How much the group's columns have when they are decoded, as the file says, which may be wrong. */
static void table_weigh_group(struct parquet_table *table, struct parquet_group *group)
{
    const struct parquet_file *file = &table->file[group->file];
    const struct parquet_chunk *chunks =
        file->footer.chunks + (uint64_t)group->number * table->n_columns;

    group->indexed = table->n_read > 0;
    for (uint32_t c = 0; c < table->n_read; c++) {
        const struct parquet_chunk *chunk = &chunks[file->slots[c]];
        const struct parquet_column *column = &file->columns[c];
        bool number = column->sort == PARQUET_NUMBER;
        uint64_t each = number ? column->bytes : sizeof(struct parquet_slice), bytes;
        if (mul_overflows(chunk->values, each, &bytes) ||
            (!number && add_overflows(bytes, chunk->unpacked, &bytes)) ||
            add_overflows(table->all_bytes, bytes, &table->all_bytes))
            table->all_bytes = UINT64_MAX;
        group->indexed = group->indexed && chunk->index_bytes > 0;
    }
}

static int table_list_groups(struct parquet_table *table, uint32_t i, const struct value *filter,
                             const uint32_t *columns, struct dl_error *err)
{
    const struct parquet_footer *footer = &table->file[i].footer;
    struct parquet_group *groups;

    if (footer->n_groups == 0 || !table_keeps_file(table, i, filter))
        return 0;
    groups = reallocarray(table->groups, table->n_groups + footer->n_groups, sizeof *groups);
    if (!groups)
        return table_no_memory(table, err);
    table->groups = groups;
    for (uint32_t g = 0; g < footer->n_groups; g++) {
        if (footer->groups[g].rows == 0 || !table_keeps_group(table, i, g, filter, columns))
            continue;
        groups[table->n_groups] =
            (struct parquet_group){.file = i, .number = g, .first = table->rows};
        table_weigh_group(table, &groups[table->n_groups++]);
        if (add_overflows(table->rows, footer->groups[g].rows, &table->rows) ||
            table->rows > INT64_MAX)
            return dl_error_set(err, EINVAL, table->files.list.paths[i],
                                "has more rows than can be counted; the file is damaged");
    }
    return 0;
}

int parquet_table_list(struct parquet_table *table, const struct value *filter,
                       const struct data_env *env, struct dl_error *err)
{
    _cleanup_free_ uint32_t *columns = calloc(max_u64(filter->count, 1), sizeof *columns);
    int r;

    table->n_read = table->n_columns;
    r = columns ? table_use_filter(table, filter, columns, err) : table_no_memory(table, err);
    for (uint32_t i = 0; r == 0 && i < table->files.list.n; i++) {
        r = table_open_next(table, i, env, err);
        if (r == 0)
            r = table_list_groups(table, i, filter, columns, err);
        data_tell(env, "files indexed", i + 1, table->files.list.n);
    }
    return r;
}

struct parquet_group *parquet_table_group(struct parquet_table *table, uint64_t row)
{
    const uint64_t n = table->n_groups;

    if (table->groups[table->last].first > row ||
        (table->last + 1 < n && row >= table->groups[table->last + 1].first))
        table->last = bisect_firsts(&table->groups[0].first, sizeof *table->groups, n, row);
    return &table->groups[table->last];
}
