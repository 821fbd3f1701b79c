/* Bars, and the time that is left, as text. Pure. */
#ifndef DLCTL_TOP_BARS_H
#define DLCTL_TOP_BARS_H

#include "client/dlctl/top/model.h"

enum { TOP_BAR_MAX = 100 }; /* columns; a text of TOP_TEXT_MAX holds them */

/* `share` of so many columns, in eighths of one where there is Unicode; "-" if it is not known. */
void top_bar(double share, int columns, bool unicode, char *buf, size_t size);

/* The slots of a ring, in proportion: leased, ready, filling, free; "-" if there are none. */
void top_ring_bar(const uint64_t slots[static TOP_SLOTS], int columns, bool unicode, char *buf,
                  size_t size);

/* "12 s", "4:05", "3h07m", "2d03h" or "-". */
void top_left(double seconds, char *buf, size_t size);

#endif
