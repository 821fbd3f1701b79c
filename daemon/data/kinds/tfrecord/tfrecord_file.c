#include "daemon/data/kinds/tfrecord/tfrecord_file.h"

#include <errno.h>

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

static int tfrecord_file_damaged(const struct tfrecord_view *view, uint64_t offset, uint64_t i,
                                 const char *what, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, view->path, "its record %llu at byte %llu %s", (ull)i,
                        (ull)offset, what);
}

static bool tfrecord_file_sum_fits(const struct tfrecord_view *view, const uint8_t *data,
                                   uint64_t bytes)
{
    uint32_t want;

    memcpy(&want, data + bytes, sizeof want);
    return crc32c_mask(crc32c_of(view->crc, data, bytes)) == want;
}

/* The record's length, which lies in the file. */
static int tfrecord_file_length(const struct tfrecord_view *view, uint64_t offset, uint64_t i,
                                uint64_t *ret, struct dl_error *err)
{
    uint64_t left = view->bytes - offset;
    const uint8_t *head = view->data + offset;

    if (left < HEAD_BYTES)
        return tfrecord_file_damaged(view, offset, i, "is cut off by the end of the file", err);
    if (!tfrecord_file_sum_fits(view, head, sizeof *ret))
        return tfrecord_file_damaged(view, offset, i,
                                     "has a length with a wrong checksum; the file is damaged "
                                     "there, or is not a TFRecord file",
                                     err);
    memcpy(ret, head, sizeof *ret);
    if (left - HEAD_BYTES < TAIL_BYTES || *ret > left - HEAD_BYTES - TAIL_BYTES)
        return tfrecord_file_damaged(view, offset, i, "is cut off by the end of the file", err);
    return 0;
}

int tfrecord_scan(const struct tfrecord_view *view, struct dl_buffer *offsets, struct dl_error *err)
{
    uint64_t offset = 0, length = 0;
    int r = 0;

    for (uint64_t i = 0; r == 0 && offset < view->bytes; i++) {
        r = tfrecord_file_length(view, offset, i, &length, err);
        if (r == 0 && buffer_append(offsets, &offset, sizeof offset) < 0)
            r = dl_error_set(err, ENOMEM, view->path,
                             "out of memory for the places of its records");
        offset += HEAD_BYTES + length + TAIL_BYTES;
    }
    return r;
}

int tfrecord_data(const struct tfrecord_view *view, uint64_t offset, uint64_t i,
                  const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err)
{
    int r = tfrecord_file_length(view, offset, i, ret_bytes, err);

    if (r < 0)
        return r;
    *ret = view->data + offset + HEAD_BYTES;
    if (tfrecord_file_sum_fits(view, *ret, *ret_bytes))
        return 0;
    return tfrecord_file_damaged(view, offset, i,
                                 "has data with a wrong checksum; the file is "
                                 "damaged there",
                                 err);
}
