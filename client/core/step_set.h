/*
 * A set of steps. If batches come in any order, it holds the steps that have arrived: a step that
 * arrives twice is refused, and another daemon is asked only for the others. In order, the number
 * of the next step suffices.
 *
 * A hash set with open addressing, at most half full. UINT64_MAX is not a step.
 */
#ifndef DL_CLIENT_STEP_SET_H
#define DL_CLIENT_STEP_SET_H

#include "proto/common/base.h"

struct step_set {
    uint64_t *places; /* owned; a step plus one, or 0: free */
    size_t count;
    size_t cap; /* 0 or a power of two */
};

bool step_set_has(const struct step_set *set, uint64_t step);
int _nodiscard_ step_set_add(struct step_set *set,
                             uint64_t step);               /* one that is not in it; 0 or -ENOMEM */
void step_set_remove(struct step_set *set, uint64_t step); /* does nothing where it is not in it */
void step_set_deinit(struct step_set *set);

#endif
