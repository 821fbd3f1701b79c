/* What this installation cannot read of a kind of dataset. */
#ifndef DL_DATA_KIND_LACKS_H
#define DL_DATA_KIND_LACKS_H

#include "proto/kinds.h"

struct kind_lacks {
    char text[512];
};

/* What cannot be done of the kind, and why, in words; false, and no text: nothing is missing. Looks
 * for libraries that are found at run time. */
bool data_kind_lacks(enum dataset_kind kind, struct kind_lacks *ret);

#endif
