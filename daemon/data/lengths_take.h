/* All lengths of a dataset at once, for who plans batches of tokens in the process that has it. */
#ifndef DL_LENGTHS_TAKE_H
#define DL_LENGTHS_TAKE_H

#include "daemon/data/base/dataset.h"

/*
 * The lengths of all samples of `ds`, to be freed by the caller; from the cache in the directory
 * `dir`, if they are there (NULL or "": there is no cache), which they are put into if it took long
 * to take them. It reports its progress to the environment. Refuses what batches of tokens
 * cannot be made of, as lengths_check().
 */
int _nodiscard_ lengths_take(struct dataset *ds, const struct dl_spec *spec,
                             const struct data_env *env, const char *dir, uint32_t **ret,
                             struct dl_error *err);

#endif
