#include "daemon/data/kinds/arrow/arrow_column.h"

#include "proto/common/load.h"
#include "proto/dtype.h"

#include <errno.h>

enum {
    DICTIONARY_ID = 0,
    DICTIONARY_IS_DELTA = 2,
    NODE = 16, /* bytes: length, nulls */
    VIEW = 16,
};

/* A position in a batch's nodes and buffers, which are those of its fields in preorder. */
struct arrow_column_walk {
    const struct arrow_view *view;
    const struct arrow_message *message;
    const uint8_t *body; /* where buffers are, as it lies or unpacked */
    uint64_t body_bytes;
    struct flat_vector nodes, buffers, variadic;
    uint32_t node, buffer, more;
    bool passing; /* inside a field that was not unpacked */
    bool bad;
    struct dl_error *err;
};

static int arrow_column_refuse(const struct arrow_column_walk *walk, const char *why)
{
    return arrow_batch_refuse(walk->view, walk->message, why, walk->err);
}

/* The next buffer, which has at least `least` bytes. */
static const uint8_t *arrow_column_buffer(struct arrow_column_walk *walk, uint64_t least,
                                          uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    if (walk->buffer >= walk->buffers.n) {
        walk->bad = true;
        return NULL;
    }
    const uint8_t *item = walk->buffers.items + (uint64_t)RECORDS_BUFFER_BYTES * walk->buffer++;
    uint64_t offset = load_le64(item), bytes = load_le64(item + 8);
    if (offset > walk->body_bytes || bytes > walk->body_bytes - offset ||
        (bytes < least && !walk->passing)) {
        walk->bad = true;
        return NULL;
    }
    *ret_bytes = bytes;
    return walk->body + offset;
}

/* Bytes that `n` values need at least; UINT64_MAX: too many. */
static uint64_t arrow_column_needs(const struct arrow_field *field, uint64_t n)
{
    uint64_t bytes = 0, offset = field->is_large ? 8 : 4;

    switch (field->sort) {
    case ARROW_NUMBER:
    case ARROW_DECIMAL:
    case ARROW_FIXED_BYTES:
        return mul_overflows(n, field->width, &bytes) ? UINT64_MAX : bytes;
    case ARROW_BOOL:
        return n / 8 + (n % 8 > 0);
    case ARROW_STRING:
    case ARROW_BYTES:
        if (field->is_view)
            return mul_overflows(n, VIEW, &bytes) ? UINT64_MAX : bytes;
        /* fallthrough */
    case ARROW_LIST: /* without values the offsets may be missing */
        if (n == 0 || n > UINT64_MAX / 16)
            return n == 0 ? 0 : UINT64_MAX;
        return field->has_sizes ? n * offset : (n + 1) * offset;
    case ARROW_OTHER:
    case ARROW_NULL:
    case ARROW_FIXED_LIST:
    case ARROW_STRUCT:
        break;
    }
    return 0;
}

/* The buffers of views: their numbers are in the batch, and they are looked up when they are used.
 */
static void arrow_column_take_views(struct arrow_column_walk *walk, struct arrow_column *column)
{
    if (walk->more >= walk->variadic.n) {
        walk->bad = true;
        return;
    }
    uint64_t n = load_le64(walk->variadic.items + 8 * (uint64_t)walk->more++);
    if (n > walk->buffers.n - walk->buffer) {
        walk->bad = true;
        return;
    }
    column->buffers = walk->buffers.items + (uint64_t)RECORDS_BUFFER_BYTES * walk->buffer;
    column->n_buffers = n;
    column->text = walk->body;
    column->text_bytes = walk->body_bytes;
    walk->buffer += (uint32_t)n;
}

/* The node and the buffers of one field. */
static void arrow_column_take(struct arrow_column_walk *walk, const struct arrow_field *field,
                              bool as_indices, struct arrow_column *ret)
{
    struct arrow_column column = {0};
    uint64_t bytes, width = dtype_bytes(field->index_type), needs;

    if (walk->node >= walk->nodes.n) {
        walk->bad = true;
        return;
    }
    const uint8_t *node = walk->nodes.items + (uint64_t)NODE * walk->node++;
    column.length = load_le64(node);
    uint64_t nulls = load_le64(node + 8);
    walk->bad |= column.length > INT64_MAX || nulls > column.length;
    uint32_t n_buffers = as_indices ? 2 : field->n_buffers;
    if (as_indices)
        needs = mul_overflows(column.length, width, &needs) ? UINT64_MAX : needs;
    else
        needs = arrow_column_needs(field, column.length);
    /* Skipped fields may be of an unknown type. */
    bool known = as_indices || field->sort != ARROW_OTHER;
    uint64_t bits = known && nulls > 0 ? column.length / 8 + (column.length % 8 > 0) : 0;
    if (n_buffers > 0)
        column.validity = arrow_column_buffer(walk, bits, &bytes);
    if (nulls == 0)
        column.validity = NULL;
    if (n_buffers > 1)
        column.values = arrow_column_buffer(walk, needs, &bytes);
    if (n_buffers > 2)
        column.text = arrow_column_buffer(walk, field->has_sizes ? needs : 0, &column.text_bytes);
    if (field->is_view && !as_indices)
        arrow_column_take_views(walk, &column);
    *ret = column;
}

/* Children have as many values as their parents say. */
static bool arrow_column_fits(const struct arrow_schema *schema, uint32_t i,
                              const struct arrow_column *columns)
{
    const struct arrow_field *field = &schema->fields[i], *child = field + 1;
    uint64_t needs = columns[field->slot].length;

    if (field->has_dictionary || (field->sort != ARROW_STRUCT && field->sort != ARROW_FIXED_LIST))
        return true;
    if (field->sort == ARROW_FIXED_LIST && mul_overflows(needs, field->width, &needs))
        return false;
    for (uint32_t c = 0; c < field->n_children; c++, child += child->span)
        if (columns[child->slot].length < needs)
            return false;
    return true;
}

static int arrow_column_begin(struct arrow_column_walk *walk, struct arrow_message *message,
                              const struct arrow_body *body)
{
    struct flat *flat = &message->flat;
    struct flat_table records = arrow_body_records(message);

    walk->nodes = flat_vector(flat, &records, RECORDS_NODES, NODE);
    walk->buffers = flat_vector(flat, &records, RECORDS_BUFFERS, RECORDS_BUFFER_BYTES);
    walk->variadic = flat_vector(flat, &records, RECORDS_VARIADIC, 8);
    walk->body = body ? body->from : message->body;
    walk->body_bytes = body ? body->bytes : message->body_bytes;
    if (body) {
        walk->buffers.items = body->data;
        walk->buffers.n = body->n;
    }
    return flat->bad ? arrow_column_refuse(walk, "has no metadata that can be read") : 0;
}

static int arrow_column_end(const struct arrow_column_walk *walk)
{
    if (walk->bad || walk->node != walk->nodes.n || walk->buffer != walk->buffers.n)
        return arrow_column_refuse(walk, "does not have the buffers of its schema's columns");
    return 0;
}

static int arrow_column_check(const struct arrow_column_walk *walk,
                              const struct arrow_schema *schema, uint64_t rows,
                              const struct arrow_column *columns)
{
    for (uint32_t i = 0; i < schema->n; i += schema->fields[i].span) {
        uint32_t slot = schema->fields[i].slot;
        if (slot != ARROW_NONE && columns[slot].length != rows)
            return arrow_column_refuse(walk, "has columns of unequal lengths");
    }
    for (uint32_t i = 0; i < schema->n; i++)
        if (schema->fields[i].slot != ARROW_NONE && !arrow_column_fits(schema, i, columns))
            return arrow_column_refuse(walk,
                                       "has a column whose parts are shorter than the column");
    return 0;
}

int64_t arrow_columns_rows(struct arrow_message *message)
{
    return flat_int(&message->flat, &message->header, RECORDS_LENGTH, 8, 0);
}

int arrow_columns_find(const struct arrow_view *view, struct arrow_message *message,
                       const struct arrow_body *body, const struct arrow_schema *schema,
                       const struct arrow_dictionaries *dictionaries, struct arrow_column *ret,
                       uint64_t *ret_rows, struct dl_error *err)
{
    struct arrow_column_walk walk = {.view = view, .message = message, .err = err};
    int64_t rows = arrow_columns_rows(message);
    int r = arrow_column_begin(&walk, message, body);

    if (r < 0)
        return r;
    for (uint32_t i = 0, next; i < schema->n; i = next) {
        const struct arrow_field *field = &schema->fields[i];
        struct arrow_column column = {0};
        next = field->has_dictionary ? i + field->span : i + 1;
        walk.passing = body && field->slot == ARROW_NONE;
        arrow_column_take(&walk, field, field->has_dictionary, &column);
        if (field->slot == ARROW_NONE)
            continue;
        if (field->has_dictionary)
            column.dictionary = dictionaries->of_field[i];
        if (field->has_dictionary && !column.dictionary)
            return arrow_column_refuse(&walk, "comes before the dictionary of its column");
        ret[field->slot] = column;
    }
    r = arrow_column_end(&walk);
    if (r == 0 && rows < 0)
        r = arrow_column_refuse(&walk, "has a negative number of rows");
    if (r == 0)
        r = arrow_column_check(&walk, schema, (uint64_t)rows, ret);
    *ret_rows = (uint64_t)rows;
    return r;
}

int64_t arrow_columns_dictionary(struct arrow_message *message)
{
    return flat_int(&message->flat, &message->header, DICTIONARY_ID, 8, 0);
}

int arrow_columns_find_values(const struct arrow_view *view, struct arrow_message *message,
                              const struct arrow_body *body, const struct arrow_field *field,
                              struct arrow_column *ret, struct dl_error *err)
{
    struct arrow_column_walk walk = {.view = view, .message = message, .err = err};

    if (flat_int(&message->flat, &message->header, DICTIONARY_IS_DELTA, 1, 0) != 0)
        return dl_error_set(err, ENOTSUP, view->path,
                            "its dictionary at byte %llu adds to an earlier one; write the file "
                            "with whole dictionaries, or with plain columns",
                            (ull)message->at);
    int r = arrow_column_begin(&walk, message, body);
    if (r < 0)
        return r;
    arrow_column_take(&walk, field, false, ret);
    return arrow_column_end(&walk);
}
