#include "daemon/cache/cache_room.h"

#include "daemon/cache/block_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* What its file takes on the disk, which is all but a thousandth of it. */
static uint64_t cache_room_taken(int blocks)
{
    struct stat st;

    return fstatat(blocks, "blocks", &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_blocks * 512
                                                                    : 0;
}

void cache_room_make(const char *dir, uint64_t size)
{
    uint64_t files = disk_cache_trim(dir, cache_room_files(size));
    _cleanup_free_ char *path = NULL;
    struct block_store *store;

    if (size == 0 || asprintf(&path, "%s/" CACHE_BLOCKS, dir) < 0)
        return;
    _cleanup_fd_ int blocks = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (blocks < 0 || cache_room_taken(blocks) <= cache_room_blocks(size, files))
        return;
    if (block_store_open(blocks, cache_room_blocks(size, files), &store, NULL) == 0)
        block_store_close(store);
}
