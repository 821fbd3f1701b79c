/*
 * A set of steps: those that have come, where batches come in any order, to refuse a step that
 * comes twice, and to ask another daemon for the others. Where they come in order, the next one's
 * number tells as much.
 *
 * A hash set with open addressing, at most half full. UINT64_MAX is no step.
 */
#ifndef DL_CLIENT_HELD_H
#define DL_CLIENT_HELD_H

#include "proto/base.h"

struct held {
    uint64_t *places; /* owned; a step plus one, or 0: free */
    size_t count;
    size_t cap; /* 0 or a power of two */
};

bool held_has(const struct held *held, uint64_t step);
int _nodiscard_ held_add(struct held *held, uint64_t step); /* not there yet; 0 or -ENOMEM */
void held_remove(struct held *held, uint64_t step);         /* one that is not there is fine */
void held_deinit(struct held *held);

#endif
