/*
 * All kinds of dataset, by the table proto/kinds.def: what opens each, and which files it reads.
 *
 * A new kind is a row there and a folder beside this file, which has its functions; both tables are
 * made of the rows. Datasets made of datasets open the ones inside by dataset_open_at().
 */
#ifndef DL_DATA_KINDS_H
#define DL_DATA_KINDS_H

#include "daemon/data/files/globs.h"
#include "proto/kinds.h"

/*
 * Opens a dataset of one kind. `place` is its place in the spec ("dataset.datasets.1"), for
 * messages. `env` is borrowed for the dataset's life. Errors name the file (err->path) and its
 * defect: missing, truncated, wrong magic, size that does not fit the shape, unequal lengths.
 */
typedef int dataset_opener(const struct spec_dataset *spec, const char *place,
                           const struct data_env *env, struct dataset **ret, struct dl_error *err);
#define DATASET(NAME, name, ...) _nodiscard_ dataset_opener name##_open;
#include "proto/kinds.def"

/* Lists the files that a dataset reads, existing or not, in the empty `ret`, which the caller frees
 * even on failure. Errors as of file_list_make(). */
typedef int dataset_lister(const struct spec_dataset *spec, const struct data_env *env,
                           struct file_list *ret, struct dl_error *err);
#define LISTER_NOTHING(name)
#define LISTER_NAMED(name)
#define LISTER_PATTERNS(name)
#define LISTER_OWN(name)                             _nodiscard_ dataset_lister name##_list_files;
#define DATASET(NAME, name, style, files, list, ...) LISTER_##list(name)
#include "proto/kinds.def"
#undef LISTER_NOTHING
#undef LISTER_NAMED
#undef LISTER_PATTERNS
#undef LISTER_OWN

/* dataset_open() for a dataset anywhere in the spec. */
int _nodiscard_ dataset_open_at(const struct spec_dataset *spec, const char *place,
                                const struct data_env *env, struct dataset **ret,
                                struct dl_error *err);

/*
 * The files of spec->files and the model, without those of the datasets inside it; patterns
 * expanded, existing or not. Not the files in a folder of images, which class_list.h lists. Errors
 * as of file_list_make(); -ENOTSUP for code, whose files are unknown.
 */
dataset_lister spec_files_list;

#endif
