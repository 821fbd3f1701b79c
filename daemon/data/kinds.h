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

struct kind_lacks {
    char text[512];
};

/* What cannot be done of the kind, and why, in words; false, and no text: nothing is missing. Looks
 * for libraries that are found at run time. */
bool data_kind_lacks(enum dataset_kind kind, struct kind_lacks *ret);

#endif
