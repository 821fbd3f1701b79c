/*
 * Rows of pixels between one or three bytes a pixel, as files and programs have them, and four, as
 * a picture has them (picture.h): R, G, B and any. Pure; any thread.
 */
#ifndef DL_DATA_PIXEL_ROWS_H
#define DL_DATA_PIXEL_ROWS_H

#include "daemon/data/decode/image/picture.h"

/* `n` pixels from three bytes each to four, of which the last may be anything; nothing behind the
 * last pixel is read or written. */
void pixel_rows_widen(const uint8_t *restrict in, size_t n, uint8_t *restrict out);

/* From one byte each, which R, G and B then all are. Likewise. */
void pixel_rows_spread(const uint8_t *restrict in, size_t n, uint8_t *restrict out);

/* From four bytes to three. Likewise. */
void pixel_rows_narrow(const uint8_t *restrict in, size_t n, uint8_t *restrict out);

#endif
