/*
 * HDF5: datasets of one file that have equally many rows, map-style: sample i has row i of each.
 * What is read of the format: hdf5_head.h and hdf5_array.h; by libhdf5: hdf5_foreign.h.
 *
 * A reader of our own comes first: libhdf5 has one state for the whole process, trusts what a file
 * says, and gives fewer rows a second.
 */
#ifndef DL_DATA_HDF5_H
#define DL_DATA_HDF5_H

#include "daemon/data/dataset.h"

int _nodiscard_ hdf5_open(const struct spec_dataset *spec, const char *place,
                          const struct data_env *env, struct dataset **ret, struct dl_error *err);

#endif
