/*
 * A fingerprint of files in the making: XXH3-64 of what is added, one after another. The first
 * failure sticks, so that only the end has to be asked about it.
 */
#ifndef DL_DATA_FILE_PRINT_H
#define DL_DATA_FILE_PRINT_H

#include "daemon/data/dataset.h"

struct file_print {
    void *hash; /* owned */
    const struct data_env *env;
    int r;
};

void file_print_begin(struct file_print *print, const struct data_env *env);

/* The hash, never 0; or 0: something failed. Frees what there is. */
uint64_t file_print_end(struct file_print *print);

/* Bytes with their number, so that two texts are not taken for two others of the same letters. */
void file_print_add(struct file_print *print, const void *data, uint64_t bytes);
void file_print_number(struct file_print *print, uint64_t number);

/* Opens a data file and adds its size and its first and last 4 KiB. Returns the descriptor, for
 * whoever wants to know more of it, or a negative errno, which also sticks. */
int file_print_file(struct file_print *print, const char *path);

#endif
