#include "daemon/serve/core/slices.h"

struct plan_rows slices_rows(const struct slices *slices, uint64_t own, uint64_t samples,
                             uint64_t repeated)
{
    if (!slices_cut(slices))
        return (struct plan_rows){0, samples, repeated};
    uint64_t first = min_u64(own % slices->n * slices->size, samples);
    uint64_t end = min_u64(first + slices->size, samples);
    uint64_t once = samples - min_u64(repeated, samples); /* the others come behind these */

    return (struct plan_rows){first, end - first, end - max_u64(min_u64(once, end), first)};
}
