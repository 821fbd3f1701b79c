/* Eight tables: M. E. Kounavis, F. L. Berry, "A Systematic Approach to Building High Performance
 * Software-Based CRC Generators" (slicing by 8). */
#include "daemon/data/kinds/tfrecord/crc32c.h"

#include <string.h>

enum { SLICE = 8 };

#define POLYNOMIAL 0x82F63B78U /* its bits reversed */

void crc32c_init(struct crc32c *crc)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t sum = i;
        for (unsigned bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? POLYNOMIAL : 0);
        crc->table[0][i] = sum;
    }
    for (unsigned t = 1; t < SLICE; t++)
        for (uint32_t i = 0; i < 256; i++)
            crc->table[t][i] =
                crc->table[t - 1][i] >> 8 ^ crc->table[0][crc->table[t - 1][i] & 0xFF];
}

uint32_t crc32c_of(const struct crc32c *crc, const uint8_t *data, size_t bytes)
{
    uint32_t sum = UINT32_MAX, low, high;

    for (; bytes >= SLICE; data += SLICE, bytes -= SLICE) {
        memcpy(&low, data, sizeof low);
        memcpy(&high, data + sizeof low, sizeof high);
        low ^= sum;
        sum = crc->table[7][low & 0xFF] ^ crc->table[6][low >> 8 & 0xFF] ^
              crc->table[5][low >> 16 & 0xFF] ^ crc->table[4][low >> 24] ^
              crc->table[3][high & 0xFF] ^ crc->table[2][high >> 8 & 0xFF] ^
              crc->table[1][high >> 16 & 0xFF] ^ crc->table[0][high >> 24];
    }
    for (; bytes > 0; data++, bytes--)
        sum = sum >> 8 ^ crc->table[0][(sum ^ *data) & 0xFF];
    return ~sum;
}
