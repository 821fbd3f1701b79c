/*
 * Walks msgpack bytes under a node and a depth budget. Nothing here allocates or recurses, and each
 * step moves forward by at least one byte that is really there: hostile input costs at most its own
 * length. That is why msgpack-c, which reserves what an array's head claims, runs only after this.
 */
#include "proto/scan.h"

#include <errno.h>

static uint64_t scan_big_endian(const uint8_t *data, size_t width)
{
    uint64_t n = 0;
    for (size_t i = 0; i < width; i++)
        n = n << 8 | data[i];
    return n;
}

/* What each first byte of 0xC0..0xDF means: the token, and the width of the number after it. */
struct form {
    enum token_type type;
    uint8_t width; /* of the length, count or number in the head */
    uint8_t extra; /* further bytes that belong to it: an extension's type, a fixext's body */
    bool is_signed;
    bool invalid;
};

static const struct form scan_forms[32] = {
    [0x00] = {TOKEN_SCALAR, 0}, /* nil */
    [0x01] = {TOKEN_SCALAR, 0, .invalid = true},
    [0x02] = {TOKEN_SCALAR, 0}, /* false, true */
    [0x03] = {TOKEN_SCALAR, 0},
    [0x04] = {TOKEN_BIN, 1},
    [0x05] = {TOKEN_BIN, 2},
    [0x06] = {TOKEN_BIN, 4},
    [0x07] = {TOKEN_EXT, 1, 1},
    [0x08] = {TOKEN_EXT, 2, 1},
    [0x09] = {TOKEN_EXT, 4, 1},
    [0x0A] = {TOKEN_SCALAR, 4}, /* floats */
    [0x0B] = {TOKEN_SCALAR, 8},
    [0x0C] = {TOKEN_UINT, 1},
    [0x0D] = {TOKEN_UINT, 2},
    [0x0E] = {TOKEN_UINT, 4},
    [0x0F] = {TOKEN_UINT, 8},
    [0x10] = {TOKEN_UINT, 1, .is_signed = true},
    [0x11] = {TOKEN_UINT, 2, .is_signed = true},
    [0x12] = {TOKEN_UINT, 4, .is_signed = true},
    [0x13] = {TOKEN_UINT, 8, .is_signed = true},
    [0x14] = {TOKEN_EXT, 0, 2}, /* fixext 1, 2, 4, 8, 16 and their type byte */
    [0x15] = {TOKEN_EXT, 0, 3},
    [0x16] = {TOKEN_EXT, 0, 5},
    [0x17] = {TOKEN_EXT, 0, 9},
    [0x18] = {TOKEN_EXT, 0, 17},
    [0x19] = {TOKEN_STR, 1},
    [0x1A] = {TOKEN_STR, 2},
    [0x1B] = {TOKEN_STR, 4},
    [0x1C] = {TOKEN_ARRAY, 2},
    [0x1D] = {TOKEN_ARRAY, 4},
    [0x1E] = {TOKEN_MAP, 2},
    [0x1F] = {TOKEN_MAP, 4},
};

/* Heads of one byte that hold their number themselves. */
static struct token scan_read_fix(uint8_t first)
{
    if (first < 0x80)
        return (struct token){TOKEN_UINT, .n = first, .head = 1};
    if (first < 0x90)
        return (struct token){TOKEN_MAP, .n = first & 0x0FU, .head = 1};
    if (first < 0xA0)
        return (struct token){TOKEN_ARRAY, .n = first & 0x0FU, .head = 1};
    if (first < 0xC0)
        return (struct token){TOKEN_STR, .n = first & 0x1FU, .head = 1, .body = first & 0x1FU};
    return (struct token){TOKEN_SCALAR, .head = 1}; /* -32..-1 */
}

int token_read(const uint8_t *data, size_t len, struct token *ret)
{
    struct token token;

    if (len == 0)
        return -EBADMSG;
    if (data[0] < 0xC0 || data[0] >= 0xE0) {
        token = scan_read_fix(data[0]);
    } else {
        const struct form *form = &scan_forms[data[0] - 0xC0];

        if (form->invalid || len - 1 < form->width)
            return -EBADMSG;
        token = (struct token){form->type, .head = 1U + form->width};
        if (form->type != TOKEN_SCALAR)
            token.n = scan_big_endian(data + 1, form->width);
        /* A non-negative number that its writer packed as signed is as good as an unsigned one. */
        if (form->is_signed && data[1] & 0x80)
            token.type = TOKEN_SCALAR;
        else if (form->type == TOKEN_STR || form->type == TOKEN_BIN || form->type == TOKEN_EXT)
            token.body = token.n + form->extra;
    }
    if (len - token.head < token.body)
        return -EBADMSG;
    *ret = token;
    return 0;
}

/* The containers open at a point of the walk, with the number of values each still needs. */
struct walk {
    uint64_t missing[DL_BOUND_VALUE_DEPTH];
    uint32_t depth;
    uint64_t budget; /* nodes that may still come */
};

/* Accounts for one value and opens it when it is a container that holds something. */
static int scan_walk_value(struct walk *walk, const struct token *token)
{
    uint64_t children = token->type == TOKEN_ARRAY ? token->n
                        : token->type == TOKEN_MAP ? 2 * token->n
                                                   : 0;

    /* The budget covers the value at hand and all that open containers still need. */
    if (children > walk->budget)
        return -EMSGSIZE;
    walk->budget -= children;
    if (token->type != TOKEN_ARRAY && token->type != TOKEN_MAP)
        return 0;
    if (walk->depth == DL_BOUND_VALUE_DEPTH)
        return -EMSGSIZE;
    if (children > 0)
        walk->missing[walk->depth++] = children;
    return 0;
}

int value_scan(const uint8_t *data, size_t len, size_t *ret_len)
{
    struct walk walk = {.budget = DL_BOUND_VALUE_NODES - 1};
    size_t at = 0;

    if (len == 0) /* `data` may then be NULL */
        return -EBADMSG;
    for (;;) {
        struct token token;
        int r = token_read(data + at, len - at, &token);

        if (r == 0)
            r = scan_walk_value(&walk, &token);
        if (r < 0)
            return r;
        at += token.head + (size_t)token.body;
        /* `missing` counts values not yet begun; one begun here comes off its parent's count. */
        while (walk.depth > 0 && walk.missing[walk.depth - 1] == 0)
            walk.depth--;
        if (walk.depth == 0)
            break;
        walk.missing[walk.depth - 1]--;
    }
    if (!ret_len && at != len)
        return -EBADMSG;
    if (ret_len)
        *ret_len = at;
    return 0;
}
