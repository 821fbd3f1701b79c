/*
 * The bytes of an input, taken one after another by a harness that reads them as what to do. Behind
 * their end there are zeros, so that any input says something whole. What files of a corpus mean
 * depends on it: it does not change.
 */
#ifndef DL_FUZZ_INPUT_H
#define DL_FUZZ_INPUT_H

#include "proto/common/base.h"

struct input {
    const uint8_t *data; /* borrowed */
    size_t len;
};

static inline uint8_t take(struct input *in)
{
    if (in->len == 0)
        return 0;
    in->len--;
    return *in->data++;
}

/* Small numbers as they are; 0xF0.. become the largest, where overflows are. */
static inline uint64_t take_number(struct input *in)
{
    uint8_t byte = take(in);

    return byte < 0xF0 ? byte : UINT64_MAX - (0xFF - byte) * 4095;
}

/* The next bytes as they are: `want` of them, or all that are left. */
static inline const uint8_t *take_bytes(struct input *in, size_t want, size_t *ret_len)
{
    const uint8_t *bytes = in->data;

    *ret_len = min_u64(want, in->len);
    in->data += *ret_len;
    in->len -= *ret_len;
    return bytes;
}

#endif
