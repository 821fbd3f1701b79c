/* index.json of a litData dataset: how its samples are stored, and its chunks. Pure but for memory.
 */
#ifndef DL_DATA_LITDATA_INDEX_H
#define DL_DATA_LITDATA_INDEX_H

#include "daemon/data/files/shard_file.h"
#include "daemon/data/kinds/litdata/litdata_leaf.h"
#include "daemon/data/kinds/litdata/litdata_shape.h"

struct litdata_index {
    struct litdata_shape shape;  /* owned */
    struct litdata_leaf *leaves; /* owned; shape.leaves of them */
    struct shard_files chunks;   /* owned; filled in from the index */
    uint64_t *tokens;            /* owned; in each chunk; NULL: not written for a TokensLoader */
    bool packs_items;            /* each item is compressed separately */
};

/*
 * Parses the `bytes` at `data`; `path` is the file's. -EINVAL with `err` naming it, and the chunk:
 * not JSON, not litData's, impossible chunks, encrypted, or for another loader; -ENOMEM.
 */
int _nodiscard_ litdata_index_parse(const uint8_t *data, uint64_t bytes, const char *path,
                                    struct litdata_index *ret, struct dl_error *err);
void litdata_index_deinit(struct litdata_index *index); /* zeroes it; a zeroed one is fine */

#endif
