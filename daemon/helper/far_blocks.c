#include "daemon/helper/far_blocks.h"

#include "proto/common/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCK = REMOTE_BLOCK_BYTES };

static uint64_t far_file_blocks(uint64_t bytes)
{
    return bytes / BLOCK + (bytes % BLOCK > 0);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void far_file_deinit(struct far_file *file)
{
    close_fdp(&file->fd);
    free(file->path);
    free(file->blocks);
}

void far_blocks_remove(struct far_blocks *blocks, struct far_file *file)
{
    far_file_deinit(file);
    *file = blocks->files[--blocks->n];
}

void far_blocks_deinit(struct far_blocks *blocks)
{
    while (blocks->n > 0)
        far_blocks_remove(blocks, &blocks->files[0]);
    free(blocks->files);
    free(blocks->ahead);
}

static int far_blocks_make_room(struct far_blocks *blocks)
{
    struct far_file *grown = realloc(blocks->files, (blocks->n + 1) * sizeof *grown);

    if (grown)
        blocks->files = grown;
    if (!blocks->ahead)
        blocks->ahead = calloc(blocks->window, sizeof *blocks->ahead);
    return grown && blocks->ahead ? 0 : -ENOMEM;
}

/* It takes memory by and by. */
int far_blocks_add(struct far_blocks *blocks, const char *path, uint64_t bytes, uint64_t most,
                   struct far_file **ret)
{
    uint64_t n = far_file_blocks(bytes);
    int r = n > most ? -ENOMEM : far_blocks_make_room(blocks);

    if (r < 0)
        return r;
    struct far_file file = {.number = ++blocks->last_number,
                            .fd = sealed_memory("dloader-file", bytes),
                            .bytes = bytes,
                            .path = strdup(path),
                            .blocks = calloc(max_u64(n, 1), 1)};
    if (file.fd < 0 || !file.path || !file.blocks) {
        far_file_deinit(&file);
        return -ENOMEM;
    }
    *ret = &blocks->files[blocks->n++];
    **ret = file;
    return 0;
}

struct far_file *far_blocks_find(const struct far_blocks *blocks, uint32_t number)
{
    for (uint32_t i = 0; i < blocks->n; i++) {
        if (blocks->files[i].number == number)
            return &blocks->files[i];
    }
    return NULL;
}

/* ---- blocks --------------------------------------------------------------------------------- */

struct far_range far_file_range(const struct far_file *file, uint64_t first, uint64_t bytes)
{
    uint64_t end = first + min_u64(bytes, file->bytes - min_u64(first, file->bytes));
    uint64_t block = first / BLOCK;
    uint64_t n = end > first ? far_file_blocks(end) - block : 0;

    return (struct far_range){
        .file = file->number, .n = (uint32_t)min_u64(n, UINT32_MAX), .first = block};
}

uint64_t far_range_bytes(const struct far_file *file, const struct far_range *range)
{
    return min_u64((uint64_t)range->n * BLOCK, file->bytes - range->first * BLOCK);
}

uint32_t far_range_there(const struct far_file *file, const struct far_range *range)
{
    uint32_t n = 0;

    while (n < range->n && file->blocks[range->first + n] >= FAR_BLOCK_THERE)
        n++;
    return n;
}

uint64_t far_range_missing(const struct far_file *file, const struct far_range *range)
{
    for (uint64_t i = range->first; i < range->first + range->n; i++) {
        if (file->blocks[i] == FAR_BLOCK_NONE)
            return i;
    }
    return UINT64_MAX;
}

void far_range_ask(struct far_file *file, const struct far_range *range)
{
    memset(file->blocks + range->first, FAR_BLOCK_COMES, range->n);
}

void far_blocks_take(struct far_blocks *blocks, const struct far_range *range)
{
    memset(far_blocks_find(blocks, range->file)->blocks + range->first, FAR_BLOCK_TAKEN, range->n);
    blocks->taken++;
}

void far_range_drop(struct far_file *file, const struct far_range *range)
{
    for (uint64_t i = range->first; i < range->first + range->n; i++) {
        if (file->blocks[i] < FAR_BLOCK_THERE)
            continue;
        file->blocks[i] = FAR_BLOCK_NONE;
        (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(i * BLOCK),
                        BLOCK);
    }
}

bool far_blocks_came(struct far_blocks *blocks, const struct far_range *range, const void *data,
                     uint64_t bytes)
{
    struct far_file *file = far_blocks_find(blocks, range->file);

    if (!file)
        return true;
    bool all = bytes == far_range_bytes(file, range) &&
               pwrite(file->fd, data, bytes, (off_t)(range->first * BLOCK)) == (ssize_t)bytes;
    memset(file->blocks + range->first, all ? FAR_BLOCK_THERE : FAR_BLOCK_NONE, range->n);
    return all;
}

/* ---- what will be needed -------------------------------------------------------------------- */

/* Where too much is expected, what was said first is needed by now, or comes when it is. */
void far_blocks_expect(struct far_blocks *blocks, const struct far_file *file, uint64_t first,
                       uint64_t bytes)
{
    const struct far_range range = far_file_range(file, first, bytes);

    if (range.n == 0)
        return;
    if (blocks->expected_end - blocks->expected_begin == FAR_EXPECTED_MOST)
        blocks->expected_begin++;
    blocks->expected[blocks->expected_end++ % FAR_EXPECTED_MOST] = range;
}

/* The oldest goes, unless the worker will take it. */
static bool far_blocks_has_room(struct far_blocks *blocks)
{
    const struct far_ahead *oldest = &blocks->ahead[blocks->ahead_begin % blocks->window];
    struct far_file *file;

    if (blocks->ahead_end - blocks->ahead_begin < blocks->window)
        return true;
    if ((file = far_blocks_find(blocks, oldest->range.file))) {
        enum far_block state = file->blocks[oldest->range.first];

        if (state == FAR_BLOCK_COMES ||
            (state == FAR_BLOCK_THERE && blocks->taken - oldest->taken < blocks->window))
            return false;
        if (state == FAR_BLOCK_THERE)
            far_range_drop(file, &oldest->range);
    }
    blocks->ahead_begin++;
    return true;
}

/* The first blocks of it that nobody has asked for, as far as there is room for them. */
static uint32_t far_blocks_reserve(struct far_blocks *blocks, const struct far_file *file,
                                   uint64_t first, uint64_t most)
{
    uint32_t n = 0;

    while (n < most && file->blocks[first + n] == FAR_BLOCK_NONE && far_blocks_has_room(blocks)) {
        blocks->ahead[blocks->ahead_end++ % blocks->window] = (struct far_ahead){
            .range = {.file = file->number, .n = 1, .first = first + n}, .taken = blocks->taken};
        n++;
    }
    return n;
}

bool far_blocks_next(struct far_blocks *blocks, struct far_range *ret)
{
    while (blocks->expected_begin < blocks->expected_end) {
        struct far_range *next = &blocks->expected[blocks->expected_begin % FAR_EXPECTED_MOST];
        struct far_file *file = far_blocks_find(blocks, next->file);
        uint64_t first = file ? far_range_missing(file, next) : UINT64_MAX;

        if (first == UINT64_MAX) {
            blocks->expected_begin++;
            continue;
        }
        next->n -= (uint32_t)(first - next->first);
        next->first = first;
        uint32_t n = far_blocks_reserve(blocks, file, first, min_u64(next->n, FAR_BLOCKS_AT_ONCE));
        *ret = (struct far_range){.file = file->number, .n = n, .first = first};
        far_range_ask(file, ret);
        return n > 0;
    }
    return false;
}
