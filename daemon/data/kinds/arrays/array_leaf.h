/*
 * Whole arrays as leaves of a sample: NumPy's .npy, and .npz (npz.h). What is in a tensor's order,
 * and not packed, stays where it lies. Errors are without a path, and their message continues a
 * file's name; those of the sample's own are not in `err`, and stick in `ret`.
 */
#ifndef DL_DATA_ARRAY_LEAF_H
#define DL_DATA_ARRAY_LEAF_H

#include "daemon/data/base/sample.h"
#include "daemon/data/field/field_choice.h"

enum { ARRAY_UNPACKED_MAX = 1 << 30 };

/* Adds the array of a .npy under `key`, NULL where leaves have none. -EINVAL, -ENOTSUP, -ENOMEM. */
int _nodiscard_ array_leaf_add_npy(const uint8_t *data, uint64_t bytes, const char *key,
                                   struct sample *ret, struct dl_error *err);

/* Adds a dict of the arrays of a .npz; members that are no arrays are bytes, as in numpy.load().
 * With a choice these alone, under their new names. Also -E2BIG, -EFBIG. */
int _nodiscard_ array_leaf_add_npz(const uint8_t *data, uint64_t bytes, const char *key,
                                   const struct field_choice *choice, struct sample *ret,
                                   struct dl_error *err);

#endif
