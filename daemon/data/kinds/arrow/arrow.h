/*
 * Arrow IPC files and streams as a dataset: a sample is a row. Of one shape where all columns are
 * numbers or fixed lists of numbers; of varying shape otherwise.
 */
#ifndef DL_DATA_ARROW_H
#define DL_DATA_ARROW_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/globs.h"

/*
 * The same for `files`, chunks of litData's that each end with such a file; refused unless they
 * have `rows` rows in all. `files` is emptied.
 */
int _nodiscard_ arrow_open_chunks(const struct spec_dataset *spec, const char *place,
                                  const struct data_env *env, struct file_list *files,
                                  uint64_t rows, struct dataset **ret, struct dl_error *err);

#endif
