/*
 * The .idx file of Megatron-LM's indexed datasets: where in the .bin file the documents' tokens
 * are. Little-endian:
 *
 *   0    9 bytes   "MMIDIDX\0\0"
 *   9    u64       version: 1
 *   17   u8        type of the tokens
 *   18   u64       number of sequences
 *   26   u64       number of documents' bounds
 *   34   i32 …     length of each sequence, in tokens
 *        i64 …     offset of each sequence in the .bin file, in bytes
 *        i64 …     bounds: document d has the sequences from bound d to before bound d + 1
 *        i8 …      mode of each sequence, only in multimodal datasets
 *
 * Megatron-LM, megatron/core/datasets/indexed_dataset.py: _IndexWriter. Pure.
 */
#ifndef DL_DATA_MEGATRON_INDEX_H
#define DL_DATA_MEGATRON_INDEX_H

#include "proto/common/error.h"
#include "proto/dtype.h"

struct megatron_index {
    uint32_t dtype;
    uint32_t token_bytes;
    uint64_t sequences;
    uint64_t documents;
    const uint8_t *lengths; /* borrowed, at any alignment; of each sequence, 4 bytes */
    const uint8_t *offsets; /* likewise; 8 bytes */
    const uint8_t *bounds;  /* likewise; documents + 1 of 8 bytes */
};

/* Checks only the header and the ends, however many sequences there are. `bin_bytes`: of the .bin
 * file. -EINVAL with `err` naming `path`. */
int _nodiscard_ megatron_index_parse(const uint8_t *data, uint64_t bytes, const char *path,
                                     uint64_t bin_bytes, struct megatron_index *ret,
                                     struct dl_error *err);

/* Where document `d`, below `documents`, lies in the .bin file, checked. -EINVAL with `err` naming
 * `path` and the document. */
int _nodiscard_ megatron_index_find(const struct megatron_index *index, uint64_t d,
                                    uint64_t bin_bytes, const char *path, uint64_t *ret_offset,
                                    uint64_t *ret_tokens, struct dl_error *err);

#endif
