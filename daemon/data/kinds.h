/* What this build can read: each kind of dataset, and what it lacks. Pure. */
#ifndef DL_DATA_KINDS_H
#define DL_DATA_KINDS_H

#include "proto/spec.h"

struct kind_entry {
    enum dataset_kind kind;
    const char *style;   /* "map", "iterable", or "either" */
    const char *reads;   /* for people */
    const char *without; /* what it cannot do here, and why; NULL: nothing is missing */
};

/* All kinds, in the order of the spec's table. */
const struct kind_entry *data_kinds(size_t *ret_count);

#endif
