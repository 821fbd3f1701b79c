/*
 * The records of a TFRecord file in memory, one after another, little-endian: a u64 of the length,
 * a u32 of its masked CRC-32C, the data, and a u32 of theirs. TensorFlow, docs of tf.data,
 * "TFRecords format details". Pure but for memory.
 */
#ifndef DL_DATA_TFRECORD_FILE_H
#define DL_DATA_TFRECORD_FILE_H

#include "daemon/data/kinds/tfrecord/crc32c.h"
#include "proto/common/bytes.h"
#include "proto/common/error.h"

struct tfrecord_view {
    const char *path; /* borrowed; of the file, for messages */
    const uint8_t *data;
    uint64_t bytes;
    const struct crc32c *crc; /* borrowed */
};

/* Scans all records of the file by their lengths, and verifies those checksums: appends each
 * beginning, a uint64_t. -EINVAL with `err` naming file and record: a wrong checksum, a truncated
 * file; -ENOMEM. */
int _nodiscard_ tfrecord_scan(const struct tfrecord_view *view, struct dl_buffer *offsets,
                              struct dl_error *err);

/* The data of the record that begins at `offset`, in the file, number `i` of the file, their sum
 * checked. -EINVAL with `err`. */
int _nodiscard_ tfrecord_data(const struct tfrecord_view *view, uint64_t offset, uint64_t i,
                              const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err);

#endif
