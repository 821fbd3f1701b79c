/*
 * What each kind of dataset is read from: the one place that says so, for those who want to know a
 * spec's files without opening the dataset.
 */
#ifndef DL_DATA_SPEC_FILES_H
#define DL_DATA_SPEC_FILES_H

#include "daemon/data/globs.h"

enum files_sort {
    FILES_NONE,   /* it computes, or is made of the datasets inside it */
    FILES_NAMED,  /* spec->files as they are called, opened with the dataset */
    FILES_LISTED, /* paths and patterns of globs.h, and the model if there is one; likewise */
    FILES_SHARDS, /* the same, but opened again in each epoch, and maybe replaced by then */
    FILES_KNOWN,  /* likewise, under names that follow from those */
    FILES_FOLDER, /* a folder that is listed, with links that may lead anywhere */
    FILES_PLUGIN, /* a library, which reads what it likes */
    FILES_CODE,   /* Python, likewise */
};

enum files_sort files_sort_of(enum dataset_kind kind);

/*
 * The files of spec->files and the model, without those of the datasets inside it; patterns
 * expanded, and whether there is such a file or not. Of a folder of images none:
 * class_list.h lists it.
 * Errors as of file_list_make(); -ENOTSUP: it is code, of which nobody knows what it reads.
 */
int _nodiscard_ spec_files_list(const struct spec_dataset *spec, const struct data_env *env,
                                struct file_list *ret, struct dl_error *err);

#endif
