/*
 * Where the records of TFRecord files begin, shared by all workers of a loader (shared_index.h):
 * the number of files, an entry for each, and 8 bytes for each record, of all files in order.
 * Numbers are in the machine's byte order.
 */
#ifndef DL_DATA_TFRECORD_INDEX_H
#define DL_DATA_TFRECORD_INDEX_H

#include "daemon/data/kinds/tfrecord/tfrecord_file.h"
#include "proto/common/bytes.h"

struct tfrecord_index_file {
    uint64_t bytes;   /* of the file */
    uint64_t records; /* in it */
};

/* Begins an index of `files` files, without records: call tfrecord_index_add() for each in order.
 * -ENOMEM. */
int _nodiscard_ tfrecord_index_begin(struct dl_buffer *index, uint32_t files);
/* Adds the records of file `i`, after those of all files before it. As tfrecord_scan(). */
int _nodiscard_ tfrecord_index_add(struct dl_buffer *index, uint32_t i,
                                   const struct tfrecord_view *view, struct dl_error *err);

/* Whether it is an index of `files` files, and each record lies in its file, as large as that was.
 * `data` is aligned to 8 bytes. Reads it all. */
bool _nodiscard_ tfrecord_index_is_sound(const uint8_t *data, uint64_t bytes, uint32_t files);

static inline const struct tfrecord_index_file *tfrecord_index_files(const uint8_t *data)
{
    return (const struct tfrecord_index_file *)(const void *)(data + sizeof(uint64_t));
}

/* Where the records of all files begin, each in its file. */
static inline const uint64_t *tfrecord_index_offsets(const uint8_t *data, uint32_t files)
{
    return (const uint64_t *)(const void *)(tfrecord_index_files(data) + files);
}

#endif
