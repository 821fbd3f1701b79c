/*
 * Every message of messages.def, by its own expansion of the table: round trips at the boundaries,
 * and each way a payload can be wrong. What must be refused is written by hand here, in msgpack's
 * widest forms, since the encoder would not write it.
 */
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include "proto/codec.h"
#include "proto/frame.h"
#include <errno.h>
#include <stdio.h>

/* ---- the table once more ------------------------------------------------------------------- */

enum field_type { T_U64, T_STR, T_BIN, T_ANY };

struct field {
    const char *name;
    enum field_type type;
    uint64_t max;
    uint32_t unit;
    size_t at;
};

struct row {
    const char *name;
    uint32_t number;
    uint32_t direction;
    int fds;
    uint32_t n_fields;
    struct field fields[24];
};

static struct row rows[] = {
#define MESSAGE(NAME, name, number, direction, fds, meaning) \
    {                                                        \
#NAME, number, direction, fds, 0,                    \
        {
#define U64(name, field, max, meaning) \
    {#field, T_U64, max, 1, offsetof(struct dl_message, name.field)},
#define STR(name, field, max, meaning) \
    {#field, T_STR, max, 1, offsetof(struct dl_message, name.field)},
#define BIN(name, field, max, unit, meaning) \
    {#field, T_BIN, max, unit, offsetof(struct dl_message, name.field)},
#define ANY(name, field, meaning) {#field, T_ANY, 0, 1, offsetof(struct dl_message, name.field)},
#define END(name) \
    }             \
    }             \
    ,
#include "proto/messages.def"
#undef MESSAGE
#undef U64
#undef STR
#undef BIN
#undef ANY
#undef END
};

static void count_fields(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        rows[i].n_fields = 0;
        while (rows[i].fields[rows[i].n_fields].name)
            rows[i].n_fields++;
    }
}

static const struct row *row_of(uint32_t number)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].number == number)
            return &rows[i];
    return NULL;
}

/* ---- allocation that fails when told -------------------------------------------------------- */

/* ---- writing payloads by hand -------------------------------------------------------------- */

struct raw {
    uint8_t *data;
    size_t len;
    size_t cap;
};

static void put(struct raw *raw, const void *data, size_t len)
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
static void put_head(struct raw *raw, uint8_t first, uint64_t n, int width)
{
    uint8_t bytes[9] = {first};

    for (int i = 0; i < width; i++)
        bytes[1 + i] = (uint8_t)(n >> (8 * (width - 1 - i)));
    put(raw, bytes, 1 + (size_t)width);
}

static void put_fill(struct raw *raw, uint8_t first, size_t len, uint8_t fill)
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
static void put_as(struct raw *raw, int as)
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
static void put_field(struct raw *raw, const struct field *field, uint64_t n)
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

static uint64_t small(const struct field *field)
{
    return field->type == T_U64 ? 1 : field->type == T_BIN ? field->unit : 3;
}

static void put_start(struct raw *raw, const struct row *row)
{
    put_head(raw, 0xDD, row->n_fields + 1, 4);
    put_head(raw, 0xCF, row->number, 8);
}

/* The whole message with small valid fields, but for field `at`, which is left to the caller. */
static struct raw open_payload(const struct row *row, uint32_t at)
{
    struct raw raw = {0};

    put_start(&raw, row);
    for (uint32_t i = 0; i < at; i++)
        put_field(&raw, &row->fields[i], small(&row->fields[i]));
    return raw;
}

static void close_payload(struct raw *raw, const struct row *row, uint32_t at)
{
    for (uint32_t i = at; i < row->n_fields; i++)
        put_field(raw, &row->fields[i], small(&row->fields[i]));
}

/* The bytes in a block of exactly their size, so that ASan sees one byte too far. */
static int decode_exact(const uint8_t *data, size_t len, uint32_t directions,
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
static void assert_refused(struct raw *raw, uint32_t directions, int code, const char *place)
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

static const char *place_of(const struct row *row, const struct field *field)
{
    static char place[128];
    snprintf(place, sizeof place, "%s.%s", row->name, field->name);
    return place;
}

#define EACH_ROW(row) for (const struct row *row = rows; row < rows + ARRAY_SIZE(rows); row++)

/* ---- tests --------------------------------------------------------------------------------- */

static void test_names(void **state)
{
    EACH_ROW(row)
    {
        assert_string_equal(message_name(row->number), row->name);
        assert_int_equal(message_fds(row->number), row->fds);
        assert_int_equal(message_direction(row->number), row->direction);
        assert_true((uint64_t)row->fds <= DL_MAX_FRAME_FDS);
    }
    for (uint32_t number = 0; number < 300; number++)
        if (!row_of(number)) {
            assert_null(message_name(number));
            assert_int_equal(message_fds(number), -1);
            assert_int_equal(message_direction(number), 0);
        }
    assert_null(message_name(UINT32_MAX));
}

/* The wire is other people's contract: these bytes must never change. */
static void test_golden(void **state)
{
    static const uint8_t hello[] = {5, 0, 0, 0, 0x93, 0x01, 0x01, 0xA1, 'a'};
    static const uint8_t release[] = {15, 0, 0, 0, 0x94, 0x04, 0xCC, 200, 0xC4, 8,
                                      7,  0, 0, 0, 0,    0,    0,    0,   0};
    static const uint64_t step = 7;
    struct dl_message msg = {.number = DL_MSG_HELLO};
    struct dl_buffer out = {0};

    msg.hello.version = 1;
    msg.hello.agent = span_str("a");
    assert_int_equal(message_encode(&msg, &out), 0);
    assert_int_equal(out.len, sizeof hello);
    assert_memory_equal(out.data, hello, sizeof hello);

    /* A second message goes behind the first. */
    msg = (struct dl_message){.number = DL_MSG_RELEASE};
    msg.release.stream = 200;
    msg.release.steps = (struct dl_span){(const uint8_t *)&step, sizeof step};
    assert_int_equal(message_encode(&msg, &out), 0);
    assert_int_equal(out.len, sizeof hello + sizeof release);
    assert_memory_equal(out.data + sizeof hello, release, sizeof release);
    buffer_deinit(&out);
}

/* Puts the value number `turn` into each field: 0 = least, 1 = greatest, 2.. = msgpack's steps. */
static void fill(const struct row *row, int turn, const uint8_t *bytes, struct dl_message *ret)
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

static void assert_same(const struct row *row, const struct dl_message *a,
                        const struct dl_message *b)
{
    assert_int_equal(a->number, b->number);
    for (uint32_t i = 0; i < row->n_fields; i++) {
        const char *at_a = (const char *)a + row->fields[i].at;
        const char *at_b = (const char *)b + row->fields[i].at;

        if (row->fields[i].type == T_U64) {
            assert_memory_equal(at_a, at_b, sizeof(uint64_t));
        } else {
            struct dl_span span_a, span_b;
            memcpy(&span_a, at_a, sizeof span_a);
            memcpy(&span_b, at_b, sizeof span_b);
            assert_int_equal(span_a.len, span_b.len);
            if (span_a.len > 0)
                assert_memory_equal(span_a.data, span_b.data, span_a.len);
        }
    }
}

static void test_round_trip(void **state)
{
    uint8_t *bytes = malloc(DL_MAX_FRAME_BYTES);
    struct dl_buffer out = {0};

    assert_non_null(bytes);
    memset(bytes, 'z', DL_MAX_FRAME_BYTES);
    EACH_ROW(row)
    {
        for (int turn = 0; turn < 10; turn++) {
            struct dl_message msg, back;
            struct dl_error err = {0};

            fill(row, turn, bytes, &msg);
            out.len = 0;
            assert_int_equal(message_encode(&msg, &out), 0);
            assert_int_equal(out.data[0] | out.data[1] << 8 | out.data[2] << 16 | out.data[3] << 24,
                             out.len - FRAME_HEADER_BYTES);
            memset(&back, 0xA5, sizeof back);
            assert_int_equal(message_decode(out.data + FRAME_HEADER_BYTES,
                                            out.len - FRAME_HEADER_BYTES, row->direction, &back,
                                            &err),
                             0);
            assert_same(row, &msg, &back);
        }
    }
    buffer_deinit(&out);
    free(bytes);
}

static void test_wide_forms(void **state)
{
    EACH_ROW(row)
    {
        struct raw raw = open_payload(row, 0);
        struct dl_message msg;
        struct dl_error err;

        close_payload(&raw, row, 0);
        assert_int_equal(decode_exact(raw.data, raw.len, row->direction, &msg, &err), 0);
        assert_int_equal(msg.number, row->number);
        free(raw.data);
    }
}

/* Some languages pack a positive number as signed. */
static void test_signed_numbers(void **state)
{
    static const struct {
        uint8_t first;
        int width;
        uint64_t bits;
        uint64_t value; /* UINT64_MAX: refused */
    } cases[] = {
        {0xD0, 1, 0x7F, 0x7F},
        {0xD1, 2, 0x7FFF, 0x7FFF},
        {0xD2, 4, 0x7FFFFFFF, 0x7FFFFFFF},
        {0xD3, 8, INT64_MAX, INT64_MAX},
        {0xD0, 1, 0x80, UINT64_MAX},
        {0xD1, 2, 0x8000, UINT64_MAX},
        {0xD2, 4, 0x80000000, UINT64_MAX},
        {0xD3, 8, 1ULL << 63, UINT64_MAX},
    };
    const struct row *row = row_of(DL_MSG_QUERY);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct raw raw = open_payload(row, 0);
        struct dl_message msg;

        put_head(&raw, cases[i].first, cases[i].bits, cases[i].width);
        close_payload(&raw, row, 1);
        if (cases[i].value == UINT64_MAX) {
            assert_refused(&raw, FROM_CLIENT, EBADMSG, "QUERY.request");
            continue;
        }
        assert_int_equal(decode_exact(raw.data, raw.len, FROM_CLIENT, &msg, NULL), 0);
        assert_true(msg.query.request == cases[i].value);
        free(raw.data);
    }
}

static void test_unknown_number(void **state)
{
    for (uint64_t i = 0; i < 300; i++) {
        if (row_of((uint32_t)i))
            continue;
        struct raw raw = {0};
        put_head(&raw, 0xDC, 2, 2);
        put_head(&raw, 0xCF, i, 8);
        put_as(&raw, AS_UINT);
        assert_refused(&raw, UINT32_MAX, EBADMSG, "message");
    }
    /* Not cut to 32 bits: 2^32 + HELLO is not HELLO. */
    struct raw raw = {0};
    put_head(&raw, 0xDC, 3, 2);
    put_head(&raw, 0xCF, (1ULL << 32) + DL_MSG_HELLO, 8);
    put_as(&raw, AS_UINT);
    put_as(&raw, AS_STR);
    assert_refused(&raw, UINT32_MAX, EBADMSG, "message");
}

static void test_not_a_message(void **state)
{
    struct raw raw = {0};

    for (int as = 0; as < N_AS; as++) {
        if (as != AS_ARRAY) {
            put_as(&raw, as);
            assert_refused(&raw, UINT32_MAX, EBADMSG, "message");
        }
        if (as != AS_UINT) { /* an array, but no number in front */
            put_head(&raw, 0xDC, 1, 2);
            put_as(&raw, as);
            assert_refused(&raw, UINT32_MAX, EBADMSG, "message");
        }
    }
    put(&raw, "", 0);
    assert_refused(&raw, UINT32_MAX, EBADMSG, "message");
    put(&raw, "\x90", 1);
    assert_refused(&raw, UINT32_MAX, EBADMSG, "message");
    put(&raw, "\x91\xC1", 2);
    assert_refused(&raw, UINT32_MAX, EBADMSG, "message");
    put_fill(&raw, 0xC6, DL_MAX_FRAME_BYTES, 0);
    assert_refused(&raw, UINT32_MAX, EMSGSIZE, "message");
}

static void test_direction(void **state)
{
    EACH_ROW(row)
    {
        for (uint32_t from = 1; from <= 8; from <<= 1) {
            struct raw raw = open_payload(row, 0);
            close_payload(&raw, row, 0);
            if (from != row->direction)
                assert_refused(&raw, from, EBADMSG, row->name);
            free(raw.data);
        }
    }
}

static void test_field_count(void **state)
{
    EACH_ROW(row)
    {
        for (uint32_t n = 0; n <= row->n_fields + 1; n++) {
            struct raw raw = {0};

            if (n == row->n_fields)
                continue;
            put_head(&raw, 0xDD, n + 1, 4);
            put_head(&raw, 0xCF, row->number, 8);
            for (uint32_t i = 0; i < n; i++)
                if (i < row->n_fields)
                    put_field(&raw, &row->fields[i], small(&row->fields[i]));
                else
                    put_as(&raw, AS_NIL);
            assert_refused(&raw, row->direction, EBADMSG, row->name);
        }
    }
}

static void test_wrong_type(void **state)
{
    static const int right[] = {[T_U64] = AS_UINT, [T_STR] = AS_STR, [T_BIN] = AS_BIN};

    EACH_ROW(row)
    {
        for (uint32_t i = 0; i < row->n_fields; i++) {
            const struct field *field = &row->fields[i];

            for (int as = 0; field->type != T_ANY && as < N_AS; as++) {
                if (as == right[field->type])
                    continue;
                struct raw raw = open_payload(row, i);
                put_as(&raw, as);
                close_payload(&raw, row, i + 1);
                assert_refused(&raw, row->direction, EBADMSG, place_of(row, field));
            }
        }
    }
}

static void test_over_max(void **state)
{
    EACH_ROW(row)
    {
        for (uint32_t i = 0; i < row->n_fields; i++) {
            const struct field *field = &row->fields[i];

            if (field->type == T_ANY || field->max == UINT64_MAX)
                continue;
            struct raw raw = open_payload(row, i);
            put_field(&raw, field, field->max + field->unit);
            close_payload(&raw, row, i + 1);
            assert_refused(&raw, row->direction, EMSGSIZE, place_of(row, field));
        }
    }
}

static void test_not_a_multiple(void **state)
{
    EACH_ROW(row)
    {
        for (uint32_t i = 0; i < row->n_fields; i++) {
            const struct field *field = &row->fields[i];

            for (uint32_t n = 1; field->type == T_BIN && n < field->unit; n++) {
                struct raw raw = open_payload(row, i);
                put_field(&raw, field, field->unit + n);
                close_payload(&raw, row, i + 1);
                assert_refused(&raw, row->direction, EBADMSG, place_of(row, field));
            }
        }
    }
}

static const char *const bad_texts[] = {
    "\x80",             /* a continuation alone */
    "a\xC3",            /* cut off */
    "\xC0\xAF",         /* overlong */
    "\xE0\x80\xAF",     /* overlong */
    "\xF0\x80\x80\xAF", /* overlong */
    "\xED\xA0\x80",     /* a surrogate */
    "\xF4\x90\x80\x80", /* above U+10FFFF */
    "\xF5\x80\x80\x80", /* no such first byte */
    "\xE2\x82",         /* cut off */
    "\xE2\x28\xA1",     /* a second byte that is none */
    "\xF0\x9F\x98",     /* cut off */
    "\xF0\x9F\x98\x28", /* a fourth byte that is none */
};

static void test_text(void **state)
{
    static const char good[] = "\xC3\xA9\xE2\x82\xAC\xED\x9F\xBF\xEE\x80\x80\xF0\x9F\x98\x80"
                               "\xF4\x8F\xBF\xBF\x7F";
    const struct row *row = row_of(DL_MSG_HELLO);

    for (size_t i = 0; i <= ARRAY_SIZE(bad_texts); i++) {
        const char *text = i < ARRAY_SIZE(bad_texts) ? bad_texts[i] : "a\0b";
        size_t len = i < ARRAY_SIZE(bad_texts) ? strlen(text) : 3;
        struct dl_message msg = {.number = DL_MSG_HELLO};
        struct dl_buffer out = {0};
        struct raw raw = open_payload(row, 1);

        put_head(&raw, 0xD9, len, 1);
        put(&raw, text, len);
        assert_refused(&raw, FROM_CLIENT, EBADMSG, "HELLO.agent");
        msg.hello.agent = (struct dl_span){(const uint8_t *)text, len};
        assert_int_equal(message_encode(&msg, &out), -EBADMSG);
        buffer_deinit(&out);
    }
    struct raw raw = open_payload(row, 1);
    struct dl_message msg;
    put_head(&raw, 0xD9, strlen(good), 1);
    put(&raw, good, strlen(good));
    assert_int_equal(message_decode(raw.data, raw.len, FROM_CLIENT, &msg, NULL), 0);
    assert_int_equal(msg.hello.agent.len, strlen(good));
    assert_memory_equal(msg.hello.agent.data, good, strlen(good));
    free(raw.data);
}

static void test_truncated_and_trailing(void **state)
{
    EACH_ROW(row)
    {
        struct raw whole = open_payload(row, 0);
        close_payload(&whole, row, 0);

        for (size_t len = 0; len < whole.len; len++) {
            struct raw part = {0};
            put(&part, whole.data, len);
            assert_refused(&part, row->direction, EBADMSG, "message");
        }
        put_as(&whole, AS_NIL);
        assert_refused(&whole, row->direction, EBADMSG, "message");
    }
}

/* `depth` arrays around a nil. */
static struct raw nest(size_t depth)
{
    struct raw raw = {0};

    for (size_t i = 0; i < depth; i++)
        put(&raw, "\x91", 1);
    put_as(&raw, AS_NIL);
    return raw;
}

/* The buffer is as it was after each refusal. */
static void assert_encode_refused(const struct dl_message *msg, int code)
{
    struct dl_buffer out = {0};

    assert_int_equal(buffer_append(&out, "kept", 4), 0);
    assert_int_equal(message_encode(msg, &out), -code);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, "kept", 4);
    buffer_deinit(&out);
}

static void test_encode_refuses(void **state)
{
    uint8_t *bytes = malloc(DL_MAX_FRAME_BYTES + 64);
    struct dl_message msg;

    assert_non_null(bytes);
    memset(bytes, 'z', DL_MAX_FRAME_BYTES + 64);
    EACH_ROW(row)
    {
        for (uint32_t i = 0; i < row->n_fields; i++) {
            const struct field *field = &row->fields[i];
            uint64_t n = field->max + field->unit;
            struct dl_span span = {bytes, n};

            if (field->type == T_ANY || field->max == UINT64_MAX)
                continue;
            fill(row, 0, bytes, &msg);
            if (field->type == T_U64)
                memcpy((char *)&msg + field->at, &n, sizeof n);
            else
                memcpy((char *)&msg + field->at, &span, sizeof span);
            assert_encode_refused(&msg, EMSGSIZE);
            if (field->type == T_BIN && field->unit > 1) {
                span.len = field->unit + 1;
                memcpy((char *)&msg + field->at, &span, sizeof span);
                assert_encode_refused(&msg, EBADMSG);
            }
        }
    }
    for (uint32_t number = 0; number < 200; number++)
        if (!row_of(number)) {
            msg = (struct dl_message){.number = (enum message_number)number};
            assert_encode_refused(&msg, EBADMSG);
        }
    free(bytes);
}

static void test_encode_any(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {{"", 0}, {"\xC1", 1}, {"\xC0\xC0", 2}, {"\x92\x01", 2}, {"\xA5xx", 3}};
    struct dl_message msg = {.number = DL_MSG_INFO};
    struct dl_buffer out = {0};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        msg.info.value = (struct dl_span){(const uint8_t *)bad[i].bytes, bad[i].len};
        assert_encode_refused(&msg, EBADMSG);
    }
    /* Two fields must not lend each other values. */
    msg = (struct dl_message){.number = DL_MSG_W_OPEN};
    msg.w_open.spec = (struct dl_span){(const uint8_t *)"\xC0\xC0", 2};
    assert_encode_refused(&msg, EBADMSG);

    msg = (struct dl_message){.number = DL_MSG_INFO};
    for (size_t depth = DL_MAX_VALUE_DEPTH - 1; depth <= DL_MAX_VALUE_DEPTH; depth++) {
        struct raw raw = nest(depth);
        msg.info.value = (struct dl_span){raw.data, raw.len};
        if (depth < DL_MAX_VALUE_DEPTH)
            assert_int_equal(message_encode(&msg, &out), 0);
        else
            assert_encode_refused(&msg, EMSGSIZE);
        free(raw.data);
    }
    /* The largest frame: [41, request, value, next] needs 4 bytes before the value's own head, of
     * 5 bytes, and one behind it. */
    for (size_t more = 0; more < 2; more++) {
        struct raw raw = {0};
        put_fill(&raw, 0xC6, DL_MAX_FRAME_BYTES - 4 - 5 - 1 + more, 1);
        msg.info.request = 200;
        msg.info.value = (struct dl_span){raw.data, raw.len};
        raw.len = 0;
        out.len = 0;
        if (more == 0) {
            assert_int_equal(message_encode(&msg, &out), 0);
            assert_int_equal(out.len, FRAME_HEADER_BYTES + DL_MAX_FRAME_BYTES);
            assert_int_equal(message_decode(out.data + 4, out.len - 4, FROM_DAEMON, &msg, NULL), 0);
        } else {
            assert_encode_refused(&msg, EMSGSIZE);
        }
        free(raw.data);
    }
    buffer_deinit(&out);
}

static void test_out_of_memory(void **state)
{
    struct dl_message msg = {.number = DL_MSG_CLOSE};
    struct dl_buffer out = {0};

    fail_in = 0;
    assert_int_equal(message_encode(&msg, &out), -ENOMEM);
    assert_null(out.data);
    assert_int_equal(out.len, 0);
    fail_in = 0;
    assert_int_equal(buffer_append(&out, "x", 1), -ENOMEM);
    assert_int_equal(buffer_append(&out, "x", SIZE_MAX - 1), -ENOMEM);
    assert_int_equal(buffer_append(&out, NULL, 0), 0);
    fail_in = 0;
    assert_null(span_dup(span_str("text")));
    fail_in = -1;

    char *copy = span_dup(span_str("text"));
    assert_string_equal(copy, "text");
    free(copy);
    copy = span_dup((struct dl_span){NULL, 0});
    assert_string_equal(copy, "");
    free(copy);
    buffer_deinit(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_names),          cmocka_unit_test(test_golden),
    cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_wide_forms),
    cmocka_unit_test(test_signed_numbers), cmocka_unit_test(test_unknown_number),
    cmocka_unit_test(test_not_a_message),  cmocka_unit_test(test_direction),
    cmocka_unit_test(test_field_count),    cmocka_unit_test(test_wrong_type),
    cmocka_unit_test(test_over_max),       cmocka_unit_test(test_not_a_multiple),
    cmocka_unit_test(test_text),           cmocka_unit_test(test_truncated_and_trailing),
    cmocka_unit_test(test_encode_refuses), cmocka_unit_test(test_encode_any),
    cmocka_unit_test(test_out_of_memory),
};

int main(void)
{
    harness_begin();
    count_fields();
    return harness_end(__FILE__, cmocka_run_group_tests(tests, NULL, NULL));
}
