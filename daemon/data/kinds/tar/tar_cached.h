/*
 * An index of all shards of a dataset, kept for the next process that opens them: how many samples
 * each has, and where they begin. It is bytes without addresses (shared_index.h), in the machine's
 * order:
 *
 *   0     8 bytes   "dltarix1"
 *   8     u64       number of shards, S
 *   16    u64       number of samples of all shards, N
 *   24    S · 64    shards, sorted by their identity, so that one is found by a binary search
 *   …     N · u32   places of samples in blocks of 512 bytes, one shard's behind another's
 *
 * A shard is identified by its file (device, inode) and by what a write changes (size, times),
 * whatever its name, and whatever the other shards. One that was written to less than 100 ms ago is
 * left out, since another write might leave its times unchanged.
 */
#ifndef DL_DATA_TAR_CACHED_H
#define DL_DATA_TAR_CACHED_H

#include "daemon/cache/pictures_cache.h"
#include "daemon/data/base/dataset.h"
#include "daemon/data/files/shared_index.h"
#include "daemon/data/kinds/tar/tar_index.h"

/* The key under which the index of these shards is kept; 0: out of memory. */
uint64_t tar_cached_key(const struct spec_dataset *spec);

struct tar_cached_shard {
    struct pictures_key file; /* part 0 */
    uint64_t first;           /* of its samples, in the places */
    uint64_t n;
};

struct tar_cached {                        /* all zero: nothing is known */
    const struct tar_cached_shard *shards; /* borrowed */
    const uint32_t *blocks;                /* borrowed */
    uint64_t n_shards;
    uint64_t n_blocks;
};

/* A view of `bytes`, which may be anything. -EINVAL if they are not such an index. */
int _nodiscard_ tar_cached_view(const uint8_t *data, uint64_t bytes, struct tar_cached *ret);

/*
 * Where the samples of the file that `st` is of begin: places that lie in it, one behind another.
 * They are lent, and go with the bytes. False: it is not known.
 */
bool tar_cached_find(const struct tar_cached *cached, const struct stat *st, struct tar_index *ret);

/* Shards with their indexes, to be kept. */
struct tar_cached_item {
    const struct stat *st;         /* borrowed */
    const struct tar_index *index; /* borrowed */
};
/* Writes the settled items into an empty buffer. -ENOMEM; -ENOENT if no item is settled. */
int _nodiscard_ tar_cached_make(const struct tar_cached_item *items, uint64_t n,
                                struct dl_buffer *ret);

#endif
