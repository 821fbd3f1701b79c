/*
 * Every message of messages.def: round trips at the boundaries, and each way a payload can be
 * wrong.
 */
#include "tests/unit/codec_case.h"
#include "tests/unit/fail_alloc.h"

/* ---- tests --------------------------------------------------------------------------------- */

TEST(test_names)
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
TEST(test_golden)
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

TEST(test_round_trip)
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

TEST(test_wide_forms)
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
TEST(test_signed_numbers)
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

TEST(test_unknown_number)
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

TEST(test_not_a_message)
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

TEST(test_direction)
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

TEST(test_wrong_type)
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

TEST(test_over_max)
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

TEST(test_not_a_multiple)
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

TEST(test_text)
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

TEST(test_truncated_and_trailing)
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

TEST(test_encode_refuses)
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

TEST(test_encode_any)
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

TEST(test_out_of_memory)
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

BEFORE_TESTS
{
    count_fields();
}
