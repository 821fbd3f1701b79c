/*
 * The files of an Arrow dataset: those that the spec names, and in a directory those that Hugging
 * Face's `datasets` wrote: by Dataset.save_to_disk(), listed in state.json, or into its cache,
 * named in dataset_info.json.
 */
#ifndef DL_DATA_ARROW_FILES_H
#define DL_DATA_ARROW_FILES_H

#include "daemon/data/files/globs.h"

struct arrow_files {          /* all zero is empty */
    struct file_list data;    /* in the order of their rows */
    struct file_list indices; /* rows that are the samples; empty: all in order */
    struct file_list others;  /* what names these */
};

/* Errors as of file_list_make(), and what the files of a directory say that cannot be read. */
int _nodiscard_ arrow_files_find(const struct spec_dataset *spec, const struct data_env *env,
                                 struct arrow_files *ret, struct dl_error *err);
void arrow_files_deinit(struct arrow_files *files);

#endif
