#include "daemon/cluster/rendezvous/rendezvous_bytes.h"

#include "daemon/base/memory.h"

#include "proto/common/utf8.h"

/* ---- writing -------------------------------------------------------------------------------- */

/* A head: its first byte, and a number of 1, 2, 4 or 8 bytes after it. */
static void rdzv_bytes_put_head(struct dl_buffer *out, uint8_t first, uint64_t number,
                                unsigned width)
{
    uint8_t bytes[9] = {first};

    for (unsigned i = 0; i < width; i++)
        bytes[1 + i] = (uint8_t)(number >> 8 * (width - 1 - i));
    must_append(out, bytes, 1 + width);
}

void rdzv_bytes_put_uint(struct dl_buffer *out, uint64_t n)
{
    if (n < 0x80)
        rdzv_bytes_put_head(out, (uint8_t)n, 0, 0);
    else if (n <= UINT8_MAX)
        rdzv_bytes_put_head(out, 0xcc, n, 1);
    else if (n <= UINT16_MAX)
        rdzv_bytes_put_head(out, 0xcd, n, 2);
    else
        rdzv_bytes_put_head(out, n <= UINT32_MAX ? 0xce : 0xcf, n, n <= UINT32_MAX ? 4 : 8);
}

void rdzv_bytes_put_array(struct dl_buffer *out, uint32_t n)
{
    if (n < 16)
        rdzv_bytes_put_head(out, (uint8_t)(0x90 | n), 0, 0);
    else
        rdzv_bytes_put_head(out, 0xdd, n, 4);
}

void rdzv_bytes_put_text(struct dl_buffer *out, const char *text)
{
    size_t len = strlen(text);

    if (len < 32)
        rdzv_bytes_put_head(out, (uint8_t)(0xa0 | len), 0, 0);
    else
        rdzv_bytes_put_head(out, 0xd9, len, 1);
    must_append(out, text, len);
}

void rdzv_bytes_put_bin(struct dl_buffer *out, uint32_t len)
{
    rdzv_bytes_put_head(out, 0xc6, len, 4);
}

void rdzv_bytes_put_uints(struct dl_buffer *out, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rdzv_bytes_put_uint(out, numbers[i]);
}

/* ---- reading -------------------------------------------------------------------------------- */

struct token rdzv_bytes_take(struct rdzv_reader *in, enum token_type type)
{
    struct token token = {0};

    if (in->bad || token_read(in->at, in->left, &token) < 0 || token.type != type) {
        in->bad = true;
        return (struct token){0};
    }
    in->at += token.head;
    in->left -= token.head;
    return token;
}

uint64_t rdzv_bytes_take_fields(struct rdzv_reader *in, uint64_t known)
{
    uint64_t n = rdzv_bytes_take(in, TOKEN_ARRAY).n;

    in->bad |= n < known;
    return in->bad ? 0 : n - known;
}

/* Each has a byte at least, so that a number that says more than is there costs nothing. */
void rdzv_bytes_skip(struct rdzv_reader *in, uint64_t values)
{
    while (values > 0 && !in->bad) {
        struct token token;

        if (values > in->left || token_read(in->at, in->left, &token) < 0) {
            in->bad = true;
            return;
        }
        in->at += token.head + token.body;
        in->left -= token.head + token.body;
        values--;
        if (token.type == TOKEN_ARRAY || token.type == TOKEN_MAP)
            values += token.type == TOKEN_MAP ? 2 * min_u64(token.n, in->left + 1)
                                              : min_u64(token.n, in->left + 1);
    }
}

uint64_t rdzv_bytes_take_uint(struct rdzv_reader *in, uint64_t least, uint64_t most)
{
    uint64_t n = rdzv_bytes_take(in, TOKEN_UINT).n;

    in->bad |= n < least || n > most;
    return in->bad ? 0 : n;
}

void rdzv_bytes_take_text(struct rdzv_reader *in, char *ret, size_t size)
{
    size_t len = rdzv_bytes_take(in, TOKEN_STR).n;

    if (in->bad || len >= size || !utf8_text(in->at, len)) {
        in->bad = true;
        return;
    }
    for (size_t i = 0; i < len; i++)
        in->bad |= in->at[i] < 0x20 || in->at[i] == 0x7f;
    memcpy(ret, in->at, len);
    ret[len] = 0;
    in->at += len;
    in->left -= len;
}
