/*
 * Weights of samples kept in files, by whoever has to find them again: a client that gave them, or
 * that resumes from a state which names them. One file for each table in a directory, called by its
 * sum, sixteen hexadecimal digits and ".f64", with nothing in it but the weights. None is ever
 * removed: only its user knows which states are still needed. Blocks on the disk; any thread, and
 * several processes may use a directory at once.
 */
#ifndef DL_WEIGHT_FILES_H
#define DL_WEIGHT_FILES_H

#include "proto/mix_changes.h"

#include <limits.h>

/* $DLOADER_WEIGHTS, or dloader/weights below $XDG_STATE_HOME or ~/.local/state; "": nowhere. */
void weight_files_dir(char ret[PATH_MAX]);

/* Writes them, and the directory if it is not there (mode 0700); at once or not at all. They are
 * on the disk then. Negative errno with `err`. */
int _nodiscard_ weight_files_store(const char *dir, const double *weights, uint64_t n,
                                   struct dl_error *err);

/* Those of that sum: -ENOENT, -EINVAL (of another number, damaged) or another negative errno, with
 * what to do about it. */
int _nodiscard_ weight_files_load(const char *dir, uint64_t sum, uint64_t n,
                                  struct weight_table **ret, struct dl_error *err);

/* The tables of a list that an epoch needs and that are not in it yet. As weight_files_load(). */
int _nodiscard_ weight_files_fill(const char *dir, struct mix_changes *changes, uint64_t epoch,
                                  struct dl_error *err);

#endif
