#include "daemon/data/kinds/tar/tar_index.h"

#include "daemon/data/kinds/tar/tar_sample.h"
#include "proto/common/array.h"

#include <errno.h>

void tar_index_deinit(struct tar_index *index)
{
    if (!index->lent)
        free(index->blocks);
    *index = (struct tar_index){0};
}

static int tar_index_add(struct tar_index *index, uint64_t offset, const char *path,
                         struct dl_error *err)
{
    if (offset / TAR_BLOCK > UINT32_MAX)
        return dl_error_set(err, EFBIG, path,
                            "is too large for an index, which reaches 2 TiB; divide it, or read it "
                            "as a stream with index: off");
    if (!array_reserve(index->blocks, index->room, index->n + 1))
        return dl_error_set(err, ENOMEM, path, "out of memory for its index");
    index->blocks[index->n++] = (uint32_t)(offset / TAR_BLOCK);
    return 0;
}

int tar_index_scan(const struct tar_view *view, struct tar_index *ret, struct dl_error *err)
{
    struct tar_index index = {0};
    uint64_t offset = 0, begin = 0;
    int r;

    while ((r = tar_scan(view, &offset, err)) == 0) {
        r = tar_index_add(&index, begin, view->path, err);
        if (r < 0)
            break;
        begin = offset;
    }
    if (r < 0) {
        tar_index_deinit(&index);
        return r;
    }
    *ret = index;
    return 0;
}
