#include "daemon/data/kinds/tfrecord/tfrecord_index.h"

#include <errno.h>

static uint64_t tfrecord_index_head(uint32_t files)
{
    return sizeof(uint64_t) + files * sizeof(struct tfrecord_index_file);
}

int tfrecord_index_begin(struct dl_buffer *index, uint32_t files)
{
    const struct tfrecord_index_file none = {0};
    uint64_t n = files;
    int r = buffer_append(index, &n, sizeof n);

    for (uint32_t i = 0; r == 0 && i < files; i++)
        r = buffer_append(index, &none, sizeof none);
    return r;
}

int tfrecord_index_add(struct dl_buffer *index, uint32_t i, const struct tfrecord_view *view,
                       struct dl_error *err)
{
    size_t before = index->len;
    int r = tfrecord_scan(view, index, err);

    if (r < 0)
        return r;
    const struct tfrecord_index_file file = {.bytes = view->bytes,
                                             .records = (index->len - before) / sizeof(uint64_t)};
    memcpy(index->data + tfrecord_index_head(i), &file, sizeof file);
    return 0;
}

bool tfrecord_index_is_sound(const uint8_t *data, uint64_t bytes, uint32_t files)
{
    uint64_t head = tfrecord_index_head(files), n;

    if (bytes < head || bytes % sizeof n != 0)
        return false;
    memcpy(&n, data, sizeof n);
    if (n != files)
        return false;
    const struct tfrecord_index_file *file = tfrecord_index_files(data);
    const uint64_t *offset = tfrecord_index_offsets(data, files);
    uint64_t left = (bytes - head) / sizeof *offset;
    for (uint32_t i = 0; i < files; i++, file++) {
        if (file->records > left)
            return false;
        left -= file->records;
        for (uint64_t k = 0; k < file->records; k++, offset++) {
            if (*offset >= file->bytes)
                return false;
        }
    }
    return left == 0;
}
