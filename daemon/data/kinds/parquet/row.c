/* A row of the table as a sample: a step of the fields after another. */
#include "daemon/data/kinds/parquet/row.h"

#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/arrow/arrow_elements.h"

#include <errno.h>
#include <math.h>

/* What a row has of a column of the table. */
struct row_part {
    const struct parquet_column *column; /* the row's file's */
    const struct parquet_values *values;
    uint64_t first[PARQUET_ABOVE_MAX + 1]; /* at each depth of its lists, the first element, */
    uint64_t end[PARQUET_ABOVE_MAX + 1];   /* and what comes behind the last one */
};

/* ---- errors --------------------------------------------------------------------------------- */

static int parquet_refuse_value(const struct parquet_row *row, const char *name,
                                const struct dl_error *why)
{
    return dl_error_set(row->err, why->code, row->parquet->table.files.list.paths[row->group->file],
                        "row group %u, row %llu: its column %s %s", row->group->number,
                        (ull)row->row, name, why->message);
}

int parquet_refuse_null(const struct parquet_row *row, uint32_t column)
{
    struct dl_error why = {0};

    (void)!arrow_refuse_null(&why);
    return parquet_refuse_value(row, row->parquet->table.columns[column]->path, &why);
}

/* ---- where values are ----------------------------------------------------------------------- */

static int parquet_find_part(const struct parquet_row *row, uint32_t column, struct row_part *ret)
{
    struct parquet_table *table = &row->parquet->table;
    int r = parquet_table_part(table, row->group, column, row->row, &ret->values, row->err);

    if (r < 0)
        return r;
    ret->column = &table->file[row->group->file].columns[column];
    ret->first[0] = row->row - ret->values->first;
    ret->end[0] = ret->first[0] + 1;
    for (uint32_t depth = 0; depth < ret->values->n_lists; depth++) {
        const uint64_t *offsets = ret->values->lists[depth].offsets;
        ret->first[depth + 1] = offsets[ret->first[depth]];
        ret->end[depth + 1] = offsets[ret->end[depth]];
    }
    return 0;
}

/* A field as an Arrow column, whose values start at the row's first one. */
static struct arrow_column parquet_view_field(const struct row_part *part, uint32_t level)
{
    const struct parquet_column *c = part->column;
    const struct parquet_values *values = part->values;
    bool is_leaf = level == c->n_above;
    uint32_t depth = is_leaf ? c->max_rep : c->above[level].depth;
    uint64_t first = part->first[depth];
    const uint8_t *defs = depth < c->max_rep ? values->lists[depth].defs : values->defs;
    struct arrow_column ret = {.length = part->end[depth] - first,
                               .defs = defs ? defs + first : NULL,
                               .def = is_leaf ? c->max_def : c->above[level].def};

    if (is_leaf && values->fixed)
        ret.values = values->fixed + first * c->bytes;
    else if (is_leaf)
        ret.slices = values->slices + first;
    else if (c->above[level].is_list) {
        ret.values = (const uint8_t *)(values->lists[depth].offsets + first);
        ret.begin = part->first[depth + 1];
    }
    return ret;
}

/* Whether a column's lists match those of field `i`, set by another column. */
static bool parquet_lists_agree(const struct row_part *part, uint32_t depth,
                                const struct arrow_column *list)
{
    const uint64_t *own = part->values->lists[depth].offsets + part->first[depth];
    const uint64_t *others = (const uint64_t *)(const void *)list->values;
    bool agree = part->end[depth] - part->first[depth] == list->length;

    for (uint64_t i = 1; agree && i <= list->length; i++)
        agree = own[i] - own[0] == others[i] - others[0];
    return agree;
}

/* What the columns of structs in lists say of these lists must be the same. */
static int parquet_check_lists(const struct parquet_row *row, const struct row_part *part,
                               uint32_t i)
{
    const struct parquet *parquet = row->parquet;
    const struct parquet_node *nodes = parquet->fields.nodes, *node = &nodes[i];
    const struct parquet_column *c = part->column;
    static const struct dl_error why = {
        .code = EINVAL,
        .message = "does not have as many elements as the others of its list; the file is damaged"};

    for (uint32_t up = node->parent; up != ARROW_NONE; up = nodes[up].parent)
        if (nodes[up].column != node->column && c->above[nodes[up].level].is_list &&
            !parquet_lists_agree(part, c->above[nodes[up].level].depth, &parquet->columns[up]))
            return parquet_refuse_value(row, c->path, &why);
    return 0;
}

/* Where the row has field `i`, and all that is below it: in parquet->columns. */
static int parquet_find_fields(const struct parquet_row *row, uint32_t i)
{
    struct parquet *parquet = row->parquet;
    const struct parquet_fields *fields = &parquet->fields;
    const uint32_t end = i + fields->schema.fields[i].span;
    struct row_part part;
    int r = 0;

    for (uint32_t at = i; r == 0 && at < end; at++) {
        const struct parquet_node *node = &fields->nodes[at];
        if (at == i || node->column != node[-1].column)
            r = parquet_find_part(row, node->column, &part);
        if (r < 0)
            return r;
        parquet->columns[at] = parquet_view_field(&part, node->level);
        if (at == i || node->column != node[-1].column)
            r = parquet_check_lists(row, &part, at);
    }
    return r;
}

static int parquet_add_value(const struct parquet_row *row, const struct parquet_step *step,
                             struct sample *ret)
{
    const struct parquet *parquet = row->parquet;
    const struct arrow_reading reading = {.schema = &parquet->fields.schema,
                                          .columns = parquet->columns,
                                          .fill = parquet->table.nulls.fill,
                                          .null = parquet->table.nulls.value,
                                          .decoding = &row->decoding};
    struct dl_error why; /* large: not cleared for each value */
    int r = parquet_find_fields(row, step->number);

    if (r < 0)
        return r;
    why.code = 0;
    r = arrow_value_add(&reading, step->number, 0, step->name, ret, &why);
    return why.code ? parquet_refuse_value(row, reading.schema->fields[step->number].name, &why)
                    : r;
}

/* ---- lengths -------------------------------------------------------------------------------- */

bool parquet_field_is_list(const struct parquet_fields *fields, uint32_t i)
{
    return arrow_value_is_list(&fields->schema, i);
}

int parquet_row_length(const struct parquet_row *row, uint32_t i, uint32_t *ret)
{
    struct row_part part;
    int r = parquet_find_part(row, row->parquet->fields.nodes[i].column, &part);

    if (r < 0)
        return r;
    const struct arrow_column list = parquet_view_field(&part, row->parquet->fields.nodes[i].level);
    /* An error of the sample, reported when it is loaded. */
    *ret = !row->parquet->table.nulls.fill && arrow_column_is_null(&list, 0)
               ? LENGTH_UNKNOWN
               : (uint32_t)min_u64(part.end[1] - part.first[1], LENGTH_UNKNOWN);
    return 0;
}

/* ---- partitions ----------------------------------------------------------------------------- */

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
    return step->sort == STEP_KEY ? parquet_add_key(row, step, ret)
                                  : parquet_add_value(row, step, ret);
}
