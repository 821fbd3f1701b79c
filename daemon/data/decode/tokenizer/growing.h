/*
 * Bytes and ids that grow as they are appended to. All zero: empty. Not thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_GROWING_H
#define DL_DATA_TOKENIZER_GROWING_H

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

/* Room for `more` elements of `size` bytes behind the n that are there. -ENOMEM. */
static inline int _nodiscard_ growing_reserve(void **data, size_t *room, size_t n, size_t more,
                                              size_t size)
{
    uint64_t need, bytes;

    if (more <= *room - n)
        return 0;
    need = max_u64(*room, 32);
    while (need - n < more)
        if (add_overflows(need, need, &need))
            return -ENOMEM;
    if (mul_overflows(need, size, &bytes))
        return -ENOMEM;
    void *bigger = realloc(*data, bytes);
    if (!bigger)
        return -ENOMEM;
    *data = bigger;
    *room = need;
    return 0;
}

static inline int _nodiscard_ growing_bytes_reserve(struct growing_bytes *to, size_t more)
{
    void *data = to->data;
    int r = growing_reserve(&data, &to->room, to->n, more, 1);

    to->data = data;
    return r;
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
    void *data = to->data;
    int r = growing_reserve(&data, &to->room, to->n, n, sizeof *ids);

    to->data = data;
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        to->data[to->n++] = ids[i];
    return 0;
}

static inline int _nodiscard_ growing_ids_add_one(struct growing_ids *to, uint32_t id)
{
    return growing_ids_add(to, &id, 1);
}

#endif
