/*
 * Lengths in tokens of the samples of a map-style dataset, for planning batches of tokens.
 *
 * A dataset that knows them without loading samples has a `lengths` function, or one shape for all;
 * for others, each sample is loaded. The length is the first dimension of a leaf. Its path is
 * written as in collate.fields ("tokens", "pair.0"); NULL is the first leaf in preorder that has a
 * dimension.
 */
#ifndef DL_LENGTHS_H
#define DL_LENGTHS_H

#include "daemon/data/base/dataset.h"

/*
 * Writes the lengths to w->ret. Returns 0, or a negative errno with `err`, and
 * w->bad = the sample at fault, or UINT64_MAX: it cannot be loaded; it lacks the leaf,
 * or that has no dimension; it has no token, or more than UINT32_MAX. -ERANGE: the range exceeds
 * the dataset. w->ret is then undefined. May load all of these samples: request a few at a time.
 */
int _nodiscard_ dataset_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err);

/*
 * For tools that compare lengths: -EINVAL if all samples have one shape, or a sample is not a
 * sequence: it has more than two dimensions, like a picture, and no `leaf` was given. Looks at one
 * sample, which may be loaded.
 */
int _nodiscard_ lengths_check_sequences(struct dataset *ds, const char *leaf, struct dl_error *err);

/*
 * For datasets made of datasets: the same for existing samples, without loading any. Unknown
 * lengths are LENGTH_UNKNOWN, and the outermost caller loads them; an empty sample is 0.
 */
#define LENGTH_UNKNOWN UINT32_MAX
int _nodiscard_ dataset_known_lengths(struct dataset *ds, struct lengths_wanted *w,
                                      struct dl_error *err);

/*
 * A number that changes when the lengths may have: XXH3-64 of the dataset's canonical form, the
 * leaf's path, and of each of its files, patterns expanded, the name, size, times of last change
 * and first and last 4 KiB. 0: unknown, as for a plug-in's or Python's dataset. Reads files; 0 also
 * if one cannot be read, or opening the dataset would refuse it.
 */
uint64_t lengths_fingerprint(const struct spec_dataset *spec, const char *leaf,
                             const struct data_env *env);

#endif
