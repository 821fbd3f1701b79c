/*
 * Snappy and LZ4: literals, and copies of what came out already. Both are decoded through one pair
 * of functions that check each step against what there is and what there is room for.
 */
#include "daemon/data/files/lz.h"

#include <errno.h>
#include <xxhash.h>

struct lz {
    const uint8_t *at, *end; /* borrowed; the rest of the input */
    uint8_t *begin, *out, *limit;
};

/* Short runs are copied in steps of 16 bytes where both sides have room: the excess is overwritten
 * by what comes next. */
enum { STEP = 16, SHORT = 64 };

static bool lz_literal(struct lz *lz, uint64_t bytes)
{
    uint64_t in = (uint64_t)(lz->end - lz->at), room = (uint64_t)(lz->limit - lz->out);

    if (bytes <= STEP && in >= STEP && room >= STEP)
        memcpy(lz->out, lz->at, STEP);
    else if (bytes > in || bytes > room)
        return false;
    else
        memcpy(lz->out, lz->at, bytes);
    lz->at += bytes;
    lz->out += bytes;
    return true;
}

/* `bytes` from `offset` bytes before, which may run into themselves. */
static bool lz_copy(struct lz *lz, uint64_t offset, uint64_t bytes)
{
    uint64_t room = (uint64_t)(lz->limit - lz->out);
    uint8_t *out = lz->out;

    if (offset == 0 || offset > (uint64_t)(out - lz->begin) || bytes > room)
        return false;
    lz->out += bytes;
    if (offset >= STEP && bytes <= SHORT && room >= SHORT) {
        for (unsigned i = 0; i < SHORT; i += STEP)
            memcpy(out + i, out + i - offset, STEP);
        return true;
    }
    if (offset >= bytes) {
        memcpy(out, out - offset, bytes);
        return true;
    }
    /* What was copied doubles what can be copied at once. */
    for (uint64_t period = offset; bytes > 0; period *= 2) {
        uint64_t n = min_u64(period, bytes);
        memcpy(out, out - period, n);
        out += n;
        bytes -= n;
    }
    return true;
}

/* `n` bytes, little-endian; the caller knows that they are there. */
static uint32_t lz_number(struct lz *lz, unsigned n)
{
    uint32_t number = 0;

    for (unsigned i = 0; i < n; i++)
        number |= (uint32_t)*lz->at++ << (8 * i);
    return number;
}

/* ---- snappy --------------------------------------------------------------------------------- */

static bool lz_snappy_length(struct lz *lz, uint64_t *ret)
{
    uint64_t n = 0;

    for (unsigned shift = 0; shift < 35 && lz->at < lz->end; shift += 7) {
        uint8_t byte = *lz->at++;
        n |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            *ret = n;
            return true;
        }
    }
    return false;
}

static bool lz_snappy_element(struct lz *lz)
{
    static const uint8_t extra[] = {0, 1, 2, 4};
    uint8_t tag = *lz->at++, sort = tag & 3;
    uint64_t bytes = tag >> 2, left = (uint64_t)(lz->end - lz->at);

    if (sort == 0) {
        unsigned more = bytes < 60 ? 0 : (unsigned)bytes - 59;
        if (more > left)
            return false;
        if (more > 0)
            bytes = lz_number(lz, more);
        return lz_literal(lz, bytes + 1);
    }
    if (left < extra[sort])
        return false;
    uint64_t offset = lz_number(lz, extra[sort]);
    if (sort == 1)
        return lz_copy(lz, offset | (uint64_t)(tag >> 5) << 8, ((tag >> 2) & 7) + 4);
    return lz_copy(lz, offset, bytes + 1);
}

static struct lz lz_begin(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room)
{
    struct lz lz = {.at = data, .end = data + bytes, .begin = ret, .limit = ret + room};

    lz.out = ret;
    return lz;
}

int snappy_unpack(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room)
{
    struct lz lz = lz_begin(data, bytes, ret, room);
    uint64_t length;

    if (!lz_snappy_length(&lz, &length) || length != room)
        return -EINVAL;
    while (lz.at < lz.end)
        if (!lz_snappy_element(&lz))
            return -EINVAL;
    return lz.out == lz.limit ? 0 : -EINVAL;
}

/* ---- LZ4 ------------------------------------------------------------------------------------ */

/* A length whose first four bits are all ones continues in bytes, up to one that is not 255. */
static bool lz_lz4_length(struct lz *lz, uint64_t *n)
{
    uint8_t byte = 255;

    while (*n >= 15 && byte == 255) {
        if (lz->at == lz->end)
            return false;
        byte = *lz->at++;
        *n += byte;
    }
    return true;
}

static bool lz_lz4_sequence(struct lz *lz)
{
    uint8_t token = *lz->at++;
    uint64_t literals = token >> 4, bytes = token & 15;

    if (!lz_lz4_length(lz, &literals) || !lz_literal(lz, literals))
        return false;
    if (lz->at == lz->end)
        return bytes == 0; /* the last one ends here */
    if (lz->end - lz->at < 2)
        return false;
    uint64_t offset = lz_number(lz, 2);
    return lz_lz4_length(lz, &bytes) && lz_copy(lz, offset, bytes + 4);
}

int lz4_unpack(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room)
{
    struct lz lz = lz_begin(data, bytes, ret, room);

    while (lz.at < lz.end)
        if (!lz_lz4_sequence(&lz))
            return -EINVAL;
    return lz.out == lz.limit ? 0 : -EINVAL;
}

/* ---- LZ4's frames --------------------------------------------------------------------------- */

enum {
    FRAME_MAGIC = 0x184D2204,
    FRAME_VERSION = 1 << 6, /* of the two bits on top */
    FRAME_VERSIONS = 3 << 6,
    FRAME_BLOCK_SUMS = 1 << 4,
    FRAME_SIZE = 1 << 3,
    FRAME_SUM = 1 << 2,
    FRAME_DICTIONARY = 1,
};
#define FRAME_PLAIN_BLOCK UINT32_C(0x80000000)

/* XXH32 is what a frame has its sums by; a sum of four bytes stands behind what it is of. */
static bool lz_frame_sum(struct lz *lz, const uint8_t *from, uint64_t bytes)
{
    return lz->end - lz->at >= 4 && lz_number(lz, 4) == XXH32(from, bytes, 0);
}

/* [magic] [flags] [blocks' size] [content's size: 8, if any] [a sum: 1]; *ret_flags. */
static bool lz_frame_head(struct lz *lz, uint8_t *ret_flags)
{
    if (lz->end - lz->at < 7 || lz_number(lz, 4) != FRAME_MAGIC)
        return false;
    const uint8_t *head = lz->at;
    uint8_t flags = *head;
    uint64_t bytes = flags & FRAME_SIZE ? 10 : 2;
    if ((flags & FRAME_VERSIONS) != FRAME_VERSION || flags & FRAME_DICTIONARY ||
        (uint64_t)(lz->end - head) < bytes + 1)
        return false;
    lz->at += bytes;
    *ret_flags = flags;
    return *lz->at++ == (XXH32(head, bytes, 0) >> 8 & 0xFF);
}

/* One block, whose copies may refer to earlier blocks. */
static bool lz_frame_block(struct lz *lz, uint32_t bytes, bool plain)
{
    const uint8_t *end = lz->end;
    bool good = true;

    if (plain)
        return lz_literal(lz, bytes);
    lz->end = lz->at + bytes;
    while (good && lz->at < lz->end)
        good = lz_lz4_sequence(lz);
    lz->end = end;
    return good;
}

int lz4_unpack_frame(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room)
{
    struct lz lz = lz_begin(data, bytes, ret, room);
    uint8_t flags;

    if (!lz_frame_head(&lz, &flags))
        return -EINVAL;
    for (;;) {
        if (lz.end - lz.at < 4)
            return -EINVAL;
        uint32_t block = lz_number(&lz, 4), size = block & ~FRAME_PLAIN_BLOCK;
        const uint8_t *from = lz.at;
        if (block == 0)
            break;
        if (size > (uint64_t)(lz.end - lz.at) || !lz_frame_block(&lz, size, block != size) ||
            (flags & FRAME_BLOCK_SUMS && !lz_frame_sum(&lz, from, size)))
            return -EINVAL;
    }
    if (flags & FRAME_SUM && !lz_frame_sum(&lz, ret, room))
        return -EINVAL;
    return lz.out == lz.limit && lz.at == lz.end ? 0 : -EINVAL;
}
