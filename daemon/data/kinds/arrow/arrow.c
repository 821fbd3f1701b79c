#include "daemon/data/kinds/arrow/arrow.h"
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/base/decimal.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/kinds/arrow/arrow_features.h"
#include "daemon/data/kinds/arrow/arrow_files.h"
#include "daemon/data/kinds/arrow/arrow_table.h"
#include "daemon/data/kinds/arrow/arrow_value.h"

#include "proto/dtype.h"

#include <errno.h>
#include <stdio.h>

struct arrow {
    struct dataset base;
    struct arrow_files files;   /* owned */
    struct arrow_table table;   /* owned */
    struct arrow_table indices; /* owned; one column of rows of the table; no files: all of them */
    struct fields fields;       /* owned */
    bool fill;
    double null;
};

/* A row that is read. */
struct arrow_row {
    const struct arrow_batch *batch;
    uint64_t row; /* of the batch */
    struct arrow_reading reading;
};

/* ---- rows ----------------------------------------------------------------------------------- */

static int arrow_select(struct arrow *arrow, uint64_t *index, struct dl_error *err)
{
    struct arrow_table *indices = &arrow->indices;
    struct arrow_reading reading = {.schema = &indices->schema};
    struct dl_error why = {0};
    uint64_t selected;

    if (indices->n_files == 0)
        return 0;
    const struct arrow_batch *batch = arrow_table_find(indices, *index);
    int r = arrow_table_columns(indices, batch, &reading.columns, err);
    if (r < 0)
        return r;
    if (arrow_value_copy(&reading, indices->columns[0], *index - batch->first, &selected, &why) < 0)
        return dl_error_set(err, why.code, indices->files[batch->file].path, "index %llu %s",
                            (ull)*index, why.message);
    if (selected >= arrow->table.rows)
        return dl_error_set(err, EINVAL, indices->files[batch->file].path,
                            "index %llu is row %llu, but there are %llu rows", (ull)*index,
                            (ull)selected, (ull)arrow->table.rows);
    *index = selected;
    return 0;
}

/* The row that sample `index` is; its columns are not looked for yet. */
static int arrow_locate_row(struct arrow *arrow, uint64_t index, struct arrow_row *ret,
                            struct dl_error *err)
{
    int r = index < arrow->base.length ? arrow_select(arrow, &index, err)
                                       : dataset_refuse_index(&arrow->base, index, err);

    if (r < 0)
        return r;
    ret->batch = arrow_table_find(&arrow->table, index);
    ret->row = index - ret->batch->first;
    return 0;
}

static int arrow_find_row(struct arrow *arrow, uint64_t index, struct arrow_row *ret,
                          struct dl_error *err)
{
    int r = arrow_locate_row(arrow, index, ret, err);

    if (r < 0)
        return r;
    ret->reading = (struct arrow_reading){
        .schema = &arrow->table.schema, .fill = arrow->fill, .null = arrow->null};
    return arrow_table_columns(&arrow->table, ret->batch, &ret->reading.columns, err);
}

static int arrow_refuse(const struct arrow *arrow, const struct arrow_row *row, uint32_t column,
                        const struct dl_error *why, struct dl_error *err)
{
    const struct arrow_file *file = &arrow->table.files[row->batch->file];
    const struct arrow_field *field = &arrow->table.schema.fields[arrow->table.columns[column]];

    unsigned long long number = row->batch->first - file->first + row->row;

    return dl_error_set(err, why->code, file->path, "row %llu: its column %s %s", number,
                        field->name, why->message);
}

/* What column `column` of the table is called in a sample. */
static const char *arrow_name(const struct arrow *arrow, uint32_t column)
{
    return arrow->fields.choice.n > 0
               ? arrow->fields.choice.fields[column].name
               : arrow->table.schema.fields[arrow->table.columns[column]].name;
}

/* ---- samples of varying shape --------------------------------------------------------------- */

static int arrow_add_columns(const struct arrow *arrow, const struct arrow_row *row,
                             struct sample *ret, struct dl_error *err)
{
    const struct arrow_table *table = &arrow->table;
    int r = 0;

    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < table->n_columns; i++) {
        struct dl_error why = {0};
        r = arrow_value_add(&row->reading, table->columns[i], row->row, arrow_name(arrow, i), ret,
                            &why);
        if (why.code)
            return arrow_refuse(arrow, row, i, &why, err);
    }
    if (r == 0)
        sample_end(ret);
    return sample_check(ret, err);
}

/* What the sample points to stays until the batch is made. */
static int arrow_hold(const struct arrow_row *row, struct sample *ret, struct dl_error *err)
{
    struct arrow_unpacked *unpacked = row->batch->unpacked;

    if (!unpacked ||
        arena_hold(ret->arena, arrow_unpacked_unref, arrow_unpacked_ref(unpacked)) == 0)
        return 0;
    return dl_error_set(err, ENOMEM, "dataset", "out of memory for a sample");
}

static int arrow_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                     struct sample *ret, struct dl_error *err)
{
    struct arrow *arrow = container_of(ds, struct arrow, base);
    const struct decoding decoding = {.fields = &arrow->fields, .key = key, .index = index};
    struct arrow_row row;
    int r = arrow_find_row(arrow, index, &row, err);

    if (r < 0)
        return r;
    row.reading.decoding = &decoding;
    r = arrow_add_columns(arrow, &row, ret, err);
    return r < 0 ? r : arrow_hold(&row, ret, err);
}

/* The column that `leaf` is, or the first that has a dimension; n_columns: it takes reading. */
static uint32_t arrow_length_column(const struct arrow *arrow, const char *leaf)
{
    const struct arrow_table *table = &arrow->table;

    for (uint32_t i = 0; i < table->n_columns; i++) {
        const struct arrow_field *field = &table->schema.fields[table->columns[i]];
        bool bare = field->n_children == 0 && !field->is_image && !field->is_sound;
        if (leaf && strcmp(leaf, arrow_name(arrow, i)) != 0)
            continue;
        if (arrow_value_is_list(&table->schema, table->columns[i]))
            return i;
        if (leaf || !bare) /* a struct or a list may contain one */
            return table->n_columns;
    }
    return table->n_columns;
}

static int arrow_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    struct arrow *arrow = container_of(ds, struct arrow, base);
    uint32_t column = arrow_length_column(arrow, w->leaf);
    struct arrow_row row;
    int r = 0;

    if (column == arrow->table.n_columns)
        return -ENOTSUP;
    for (size_t i = 0; r == 0 && i < w->n; i++) {
        w->bad = w->first + i;
        r = arrow_find_row(arrow, w->first + i, &row, err);
        if (r == 0)
            w->ret[i] = arrow_value_length(&row.reading, arrow->table.columns[column], row.row);
    }
    return r;
}

/* ---- samples of one shape ------------------------------------------------------------------- */

static int arrow_read_row(struct dataset *ds, const struct sample_key *key, uint64_t index,
                          void *const *dst, size_t i, struct dl_error *err)
{
    struct arrow *arrow = container_of(ds, struct arrow, base);
    const struct arrow_table *table = &arrow->table;
    struct arrow_row row;
    int r = arrow_find_row(arrow, index, &row, err);

    for (uint32_t leaf = 0; r == 0 && leaf < table->n_columns; leaf++) {
        const struct arrow_field *field = &table->schema.fields[table->columns[leaf]];
        struct dl_error why = {0};
        r = arrow_value_copy(&row.reading, table->columns[leaf], row.row,
                             (char *)dst[leaf] + i * field->row_bytes, &why);
        if (r < 0)
            return arrow_refuse(arrow, &row, leaf, &why, err);
    }
    return r;
}

static void arrow_expect_memory(const uint8_t *at, uint64_t bytes)
{
    __builtin_prefetch(at);
    remote_expect(at, bytes);
}

static void arrow_expect(struct dataset *ds, uint64_t index)
{
    struct arrow *arrow = container_of(ds, struct arrow, base);
    struct arrow_row row;

    /* Compressed batches wait for their turn. */
    if (arrow_locate_row(arrow, index, &row, NULL) < 0 || !row.batch->columns)
        return;
    for (uint32_t i = 0; i < arrow->table.n_columns; i++) {
        const struct arrow_field *field = &arrow->table.schema.fields[arrow->table.columns[i]];
        const struct arrow_column *column = &row.batch->columns[field->slot];
        if (field->sort == ARROW_FIXED_LIST && (field + 1)->sort == ARROW_NUMBER)
            arrow_expect_memory(row.batch->columns[(field + 1)->slot].values +
                                    row.row * field->row_bytes,
                                field->row_bytes);
        else if (column->values)
            arrow_expect_memory(column->values + row.row * max_u64(field->row_bytes, 4),
                                max_u64(field->row_bytes, 8));
    }
}

static size_t arrow_name_row(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    struct arrow *arrow = container_of(ds, struct arrow, base);
    struct dl_error err; /* ignored: it was reported when the sample was made */
    struct arrow_row row;

    if (arrow_locate_row(arrow, index, &row, &err) < 0)
        return 0;
    const struct arrow_file *file = &arrow->table.files[row.batch->file];
    return dataset_put_name(file->path, "row", row.batch->first - file->first + row.row, ret, room);
}

static void arrow_close(struct dataset *ds)
{
    struct arrow *arrow = container_of(ds, struct arrow, base);

    tree_deinit(&ds->schema);
    arrow_table_close(&arrow->table);
    arrow_table_close(&arrow->indices);
    arrow_files_deinit(&arrow->files);
    fields_close(&arrow->fields);
    free(arrow);
}

static const struct dataset_ops arrow_ops = {.get = arrow_get,
                                             .lengths = arrow_lengths,
                                             .name = arrow_name_row,
                                             .expect = arrow_expect,
                                             .close = arrow_close};
static const struct dataset_ops arrow_rows_ops = {.read_row = arrow_read_row,
                                                  .name = arrow_name_row,
                                                  .expect = arrow_expect,
                                                  .close = arrow_close};

/* ---- opening -------------------------------------------------------------------------------- */

/* Where all columns are numbers of one shape, they are copied straight to their batch. */
static int arrow_describe(struct arrow *arrow, struct dl_error *err)
{
    const struct arrow_table *table = &arrow->table;
    struct tree *schema = &arrow->base.schema;
    const char *path = arrow->files.data.paths[0];
    int r;

    for (uint32_t i = 0; i < table->n_columns; i++)
        if (!table->schema.fields[table->columns[i]].is_fixed)
            return 0;
    r = tree_add(schema, TREE_DICT, NULL, table->n_columns);
    for (uint32_t i = 0; r == 0 && i < table->n_columns; i++) {
        uint64_t shape[DL_BOUND_TENSOR_DIMS];
        uint32_t ndim = 0, base = arrow_schema_base(&table->schema, table->columns[i],
                                                    DL_BOUND_TENSOR_DIMS - 1, &ndim, shape);
        r = base == ARROW_NONE ? -E2BIG
                               : tree_add_tensor(schema, arrow_name(arrow, i),
                                                 table->schema.fields[base].dtype, ndim, shape);
    }
    if (r < 0)
        return dl_error_set(err, -r, path, "its rows cannot be described: %s", strerror(-r));
    arrow->base.n_leaves = table->n_columns;
    arrow->base.ops = &arrow_rows_ops;
    return 0;
}

/* Checks the chosen columns, by their slots. */
static int arrow_check_nulls(const struct arrow *arrow, const char *place, struct dl_error *err)
{
    return arrow->fill ? arrow_check_null(&arrow->table.schema, arrow->null, place, err) : 0;
}

/* The selection's one column, of rows that are numbers of 64 bits. */
static int arrow_check_indices(const struct arrow *arrow, struct dl_error *err)
{
    const struct arrow_table *indices = &arrow->indices;
    const struct arrow_field *field = &indices->schema.fields[indices->columns[0]];

    if (indices->n_columns == 1 && field->sort == ARROW_NUMBER && !field->has_dictionary &&
        (field->dtype == DL_DTYPE_UINT64 || field->dtype == DL_DTYPE_INT64))
        return 0;
    return dl_error_set(err, EINVAL, indices->files[0].path,
                        "is not a list of indices: one column of 64-bit numbers");
}

static int arrow_open_indices(struct arrow *arrow, const struct data_env *env, struct dl_error *err)
{
    static const struct field_choice all;
    int r = arrow_table_open(&arrow->indices, &arrow->files.indices, &all, env, err);

    if (r == 0)
        r = arrow_check_indices(arrow, err);
    arrow->base.length = arrow->indices.rows;
    return r;
}

static int arrow_open_table(struct arrow *arrow, const struct spec_dataset *spec,
                            const struct data_env *env, struct dl_error *err)
{
    arrow->table.types = &spec->types;
    int r = arrow_table_open(&arrow->table, &arrow->files.data, &arrow->fields.choice, env, err);

    arrow->table.types = NULL;
    if (r < 0)
        return r;
    arrow->base.length = arrow->table.rows;
    arrow_features_mark(&arrow->table.schema);
    r = arrow_features_mark_media(&arrow->table.schema, spec, arrow->files.data.paths[0], err);
    if (r == 0 && arrow->files.indices.n > 0)
        r = arrow_open_indices(arrow, env, err);
    return r;
}

static int arrow_check_types(const struct arrow *arrow, const struct value *types,
                             const char *place, struct dl_error *err)
{
    const struct arrow_schema *schema = &arrow->table.schema;
    char key[DL_ERROR_PATH_MAX];

    for (uint32_t i = 0; types->type == VALUE_MAP && i < types->count; i++) {
        uint32_t column = arrow_schema_find(schema, types->items[i].key);
        if (column != ARROW_NONE && arrow_schema_has_decimals(schema, column))
            continue;
        snprintf(key, sizeof key, "%s.types.%s", place, types->items[i].key);
        return dl_error_set(err, EINVAL, key, DECIMAL_NONE);
    }
    return 0;
}

/* `arrow` is fresh, but for its files. */
static int arrow_begin(struct arrow *arrow, const struct spec_dataset *spec, const char *place,
                       const struct data_env *env, struct dl_error *err)
{
    int r;

    arrow->fill = spec->nulls.type != VALUE_NULL;
    arrow->null = value_real(&spec->nulls);
    arrow->table.most_bytes = spec->cache;
    if ((r = fields_open(&arrow->fields, spec, true, place, err)) < 0 ||
        (r = decimal_types_check(&spec->types, place, err)) < 0 ||
        (r = arrow_open_table(arrow, spec, env, err)) < 0 ||
        (r = arrow_check_types(arrow, &spec->types, place, err)) < 0 ||
        (r = arrow_check_nulls(arrow, place, err)) < 0)
        return r;
    return arrow_describe(arrow, err);
}

int arrow_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
               struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct arrow *arrow = calloc(1, sizeof *arrow);
    int r;

    if (!arrow)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &arrow->base;
    ds->ops = &arrow_ops;
    if ((r = arrow_files_find(spec, env, &arrow->files, err)) < 0 ||
        (r = arrow_begin(arrow, spec, place, env, err)) < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}

int arrow_open_chunks(const struct spec_dataset *spec, const char *place,
                      const struct data_env *env, struct file_list *files, uint64_t rows,
                      struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct arrow *arrow = calloc(1, sizeof *arrow);

    if (!arrow)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &arrow->base;
    ds->ops = &arrow_ops;
    arrow->files.data = *files;
    *files = (struct file_list){0};
    arrow->table.in_chunks = true;
    int r = arrow_begin(arrow, spec, place, env, err);
    if (r < 0)
        return r;
    if (ds->length != rows)
        return dl_error_set(
            err, EINVAL, spec->files[0].path,
            "has %llu rows in its chunks, but index.json says %llu and belongs to other chunks",
            (ull)ds->length, (ull)rows);
    *ret = steal_ptr(ds);
    return 0;
}
