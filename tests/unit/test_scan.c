/* value_scan(): every form of msgpack, and the depth and node budgets to the last one. */
#include "tests/lib/harness.h"

#include "proto/value.h"
#include <errno.h>

/* `depth` arrays of one element around a nil; `bytes` has room for them. */
static size_t nest(uint8_t *bytes, size_t depth)
{
    memset(bytes, 0x91, depth);
    bytes[depth] = 0xC0;
    return depth + 1;
}

TEST(test_depth)
{
    uint8_t bytes[64];

    for (size_t depth = 0; depth < 40; depth++) {
        size_t len = nest(bytes, depth);

        assert_int_equal(value_scan(bytes, len, NULL), depth <= DL_MAX_VALUE_DEPTH ? 0 : -EMSGSIZE);
        bytes[len - 1] = 0x90; /* an empty array is a level too */
        assert_int_equal(value_scan(bytes, len, NULL), depth < DL_MAX_VALUE_DEPTH ? 0 : -EMSGSIZE);
    }
    /* Levels that are closed again do not count. */
    uint8_t row[2 + 15 * 17] = {0x9F};
    size_t at = 1;
    for (int i = 0; i < 15; i++)
        at += nest(row + at, 15);
    assert_int_equal(value_scan(row, at, NULL), 0);
}

/* A container's head of 5 bytes, then nils. */
static int scan_filled(uint8_t first, size_t count, size_t values)
{
    _cleanup_free_ uint8_t *bytes = malloc(5 + values);

    assert_non_null(bytes);
    memset(bytes, 0xC0, 5 + values);
    bytes[0] = first;
    for (int i = 0; i < 4; i++)
        bytes[1 + i] = (uint8_t)(count >> (8 * (3 - i)));
    return value_scan(bytes, 5 + values, NULL);
}

TEST(test_nodes)
{
    size_t most = DL_MAX_VALUE_NODES - 1; /* the container is one itself */

    assert_int_equal(scan_filled(0xDD, most, most), 0);
    assert_int_equal(scan_filled(0xDD, most + 1, most + 1), -EMSGSIZE);
    assert_int_equal(scan_filled(0xDD, most, most - 1), -EBADMSG);
    assert_int_equal(scan_filled(0xDF, most / 2, most / 2 * 2), 0);
    assert_int_equal(scan_filled(0xDF, most / 2 + 1, most + 1), -EMSGSIZE);
}

/* Many containers share one budget. */
TEST(test_nodes_of_several)
{
    size_t len = 3 + 2 * (3 + 32767);
    _cleanup_free_ uint8_t *bytes = malloc(len);

    assert_non_null(bytes);
    memset(bytes, 0xC0, len);
    memcpy(bytes, "\xDC\x00\x02", 3);
    memcpy(bytes + 3, "\xDC\x7F\xFF", 3);
    memcpy(bytes + 6 + 32767, "\xDC\x7F\xFE", 3); /* 1 + 2 + 32767 + 32766 = 65536 */
    assert_int_equal(value_scan(bytes, len - 1, NULL), 0);
    bytes[6 + 32767 + 2] = 0xFF;
    assert_int_equal(value_scan(bytes, len, NULL), -EMSGSIZE);
}

TEST(test_length)
{
    size_t len = 99;

    assert_int_equal(value_scan((const uint8_t *)"\x92\x01\x02\x03", 4, &len), 0);
    assert_int_equal(len, 3);
    assert_int_equal(value_scan((const uint8_t *)"\x92\x01\x02\x03", 4, NULL), -EBADMSG);
    len = 99;
    assert_int_equal(value_scan(NULL, 0, &len), -EBADMSG);
    assert_int_equal(value_scan((const uint8_t *)"\x92\x01", 2, &len), -EBADMSG);
    assert_int_equal(len, 99);
}

/* Every head of msgpack, with the length it must be found to have, and one byte less. */
TEST(test_scan_forms)
{
    for (unsigned first = 0; first < 256; first++) {
        static const uint8_t widths[32] = {0, 0, 0, 0, 2, 3, 5, 3, 4,  6, 4, 8, 1, 2, 4, 8,
                                           1, 2, 4, 8, 2, 3, 5, 9, 17, 2, 3, 5, 4, 6, 6, 8};
        uint8_t bytes[64] = {(uint8_t)first};
        size_t want = 1, len = 0;

        if (first >= 0x80 && first < 0x90)
            want += 2 * (first & 15U);
        else if (first >= 0x90 && first < 0xA0)
            want += first & 15U;
        else if (first >= 0xA0 && first < 0xC0)
            want += first & 31U;
        else if (first >= 0xC0 && first < 0xE0)
            want += widths[first - 0xC0];
        /* Lengths and counts of 1; for maps, a pair. */
        static const uint8_t count_width[32] = {
            [4] = 1,  [5] = 2,  [6] = 4,  [7] = 1,  [8] = 2,  [9] = 4, [25] = 1,
            [26] = 2, [27] = 4, [28] = 2, [29] = 4, [30] = 2, [31] = 4};
        uint8_t width = first >= 0xC0 && first < 0xE0 ? count_width[first - 0xC0] : 0;
        if (width > 0)
            bytes[width] = 1;
        if (first == 0xDC || first == 0xDD) /* array 16, 32 */
            want = 1U + width + 1;
        if (first == 0xDE || first == 0xDF)
            want = 1U + width + 2;
        if (first == 0xC1) {
            assert_int_equal(value_scan(bytes, sizeof bytes, &len), -EBADMSG);
            continue;
        }
        assert_int_equal(value_scan(bytes, sizeof bytes, &len), 0);
        assert_int_equal(len, want);
        assert_int_equal(value_scan(bytes, want, NULL), 0);
        assert_int_equal(value_scan(bytes, want - 1, NULL), -EBADMSG);
    }
}
