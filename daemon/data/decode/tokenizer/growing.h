/*
 * Bytes and ids that grow as they are appended to. All zero: empty. Not thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_GROWING_H
#define DL_DATA_TOKENIZER_GROWING_H

#include "proto/common/array.h"
#include "proto/common/base.h"

#include <errno.h>

struct growing_bytes {
    uint8_t *data; /* owned */
    size_t n;
    size_t room;
};

struct growing_ids {
    uint32_t *data; /* owned */
    size_t n;
    size_t room;
};

static inline int _nodiscard_ growing_bytes_reserve(struct growing_bytes *to, size_t more)
{
    return array_reserve(to->data, to->room, to->n + more) ? 0 : -ENOMEM;
}

static inline int _nodiscard_ growing_bytes_add(struct growing_bytes *to, const void *data,
                                                size_t n)
{
    int r = growing_bytes_reserve(to, n);

    if (r < 0 || n == 0)
        return r;
    memcpy(to->data + to->n, data, n);
    to->n += n;
    return 0;
}

static inline int _nodiscard_ growing_ids_add(struct growing_ids *to, const uint32_t *ids, size_t n)
{
    if (!array_reserve(to->data, to->room, to->n + n))
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        to->data[to->n++] = ids[i];
    return 0;
}

static inline int _nodiscard_ growing_ids_add_one(struct growing_ids *to, uint32_t id)
{
    return growing_ids_add(to, &id, 1);
}

#endif
