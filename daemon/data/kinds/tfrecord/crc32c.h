/* CRC-32C, Castagnoli's polynomial, as in RFC 3720 (iSCSI); and TFRecord's mask of it. Pure. */
#ifndef DL_DATA_CRC32C_H
#define DL_DATA_CRC32C_H

#include <stddef.h>
#include <stdint.h>

struct crc32c { /* tables, the same for everybody */
    uint32_t table[8][256];
};

void crc32c_init(struct crc32c *crc);
uint32_t crc32c_of(const struct crc32c *crc, const uint8_t *data, size_t bytes);

/* So that a sum over bytes that contain one is a good one too: TensorFlow, tsl/lib/hash/crc32c.h.
 */
static inline uint32_t crc32c_mask(uint32_t sum)
{
    return (sum >> 15 | sum << 17) + 0xA282EAD8U;
}

#endif
