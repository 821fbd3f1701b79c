/*
 * Files of the daemon's machine that a helper's worker maps, in blocks: where each is, and which
 * are to come before they are needed. Memory of what has come so is bounded: more waits until the
 * worker has taken the oldest, or has taken so many others since that it will not. Pure but for
 * files in memory.
 */
#ifndef DL_HELPER_FAR_BLOCKS_H
#define DL_HELPER_FAR_BLOCKS_H

#include "proto/remote_wire.h"

enum far_block {
    FAR_BLOCK_NONE,
    FAR_BLOCK_COMES, /* it was asked for */
    FAR_BLOCK_THERE, /* nobody has taken it yet */
    FAR_BLOCK_TAKEN, /* the worker may read it, until it says that it does no more */
};

struct far_file {
    uint32_t number;
    int fd; /* owned; its blocks, where the worker has them */
    uint64_t bytes;
    char *path;      /* owned */
    uint8_t *blocks; /* owned; enum far_block of each */
};

/* Blocks of a file, which may have gone. */
struct far_range {
    uint32_t file, n;
    uint64_t first;
};

/* A block that was asked for before its need, when `taken` was that. */
struct far_ahead {
    struct far_range range;
    uint64_t taken;
};

enum { FAR_EXPECTED_MOST = 256, FAR_BLOCKS_AT_ONCE = 4 };

struct far_blocks {
    struct far_file *files; /* owned array */
    uint32_t n, last_number;
    struct far_range expected[FAR_EXPECTED_MOST]; /* a ring: what the worker will need soon */
    uint64_t expected_begin, expected_end;
    struct far_ahead *ahead; /* owned ring */
    uint64_t ahead_begin, ahead_end;
    uint32_t window; /* the length of that; FAR_BLOCKS_AT_ONCE at least */
    uint64_t taken;  /* how often the worker has taken some */
};

void far_blocks_deinit(struct far_blocks *blocks); /* fine on zeroes */

/* A new file: *ret is borrowed until another one comes or goes. -ENOMEM: it may also have more
 * blocks than `most`. */
int _nodiscard_ far_blocks_add(struct far_blocks *blocks, const char *path, uint64_t bytes,
                               uint64_t most, struct far_file **ret);
struct far_file *far_blocks_find(const struct far_blocks *blocks, uint32_t number);
void far_blocks_remove(struct far_blocks *blocks, struct far_file *file);

/* The blocks that these bytes are: as many as the file has. */
struct far_range far_file_range(const struct far_file *file, uint64_t first, uint64_t bytes);
uint64_t far_range_bytes(const struct far_file *file, const struct far_range *range);
/* How many of them from the first on are there; and the first of those that nobody has asked for,
 * UINT64_MAX: of each one somebody has. */
uint32_t far_range_there(const struct far_file *file, const struct far_range *range);
uint64_t far_range_missing(const struct far_file *file, const struct far_range *range);

void far_range_ask(struct far_file *file, const struct far_range *range);
void far_blocks_take(struct far_blocks *blocks, const struct far_range *range);
/* The worker reads them no more. */
void far_range_drop(struct far_file *file, const struct far_range *range);
/* What was asked for: `bytes` of them are there. False: not all are, and what the file has of them
 * is none; or it has no memory. Fine of a file that has gone. */
bool far_blocks_came(struct far_blocks *blocks, const struct far_range *range, const void *data,
                     uint64_t bytes);

void far_blocks_expect(struct far_blocks *blocks, const struct far_file *file, uint64_t first,
                       uint64_t bytes);
/* What to ask for next of that; it is asked for then. False: nothing, or there is no room. */
bool far_blocks_next(struct far_blocks *blocks, struct far_range *ret);

#endif
