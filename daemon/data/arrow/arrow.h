/*
 * Arrow IPC files and streams as a dataset: a sample is a row. Of one shape where all columns are
 * numbers or fixed lists of numbers; of varying shape otherwise.
 */
#ifndef DL_DATA_ARROW_H
#define DL_DATA_ARROW_H

#include "daemon/data/dataset.h"

/* Errors name the file, or the key below `place`. */
int _nodiscard_ arrow_open(const struct spec_dataset *spec, const char *place,
                           const struct data_env *env, struct dataset **ret, struct dl_error *err);

#endif
