#include "proto/pages.h"

#include "proto/scan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* The head of an array of any length: its type, and the number of values in it, big-endian. */
enum { ARRAY_HEAD = 5, ARRAY_32 = 0xDD };

static void pages_put_head(uint8_t *at, uint32_t n)
{
    at[0] = ARRAY_32;
    for (uint32_t i = 0; i < 4; i++)
        at[1 + i] = (uint8_t)(n >> (24 - 8 * i));
}

static uint32_t pages_read_head(const uint8_t *at)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < 4; i++)
        n = n << 8 | at[1 + i];
    return n;
}

int pages_pack(const struct value *list, uint32_t row, struct dl_buffer *out, uint32_t *ret_next)
{
    static const uint8_t head[ARRAY_HEAD];
    size_t before = out->len;
    uint32_t n = 0;

    *ret_next = 0;
    if (list->type != VALUE_ARRAY)
        return value_pack(list, out);
    assert(row <= list->count);
    int r = buffer_append(out, head, sizeof head);
    while (r == 0 && row + n < list->count) {
        size_t end = out->len;

        r = value_pack(&list->items[row + n], out);
        if (r == 0 && n > 0 && out->len - before > PAGE_BYTES) {
            out->len = end;
            break;
        }
        n++;
    }
    if (r < 0) {
        out->len = before;
        return r;
    }
    pages_put_head(out->data + before, n);
    *ret_next = row + n < list->count ? row + n : 0;
    return 0;
}

int pages_join(struct dl_buffer *whole, const uint8_t *page, size_t len)
{
    static const uint8_t head[ARRAY_HEAD] = {ARRAY_32};
    struct token token;

    if (token_read(page, len, &token) < 0 || token.type != TOKEN_ARRAY)
        return -EBADMSG;
    if (whole->len == 0 && buffer_append(whole, head, sizeof head) < 0)
        return -ENOMEM;
    uint64_t rows = pages_read_head(whole->data) + token.n;
    if (rows > UINT32_MAX)
        return -EBADMSG;
    if (buffer_append(whole, page + token.head, len - token.head) < 0)
        return -ENOMEM;
    pages_put_head(whole->data, (uint32_t)rows);
    return 0;
}

/* One row of those that are left; *at is behind it then. */
static int pages_unpack_row(const uint8_t *data, size_t len, size_t *at, struct value *list,
                            struct dl_error *err)
{
    struct value *row;
    size_t bytes;

    if (value_scan(data + *at, len - *at, &bytes) < 0)
        return dl_error_set(err, EBADMSG, "", "a row of a list is not a value within the limits");
    if (value_push(list, &row) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory for a list of %zu bytes", len);
    int r = value_unpack(data + *at, bytes, row, err);
    *at += bytes;
    return r;
}

int pages_unpack(const uint8_t *data, size_t len, struct value *ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value list = {.type = VALUE_ARRAY};
    struct token token;
    int r = 0;

    if (token_read(data, len, &token) < 0 || token.type != TOKEN_ARRAY)
        return value_unpack(data, len, ret, err);
    size_t at = token.head;
    for (uint64_t i = 0; i < token.n && r == 0; i++)
        r = pages_unpack_row(data, len, &at, &list, err);
    if (r == 0 && at != len)
        r = dl_error_set(err, EBADMSG, "", "the bytes are not exactly one msgpack value");
    if (r < 0)
        return r;
    *ret = list;
    list = (struct value){0};
    return 0;
}
