/* Lists in pages: packed, joined and unpacked they are the list, whatever its rows' sizes. */
#include "proto/pages.h"
#include "tests/lib/harness.h"

#include <errno.h>

/* Rows of that many bytes each, which tell where they were. */
static void push_rows(struct value *list, const uint32_t *bytes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        _cleanup_free_ char *text = calloc(1, bytes[i] + 1);
        struct value *row;

        memset(text, 'a' + (int)(i % 26), bytes[i]);
        assert_int_equal(value_push(list, &row), 0);
        assert_int_equal(value_set_uint(row, "n", i), 0);
        assert_int_equal(value_set_string(row, "text", text), 0);
    }
}

/* Sends the list in pages; how many there were. */
static uint32_t travel(const struct value *list, struct value *ret)
{
    _cleanup_(buffer_deinit) struct dl_buffer whole = {0};
    uint32_t row = 0, pages = 0;

    do {
        _cleanup_(buffer_deinit) struct dl_buffer page = {0};
        uint32_t before = row;

        assert_int_equal(pages_pack(list, row, &page, &row), 0);
        assert_true(row == 0 || row > before);
        assert_int_equal(value_scan(page.data, page.len, NULL), 0);
        assert_int_equal(pages_join(&whole, page.data, page.len), 0);
        pages++;
    } while (row > 0);
    assert_int_equal(pages_unpack(whole.data, whole.len, ret, NULL), 0);
    return pages;
}

TEST(test_sizes)
{
    static const struct {
        uint32_t bytes[8], n, pages;
    } rows[] = {
        {{0}, 0, 1},
        {{10}, 1, 1},
        {{10, 20, 30}, 3, 1},
        {{PAGE_BYTES / 2 - 30, PAGE_BYTES / 2 - 30}, 2, 1},
        {{PAGE_BYTES / 2, PAGE_BYTES / 2}, 2, 2},
        {{PAGE_BYTES, 1, PAGE_BYTES, 1}, 4, 4}, /* the small ones have no room behind the large */
        {{5 * PAGE_BYTES, 5 * PAGE_BYTES}, 2, 2},
        {{1, 5 * PAGE_BYTES, 1, 1}, 4, 3},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(value_deinit) struct value list = {.type = VALUE_ARRAY};
        _cleanup_(value_deinit) struct value got = {0};

        push_rows(&list, rows[i].bytes, rows[i].n);
        assert_int_equal(travel(&list, &got), rows[i].pages);
        assert_true(value_equal(&list, &got));
    }
}

/* More values in all than one value may have, as views of a thousand ranks are. */
TEST(test_more_than_a_value)
{
    _cleanup_(value_deinit) struct value list = {.type = VALUE_ARRAY};
    _cleanup_(value_deinit) struct value got = {0};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    struct value *row;

    for (uint32_t i = 0; i < DL_MAX_VALUE_NODES; i++) {
        assert_int_equal(value_push(&list, &row), 0);
        value_make_uint(row, i);
    }
    assert_int_equal(value_pack(&list, &packed), -EMSGSIZE);
    assert_true(travel(&list, &got) > 1);
    assert_true(value_equal(&list, &got));
}

TEST(test_no_list)
{
    _cleanup_(value_deinit) struct value map = {0};
    _cleanup_(value_deinit) struct value got = {0};
    _cleanup_(buffer_deinit) struct dl_buffer page = {0};
    _cleanup_(buffer_deinit) struct dl_buffer whole = {0};
    uint32_t next = 7;

    assert_int_equal(value_set_uint(&map, "n", 5), 0);
    assert_int_equal(pages_pack(&map, 0, &page, &next), 0);
    assert_int_equal(next, 0);
    assert_int_equal(pages_unpack(page.data, page.len, &got, NULL), 0);
    assert_true(value_equal(&map, &got));
    assert_int_equal(pages_join(&whole, page.data, page.len), -EBADMSG);
    assert_int_equal(pages_join(&whole, NULL, 0), -EBADMSG);
}

TEST(test_bad_bytes)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"", 0},         {"\x91", 1},         {"\x92\x01", 2},         {"\x91\x01\x01", 3},
        {"\x91\xc1", 2}, {"\x91\xc4\x01", 3}, {"\x91\xc4\x01\x02", 4}, {"\xdd\xff\xff\xff\xff", 5},
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct value got = {.type = VALUE_INT, .integer = 3};
        struct dl_error err = {0};

        assert_int_equal(pages_unpack((const uint8_t *)bad[i].bytes, bad[i].len, &got, &err),
                         -EBADMSG);
        assert_true(err.message[0]);
        assert_int_equal(got.integer, 3); /* as it was */
    }
}

/* A row that is no value by itself is refused, and nothing is appended. */
TEST(test_a_row_too_large)
{
    _cleanup_(value_deinit) struct value list = {.type = VALUE_ARRAY};
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    struct value *row, *item;
    uint32_t next;

    assert_int_equal(value_push(&list, &row), 0);
    row->type = VALUE_ARRAY;
    for (uint32_t i = 0; i < DL_MAX_VALUE_NODES; i++) {
        assert_int_equal(value_push(row, &item), 0);
        value_make_uint(item, i);
    }
    assert_int_equal(pages_pack(&list, 0, &out, &next), -EMSGSIZE);
    assert_int_equal(out.len, 0);
}
