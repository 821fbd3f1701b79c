/*
 * For tests of messages: every message of messages.def, by an expansion of its own of the table,
 * and payloads written by hand, in msgpack's widest forms, since the encoder would not write what
 * must be refused.
 */
#ifndef DL_TEST_CODEC_CASE_H
#define DL_TEST_CODEC_CASE_H

#include "proto/codec.h"
#include "proto/frame.h"
#include "tests/lib/harness.h"
#include <errno.h>
#include <stdio.h>

/* ---- the table once more ------------------------------------------------------------------- */

enum field_type { T_U64, T_STR, T_BIN, T_ANY, T_LATER };

struct field {
    const char *name;
    enum field_type type;
    uint64_t max;
    uint32_t unit;
    size_t at;
    uint32_t since; /* version */
};

struct row {
    const char *name;
    uint32_t number;
    uint32_t direction;
    int fds;
    uint32_t n_fields;
    struct field fields[24];
    uint32_t least; /* fields that must be there */
    uint32_t since; /* version */
};

static struct row rows[] = {
#define MESSAGE(NAME, name, number, direction, fds, meaning) \
    {                                                        \
#NAME, number, direction, fds, 0,                    \
        {
#define U64(name, field, max, meaning) \
    {#field, T_U64, max, 1, offsetof(struct dl_message, name.field), 0},
#define STR(name, field, max, meaning) \
    {#field, T_STR, max, 1, offsetof(struct dl_message, name.field), 0},
#define BIN(name, field, max, unit, meaning) \
    {#field, T_BIN, max, unit, offsetof(struct dl_message, name.field), 0},
#define ANY(name, field, meaning) {#field, T_ANY, 0, 1, offsetof(struct dl_message, name.field), 0},
#define LATER(name, version)      {"", T_LATER, version, 1, 0, 0},
#define END(name) \
    }             \
    }             \
    ,
#include "proto/messages.def"
};

/* Fields that a version has of the message. */
static _unused_ uint32_t fields_in(const struct row *row, uint32_t version)
{
    uint32_t n = 0;

    while (n < row->n_fields && row->fields[n].since <= version)
        n++;
    return n;
}

/* Takes LATER out of the fields, and notes what it says. */
static _unused_ void count_fields(void)
{
    for (struct row *row = rows; row < rows + ARRAY_SIZE(rows); row++) {
        uint32_t n = 0, since = DL_PROTOCOL_OLDEST;

        for (const struct field *field = row->fields; field->name; field++) {
            if (field->type == T_LATER) {
                since = (uint32_t)field->max;
                continue;
            }
            row->fields[n] = *field;
            row->fields[n++].since = since;
        }
        row->n_fields = n;
        row->since = n > 0 ? row->fields[0].since : (uint32_t)DL_PROTOCOL_OLDEST;
        row->least = fields_in(row, row->since);
    }
}

static _unused_ const struct row *row_of(uint32_t number)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].number == number)
            return &rows[i];
    return NULL;
}

/* ---- writing payloads by hand -------------------------------------------------------------- */

struct raw {
    uint8_t *data;
    size_t len;
    size_t cap;
};

static _unused_ void put(struct raw *raw, const void *data, size_t len)
{
    if (raw->len + len >= raw->cap) {
        raw->cap = 2 * (raw->len + len) + 64;
        raw->data = realloc(raw->data, raw->cap);
        assert_non_null(raw->data);
    }
    if (len > 0)
        memcpy(raw->data + raw->len, data, len);
    raw->len += len;
}

/* First byte and a big-endian number of `width` bytes: any head of msgpack. */
static _unused_ void put_head(struct raw *raw, uint8_t first, uint64_t n, int width)
{
    uint8_t bytes[9] = {first};

    for (int i = 0; i < width; i++)
        bytes[1 + i] = (uint8_t)(n >> (8 * (width - 1 - i)));
    put(raw, bytes, 1 + (size_t)width);
}

static _unused_ void put_fill(struct raw *raw, uint8_t first, size_t len, uint8_t fill)
{
    uint8_t *bytes = malloc(len + 1);

    assert_non_null(bytes);
    memset(bytes, fill, len + 1);
    put_head(raw, first, len, 4);
    put(raw, bytes, len);
    free(bytes);
}

enum {
    AS_NIL,
    AS_TRUE,
    AS_NEGATIVE,
    AS_NEGATIVE64,
    AS_FLOAT,
    AS_UINT,
    AS_STR,
    AS_BIN,
    AS_EXT,
    AS_ARRAY,
    AS_MAP,
    N_AS
};

/* A small value of each msgpack type. */
static _unused_ void put_as(struct raw *raw, int as)
{
    static const struct {
        uint8_t bytes[10];
        size_t len;
    } values[N_AS] = {
        [AS_NIL] = {{0xC0}, 1},          [AS_TRUE] = {{0xC3}, 1},
        [AS_NEGATIVE] = {{0xFF}, 1},     [AS_NEGATIVE64] = {{0xD3, 0x80}, 9},
        [AS_FLOAT] = {{0xCB, 0x3F}, 9},  [AS_UINT] = {{0x01}, 1},
        [AS_STR] = {{0xA1, 'x'}, 2},     [AS_BIN] = {{0xC4, 0x00}, 2},
        [AS_EXT] = {{0xD4, 1, 2}, 3},    [AS_ARRAY] = {{0x91, 0x01}, 2},
        [AS_MAP] = {{0x81, 0xA0, 1}, 3},
    };
    put(raw, values[as].bytes, values[as].len);
}

/* A valid field in the widest form of its type: `n` is its value or its length. */
static _unused_ void put_field(struct raw *raw, const struct field *field, uint64_t n)
{
    if (field->type == T_U64)
        put_head(raw, 0xCF, n, 8);
    else if (field->type == T_STR)
        put_fill(raw, 0xDB, n, 'x');
    else if (field->type == T_BIN)
        put_fill(raw, 0xC6, n, 0xAB);
    else
        put_as(raw, AS_MAP);
}

static _unused_ uint64_t small(const struct field *field)
{
    return field->type == T_U64 ? 1 : field->type == T_BIN ? field->unit : 3;
}

static _unused_ void put_start(struct raw *raw, const struct row *row)
{
    put_head(raw, 0xDD, row->n_fields + 1, 4);
    put_head(raw, 0xCF, row->number, 8);
}

/* The whole message with small valid fields, but for field `at`, which is left to the caller. */
static _unused_ struct raw open_payload(const struct row *row, uint32_t at)
{
    struct raw raw = {0};

    put_start(&raw, row);
    for (uint32_t i = 0; i < at; i++)
        put_field(&raw, &row->fields[i], small(&row->fields[i]));
    return raw;
}

static _unused_ void close_payload(struct raw *raw, const struct row *row, uint32_t at)
{
    for (uint32_t i = at; i < row->n_fields; i++)
        put_field(raw, &row->fields[i], small(&row->fields[i]));
}

/* The bytes in a block of exactly their size, so that ASan sees one byte too far. */
static _unused_ int decode_exact(const uint8_t *data, size_t len, uint32_t directions,
                                 struct dl_message *ret, struct dl_error *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    int r;

    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, data, len);
    r = message_decode(copy, len, directions, ret, err);
    free(copy);
    return r;
}

/* Refused with `code`, at `place` if given, and the result untouched. Frees the payload. */
static _unused_ void assert_refused(struct raw *raw, uint32_t directions, int code,
                                    const char *place)
{
    struct dl_message msg, before;
    struct dl_error err = {0};

    memset(&msg, 0xA5, sizeof msg);
    memset(&before, 0xA5, sizeof before);
    assert_int_equal(decode_exact(raw->data, raw->len, directions, &msg, &err), -code);
    assert_memory_equal(&msg, &before, sizeof msg);
    assert_int_equal(err.code, code);
    assert_true(err.message[0] != '\0');
    if (place)
        assert_string_equal(err.path, place);
    free(raw->data);
    *raw = (struct raw){0};
}

static _unused_ const char *place_of(const struct row *row, const struct field *field)
{
    static char place[128];
    snprintf(place, sizeof place, "%s.%s", row->name, field->name);
    return place;
}

#define EACH_ROW(row) for (const struct row *row = rows; row < rows + ARRAY_SIZE(rows); row++)

/* Puts the value number `turn` into each field: 0 = least, 1 = greatest, 2.. = msgpack's steps. */
static _unused_ void fill(const struct row *row, int turn, const uint8_t *bytes,
                          struct dl_message *ret)
{
    static const uint64_t steps[] = {127, 128, 255, 256, 65535, 65536, UINT32_MAX, 1ULL << 32};
    static const uint8_t any[][4] = {{0xC0}, {0x81, 0xA1, 'k', 0x90}};

    *ret = (struct dl_message){.number = (enum message_number)row->number};
    for (uint32_t i = 0; i < row->n_fields; i++) {
        const struct field *field = &row->fields[i];
        uint64_t n = turn == 0 ? 0 : turn == 1 ? field->max : steps[turn - 2];
        void *at = (char *)ret + field->at;

        n = min_u64(n, field->max);
        if (field->type == T_U64) {
            memcpy(at, &n, sizeof n);
        } else {
            struct dl_span span = {n ? bytes : NULL, n - n % field->unit};
            if (field->type == T_ANY)
                span = (struct dl_span){any[turn % 2], turn % 2 ? 4 : 1};
            memcpy(at, &span, sizeof span);
        }
    }
}

/* The buffer is as it was after each refusal. */
static _unused_ void assert_encode_refused(const struct dl_message *msg, int code)
{
    struct dl_buffer out = {0};

    assert_int_equal(buffer_append(&out, "kept", 4), 0);
    assert_int_equal(message_encode(msg, &out), -code);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, "kept", 4);
    buffer_deinit(&out);
}

#endif
