/* Token ids made int64, as embedding layers want them, on their way to the batch. Pure. */
#ifndef DL_DATA_WIDEN_H
#define DL_DATA_WIDEN_H

#include <stdint.h>

/* Lines of the next tokens to prefetch, until the hardware prefetcher takes over. */
enum { WIDEN_AHEAD_LINES = 8 };

/* `n` integers of `dtype`, of any alignment and at most 64 bits; uint64 is copied as it is. The
 * memory does not overlap. */
void widen_tokens(uint32_t dtype, const void *from, int64_t *to, uint64_t n);

#endif
