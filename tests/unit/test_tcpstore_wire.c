/* The bytes of TCPStore: what is a whole request or reply, wherever it is cut; what is refused. */
#include "tests/unit/tcpstore_case.h"

#include <errno.h>

/* ---- dialects ------------------------------------------------------------------------------- */

TEST(test_dialects_are_told_by_their_first_bytes)
{
    static const struct {
        const char *bytes;
        int result;
        enum tcpstore_dialect dialect;
    } rows[] = {
        {"", 0, TCPSTORE_ANY},
        {"00", 0, TCPSTORE_ANY},
        {"00 ce f7 85", 0, TCPSTORE_ANY},
        {"00 ce f7 85 3c", 1, TCPSTORE_V2},
        {"00 ce f7 85 3c 0d", 1, TCPSTORE_V2},
        {"00 ce f7 85 3d", 1, TCPSTORE_V1}, /* a SET, and far too large */
        {"00 02 00 00 00", 1, TCPSTORE_V1},
        {"03", 1, TCPSTORE_V1},
        {"08", 1, TCPSTORE_V1},
        {"09", -EBADMSG, TCPSTORE_ANY}, /* v2 does not begin so */
        {"0d 01 02 03 04", -EBADMSG, TCPSTORE_ANY},
        {"ce f7 85 3c", -EBADMSG, TCPSTORE_ANY},    /* the magic before every request: not ours */
        {"47 45 54 20 2f", -EBADMSG, TCPSTORE_ANY}, /* "GET /" */
        {"16 03 01 02 00", -EBADMSG, TCPSTORE_ANY}, /* TLS */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of(rows[i].bytes);
        enum tcpstore_dialect dialect = TCPSTORE_ANY;

        assert_int_equal(tcpstore_sniff(bytes.data, bytes.len, &dialect), rows[i].result);
        assert_int_equal(dialect, rows[i].dialect);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

static const struct request_row {
    enum tcpstore_dialect dialect;
    enum tcpstore_op op;
    uint64_t count;
    const char *bytes;
} requests[] = {
    {TCPSTORE_V1, TCPSTORE_SET, 1, "00 '/k' 'v1'"},
    {TCPSTORE_V1, TCPSTORE_COMPARE_SET, 1, "01 '/new' '' 'a'"},
    {TCPSTORE_V1, TCPSTORE_GET, 1, "02 '/k'"},
    {TCPSTORE_V1, TCPSTORE_ADD, 1,
     "03 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00"},
    {TCPSTORE_V1, TCPSTORE_CHECK, 2, "04 #2 '/k' '/z'"},
    {TCPSTORE_V1, TCPSTORE_WAIT, 1, "05 #1 '/late'"},
    {TCPSTORE_V1, TCPSTORE_WAIT, 0, "05 #0"},
    {TCPSTORE_V1, TCPSTORE_COUNT_KEYS, 1, "06"},
    {TCPSTORE_V1, TCPSTORE_WATCH, 1, "07 '/k'"},
    {TCPSTORE_V1, TCPSTORE_DELETE, 1, "08 '/k'"},
    {TCPSTORE_V2, TCPSTORE_VALIDATE, 1, "00 ce f7 85 3c"},
    {TCPSTORE_V2, TCPSTORE_SET, 1, "01 '/k' ''"},
    {TCPSTORE_V2, TCPSTORE_COMPARE_SET, 1, "02 '/new' 'a' 'b'"},
    {TCPSTORE_V2, TCPSTORE_GET, 1, "03 ''"},
    {TCPSTORE_V2, TCPSTORE_ADD, 1, "04 '/n' #-7"},
    {TCPSTORE_V2, TCPSTORE_CHECK, 1, "05 #1 '/k'"},
    {TCPSTORE_V2, TCPSTORE_WAIT, 3, "06 #3 '/a' '' '/b'"},
    {TCPSTORE_V2, TCPSTORE_COUNT_KEYS, 1, "07"},
    {TCPSTORE_V2, TCPSTORE_DELETE, 1, "08 '/k'"},
    {TCPSTORE_V2, TCPSTORE_APPEND, 1, "09 '/ap' 'x1'"},
    {TCPSTORE_V2, TCPSTORE_MULTI_GET, 2, "0a #2 '/m1' '/m2'"},
    {TCPSTORE_V2, TCPSTORE_MULTI_SET, 2, "0b #2 '/m1' 'A' '/m2' 'BB'"},
    {TCPSTORE_V2, TCPSTORE_MULTI_SET, 0, "0b #0"},
    {TCPSTORE_V2, TCPSTORE_CANCEL_WAIT, 1, "0c"},
    {TCPSTORE_V2, TCPSTORE_PING, 1, "0d 90 1f 00 00"},
    {TCPSTORE_V2, TCPSTORE_QUEUE_PUSH, 1, "0e '/q' 'x'"},
    {TCPSTORE_V2, TCPSTORE_QUEUE_POP, 1, "0f '/q'"},
    {TCPSTORE_V2, TCPSTORE_QUEUE_LENGTH, 1, "10 '/q'"},
    {TCPSTORE_V2, TCPSTORE_LIST_KEYS, 1, "11"},
    {TCPSTORE_V2, TCPSTORE_BARRIER, 1, "12 '/bar' #1"},
};

/* Whole with its last byte and not before, given byte by byte or cut once anywhere. */
TEST(test_requests_are_whole_wherever_they_are_cut)
{
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        const struct request_row *row = &requests[i];
        _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of(row->bytes);

        for (size_t cut = 0; cut <= bytes.len; cut++) {
            struct tcpstore_scan scan = {0}, bytewise = {0};
            struct tcpstore_request got = {0};

            for (size_t len = 0; len < cut; len++)
                assert_int_equal(
                    tcpstore_scan_request(&bytewise, row->dialect, bytes.data, len, &got), 0);
            if (cut < bytes.len)
                assert_int_equal(tcpstore_scan_request(&scan, row->dialect, bytes.data, cut, &got),
                                 0);
            assert_int_equal(
                tcpstore_scan_request(&scan, row->dialect, bytes.data, bytes.len, &got), 1);
            assert_int_equal(got.op, row->op);
            assert_int_equal(got.count, row->count);
            assert_int_equal(got.bytes, bytes.len);
            assert_null(scan.field);
        }
    }
}

TEST(test_every_request_is_in_the_table)
{
    bool seen[3][TCPSTORE_OPS] = {0};

    for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
        seen[requests[i].dialect][requests[i].op] = true;
    for (int op = 0; op < TCPSTORE_OPS; op++) {
        for (int dialect = TCPSTORE_V1; dialect <= TCPSTORE_V2; dialect++)
            assert_int_equal(
                seen[dialect][op],
                tcpstore_op_byte((enum tcpstore_op)op, (enum tcpstore_dialect)dialect) >= 0);
        assert_non_null(tcpstore_op_name((enum tcpstore_op)op));
    }
}

TEST(test_fields_come_in_order)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of("0b #2 '/m1' 'A' '' 'BB' ff");
    struct tcpstore_scan scan = {0};
    struct tcpstore_request got;
    static const char *const texts[] = {"/m1", "A", "", "BB"};

    assert_int_equal(tcpstore_scan_request(&scan, TCPSTORE_V2, bytes.data, bytes.len, &got), 1);
    assert_int_equal(got.bytes, bytes.len - 1);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct dl_span span = tcpstore_take_span(&got.fields);
        assert_int_equal(span.len, strlen(texts[i]));
        assert_memory_equal(span.data, texts[i], span.len);
    }
    buffer_deinit(&bytes);
    bytes = bytes_of("04 '/n' #-7");
    assert_int_equal(tcpstore_scan_request(&scan, TCPSTORE_V2, bytes.data, bytes.len, &got), 1);
    tcpstore_take_span(&got.fields);
    assert_int_equal(tcpstore_take_i64(&got.fields), -7);
}

TEST(test_what_is_no_request_is_refused_at_once)
{
    static const struct {
        enum tcpstore_dialect dialect;
        const char *bytes;
    } rows[] = {
        {TCPSTORE_V1, "09"},
        {TCPSTORE_V1, "ff"},
        {TCPSTORE_V2, "13"},
        {TCPSTORE_V2, "47"},
        {TCPSTORE_V2, "01 #8193"}, /* a key's length, before a byte of it has come */
        {TCPSTORE_V2, "01 #-1"},   /* 2^64 - 1 */
        {TCPSTORE_V2, "01 00 00 00 00 00 00 00 80"}, /* 2^63 */
        {TCPSTORE_V2, "01 'k' #8388609"},            /* a value's */
        {TCPSTORE_V2, "02 'k' '' #8388609"},
        {TCPSTORE_V2, "06 #131073"}, /* keys of one request */
        {TCPSTORE_V2, "0b #-1"},     /* a number with a sign */
        {TCPSTORE_V2, "0a #2 'k' #8193"},
        {TCPSTORE_V2, "0e 'k' #-9"},
        {TCPSTORE_V1, "00 ce f7 85 3c 0d 90 1f 00"}, /* v2's first bytes, as v1 reads them */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of(rows[i].bytes);
        struct tcpstore_scan scan = {0};
        struct tcpstore_request got;

        for (size_t len = 0; len < bytes.len; len++)
            assert_int_equal(tcpstore_scan_request(&scan, rows[i].dialect, bytes.data, len, &got),
                             0);
        assert_int_equal(tcpstore_scan_request(&scan, rows[i].dialect, bytes.data, bytes.len, &got),
                         -EBADMSG);
    }
}

/* Eight values of 8 MiB are beyond what one message may have, and are refused as they begin. */
TEST(test_messages_are_bounded)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of("0b #9");
    struct tcpstore_scan scan = {0};
    struct tcpstore_request got;
    _cleanup_free_ uint8_t *value = calloc(1, TCPSTORE_VALUE_MAX);
    const struct dl_span large = {.data = value, .len = TCPSTORE_VALUE_MAX};
    const struct dl_span key = span_str("k");
    int r = 0;

    assert_non_null(value);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(tcpstore_put_span(&bytes, key), 0);
        assert_int_equal(tcpstore_put_span(&bytes, large), 0);
        r = tcpstore_scan_request(&scan, TCPSTORE_V2, bytes.data, bytes.len, &got);
        assert_int_equal(r, 0);
    }
    assert_int_equal(tcpstore_put_span(&bytes, key), 0);
    assert_int_equal(tcpstore_put_i64(&bytes, TCPSTORE_VALUE_MAX), 0);
    assert_int_equal(tcpstore_scan_request(&scan, TCPSTORE_V2, bytes.data, bytes.len, &got),
                     -EBADMSG);
}

/* ---- replies -------------------------------------------------------------------------------- */

TEST(test_replies_are_whole_wherever_they_are_cut)
{
    static const struct {
        enum tcpstore_op op;
        uint64_t keys;
        const char *bytes;
    } rows[] = {
        {TCPSTORE_SET, 1, ""},
        {TCPSTORE_MULTI_SET, 3, ""},
        {TCPSTORE_QUEUE_PUSH, 1, ""},
        {TCPSTORE_GET, 1, "'v1'"},
        {TCPSTORE_GET, 1, "''"},
        {TCPSTORE_COMPARE_SET, 1, "'exp'"},
        {TCPSTORE_ADD, 1, "#-2"},
        {TCPSTORE_CHECK, 2, "01"},
        {TCPSTORE_WAIT, 2, "00"},
        {TCPSTORE_COUNT_KEYS, 1, "#5"},
        {TCPSTORE_WATCH, 1, "03"},
        {TCPSTORE_MULTI_GET, 2, "'A' 'BB'"},
        {TCPSTORE_MULTI_GET, 0, ""},
        {TCPSTORE_PING, 1, "90 1f 00 00"},
        {TCPSTORE_QUEUE_POP, 1, "#3 'x'"},
        {TCPSTORE_QUEUE_POP, 1, "#0"},
        {TCPSTORE_QUEUE_POP, 1, "#-1"},
        {TCPSTORE_LIST_KEYS, 1, "#2 '/m2' 'init/'"},
        {TCPSTORE_LIST_KEYS, 1, "#0"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of(rows[i].bytes);
        struct tcpstore_scan scan = {0};
        size_t got = 99;

        for (size_t len = 0; len < bytes.len; len++)
            assert_int_equal(
                tcpstore_scan_reply(&scan, rows[i].op, rows[i].keys, bytes.data, len, &got), 0);
        assert_int_equal(
            tcpstore_scan_reply(&scan, rows[i].op, rows[i].keys, bytes.data, bytes.len, &got), 1);
        assert_int_equal(got, bytes.len);
    }
}

TEST(test_replies_that_are_too_large_are_refused)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of("#8388609");
    struct tcpstore_scan scan = {0};
    size_t got;

    assert_int_equal(tcpstore_scan_reply(&scan, TCPSTORE_GET, 1, bytes.data, bytes.len, &got),
                     -EBADMSG);
    scan = (struct tcpstore_scan){0};
    assert_int_equal(tcpstore_scan_reply(&scan, TCPSTORE_LIST_KEYS, 1, bytes.data, bytes.len, &got),
                     -EBADMSG);
}

/* ---- numbers -------------------------------------------------------------------------------- */

TEST(test_numbers_are_read_as_stoll_does)
{
    static const struct {
        const char *text;
        int result;
        int64_t number;
    } rows[] = {
        {"5", 0, 5},
        {"-2", 0, -2},
        {"+7", 0, 7},
        {" 12xyz", 0, 12},
        {"\t\n\v\f\r 3", 0, 3},
        {"007", 0, 7},
        {"9223372036854775807", 0, INT64_MAX},
        {"-9223372036854775808", 0, INT64_MIN},
        {"9223372036854775808", -EBADMSG, 0},
        {"-9223372036854775809", -EBADMSG, 0},
        {"99999999999999999999999", -EBADMSG, 0},
        {"", -EBADMSG, 0},
        {"   ", -EBADMSG, 0},
        {"-", -EBADMSG, 0},
        {"- 1", -EBADMSG, 0},
        {"+-1", -EBADMSG, 0},
        {"abc", -EBADMSG, 0},
        {"0x10", 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int64_t number = 0;

        assert_int_equal(tcpstore_number(span_str(rows[i].text), &number), rows[i].result);
        assert_int_equal(number, rows[i].number);
    }
}

TEST(test_a_connection_begins_in_one_piece)
{
    _cleanup_(buffer_deinit) struct dl_buffer hello = {0};
    _cleanup_(buffer_deinit) struct dl_buffer captured = bytes_of("00 ce f7 85 3c 0d 90 1f 00 00");

    assert_int_equal(tcpstore_put_hello(&hello, 0x1f90), 0);
    assert_int_equal(hello.len, captured.len);
    assert_memory_equal(hello.data, captured.data, captured.len);
}
