/* Numbers of files and messages, which may lie at any address. */
#ifndef DL_LOAD_H
#define DL_LOAD_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define LOAD(name, type, convert)                  \
    static inline type load_##name(const void *at) \
    {                                              \
        type n;                                    \
                                                   \
        memcpy(&n, at, sizeof n);                  \
        return convert(n);                         \
    }
LOAD(le16, uint16_t, le16toh)
LOAD(le32, uint32_t, le32toh)
LOAD(le64, uint64_t, le64toh)
LOAD(be32, uint32_t, be32toh)
#undef LOAD

static inline void store_le64(void *at, uint64_t n)
{
    n = htole64(n);
    memcpy(at, &n, sizeof n);
}

#endif
