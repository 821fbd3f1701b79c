/* Pixels of four bytes, R, G, B and any, as planes of one byte each. Pure; any thread. */
#ifndef DL_DATA_PLANES_H
#define DL_DATA_PLANES_H

#include "daemon/data/decode/image/picture.h"

/* Pixels of the smallest picture that is written past the cache. */
enum { PLANES_STREAM_MIN = 128 * 128 };

/* The first `channels`, 1 to 3, of `n` pixels: channels times n bytes, at any address. near: this
 * processor reads them at once, so that they stay in its cache. */
void planes_write(const uint8_t *restrict pixels, size_t n, uint32_t channels, bool near,
                  uint8_t *restrict out);

#endif
