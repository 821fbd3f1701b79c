/*
 * What is kept of tar shards, of any bytes: whichever shard is found in them, its places lie in the
 * bytes and in the shard, one behind another.
 */
#include "daemon/data/kinds/tar/tar_cached.h"
#include "tests/fuzz/fuzz.h"

enum { LARGEST = 1 << 16 };

static struct timespec time_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* A file that is what the record says, if there can be one. */
static void check_shard(const struct tar_cached *cached, const struct pictures_key *file)
{
    const struct stat st = {.st_dev = file->dev,
                            .st_ino = file->ino,
                            .st_size = (off_t)file->bytes,
                            .st_mtim = time_of(file->modified_ns),
                            .st_ctim = time_of(file->changed_ns)};
    struct tar_index index;

    if (!tar_cached_find(cached, &st, &index))
        return;
    FUZZ_ASSERT(index.lent && index.n <= cached->n_blocks && index.blocks >= cached->blocks);
    for (uint64_t i = 0; i < index.n; i++)
        FUZZ_ASSERT(tar_index_offset(&index, i) < file->bytes &&
                    (i == 0 || index.blocks[i] > index.blocks[i - 1]));
    tar_index_deinit(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tar_cached cached;

    if (size > LARGEST)
        return 0;
    /* As it is mapped: at an address for numbers, and no byte more. */
    uint64_t *copy = malloc(size + (size == 0));
    FUZZ_ASSERT(copy);
    if (size > 0)
        memcpy(copy, data, size);
    if (tar_cached_view((const uint8_t *)copy, size, &cached) == 0)
        for (uint64_t i = 0; i < cached.n_shards; i++)
            check_shard(&cached, &cached.shards[i].file);
    free(copy);
    return 0;
}
