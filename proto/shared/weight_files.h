/*
 * Weights of samples kept in files by clients: by the one that set them, and by one that resumes
 * from a state that names them. Each table is a file in a directory, named after its checksum:
 * sixteen hexadecimal digits and ".f64". It holds only the weights. No file is ever removed: only
 * the user knows which states are still needed. Blocks on the disk; any thread, and several
 * processes may share a directory.
 */
#ifndef DL_WEIGHT_FILES_H
#define DL_WEIGHT_FILES_H

#include "proto/mix_changes.h"

#include <limits.h>

/* $DLOADER_WEIGHTS, or dloader/weights below $XDG_STATE_HOME or ~/.local/state; "": nowhere. */
void weight_files_dir(char ret[PATH_MAX]);

/* Writes them, creating the directory if needed (mode 0700), atomically and durably. Negative errno
 * with `err`. */
int _nodiscard_ weight_files_store(const char *dir, const double *weights, uint64_t n,
                                   struct dl_error *err);

/* Loads the table of that checksum: -ENOENT, -EINVAL (wrong length, damaged) or another negative
 * errno, with the remedy. */
int _nodiscard_ weight_files_load(const char *dir, uint64_t sum, uint64_t n,
                                  struct weight_table **ret, struct dl_error *err);

/* The tables of a list that an epoch needs and that are not in it yet. As weight_files_load(). */
int _nodiscard_ weight_files_fill(const char *dir, struct mix_changes *changes, uint64_t epoch,
                                  struct dl_error *err);

#endif
