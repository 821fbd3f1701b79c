/*
 * Datasets that our own reader (hdf5_array.h) refuses, read by libhdf5: it gets the file's mapped
 * bytes, opens nothing by name, and follows no link to another file. It returns numbers in the
 * machine's byte order, as h5py does.
 *
 * A part of a compound is named as if the compound were a group: "table/pressure". Not thread-safe.
 */
#ifndef DL_DATA_HDF5_FOREIGN_H
#define DL_DATA_HDF5_FOREIGN_H

#include "daemon/data/kinds/hdf5/hdf5_array.h"

struct hdf5_foreign; /* a file */

/* The bytes are borrowed while it is open. -ENOTSUP: libhdf5 was not found; -EINVAL: it cannot read
 * the file; -ENOMEM. Errors name the file. */
int _nodiscard_ hdf5_foreign_open(const struct hdf5_view *view, struct hdf5_foreign **ret,
                                  struct dl_error *err);
struct hdf5_foreign *hdf5_foreign_close(struct hdf5_foreign *file); /* NULL in, NULL out */

/* For each dataset of the root, in the order of their names; `at` is 0. */
int _nodiscard_ hdf5_foreign_walk(const struct hdf5_foreign *file, hdf5_link_fn fn, void *owner,
                                  struct dl_error *err);

/* As hdf5_array_open(), of the dataset, or the part of one, at `name`, with chunks kept in
 * `cache` bytes. */
int _nodiscard_ hdf5_foreign_open_array(const struct hdf5_foreign *file, const char *name,
                                        uint64_t cache, struct hdf5_array *ret,
                                        struct dl_error *err);

/* For hdf5_array.h, of an array of this kind. Of HDF5_TEXT_POINTER, `out` becomes a char * that is
 * the caller's to free(); NULL for missing text. */
int _nodiscard_ hdf5_foreign_read(const struct hdf5_array *array, uint64_t row, void *out,
                                  struct dl_error *err);
void hdf5_foreign_close_array(struct hdf5_array *array);

#endif
