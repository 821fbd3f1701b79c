/*
 * The file of an LMDB environment: a tree of pages with keys and values, sorted by key.
 * Little-endian, as written on machines of 64 bits; each page has the same size.
 *
 *   page          0 u64 its number, 10 u16 sort, 12 u16 where its nodes' offsets end, 16 u16 ...
 *                 offsets of its nodes in the page
 *   pages 0, 1    16 u32 magic, 20 u32 version: 1, 40 u32 size of a page, 92 u16 flags, 94 u16
 * depth, 120 u64 records, 128 u64 page of the root, 144 u64 transaction: the greater one of the two
 * is the latest node          0 u32 bytes of the value, 4 u16 flags, 6 u16 bytes of the key, 8 the
 * key, the value, or the number of the page behind whose first 16 bytes it lies; of a branch, the
 * first 6 bytes are the number of the page below
 *
 * LMDB 0.9, libraries/liblmdb/mdb.c: MDB_page, MDB_meta, MDB_node. Our own reader, since liblmdb
 * opens files by name and trusts their content: a damaged one ends the process.
 *
 * Each offset is checked before it is followed. If the file is written to meanwhile, records
 * change, or errors come. Pure but for the memory; not thread-safe.
 */
#ifndef DL_DATA_LMDB_TREE_H
#define DL_DATA_LMDB_TREE_H

#include "proto/common/error.h"

struct lmdb_leaf {
    uint64_t page;
    uint64_t first; /* number of its first node's record */
};

struct lmdb_tree {
    const uint8_t *data; /* borrowed; aligned to 8 bytes */
    uint64_t bytes;
    const char *path; /* borrowed, for messages */
    uint64_t page_bytes;
    uint64_t records;
    bool plain_order;         /* keys are sorted by their bytes */
    struct lmdb_leaf *leaves; /* owned: the pages with the records, in the order of keys */
    uint64_t n_leaves;
    uint64_t room;
};

struct lmdb_record {
    const uint8_t *key, *value; /* borrowed from the data */
    uint64_t key_bytes, value_bytes;
};

/* Checks all pages of the tree, but not values in pages of their own: 16 bytes of memory for each
 * page with records. -EINVAL (not such a file, damaged, or an unsupported sort), -ENOMEM, with
 * `err` naming `path`. */
int _nodiscard_ lmdb_tree_open(const uint8_t *data, uint64_t bytes, const char *path,
                               struct lmdb_tree *ret, struct dl_error *err);
void lmdb_tree_close(struct lmdb_tree *tree); /* zeroes it; a zeroed one is fine */

/* Record i < records. -EINVAL: it is damaged, or a sub-database. */
int _nodiscard_ lmdb_tree_get(const struct lmdb_tree *tree, uint64_t i, struct lmdb_record *ret,
                              struct dl_error *err);

/* Prefetches record i < records, without waiting for it. */
void lmdb_tree_expect(const struct lmdb_tree *tree, uint64_t i);

/* The records whose keys begin with the prefix: *ret_first up to before *ret_end. Needs
 * plain_order. Errors as of lmdb_tree_get(). */
int _nodiscard_ lmdb_tree_find(const struct lmdb_tree *tree, const void *prefix,
                               size_t prefix_bytes, uint64_t *ret_first, uint64_t *ret_end,
                               struct dl_error *err);

#endif
