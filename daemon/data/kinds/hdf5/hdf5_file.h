/*
 * An open HDF5 file and those of its datasets that are read. For the supported format see
 * hdf5_head.h and hdf5_array.h; for libhdf5 hdf5_foreign.h.
 *
 * Our own reader is tried first: libhdf5 has one state for the whole process, trusts the file's
 * content, and reads fewer rows a second. Not thread-safe.
 */
#ifndef DL_DATA_HDF5_FILE_H
#define DL_DATA_HDF5_FILE_H

#include "daemon/data/field/field_choice.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/hdf5/hdf5_array.h"
#include "daemon/data/kinds/hdf5/hdf5_foreign.h"

struct hdf5_file {
    char *path; /* owned */
    struct source source;
    struct hdf5_view view;
    struct hdf5_foreign *foreign; /* owned; the file by libhdf5; NULL: it was not needed so far */
    struct hdf5_array *arrays;    /* owned; n_fields of them */
    struct spec_field *fields;    /* owned; of each its name in the sample, and in the file */
    uint32_t n_fields;
    struct hdf5_cache cache;
};

/*
 * Opens the file at `path`, with chunks kept in `cache` bytes, and the datasets that `choice`
 * names, or all of the root: at least one, in the order of their names. Errors name the file. Close
 * it on failure, too.
 */
int _nodiscard_ hdf5_file_open(const char *path, const struct data_env *env, uint64_t cache,
                               const struct field_choice *choice, struct hdf5_file *ret,
                               struct dl_error *err);
void hdf5_file_close(struct hdf5_file *file); /* zeroes it; a zeroed one is fine */

/* Copies row `row` of array `i`, of numbers; as hdf5_array_read(). */
int _nodiscard_ hdf5_file_read(struct hdf5_file *file, uint32_t i, uint64_t row, uint8_t *out,
                               struct dl_error *err);

/*
 * Adds a dict of the arrays, each whole, at the end of `ret`. Numbers in one piece stay where they
 * lie: the file must stay open as long as the sample's bytes. Errors name the file: also -ENOTSUP
 * of text, and -EFBIG.
 */
int _nodiscard_ hdf5_file_add(struct hdf5_file *file, struct sample *ret, struct dl_error *err);

#endif
