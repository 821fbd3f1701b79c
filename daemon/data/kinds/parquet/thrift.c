#include "daemon/data/kinds/parquet/thrift.h"

enum { THRIFT_DEPTH_MAX = 24, VARINT_MAX = 10 };

static void thrift_fail(struct thrift *t)
{
    t->at = t->end;
    t->bad = true;
}

static uint8_t thrift_byte(struct thrift *t)
{
    if (t->at == t->end) {
        thrift_fail(t);
        return 0;
    }
    return *t->at++;
}

static uint64_t thrift_varint(struct thrift *t)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < VARINT_MAX; i++) {
        uint8_t byte = thrift_byte(t);
        n |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (!(byte & 0x80))
            return t->bad ? 0 : n;
    }
    thrift_fail(t);
    return 0;
}

static int64_t thrift_zigzag(struct thrift *t)
{
    uint64_t n = thrift_varint(t);

    return (int64_t)(n >> 1) ^ -(int64_t)(n & 1);
}

static void thrift_pass(struct thrift *t, uint64_t bytes)
{
    if (bytes > (uint64_t)(t->end - t->at))
        thrift_fail(t);
    else
        t->at += bytes;
}

bool thrift_next(struct thrift *t, struct thrift_field *ret)
{
    uint8_t head = thrift_byte(t);

    if (t->bad || (head & 0x0F) == 0)
        return false;
    int64_t id = head >> 4 ? t->last + (head >> 4) : thrift_zigzag(t);
    if (id < 0 || id > INT16_MAX || (head & 0x0F) > THRIFT_UUID)
        thrift_fail(t);
    if (t->bad)
        return false;
    t->last = (int16_t)id;
    *ret = (struct thrift_field){.id = (int16_t)id, .type = head & 0x0F};
    return true;
}

/* ---- skipping ------------------------------------------------------------------------------- */

static void thrift_skip_value(struct thrift *t, uint8_t type, unsigned depth);

static uint32_t thrift_list_head(struct thrift *t, uint8_t *ret_type)
{
    uint8_t head = thrift_byte(t);
    uint64_t n = head >> 4 == 15 ? thrift_varint(t) : head >> 4;

    *ret_type = head & 0x0F;
    if (n > (uint64_t)(t->end - t->at)) { /* each has a byte at least */
        thrift_fail(t);
        return 0;
    }
    return (uint32_t)min_u64(n, UINT32_MAX);
}

static void thrift_skip_list(struct thrift *t, unsigned depth)
{
    uint8_t type;
    uint32_t n = thrift_list_head(t, &type);

    for (uint32_t i = 0; i < n && !t->bad; i++) {
        if (type == THRIFT_TRUE || type == THRIFT_FALSE) /* which are a byte each here */
            thrift_pass(t, 1);
        else
            thrift_skip_value(t, type, depth);
    }
}

static void thrift_skip_map(struct thrift *t, unsigned depth)
{
    uint64_t n = thrift_varint(t);
    uint8_t types = n > 0 ? thrift_byte(t) : 0;

    if (n > (uint64_t)(t->end - t->at))
        thrift_fail(t);
    for (uint64_t i = 0; i < n && !t->bad; i++) {
        thrift_skip_value(t, types >> 4, depth);
        thrift_skip_value(t, types & 0x0F, depth);
    }
}

static void thrift_skip_struct(struct thrift *t, unsigned depth)
{
    int16_t saved = thrift_begin(t);
    struct thrift_field field;

    while (thrift_next(t, &field))
        thrift_skip_value(t, field.type, depth);
    t->last = saved;
}

static void thrift_skip_value(struct thrift *t, uint8_t type, unsigned depth)
{
    if (depth == 0) {
        thrift_fail(t);
        return;
    }
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        return;
    case THRIFT_BYTE:
        thrift_pass(t, 1);
        return;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        (void)thrift_varint(t);
        return;
    case THRIFT_DOUBLE:
        thrift_pass(t, 8);
        return;
    case THRIFT_BINARY:
        thrift_pass(t, thrift_varint(t));
        return;
    case THRIFT_LIST:
    case THRIFT_SET:
        thrift_skip_list(t, depth - 1);
        return;
    case THRIFT_MAP:
        thrift_skip_map(t, depth - 1);
        return;
    case THRIFT_STRUCT:
        thrift_skip_struct(t, depth - 1);
        return;
    case THRIFT_UUID:
        thrift_pass(t, 16);
        return;
    default:
        thrift_fail(t);
    }
}

void thrift_skip(struct thrift *t, const struct thrift_field *field)
{
    thrift_skip_value(t, field->type, THRIFT_DEPTH_MAX);
}

/* ---- reading -------------------------------------------------------------------------------- */

int64_t thrift_int(struct thrift *t, const struct thrift_field *field)
{
    if (field->type == THRIFT_BYTE)
        return (int8_t)thrift_byte(t);
    if (field->type == THRIFT_I16 || field->type == THRIFT_I32 || field->type == THRIFT_I64)
        return thrift_zigzag(t);
    thrift_skip(t, field);
    return 0;
}

bool thrift_bool(struct thrift *t, const struct thrift_field *field)
{
    thrift_skip(t, field); /* of the two types of it nothing follows */
    return field->type == THRIFT_TRUE;
}

struct thrift_text thrift_text(struct thrift *t, const struct thrift_field *field)
{
    struct thrift_text text = {0};

    if (field->type != THRIFT_BINARY) {
        thrift_skip(t, field);
        return text;
    }
    uint64_t bytes = thrift_varint(t);
    const uint8_t *data = t->at;
    if (bytes > INT32_MAX)
        thrift_fail(t);
    thrift_pass(t, bytes);
    return t->bad ? text : (struct thrift_text){.data = data, .bytes = (uint32_t)bytes};
}

uint32_t thrift_structs(struct thrift *t, const struct thrift_field *field, uint32_t least)
{
    const uint8_t *at = t->at;
    uint8_t type;

    if (field->type != THRIFT_LIST) {
        thrift_skip(t, field);
        return 0;
    }
    uint32_t n = thrift_list_head(t, &type);
    if (type != THRIFT_STRUCT) {
        if (!t->bad) {
            t->at = at;
            thrift_skip(t, field);
        }
        return 0;
    }
    if (n > (uint64_t)(t->end - t->at) / least) {
        thrift_fail(t);
        return 0;
    }
    return n;
}

int16_t thrift_begin(struct thrift *t)
{
    int16_t saved = t->last;

    t->last = 0;
    return saved;
}

void thrift_end(struct thrift *t, int16_t saved)
{
    t->last = saved;
}

static void thrift_read_field(struct thrift *t, const struct thrift_field *field,
                              const struct thrift_row *row, void *ret)
{
    uint8_t *to = (uint8_t *)ret + row->at;
    int64_t number;

    if (row->read) {
        row->read(t, field, ret);
        return;
    }
    switch (row->sort) {
    case THRIFT_TO_INT:
        number = thrift_int(t, field);
        memcpy(to, &number, row->bytes);
        return;
    case THRIFT_TO_BOOL:
        *(bool *)to = thrift_bool(t, field);
        return;
    case THRIFT_TO_TEXT:
        *(struct thrift_text *)(void *)to = thrift_text(t, field);
        return;
    case THRIFT_TO_ROWS:
        if (field->type != THRIFT_STRUCT)
            break;
        thrift_read(t, row->rows, row->n, ret);
        return;
    case THRIFT_PASSED:
        break;
    }
    thrift_skip(t, field);
}

/* Nested no deeper than the tables are. */
void thrift_read(struct thrift *t, const struct thrift_row *rows, uint32_t n, void *ret)
{
    static const struct thrift_row passed;
    struct thrift_field field;
    int16_t saved = thrift_begin(t);

    while (thrift_next(t, &field)) {
        bool known = field.id >= 0 && (uint32_t)field.id < n;
        thrift_read_field(t, &field, known ? &rows[field.id] : &passed, ret);
    }
    thrift_end(t, saved);
}
