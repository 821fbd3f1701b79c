/* index.json of an MDS dataset: its columns and its shards. Pure but for memory. */
#ifndef DL_DATA_MDS_INDEX_H
#define DL_DATA_MDS_INDEX_H

#include "daemon/data/mds/mds_column.h"

struct mds_shard_entry {
    char *raw;          /* owned; its path below the directory */
    char *packed;       /* owned; of its compressed form; NULL: there is none */
    uint64_t raw_bytes; /* below 2^32: places in it have 32 bits */
    uint64_t samples;
};

struct mds_index {
    struct mds_column *columns;     /* owned */
    struct mds_shard_entry *shards; /* owned */
    uint32_t n_columns;
    uint32_t n_shards;
};

/*
 * Parses the `bytes` at `data`; `path` is the file's. -EINVAL with `err` naming it and the shard:
 * no JSON, not of format mds and version 2, an encoding nobody knows, shards whose columns differ;
 * -ENOMEM.
 */
int _nodiscard_ mds_index_parse(const uint8_t *data, uint64_t bytes, const char *path,
                                struct mds_index *ret, struct dl_error *err);
void mds_index_deinit(struct mds_index *index); /* zeroes it; a zeroed one is fine */

#endif
