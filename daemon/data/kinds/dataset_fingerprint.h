/*
 * By what the data of a dataset is recognised, wherever it lies: a state of an epoch goes on with
 * the same data only, and all workers of a loader must have the same.
 *
 * XXH3-64 of the kind, and of the content as far as that is had for little: of each file its size
 * and its first and last 4 KiB, of up to FINGERPRINT_FILES files spread evenly over those that the
 * spec stands for; of a folder of images the names, which are listed anyway, without opening one.
 * No paths and no times, so that a copy is the same data. Code is known by what it is called. How
 * many samples there are is told besides, and how they are taken from the files stands in the spec.
 */
#ifndef DL_DATA_DATASET_FINGERPRINT_H
#define DL_DATA_DATASET_FINGERPRINT_H

#include "daemon/data/base/dataset.h"

enum { FINGERPRINT_FILES = 1024 };

/*
 * Of the files that the spec names itself, without the datasets inside it. A file that is not there
 * counts as one that is not there. Reads files. 0 and *ret, which is never 0; else as of
 * spec_files_list().
 */
int _nodiscard_ dataset_fingerprint(const struct spec_dataset *spec, const struct data_env *env,
                                    uint64_t *ret, struct dl_error *err);

#endif
