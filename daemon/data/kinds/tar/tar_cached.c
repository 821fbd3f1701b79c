#include "daemon/data/kinds/tar/tar_cached.h"

#include "daemon/data/files/file_hasher.h"

#include <errno.h>
#include <time.h>

struct tar_cached_header {
    char magic[8];
    uint64_t n_shards;
    uint64_t n_blocks;
};
_Static_assert(sizeof(struct tar_cached_header) == 24 && sizeof(struct tar_cached_shard) == 64,
               "the format");

static const char tar_cached_magic[8] = {'d', 'l', 't', 'a', 'r', 'i', 'x', '1'};

uint64_t tar_cached_key(const struct spec_dataset *spec)
{
    struct file_hasher hasher;

    file_hasher_begin(&hasher, NULL);
    file_hasher_add(&hasher, tar_cached_magic, sizeof tar_cached_magic);
    for (uint32_t i = 0; i < spec->n_files; i++)
        file_hasher_add(&hasher, spec->files[i].path, strlen(spec->files[i].path));
    return file_hasher_end(&hasher);
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool tar_cached_fits(const struct tar_cached_header *header, uint64_t bytes)
{
    uint64_t shards, blocks;

    return memcmp(header->magic, tar_cached_magic, sizeof tar_cached_magic) == 0 &&
           !mul_overflows(header->n_shards, sizeof(struct tar_cached_shard), &shards) &&
           !mul_overflows(header->n_blocks, sizeof(uint32_t), &blocks) &&
           shards <= bytes - sizeof *header && blocks == bytes - sizeof *header - shards;
}

int tar_cached_view(const uint8_t *data, uint64_t bytes, struct tar_cached *ret)
{
    const struct tar_cached_header *header = (const void *)data;

    if (bytes < sizeof *header || !tar_cached_fits(header, bytes))
        return -EINVAL;
    *ret = (struct tar_cached){.shards = (const void *)(header + 1),
                               .n_shards = header->n_shards,
                               .n_blocks = header->n_blocks};
    ret->blocks = (const void *)(ret->shards + ret->n_shards);
    return 0;
}

static int tar_cached_compare(const void *a, const void *b)
{
    const struct tar_cached_shard *x = a, *y = b;

    return memcmp(&x->file, &y->file, sizeof x->file);
}

/* Another process wrote it: check everything. */
static bool tar_cached_is_sound(const struct tar_cached *cached,
                                const struct tar_cached_shard *shard)
{
    uint64_t end = shard->file.bytes / TAR_BLOCK;
    uint32_t ordered = 1;

    if (shard->first > cached->n_blocks || shard->n > cached->n_blocks - shard->first)
        return false;
    const uint32_t *blocks = cached->blocks + shard->first;
    for (uint64_t i = 1; i < shard->n; i++) /* without a branch: there are millions */
        ordered &= blocks[i - 1] < blocks[i];
    return ordered && (shard->n == 0 || blocks[shard->n - 1] < end);
}

bool tar_cached_find(const struct tar_cached *cached, const struct stat *st, struct tar_index *ret)
{
    struct tar_cached_shard wanted = {0};

    if (cached->n_shards == 0)
        return false;
    pictures_key_of(st, &wanted.file);
    const struct tar_cached_shard *shard =
        bsearch(&wanted, cached->shards, cached->n_shards, sizeof wanted, tar_cached_compare);
    if (!shard || !tar_cached_is_sound(cached, shard))
        return false;
    *ret = (struct tar_index){.blocks = (uint32_t *)(uintptr_t)(cached->blocks + shard->first),
                              .n = shard->n,
                              .lent = true};
    return true;
}

/* ---- making --------------------------------------------------------------------------------- */

/* File systems count times in ticks of some milliseconds. */
static bool tar_cached_is_settled(const struct stat *st, const struct timespec *now)
{
    enum { SETTLED_NS = 100 * 1000 * 1000 };
    int64_t age = (int64_t)(now->tv_sec - st->st_ctim.tv_sec);

    if (age < -1 || age > 1)
        return true;
    age = age * 1000000000 + now->tv_nsec - st->st_ctim.tv_nsec;
    return age < -SETTLED_NS || age > SETTLED_NS;
}

/* The shards, ordered; `first` of each is yet its item's number. */
static uint64_t tar_cached_list(const struct tar_cached_item *items, uint64_t n,
                                struct tar_cached_shard *ret)
{
    struct timespec now;
    uint64_t cached = 0;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    for (uint64_t i = 0; i < n; i++) {
        struct tar_cached_shard shard = {.first = i, .n = items[i].index->n};
        if (!items[i].index->lent && !tar_cached_is_settled(items[i].st, &now))
            continue; /* one that was kept, was settled then */
        pictures_key_of(items[i].st, &shard.file);
        ret[cached++] = shard;
    }
    qsort(ret, cached, sizeof *ret, tar_cached_compare);
    return cached;
}

static void tar_cached_write(void *data, struct tar_cached_shard *shards,
                             const struct tar_cached_item *items, uint64_t n, uint64_t n_blocks)
{
    struct tar_cached_header header = {.n_shards = n, .n_blocks = n_blocks};
    struct tar_cached_shard *at = (void *)((char *)data + sizeof header);
    uint32_t *blocks = (void *)(at + n);
    uint64_t first = 0;

    memcpy(header.magic, tar_cached_magic, sizeof tar_cached_magic);
    memcpy(data, &header, sizeof header);
    for (uint64_t i = 0; i < n; i++) {
        if (shards[i].n > 0)
            memcpy(blocks + first, items[shards[i].first].index->blocks,
                   shards[i].n * sizeof *blocks);
        shards[i].first = first;
        first += shards[i].n;
        at[i] = shards[i];
    }
}

int tar_cached_make(const struct tar_cached_item *items, uint64_t n, struct dl_buffer *ret)
{
    _cleanup_free_ struct tar_cached_shard *shards = calloc(max_u64(n, 1), sizeof *shards);
    uint64_t n_blocks = 0, bytes;

    if (!shards)
        return -ENOMEM;
    n = tar_cached_list(items, n, shards);
    for (uint64_t i = 0; i < n; i++)
        n_blocks += shards[i].n;
    if (n == 0)
        return -ENOENT;
    bytes = sizeof(struct tar_cached_header) + n * sizeof *shards + n_blocks * sizeof(uint32_t);
    int r = buffer_reserve(ret, bytes);
    if (r < 0)
        return r;
    tar_cached_write(ret->data, shards, items, n, n_blocks);
    ret->len = bytes;
    return 0;
}
