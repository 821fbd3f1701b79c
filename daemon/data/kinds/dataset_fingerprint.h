/*
 * Identifies the data of a dataset, wherever it is stored: an epoch's state resumes only with the
 * same data, and all workers of a loader must have the same.
 *
 * XXH3-64 of the kind, and of the content as far as that is cheap: of each file its size and its
 * first and last 4 KiB, of up to FINGERPRINT_FILES files spread evenly over those that the spec
 * stands for; of a folder of images the names, which are listed anyway, without opening one. No
 * paths and no times, so that a copy is the same data. Code is identified by its name. The number
 * of samples is reported separately, and the spec defines how samples are made from the files.
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
