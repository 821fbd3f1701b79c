/*
 * Comma-separated values: a sample is a row of one or more files in their order, with a field for
 * each column, or for each that a spec chooses.
 *
 * A column is text (string leaves) or numbers (a number of the column's type, without dimensions).
 * Its type is set by the spec, or found in the first CSV_ROWS_JUDGED rows of the first file with
 * rows: true and false: bool; integers: int64; numbers: float64; else text. If a later cell is not
 * such a number, that is an error of its sample. An empty cell in a column of numbers is an error,
 * too, or the number set by `nulls`. If all fields are numbers, samples are rows of one shape.
 * Opening reads the files once, to know where rows begin: about 2.3 bytes of memory for a row of
 * usual length (text_lines.h). Empty lines are skipped.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/field/field_choice.h"
#include "daemon/data/files/globs.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/csv/csv_columns.h"
#include "daemon/data/kinds/text/text_lines.h"
#include "proto/common/bisect.h"
#include "proto/dtype.h"

#include <errno.h>
#include <sys/mman.h>

struct csv_file {
    struct source source;   /* owned */
    const uint8_t *begin;   /* of its rows */
    struct line_table rows; /* owned */
    uint64_t first;         /* sample: its first row */
    uint8_t separator;
};

struct csv {
    struct dataset base;
    struct file_list list;      /* owned */
    struct csv_file *files;     /* owned; list.n of them */
    struct csv_columns columns; /* owned */
    struct csv_cell *cells;     /* owned; of the row in hand, columns.n of them */
    struct field_choice choice; /* owned */
    uint32_t *chosen;           /* owned; the column of each field, n_fields of them */
    uint32_t n_fields;
    enum csv_separator separator;
    bool header;
    bool filled; /* something stands for empty cells */
};

/* A row that is made into a sample. */
struct csv_row {
    const struct csv *csv;
    const struct csv_file *file;
    uint64_t number; /* in the file */
};

/* ---- errors --------------------------------------------------------------------------------- */

static const char *csv_path(const struct csv_row *row)
{
    return row->csv->list.paths[row->file - row->csv->files];
}

/* The line of the file, as editors count them. */
static unsigned long long csv_line_at(const struct csv_file *file, const uint8_t *row)
{
    const uint8_t *at = file->source.data;
    unsigned long long line = 1;

    for (; at < row; at++)
        line += *at == '\n' || (*at == '\r' && at[1] != '\n'); /* `row` is behind it */
    return line;
}

static unsigned long long csv_line(const struct csv_row *row)
{
    return csv_line_at(row->file, row->file->begin + line_begin(&row->file->rows, row->number));
}

static int csv_refuse_cells(const struct csv_row *row, const char *what, uint32_t cells,
                            struct dl_error *err)
{
    return dl_error_set(err, EINVAL, csv_path(row),
                        "line %llu has %s %u cells, and the first line %u; put a cell that "
                        "contains a separator or a quote in quotes",
                        csv_line(row), what, cells, row->csv->columns.n);
}

static int csv_refuse_cell(const struct csv_row *row, const struct csv_column *column, int code,
                           const char *why, struct dl_error *err)
{
    return dl_error_set(err, code, csv_path(row), "line %llu: its %s %s", csv_line(row),
                        column->name, why);
}

static int csv_refuse_number(const struct csv_row *row, const struct csv_column *column,
                             const struct csv_cell *cell, int r, struct dl_error *err)
{
    enum { SHOWN = 40 };
    uint8_t shown[SHOWN + 1] = {0};

    if (r == -ENODATA)
        return csv_refuse_cell(
            row, column, EINVAL,
            row->csv->filled ? "is empty, and its type cannot hold the number in dataset.nulls"
                             : "is empty; give empty cells a value with dataset.nulls, such as "
                               "nulls: 0, or choose other columns with dataset.fields",
            err);
    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, csv_path(row), "out of memory for a sample");
    for (size_t i = 0; i < cell->len && i < SHOWN; i++)
        shown[i] = cell->text[i] >= 0x20 && cell->text[i] < 0x7F ? cell->text[i] : '?';
    return dl_error_set(
        err, EINVAL, csv_path(row),
        "line %llu: its %s is \"%s\", which is not of type %s; give the column another "
        "type with dataset.types, such as {%s: string}",
        csv_line(row), column->name, shown, dtype_name(column->dtype), column->name);
}

/* ---- samples -------------------------------------------------------------------------------- */

/* The row of sample `index`, below the length. */
static struct csv_row csv_row_of(const struct csv *csv, uint64_t index)
{
    const struct csv_file *file =
        &csv->files[bisect_firsts(&csv->files[0].first, sizeof *file, csv->list.n, index)];

    return (struct csv_row){.csv = csv, .file = file, .number = index - file->first};
}

/* Its cells, in csv->cells. */
static int csv_split(const struct csv_row *row, struct dl_error *err)
{
    const struct csv *csv = row->csv;
    const struct csv_file *file = row->file;
    const uint8_t *at = file->begin + line_begin(&file->rows, row->number);
    const uint8_t *end = file->source.data + file->source.bytes;

    for (uint32_t i = 0; i < csv->columns.n; i++) {
        struct csv_cell *cell = &csv->cells[i];
        if (i > 0 && csv->cells[i - 1].last)
            return csv_refuse_cells(row, "only", i, err);
        at = csv_cell_read(at, end, file->separator, cell);
        if (!at || cell->bad)
            return csv_refuse_cell(
                row, &csv->columns.all[i], EINVAL,
                "has something after its closing quote; a quote within a cell is written twice",
                err);
    }
    return csv->cells[csv->columns.n - 1].last
               ? 0
               : csv_refuse_cells(row, "more than", csv->columns.n, err);
}

/* One element of the column's type. */
static int csv_number(const struct csv_row *row, uint32_t c, void *out, struct dl_error *err)
{
    const struct csv_column *column = &row->csv->columns.all[c];
    const struct csv_cell *cell = &row->csv->cells[c];
    int r = csv_cell_number(cell, column->dtype, out);

    if (r == -ENODATA && column->filled) {
        memcpy(out, column->fill, dtype_bytes(column->dtype));
        return 0;
    }
    return r < 0 ? csv_refuse_number(row, column, cell, r, err) : 0;
}

static const char *csv_field(const struct csv *csv, uint32_t i)
{
    return csv->choice.n > 0 ? csv->choice.fields[i].name : csv->columns.all[csv->chosen[i]].name;
}

static int csv_read_row(struct dataset *ds, const struct sample_key *key, uint64_t index,
                        void *const *dst, size_t i, struct dl_error *err)
{
    const struct csv *csv = container_of(ds, struct csv, base);
    struct csv_row row = csv_row_of(csv, index);
    int r = csv_split(&row, err);

    for (uint32_t leaf = 0; r == 0 && leaf < csv->n_fields; leaf++) {
        uint32_t c = csv->chosen[leaf];
        size_t bytes = dtype_bytes(csv->columns.all[c].dtype);
        r = csv_number(&row, c, (char *)dst[leaf] + i * bytes, err);
    }
    return r;
}

/* A text lies where it is mapped, unless quotes in it are written twice. */
static int csv_add_text(const struct csv_row *row, uint32_t c, const char *name, struct sample *ret,
                        struct dl_error *err)
{
    const struct csv_cell *cell = &row->csv->cells[c];
    const uint8_t *text = cell->text;
    uint64_t len = cell->len;

    if (cell->doubled) {
        uint8_t *copy = sample_alloc(ret, len);
        if (!copy)
            return sample_check(ret, err);
        len = csv_cell_copy(cell, copy);
        text = copy;
    }
    int r = sample_text(ret, TREE_STRING, name, text, len);
    if (r == -EILSEQ)
        return csv_refuse_cell(row, &row->csv->columns.all[c], EILSEQ,
                               "is not UTF-8; convert the file with iconv", err);
    return r < 0 ? sample_check(ret, err) : 0;
}

static int csv_add_field(const struct csv_row *row, uint32_t i, struct sample *ret,
                         struct dl_error *err)
{
    uint32_t c = row->csv->chosen[i], dtype = row->csv->columns.all[c].dtype;
    const char *name = csv_field(row->csv, i);

    if (dtype == 0)
        return csv_add_text(row, c, name, ret, err);
    void *number = sample_alloc(ret, dtype_bytes(dtype));
    int r = number ? csv_number(row, c, number, err) : sample_check(ret, err);
    if (r == 0 && sample_tensor(ret, name, dtype, 0, NULL, number) < 0)
        r = sample_check(ret, err);
    return r;
}

static int csv_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                   struct sample *ret, struct dl_error *err)
{
    const struct csv *csv = container_of(ds, struct csv, base);

    struct csv_row row = csv_row_of(csv, index);
    int r = csv_split(&row, err);
    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < csv->n_fields; i++)
        r = csv_add_field(&row, i, ret, err);
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

static void csv_expect(struct dataset *ds, uint64_t index)
{
    struct csv_row row = csv_row_of(container_of(ds, struct csv, base), index);

    line_expect(&row.file->rows, row.number);
}

static size_t csv_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    struct csv_row row = csv_row_of(container_of(ds, struct csv, base), index);

    /* Its line would have to be counted. */
    return dataset_put_name(csv_path(&row), "row", row.number, ret, room);
}

static void csv_close(struct dataset *ds)
{
    struct csv *csv = container_of(ds, struct csv, base);

    for (uint32_t i = 0; csv->files && i < csv->list.n; i++) {
        line_table_deinit(&csv->files[i].rows);
        source_close(&csv->files[i].source);
    }
    tree_deinit(&ds->schema);
    csv_columns_deinit(&csv->columns);
    field_choice_deinit(&csv->choice);
    file_list_deinit(&csv->list);
    free(csv->chosen);
    free(csv->cells);
    free(csv->files);
    free(csv);
}

static const struct dataset_ops csv_ops = {
    .get = csv_get, .name = csv_name, .expect = csv_expect, .close = csv_close};
static const struct dataset_ops csv_rows_ops = {
    .read_row = csv_read_row, .name = csv_name, .expect = csv_expect, .close = csv_close};

/* ---- opening -------------------------------------------------------------------------------- */

static const uint8_t *csv_next(const void *context, const uint8_t *at, const uint8_t *end)
{
    return csv_row_end(at, end, *(const uint8_t *)context);
}

static uint8_t csv_separator_of(enum csv_separator separator, const char *path)
{
    size_t len = strlen(path);

    switch (separator) {
    case CSV_TAB:
        return '\t';
    case CSV_SEMICOLON:
        return ';';
    case CSV_PIPE:
        return '|';
    case CSV_COMMA:
        return ',';
    default:
        return len > 4 && (strcasecmp(path + len - 4, ".tsv") == 0 ||
                           strcasecmp(path + len - 4, ".tab") == 0)
                   ? '\t'
                   : ',';
    }
}

/* Reads the file's column names: those of the first file become the dataset's. */
static int csv_take_columns(struct csv *csv, uint32_t i, const uint8_t *end, struct dl_error *err)
{
    struct csv_file *file = &csv->files[i];
    struct csv_columns columns;
    int r = csv_columns_read(file->begin, end, file->separator, csv->header, csv->list.paths[i],
                             &columns, err);

    if (r < 0)
        return r;
    if (csv->columns.n == 0) {
        csv->columns = columns;
        return 0;
    }
    if (!csv_columns_equal(&csv->columns, &columns))
        r = dl_error_set(err, EINVAL, csv->list.paths[i],
                         "its first row does not have the %u columns of the first file in the same "
                         "order; all files of a dataset need the same columns",
                         csv->columns.n);
    csv_columns_deinit(&columns);
    return r;
}

static int csv_index_rows(struct csv *csv, uint32_t i, const uint8_t *end, struct dl_error *err)
{
    struct csv_file *file = &csv->files[i];
    struct line_rule rule = {
        .next = csv_next, .is_blank = csv_row_is_blank, .context = &file->separator};
    uint64_t bytes = (uint64_t)(end - file->begin), bad;

    /* Read ahead while looking for rows; then samples come in any order. */
    if (file->source.bytes > 0)
        (void)madvise((void *)file->source.data, file->source.bytes, MADV_SEQUENTIAL);
    int r = line_table_make_by(file->begin, bytes, &rule, &file->rows, &bad);
    if (file->source.bytes > 0)
        (void)madvise((void *)file->source.data, file->source.bytes, MADV_NORMAL);
    if (r == -EINVAL)
        return dl_error_set(
            err, EINVAL, csv->list.paths[i],
            "line %llu has a cell without its closing quote; a quote within a quoted "
            "cell is written twice",
            csv_line_at(file, file->begin + bad));
    if (r < 0)
        return dl_error_set(err, ENOMEM, csv->list.paths[i],
                            "out of memory for the places of its rows");
    return 0;
}

/* Skips a byte order mark, and blank lines before the first row. */
static const uint8_t *csv_first_row(const uint8_t *at, const uint8_t *end)
{
    static const uint8_t mark[] = {0xEF, 0xBB, 0xBF};

    if ((size_t)(end - at) >= sizeof mark && memcmp(at, mark, sizeof mark) == 0)
        at += sizeof mark;
    while (at < end && csv_row_is_blank(at, end))
        at = csv_row_end(at, end, ',');
    return at;
}

static int csv_open_file(struct csv *csv, uint32_t i, const struct data_env *env,
                         struct dl_error *err)
{
    struct csv_file *file = &csv->files[i];
    const char *path = csv->list.paths[i];
    int r = source_open(path, env, &file->source, err);

    if (r < 0)
        return r;
    if (source_is_gzip(&file->source))
        return dl_error_set(err, EINVAL, path,
                            "is compressed by gzip; unpack it with gunzip, so that its rows can be "
                            "read in place");
    const uint8_t *end = file->source.data + file->source.bytes;
    file->separator = csv_separator_of(csv->separator, path);
    file->begin = csv_first_row(file->source.data, end);
    file->first = csv->base.length;
    if (csv->header || file->begin < end)
        r = csv_take_columns(csv, i, end, err);
    if (r == 0 && csv->header)
        file->begin = csv_row_end(file->begin, end, file->separator); /* it was read above */
    if (r == 0)
        r = csv_index_rows(csv, i, end, err);
    csv->base.length += file->rows.n;
    return r;
}

/* By the first rows of the first file that has some. */
static void csv_judge(struct csv *csv)
{
    uint32_t i = 0;

    while (i < csv->list.n && csv->files[i].rows.n == 0)
        i++;
    if (i == csv->list.n)
        return;
    const struct csv_file *file = &csv->files[i];
    const uint8_t *end = file->source.data + file->source.bytes;
    for (uint64_t row = 0; row < min_u64(file->rows.n, CSV_ROWS_JUDGED); row++)
        csv_columns_judge(&csv->columns, file->begin + line_begin(&file->rows, row), end,
                          file->separator);
}

static int csv_choose(struct csv *csv, const char *place, struct dl_error *err)
{
    csv->n_fields = csv->choice.n > 0 ? csv->choice.n : csv->columns.n;
    csv->chosen = calloc(max_u64(csv->n_fields, 1), sizeof *csv->chosen);
    csv->cells = calloc(max_u64(csv->columns.n, 1), sizeof *csv->cells);
    if (!csv->chosen || !csv->cells)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    for (uint32_t i = 0; i < csv->n_fields; i++) {
        csv->chosen[i] = i;
        if (csv->choice.n == 0 || csv->columns.n == 0)
            continue;
        const char *source = csv->choice.fields[i].source;
        const struct csv_column *column = csv_columns_find(&csv->columns, source);
        if (!column)
            return dl_error_set(err, EINVAL, csv->list.paths[0],
                                "has no column %s; see dataset.fields", source);
        csv->chosen[i] = (uint32_t)(column - csv->columns.all);
    }
    return 0;
}

/* Where all fields are numbers, they are written straight into their batch. */
static int csv_describe(struct csv *csv, const char *place, struct dl_error *err)
{
    struct tree *schema = &csv->base.schema;
    bool numbers = csv->columns.n > 0;
    int r;

    for (uint32_t i = 0; numbers && i < csv->n_fields; i++)
        numbers = csv->columns.all[csv->chosen[i]].dtype != 0;
    if (!numbers)
        return 0;
    r = tree_add(schema, TREE_DICT, NULL, csv->n_fields);
    for (uint32_t i = 0; r == 0 && i < csv->n_fields; i++)
        r = tree_add_tensor(schema, csv_field(csv, i), csv->columns.all[csv->chosen[i]].dtype, 0,
                            NULL);
    if (r < 0)
        return dl_error_set(err, -r, place, "its samples cannot be described: %s", strerror(-r));
    csv->base.n_leaves = csv->n_fields;
    csv->base.ops = &csv_rows_ops;
    return 0;
}

int csv_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
             struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct csv *csv = calloc(1, sizeof *csv);
    int r;

    if (!csv)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &csv->base;
    ds->ops = &csv_ops;
    csv->separator = spec->separator;
    csv->header = spec->header;
    csv->filled = spec->nulls.type != VALUE_NULL;
    if ((r = field_choice_init(&csv->choice, spec, place, err)) < 0 ||
        (r = file_list_make(spec, env, &csv->list, err)) < 0)
        return r;
    csv->files = calloc(csv->list.n, sizeof *csv->files);
    if (!csv->files)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    for (uint32_t i = 0; r == 0 && i < csv->list.n; i++) {
        r = csv_open_file(csv, i, env, err);
        data_tell(env, "files indexed", i + 1, csv->list.n);
    }
    if (r < 0)
        return r;
    csv_judge(csv);
    if ((r = csv_columns_decide(&csv->columns, &spec->types, &spec->nulls, place, err)) < 0 ||
        (r = csv_choose(csv, place, err)) < 0 || (r = csv_describe(csv, place, err)) < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}
