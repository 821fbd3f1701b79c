/* A row of the table as a sample: a step of the fields after another. */
#include "daemon/data/parquet/row.h"

#include "daemon/data/audio/audio_field.h"
#include "daemon/data/image/image_field.h"

#include <errno.h>
#include <math.h>

/* ---- errors --------------------------------------------------------------------------------- */

static int parquet_refuse_value(const struct parquet_row *row, uint32_t column, int code,
                                const char *what)
{
    const struct parquet_table *table = &row->parquet->table;

    return dl_error_set(row->err, code, table->files.list.paths[row->group->file],
                        "row group %u, row %llu: its column %s %s", row->group->number,
                        (unsigned long long)row->row, table->columns[column]->path, what);
}

int parquet_refuse_null(const struct parquet_row *row, uint32_t column)
{
    return parquet_refuse_value(
        row, column, EINVAL,
        row->parquet->table.nulls.fill
            ? "is null, and its type cannot hold the number in dataset.nulls"
            : "is null; give nulls a value with dataset.nulls, such as nulls: 0, or choose other "
              "columns with dataset.fields");
}

/* ---- values --------------------------------------------------------------------------------- */

static int parquet_add_element(const struct parquet_row *row, uint32_t number,
                               const struct parquet_values *values, uint64_t i, const char *name,
                               struct sample *ret)
{
    const struct parquet_column *column = row->parquet->table.columns[number];

    if (values->valid && !values->valid[i])
        return parquet_refuse_null(row, number);
    if (column->sort == PARQUET_NUMBER)
        return sample_tensor(ret, name, column->dtype, 0, NULL, values->fixed + i * column->bytes);
    const struct parquet_slice *slice = &values->slices[i];
    bool text = column->sort == PARQUET_TEXT;
    int r = sample_text(ret, text ? TREE_STRING : TREE_BYTES, name, slice->data, slice->bytes);
    return r == -EILSEQ ? parquet_refuse_value(row, number, EILSEQ, "is not UTF-8") : r;
}

static int parquet_add_list(const struct parquet_row *row, uint32_t number,
                            const struct parquet_values *values, const char *name,
                            struct sample *ret)
{
    const struct parquet_column *column = row->parquet->table.columns[number];
    uint64_t at = row->row - values->first;
    uint64_t begin = parquet_values_begin(values, at), end = values->ends[at];
    uint64_t n = end - begin;
    int r = 0;

    if (values->row_valid && !values->row_valid[at])
        return parquet_refuse_null(row, number);
    if (column->sort != PARQUET_NUMBER) {
        sample_begin(ret, TREE_LIST, name);
        for (uint64_t i = begin; r == 0 && i < end; i++)
            r = parquet_add_element(row, number, values, i, NULL, ret);
        return r < 0 ? r : sample_end(ret);
    }
    if (values->valid && memchr(values->valid + begin, 0, n))
        return parquet_refuse_null(row, number);
    return sample_tensor(ret, name, column->dtype, 1, &n, values->fixed + begin * column->bytes);
}

/* An image or a sound. */
static int parquet_add_media(const struct parquet_row *row, const struct parquet_step *step,
                             const struct parquet_values *values, struct sample *ret)
{
    uint64_t at = row->row - values->first;
    uint32_t number = step->number;
    struct dl_error why = {0};

    if (values->valid && !values->valid[at])
        return parquet_refuse_null(row, number);
    const struct parquet_slice *slice = &values->slices[at];
    const struct image_file file = {.data = slice->data, .bytes = slice->bytes, .path = ""};
    int r = step->sort == STEP_AUDIO
                ? audio_field_add(row->audio, file.data, file.bytes, step->name, ret, &why)
                : image_field_add(row->image, &file, step->name, ret, &why);
    if (why.code)
        return dl_error_set(
            row->err, why.code, row->parquet->table.files.list.paths[row->group->file],
            "row group %u, row %llu: its column %s %s", row->group->number,
            (unsigned long long)row->row, row->parquet->table.columns[number]->path, why.message);
    return r;
}

static int parquet_add_column(const struct parquet_row *row, const struct parquet_step *step,
                              struct sample *ret)
{
    struct parquet_table *table = &row->parquet->table;
    const struct parquet_values *values;
    int r = parquet_table_part(table, row->group, step->number, row->row, &values, row->err);

    if (r < 0)
        return r;
    if (step->sort != STEP_COLUMN)
        return parquet_add_media(row, step, values, ret);
    if (table->columns[step->number]->max_rep > 0)
        return parquet_add_list(row, step->number, values, step->name, ret);
    return parquet_add_element(row, step->number, values, row->row - values->first, step->name,
                               ret);
}

/* Element `i` of a list of structs, a field of each of the columns `steps`. */
static int parquet_add_struct(const struct parquet_row *row, const struct parquet_step *steps,
                              uint64_t i, struct sample *ret)
{
    const struct parquet_values *values;
    int r = sample_begin(ret, TREE_DICT, NULL);

    for (; r == 0 && steps->sort != STEP_END; steps++) {
        r = parquet_table_part(&row->parquet->table, row->group, steps->number, row->row, &values,
                               row->err);
        if (r == 0)
            r = parquet_add_element(row, steps->number, values,
                                    parquet_values_begin(values, row->row - values->first) + i,
                                    steps->name, ret);
    }
    return r < 0 ? r : sample_end(ret);
}

/* How many structs the row's list has, which its columns must agree on. */
static int parquet_count_structs(const struct parquet_row *row, const struct parquet_step *steps,
                                 uint64_t *ret)
{
    const struct parquet_values *values;

    for (const struct parquet_step *step = steps; step->sort != STEP_END; step++) {
        int r = parquet_table_part(&row->parquet->table, row->group, step->number, row->row,
                                   &values, row->err);
        if (r < 0)
            return r;
        uint64_t at = row->row - values->first;
        uint64_t n = values->ends[at] - parquet_values_begin(values, at);
        if (values->row_valid && !values->row_valid[at])
            return parquet_refuse_null(row, step->number);
        if (step > steps && n != *ret)
            return parquet_refuse_value(
                row, step->number, EINVAL,
                "does not have as many elements as the others of its list; the file is damaged");
        *ret = n;
    }
    return 0;
}

static int parquet_add_structs(const struct parquet_row *row, const struct parquet_step *list,
                               struct sample *ret)
{
    uint64_t n = 0;
    int r = parquet_count_structs(row, list + 1, &n);

    if (r == 0)
        r = sample_begin(ret, TREE_LIST, list->name);
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = parquet_add_struct(row, list + 1, i, ret);
    return r < 0 ? r : sample_end(ret);
}

/* Partitions that are null: as a column's. */
static int parquet_refuse_key(const struct parquet_row *row, uint32_t key)
{
    const struct parquet_table *table = &row->parquet->table;

    return dl_error_set(row->err, EINVAL, table->files.list.paths[row->group->file],
                        "its partition %s is null; give nulls a value with dataset.nulls, such as "
                        "nulls: 0, or leave it out with dataset.filter",
                        table->keys[key]);
}

int parquet_key_number(const struct parquet_row *row, uint32_t key, int64_t *ret)
{
    const struct parquet_table *table = &row->parquet->table;
    const struct parquet_key_value *value = &table->file[row->group->file].keys[key];

    *ret = value->number;
    if (*value->text)
        return 0;
    if (!table->nulls.fill || !(fabs(table->nulls.value) < 0x1p62))
        return parquet_refuse_key(row, key);
    *ret = (int64_t)table->nulls.value;
    return 0;
}

static int parquet_add_key(const struct parquet_row *row, const struct parquet_step *step,
                           struct sample *ret)
{
    const struct parquet_table *table = &row->parquet->table;
    const char *text = table->file[row->group->file].keys[step->number].text;
    int64_t number;
    int r = 0;

    if (table->key_is_text[step->number]) {
        if (!*text && !table->nulls.fill)
            return parquet_refuse_key(row, step->number);
        return sample_text(ret, TREE_STRING, step->name, text, strlen(text));
    }
    r = parquet_key_number(row, step->number, &number);
    return r < 0 ? r : sample_int(ret, step->name, number);
}

int parquet_add_step(const struct parquet_row *row, const struct parquet_step *step,
                     struct sample *ret)
{
    switch (step->sort) {
    case STEP_BEGIN:
        return sample_begin(ret, TREE_DICT, step->name);
    case STEP_END:
        return sample_end(ret);
    case STEP_KEY:
        return parquet_add_key(row, step, ret);
    case STEP_LIST:
        return parquet_add_structs(row, step, ret);
    case STEP_COLUMN:
    case STEP_IMAGE:
    case STEP_AUDIO:
        break;
    }
    return parquet_add_column(row, step, ret);
}

uint32_t parquet_step_next(const struct parquet *parquet, uint32_t i)
{
    const struct parquet_step *steps = parquet->fields.steps;

    if (steps[i].sort == STEP_LIST)
        while (steps[i].sort != STEP_END)
            i++;
    return i + 1;
}
