/* Seeds that nobody has given. */
#ifndef DL_SEED_H
#define DL_SEED_H

#include "proto/error.h"

/* Below 2^53: Python and JSON have trouble above that, torch above 2^63, and enough are left. */
int _nodiscard_ seed_draw(uint64_t *ret, struct dl_error *err);

#endif
