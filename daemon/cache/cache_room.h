/*
 * One limit for all that a directory keeps, which README.md explains: files (disk_cache.h), and
 * blocks (block_store.h) in a directory below it. Who keeps more than that gives up blocks first.
 *
 * Blocks on the disk; any thread, and several processes may use a directory at once.
 */
#ifndef DL_CACHE_ROOM_H
#define DL_CACHE_ROOM_H

#include "daemon/cache/disk_cache.h"
#include "proto/common/base.h"

#define CACHE_BLOCKS "blocks" /* the directory of blocks */

/* Bytes that files may have; `size`: of all, 0: no blocks are kept. */
static inline uint64_t cache_room_files(uint64_t size)
{
    return size > 0 ? min_u64(size / 2, DISK_CACHE_BYTES) : DISK_CACHE_BYTES;
}

/* Bytes that they leave to blocks. */
static inline uint64_t cache_room_blocks(uint64_t size, uint64_t files)
{
    return size - min_u64(files, cache_room_files(size));
}

/* A file was stored: what is there beyond the limit goes. Blocks that another process has go when
 * it writes the next ones. Failures are no matter: the next store tries again. */
void cache_room_make(const char *dir, uint64_t size);

#endif
