#include "daemon/data/kinds/arrow/arrow_table.h"

#include "daemon/data/base/decimal.h"
#include "proto/common/array.h"
#include "proto/common/bisect.h"

#include <errno.h>

/* A file that is being opened. */
struct arrow_opening {
    struct arrow_table *table;
    uint32_t file;
    struct arrow_view view;
    const struct field_choice *choice;
    struct arrow_schema schema; /* owned, until the table takes the first */
    const struct arrow_schema *used;
    struct arrow_dictionaries dictionaries; /* owned; of `used` */
    bool has_packed;                        /* a batch is compressed */
    struct dl_error *err;
};

static int arrow_table_no_memory(const struct arrow_opening *o)
{
    return dl_error_set(o->err, ENOMEM, o->view.path, "out of memory for its batches");
}

/* ---- columns -------------------------------------------------------------------------------- */

static int arrow_table_check_column(const struct arrow_opening *o, uint32_t i)
{
    const struct arrow_field *unread = arrow_schema_unread(&o->schema, i);

    if (!unread)
        return 0;
    if (unread->sort == ARROW_DECIMAL)
        return dl_error_set(o->err, ENOTSUP, o->view.path,
                            "its column %s " DECIMAL_UNTYPED ": {%s: float64}",
                            o->schema.fields[i].name, o->schema.fields[i].name);
    return dl_error_set(o->err, ENOTSUP, o->view.path,
                        "its column %s is of type %s%s, which cannot be read; choose others with "
                        "dataset.fields",
                        o->schema.fields[i].name, unread->has_dictionary ? "dictionary of " : "",
                        unread->type ? unread->type : "unknown");
}

static int arrow_table_find_column(const struct arrow_opening *o, const char *name, uint32_t *ret)
{
    *ret = arrow_schema_find(&o->schema, name);
    if (*ret == ARROW_NONE)
        return dl_error_set(o->err, EINVAL, o->view.path, "has no column %s; see dataset.fields",
                            name);
    return arrow_table_check_column(o, *ret);
}

/* Of the first file: which columns the table has. */
static int arrow_table_choose(struct arrow_opening *o)
{
    struct arrow_table *table = o->table;
    const struct field_choice *choice = o->choice;
    uint32_t most = max_u64(choice->n, o->schema.n);
    int r = 0;

    table->columns = calloc(max_u64(most, 1), sizeof *table->columns);
    if (!table->columns)
        return arrow_table_no_memory(o);
    for (uint32_t i = 0; r == 0 && i < choice->n; i++)
        r = arrow_table_find_column(o, choice->fields[i].source,
                                    &table->columns[table->n_columns++]);
    for (uint32_t i = 0; r == 0 && choice->n == 0 && i < o->schema.n;
         i += o->schema.fields[i].span) {
        r = arrow_table_check_column(o, i);
        table->columns[table->n_columns++] = i;
    }
    for (uint32_t i = 0; r == 0 && i < table->n_columns; i++)
        arrow_schema_keep(&o->schema, table->columns[i]);
    if (r == 0 && table->n_columns == 0)
        r = dl_error_set(o->err, EINVAL, o->view.path, "has no columns");
    if (r == 0) {
        table->schema = o->schema;
        o->schema = (struct arrow_schema){0};
        o->used = &table->schema;
    }
    return r;
}

static int arrow_table_refuse_column(const struct arrow_opening *o,
                                     const struct arrow_field *column)
{
    return dl_error_set(o->err, EINVAL, o->view.path,
                        "its column %s is of another type than in %s; files of a dataset have "
                        "equal columns: write them with one schema",
                        column->name, o->table->files[0].path);
}

/* A later file must have the same columns to belong to the table. */
static int arrow_table_match(struct arrow_opening *o)
{
    const struct arrow_table *table = o->table;

    for (uint32_t i = 0; i < table->n_columns; i++) {
        const struct arrow_field *column = &table->schema.fields[table->columns[i]];
        uint32_t own;
        int r = arrow_table_find_column(o, column->name, &own);
        if (r < 0)
            return r;
        arrow_schema_keep(&o->schema, own);
        if (!arrow_schema_agree(&table->schema, table->columns[i], &o->schema, own))
            return arrow_table_refuse_column(o, column);
    }
    o->used = &o->schema;
    return 0;
}

static int arrow_table_take_schema(struct arrow_opening *o, struct flat *flat,
                                   const struct flat_table *schema)
{
    int r = arrow_schema_read(flat, schema, o->view.path, &o->schema, o->err);

    if (r == 0 && o->table->types)
        arrow_schema_set_types(&o->schema, o->table->types);
    if (r == 0)
        r = o->file == 0 ? arrow_table_choose(o) : arrow_table_match(o);
    if (r < 0)
        return r;
    o->dictionaries.of_field = calloc(max_u64(o->used->n, 1), sizeof *o->dictionaries.of_field);
    return o->dictionaries.of_field ? 0 : arrow_table_no_memory(o);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Of a batch that is compressed: its rows, as it says, and what dictionaries there are by now. */
static int arrow_table_take_packed(struct arrow_opening *o, struct arrow_message *message,
                                   struct arrow_batch *batch)
{
    int64_t rows = arrow_columns_rows(message);
    size_t n = max_u64(o->used->n, 1);

    /* A row has a bit, at least. */
    if (rows < 0 || message->flat.bad || (uint64_t)rows / 8 > arrow_body_most(message))
        return arrow_batch_refuse(&o->view, message, "has no metadata that can be read", o->err);
    batch->dictionaries = calloc(n, sizeof *batch->dictionaries);
    if (!batch->dictionaries)
        return arrow_table_no_memory(o);
    memcpy(batch->dictionaries, o->dictionaries.of_field, n * sizeof *batch->dictionaries);
    batch->at = message->at;
    batch->rows = (uint64_t)rows;
    o->has_packed = true;
    return 0;
}

static int arrow_table_take_batch(struct arrow_opening *o, struct arrow_message *message,
                                  struct arrow_batch *batch)
{
    if (arrow_body_is_packed(message))
        return arrow_table_take_packed(o, message, batch);
    batch->columns = calloc(o->used->n_slots, sizeof *batch->columns);
    if (!batch->columns)
        return arrow_table_no_memory(o);
    return arrow_columns_find(&o->view, message, NULL, o->used, &o->dictionaries, batch->columns,
                              &batch->rows, o->err);
}

static int arrow_table_add_batch(struct arrow_opening *o, struct arrow_message *message)
{
    struct arrow_table *table = o->table;
    struct arrow_batch batch = {.first = table->rows, .file = o->file};

    if (!array_reserve(table->batches, table->batches_room, table->n_batches + 1))
        return arrow_table_no_memory(o);
    int r = arrow_table_take_batch(o, message, &batch);
    if (r == 0 && batch.rows > INT64_MAX - table->rows)
        r = dl_error_set(o->err, EINVAL, o->view.path, "has too many rows to be counted");
    if (r < 0 || batch.rows == 0) {
        free(batch.columns);
        free(batch.dictionaries);
        return r;
    }
    table->batches[table->n_batches++] = batch;
    table->rows += batch.rows;
    return 0;
}

/* The values that fields of this type share; they stay. */
static int arrow_table_find_values(struct arrow_opening *o, struct arrow_message *message,
                                   const struct arrow_field *field, struct arrow_column **ret)
{
    struct arrow_table *table = o->table;
    struct arrow_body body = {0};

    if (!array_reserve(table->dictionaries, table->dictionaries_room, table->n_dictionaries + 2))
        return arrow_table_no_memory(o);
    if (arrow_body_is_packed(message)) {
        int r = arrow_body_unpack(&o->view, message, NULL, &body, o->err);
        if (r < 0)
            return r;
        table->dictionaries[table->n_dictionaries++] = body.data;
    }
    struct arrow_column *values = calloc(1, sizeof *values);
    if (!values)
        return arrow_table_no_memory(o);
    table->dictionaries[table->n_dictionaries++] = values;
    *ret = values;
    return arrow_columns_find_values(&o->view, message, body.data ? &body : NULL, field, values,
                                     o->err);
}

/* The values of all fields with its id. They are of one type, or what they say is not believed. */
static int arrow_table_add_dictionary(struct arrow_opening *o, struct arrow_message *message)
{
    int64_t id = arrow_columns_dictionary(message);
    const struct arrow_field *type = NULL;
    struct arrow_column *values = NULL;

    for (uint32_t i = 0; i < o->used->n; i++) {
        const struct arrow_field *field = &o->used->fields[i];
        if (!field->has_dictionary || field->dictionary != id || field->slot == ARROW_NONE)
            continue;
        if (!values) {
            int r = arrow_table_find_values(o, message, field, &values);
            if (r < 0)
                return r;
            type = field;
        }
        if (field->sort != type->sort || field->width != type->width ||
            field->is_large != type->is_large || field->is_view != type->is_view ||
            field->scale != type->scale)
            return dl_error_set(o->err, EINVAL, o->view.path,
                                "its columns %s and %s have one dictionary, but other types",
                                type->name, field->name);
        o->dictionaries.of_field[i] = values;
    }
    return 0;
}

/* The message of a footer's block. */
static int arrow_table_add_block(struct arrow_opening *o, uint64_t at, enum arrow_header type)
{
    struct arrow_message message;
    int r = arrow_message_read(&o->view, at, &message, o->err);

    if (r < 0)
        return r;
    if (r == ARROW_END || message.type != (int64_t)type)
        return dl_error_set(o->err, EINVAL, o->view.path,
                            "does not have at byte %llu what its footer says; it is damaged",
                            (ull)at);
    return type == ARROW_RECORDS ? arrow_table_add_batch(o, &message)
                                 : arrow_table_add_dictionary(o, &message);
}

static int arrow_table_read_file(struct arrow_opening *o)
{
    struct arrow_footer footer;
    int r = arrow_footer_read(&o->view, &footer, o->err);

    if (r == 0)
        r = arrow_table_take_schema(o, &footer.flat, &footer.schema);
    for (uint32_t i = 0; r == 0 && i < footer.dictionaries.n; i++)
        r = arrow_table_add_block(o, arrow_block(&footer.dictionaries, i), ARROW_DICTIONARY);
    for (uint32_t i = 0; r == 0 && i < footer.records.n; i++)
        r = arrow_table_add_block(o, arrow_block(&footer.records, i), ARROW_RECORDS);
    return r;
}

static int arrow_table_add_message(struct arrow_opening *o, struct arrow_message *message)
{
    if (message->type == ARROW_RECORDS)
        return arrow_table_add_batch(o, message);
    if (message->type == ARROW_DICTIONARY)
        return arrow_table_add_dictionary(o, message);
    return dl_error_set(o->err, EINVAL, o->view.path,
                        "has a message at byte %llu that is not a batch of rows", (ull)message->at);
}

static int arrow_table_read_stream(struct arrow_opening *o)
{
    struct arrow_message message;
    int r = arrow_message_read(&o->view, 0, &message, o->err);

    if (r == ARROW_END || (r == 0 && message.type != ARROW_SCHEMA))
        return dl_error_set(
            o->err, EINVAL, o->view.path,
            "is neither an Arrow file nor an Arrow stream: it does not begin with a schema");
    if (r == 0)
        r = arrow_table_take_schema(o, &message.flat, &message.header);
    while (r == 0) {
        r = arrow_message_read(&o->view, message.end, &message, o->err);
        if (r == 0)
            r = arrow_table_add_message(o, &message);
    }
    return r == ARROW_END ? 0 : r;
}

/* ---- chunks of litData's ------------------------------------------------------------------- */

enum { CHUNK_TAIL = 12 }; /* how many bytes the file has, and a mark */

bool arrow_table_in_chunk(const uint8_t *data, uint64_t bytes)
{
    return bytes >= CHUNK_TAIL && memcmp(data + bytes - 8, "LDARW01", 8) == 0;
}

/* The part of a chunk that is a file of Arrow's. */
static int arrow_table_find_file(struct arrow_view *view, struct dl_error *err)
{
    uint32_t bytes = 0;

    if (arrow_table_in_chunk(view->data, view->bytes))
        memcpy(&bytes, view->data + view->bytes - CHUNK_TAIL, sizeof bytes);
    if (bytes == 0 || bytes > view->bytes - CHUNK_TAIL)
        return dl_error_set(err, EINVAL, view->path,
                            "has no Arrow rows at its end, unlike the first chunk; it is truncated "
                            "or damaged, or index.json belongs to other chunks");
    view->data += view->bytes - CHUNK_TAIL - bytes;
    view->bytes = bytes;
    return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

int arrow_table_add(struct arrow_table *table, uint32_t i, const struct arrow_view *view,
                    const struct field_choice *choice, struct dl_error *err)
{
    struct arrow_opening o = {
        .table = table, .file = i, .view = *view, .choice = choice, .err = err};
    int r = arrow_is_file(view) ? arrow_table_read_file(&o) : arrow_table_read_stream(&o);

    table->files[i].view = *view;
    if (o.has_packed && i > 0) {
        table->files[i].schema = o.schema;
        o.schema = (struct arrow_schema){0};
    }
    arrow_schema_deinit(&o.schema);
    free(o.dictionaries.of_field);
    return r;
}

static int arrow_table_open_file(struct arrow_table *table, uint32_t i,
                                 const struct field_choice *choice, const struct data_env *env,
                                 struct dl_error *err)
{
    struct arrow_file *file = &table->files[i];
    int r = source_open(file->path, env, &file->source, err);

    if (r < 0)
        return r;
    file->first = table->rows;
    struct arrow_view view = {
        .path = file->path, .data = file->source.data, .bytes = file->source.bytes};
    if (table->in_chunks && (r = arrow_table_find_file(&view, err)) < 0)
        return r;
    return arrow_table_add(table, i, &view, choice, err);
}

int arrow_table_open(struct arrow_table *table, const struct file_list *paths,
                     const struct field_choice *choice, const struct data_env *env,
                     struct dl_error *err)
{
    int r = 0;

    table->files = calloc(max_u64(paths->n, 1), sizeof *table->files);
    if (!table->files)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    table->n_files = paths->n;
    for (uint32_t i = 0; r == 0 && i < paths->n; i++) {
        table->files[i].path = paths->paths[i];
        r = arrow_table_open_file(table, i, choice, env, err);
        data_tell(env, "files indexed", i + 1, paths->n);
    }
    return r;
}

void arrow_table_close(struct arrow_table *table)
{
    for (uint64_t i = 0; i < table->n_batches; i++) {
        free(table->batches[i].columns);
        free(table->batches[i].dictionaries);
        arrow_unpacked_unref(table->batches[i].unpacked);
    }
    for (uint64_t i = 0; i < table->n_dictionaries; i++)
        free(table->dictionaries[i]);
    for (uint32_t i = 0; i < table->n_files; i++) {
        arrow_schema_deinit(&table->files[i].schema);
        source_close(&table->files[i].source);
    }
    arrow_schema_deinit(&table->schema);
    free(table->batches);
    free(table->dictionaries);
    free(table->columns);
    free(table->files);
    *table = (struct arrow_table){0};
}

static bool arrow_table_has(const struct arrow_table *table, uint64_t batch, uint64_t row)
{
    uint64_t end = batch + 1 < table->n_batches ? table->batches[batch + 1].first : table->rows;

    return row >= table->batches[batch].first && row < end;
}

const struct arrow_batch *arrow_table_find(const struct arrow_table *table, uint64_t row)
{
    const uint64_t n = table->n_batches, size = n > 1 ? table->batches[1].first : table->rows;

    /* Writers make batches of one size but for the last. */
    if (row / size < n && arrow_table_has(table, row / size, row))
        return &table->batches[row / size];
    return &table->batches[bisect_firsts(&table->batches[0].first, sizeof *table->batches, n, row)];
}
