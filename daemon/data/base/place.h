/* Where something stands in a spec, for messages: "dataset.datasets.1", "dataset.indices". */
#ifndef DL_DATA_PLACE_H
#define DL_DATA_PLACE_H

#include "proto/common/error.h"

/* `key` at `place`, and item `i` of the list `key`; cut where it is long. */
void place_key(char ret[static DL_ERROR_PATH_MAX], const char *place, const char *key);
void place_item(char ret[static DL_ERROR_PATH_MAX], const char *place, const char *key, uint32_t i);

#endif
