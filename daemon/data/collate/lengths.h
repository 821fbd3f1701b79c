/*
 * Lengths in tokens of the samples of a map-style dataset: what batches of tokens are planned with.
 *
 * A dataset that knows them without loading a sample says so by its `lengths` function, or by the
 * shape that all its samples have; of another one, each sample is loaded and looked at. The length
 * is the first dimension of a leaf. Its path is written as in collate.fields ("tokens", "pair.0");
 * NULL is the first leaf in preorder that has a dimension.
 */
#ifndef DL_LENGTHS_H
#define DL_LENGTHS_H

#include "daemon/data/base/dataset.h"

/*
 * Writes the lengths of samples first..first+n-1 to `ret`. Returns 0, or a negative errno with
 * `err`, and *ret_bad = the sample at fault, or UINT64_MAX: it cannot be had; it has no such leaf,
 * or that has no dimension; it has no token, or more than UINT32_MAX. -ERANGE: there are not so
 * many samples. `ret` means nothing then. May load all of these samples: ask for a few at a time.
 */
int _nodiscard_ dataset_lengths(struct dataset *ds, const char *leaf, uint64_t first, size_t n,
                                uint32_t *ret, uint64_t *ret_bad, struct dl_error *err);

/*
 * For people who compare lengths: -EINVAL where there are none to compare, since all samples have
 * one shape, or since a sample is no sequence: of more than two dimensions, as a picture is, where
 * `leaf` does not say that the first one counts. Looks at one sample, which may be loaded.
 */
int _nodiscard_ lengths_check_sequences(struct dataset *ds, const char *leaf, struct dl_error *err);

/*
 * For datasets made of datasets: the same of samples that exist, as far as it is known without
 * loading any. What is not known is LENGTH_UNKNOWN, which whoever asked first loads; an empty
 * sample is 0. *ret_bad is written on failure alone.
 */
#define LENGTH_UNKNOWN UINT32_MAX
int _nodiscard_ dataset_known_lengths(struct dataset *ds, const char *leaf, uint64_t first,
                                      size_t n, uint32_t *ret, uint64_t *ret_bad,
                                      struct dl_error *err);

/*
 * A number that changes when the lengths may have: XXH3-64 of the dataset's canonical form, the
 * leaf's path, and of each of its files, patterns expanded, the name, size, times of last change
 * and first and last 4 KiB. 0: it cannot be told, as of a plug-in's or Python's dataset. Reads
 * files; those that cannot be read, or that opening the dataset would refuse, give 0.
 */
uint64_t lengths_fingerprint(const struct spec_dataset *spec, const char *leaf,
                             const struct data_env *env);

#endif
