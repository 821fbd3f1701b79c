/*
 * Bytes of pixels, R, G, B and any, that become what tables of 256 entries have for them; the
 * fourth byte stays or becomes anything. Pure; any thread.
 */
#ifndef DL_DATA_LOOKUP_H
#define DL_DATA_LOOKUP_H

#include "daemon/data/decode/image/picture.h"

enum { LOOKUP_LEVELS = 256 };

struct lookup_tables {
    uint8_t colour[PICTURE_COLOURS][LOOKUP_LEVELS];
};

/* Whether tables take less time than a few sums for each byte: where registers are looked up in. */
bool lookup_is_quick(void);
/* One table for all colours, or one for each, of `n` pixels at any address. */
void lookup_all(uint8_t *pixels, size_t n, const uint8_t table[static LOOKUP_LEVELS]);
void lookup_each(uint8_t *pixels, size_t n, const struct lookup_tables *tables);

#endif
