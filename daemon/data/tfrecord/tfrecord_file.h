/*
 * The records of a TFRecord file in memory, one after another, little-endian: a u64 of the length,
 * a u32 of its masked CRC-32C, the data, and a u32 of theirs. TensorFlow, docs of tf.data,
 * "TFRecords format details". Pure but for memory.
 */
#ifndef DL_DATA_TFRECORD_FILE_H
#define DL_DATA_TFRECORD_FILE_H

#include "daemon/data/tfrecord/crc32c.h"
#include "proto/common/error.h"

struct tfrecord_view {
    const char *path; /* borrowed; of the file, for messages */
    const uint8_t *data;
    uint64_t bytes;
    const struct crc32c *crc; /* borrowed */
};

struct tfrecord_places { /* all zero: no records */
    uint64_t *offsets;   /* owned; where each record begins */
    uint64_t n;
    uint64_t room;
};

void tfrecord_places_deinit(struct tfrecord_places *places);

/* All records of the file, by their lengths, whose sums are checked. -EINVAL with `err` naming file
 * and record: a wrong sum, a file that ends too soon; -ENOMEM. */
int _nodiscard_ tfrecord_scan(const struct tfrecord_view *view, struct tfrecord_places *ret,
                              struct dl_error *err);

/* The data of the record that begins at `offset`, number `i` of the file, their sum checked.
 * -EINVAL with `err`. */
int _nodiscard_ tfrecord_data(const struct tfrecord_view *view, uint64_t offset, uint64_t i,
                              const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err);

#endif
