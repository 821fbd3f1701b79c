/* index.json of an MDS dataset: its columns and its shards. Pure but for memory. */
#ifndef DL_DATA_MDS_INDEX_H
#define DL_DATA_MDS_INDEX_H

#include "daemon/data/files/shard_file.h"
#include "daemon/data/kinds/mds/mds_column.h"

struct mds_index {
    struct mds_column *columns; /* owned */
    uint32_t n_columns;
    struct shard_files shards; /* owned; filled in from the index */
};

/*
 * Parses the `bytes` at `data`; `path` is the file's. -EINVAL with `err` naming it and the shard:
 * not JSON, not of format mds and version 2, an unknown encoding, shards whose columns differ;
 * -ENOMEM.
 */
int _nodiscard_ mds_index_parse(const uint8_t *data, uint64_t bytes, const char *path,
                                struct mds_index *ret, struct dl_error *err);
void mds_index_deinit(struct mds_index *index); /* zeroes it; a zeroed one is fine */

#endif
