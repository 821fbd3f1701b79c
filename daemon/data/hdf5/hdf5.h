/*
 * HDF5: datasets of one file that have equally many rows, map-style: sample i has row i of each.
 * What is read of the format: hdf5_head.h and hdf5_array.h.
 *
 * A reader of our own: libhdf5 opens files by their names, loads filters as libraries, has one
 * state for the whole process, and trusts what a file says.
 */
#ifndef DL_DATA_HDF5_H
#define DL_DATA_HDF5_H

#include "daemon/data/dataset.h"

int _nodiscard_ hdf5_open(const struct spec_dataset *spec, const char *place,
                          const struct data_env *env, struct dataset **ret, struct dl_error *err);

#endif
