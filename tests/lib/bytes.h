/* Bytes of a file that a test puts together, one piece behind another. */
#ifndef DL_TEST_BYTES_H
#define DL_TEST_BYTES_H

#include "tests/lib/harness.h"

enum { ROOM = 8192 };

struct bytes {
    uint8_t data[ROOM];
    size_t len;
};

static inline void put(struct bytes *to, const void *data, size_t len)
{
    assert_true(len <= ROOM - to->len);
    if (len > 0)
        memcpy(to->data + to->len, data, len);
    to->len += len;
}

static inline void put32(struct bytes *to, uint32_t n)
{
    put(to, &n, sizeof n);
}

#endif
