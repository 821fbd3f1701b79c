/* What this installation can read: each kind of dataset, and what it lacks. */
#ifndef DL_DATA_KINDS_H
#define DL_DATA_KINDS_H

#include "proto/spec.h"

struct kind_entry {
    enum dataset_kind kind;
    const char *style; /* "map", "iterable", or "either" */
    const char *reads; /* for people */
};

/* All kinds. */
const struct kind_entry *data_kinds(size_t *ret_count);

/* What cannot be done of the kind, and why, in words; NULL: nothing is missing. Looks for libraries
 * that are found at run time. */
const char *data_kind_lacks(enum dataset_kind kind);

#endif
