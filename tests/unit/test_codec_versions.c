/*
 * Messages between builds of different versions: which fields may be left out, what they are then,
 * and what is written for an older version.
 */
#include "tests/unit/codec_case.h"

/* The message with its first `n` fields; those beyond the ones that it has are nil. */
static struct raw payload_of(const struct row *row, uint32_t n)
{
    struct raw raw = {0};

    put_head(&raw, 0xDD, n + 1, 4);
    put_head(&raw, 0xCF, row->number, 8);
    for (uint32_t i = 0; i < n; i++)
        if (i < row->n_fields)
            put_field(&raw, &row->fields[i], small(&row->fields[i]));
        else
            put_as(&raw, AS_NIL);
    return raw;
}

/* Fields of later versions that did not come are 0 or empty. */
static void assert_taken(const struct row *row, uint32_t n)
{
    struct raw raw = payload_of(row, n);
    struct dl_message msg;

    assert_int_equal(decode_exact(raw.data, raw.len, row->direction, &msg, NULL), 0);
    assert_true(fields_in(row, msg.version) <= n);
    assert_true(msg.version == DL_PROTOCOL_VERSION || fields_in(row, msg.version + 1) > n);
    for (uint32_t i = n; i < row->n_fields; i++) {
        const struct field *field = &row->fields[i];
        static const uint8_t nothing[sizeof(struct dl_span)];

        assert_int_not_equal(field->type, T_ANY); /* whose nothing is no value */
        assert_memory_equal((const char *)&msg + field->at, nothing,
                            field->type == T_U64 ? sizeof(uint64_t) : sizeof nothing);
    }
    free(raw.data);
}

/* Every message, with fewer fields than it has, all of them, and one of a version to come. */
TEST(test_field_count)
{
    uint32_t shorter = 0;

    EACH_ROW(row)
    {
        for (uint32_t n = 0; n <= row->n_fields + 1; n++) {
            if (n >= row->least && n <= row->n_fields) {
                assert_taken(row, n);
                shorter += n < row->n_fields;
                continue;
            }
            struct raw raw = payload_of(row, n);
            assert_refused(&raw, row->direction, EBADMSG, row->name);
        }
    }
    assert_true(shorter > 0);
}

/* Bytes that a client of version 3 writes, and that a daemon of it reads: other people's contract.
 */
TEST(test_oldest_version)
{
    static const uint8_t open[] = {10, 0, 0, 0, 0x97, 2, 7, 0xA1, '/', 0xA1, 'a', 0, 0, 1};
    const struct dl_message same = {.number = DL_MSG_OPEN,
                                    .version = 3,
                                    .open = {.request = 7,
                                             .base = span_str("/"),
                                             .spec = {(const uint8_t *)"\xA1"
                                                                       "a",
                                                      2},
                                             .writable = 1}};
    struct dl_buffer out = {0};
    struct dl_message msg;

    assert_int_equal(decode_exact(open + FRAME_HEADER_BYTES, sizeof open - FRAME_HEADER_BYTES,
                                  FROM_CLIENT, &msg, NULL),
                     0);
    assert_int_equal(msg.version, 3);
    assert_int_equal(msg.open.writable, 1);
    assert_int_equal(msg.open.automatic, 0);
    assert_int_equal(message_encode(&same, &out), 0);
    assert_int_equal(out.len, sizeof open);
    assert_memory_equal(out.data, open, sizeof open);
    buffer_deinit(&out);
}

/* To an older version: the message as it was then, unless what it lacked has something to say. */
static void check_encode_for(const struct row *row, uint32_t version)
{
    static const uint8_t text[1] = {'x'};
    uint32_t n = fields_in(row, version);
    struct dl_message msg, back;
    struct dl_buffer out = {0};

    fill(row, 0, text, &msg);
    msg.version = version;
    if (row->since > version) {
        assert_encode_refused(&msg, EPROTONOSUPPORT);
        return;
    }
    assert_int_equal(message_encode(&msg, &out), 0);
    const uint8_t *payload = out.data + FRAME_HEADER_BYTES;
    assert_int_equal(payload[0] == 0xDC ? payload[2] : payload[0] & 0xF, n + 1);
    assert_int_equal(
        message_decode(payload, out.len - FRAME_HEADER_BYTES, row->direction, &back, NULL), 0);
    for (uint32_t i = n; i < row->n_fields; i++) {
        const struct field *field = &row->fields[i];
        struct dl_span span = {text, 1};
        uint64_t one = 1;

        fill(row, 0, text, &msg);
        msg.version = version;
        if (field->type == T_U64)
            memcpy((char *)&msg + field->at, &one, sizeof one);
        else
            memcpy((char *)&msg + field->at, &span, sizeof span);
        assert_encode_refused(&msg, EPROTONOSUPPORT);
    }
    buffer_deinit(&out);
}

TEST(test_encode_for_older)
{
    EACH_ROW(row)
    {
        for (uint32_t version = DL_PROTOCOL_OLDEST; version < DL_PROTOCOL_VERSION; version++)
            check_encode_for(row, version);
    }
}

BEFORE_TESTS
{
    count_fields();
}
