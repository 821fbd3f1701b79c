/*
 * TFRecord files (tfrecord_file.h) as a map-style dataset: the records of the first file first.
 * Each file is mapped, and walked through once, by the first worker that opens it: 8 bytes of
 * memory a record, which all workers of a loader share (tfrecord_index.h).
 *
 * A sample is a record's Example (tfrecord_example.h), a field for each feature, in the order of
 * their names, or of those of the spec's fields; or, with decode: false, {"record": bytes}. Sums
 * are checked: those of the lengths when the file is opened, those of the data when a sample is
 * made.
 */
#ifndef DL_DATA_TFRECORD_H
#define DL_DATA_TFRECORD_H

#include "daemon/data/dataset.h"

int _nodiscard_ tfrecord_open(const struct spec_dataset *spec, const char *place,
                              const struct data_env *env, struct dataset **ret,
                              struct dl_error *err);

#endif
