/*
 * A chunk of litData's: shard_file.h. An item begins with the sizes of its leaves, a u32 each,
 * followed by the leaves; for a TokensLoader it is just its only leaf.
 *
 * Other chunks have their items compressed in frames of a fixed number of items:
 *
 *   0   "LDFZ01\0\0"
 *   8   u16      version, 1
 *  10   u16      flags, 0
 *  12   u32      number of items
 *  16   u32      items in a frame, the last one may have fewer
 *  20   u32      number of frames
 *  24   u32 …    where each item begins, and where the last one ends, among those unpacked
 *       …        of each frame: u32 its first item, u32 items, u64 its place, u32 bytes, u32
 * unpacked …        the frames, by zstd
 *
 * Or they have rows of Arrow's instead of items: behind the table a file of its IPC format, its
 * bytes as a u32, and "LDARW01\0".
 */
#ifndef DL_DATA_LITDATA_CHUNK_H
#define DL_DATA_LITDATA_CHUNK_H

#include "daemon/data/kinds/litdata/litdata_index.h"

/* As shard_files.unframe. */
int _nodiscard_ litdata_chunk_unframe(const uint8_t *data, uint64_t bytes, const char *path,
                                      uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err);

/*
 * Where the values of an item of `bytes` at `data` lie: ret[i] of each of the index's leaves.
 * false: they are not as many bytes as there are.
 */
bool litdata_chunk_split(const struct litdata_index *index, const uint8_t *data, uint64_t bytes,
                         struct litdata_value *ret);

#endif
