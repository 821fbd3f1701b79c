/*
 * torch's generator on the CPU: MT19937, seeded as torch.Generator().manual_seed() seeds it.
 *
 * A value type: copy it to fork a stream. No allocation, no global state, not thread-safe.
 */
#ifndef DL_PLAN_MT19937_H
#define DL_PLAN_MT19937_H

#include "proto/common/base.h"

enum { MT19937_WORDS = 624 };

struct mt19937 {
    uint32_t words[MT19937_WORDS];
    unsigned next; /* first word not handed out; MT19937_WORDS: the block is used up */
};

/* Only the low 32 bits of the seed count, as in torch: 42 and 2^32 + 42 give one stream. */
void mt19937_init(struct mt19937 *mt, uint64_t seed);

/* torch's random() and random64(); the latter is two of the former, the first one on top. */
uint32_t mt19937_next32(struct mt19937 *mt);
uint64_t mt19937_next64(struct mt19937 *mt);

#endif
