/*
 * Where the samples of a shard begin, found by a walk along its headers, or read from the index
 * files of others:
 *
 *   Energon   NAME.tar.idx beside NAME.tar: numbers of 64 bits, little-endian, of the bytes before
 *             each sample, and at last before the end of the last one
 *   DALI      NAME.idx: a line "v1.1 SAMPLES" or "v1.2 SAMPLES", then one line a sample, of
 *             "EXTENSION OFFSET SIZE" or "EXTENSION OFFSET SIZE NAME" for each component, OFFSET
 *             being that of the component's data
 *   wids      a JSON file with a "shardlist" of {"url": ..., "nsamples": ...}: how many samples a
 *             shard has, but not where
 *
 * megatron-energon, flavors/webdataset/structs and itar.py; DALI, tools/wds2idx.py; webdataset,
 * wids/wids_specs.py. Pure but for the memory.
 */
#ifndef DL_DATA_TAR_INDEX_H
#define DL_DATA_TAR_INDEX_H

#include "daemon/data/kinds/tar/tar_reader.h"

struct tar_index {    /* all zero: of no sample */
    uint32_t *blocks; /* owned: sample i begins at 512 · blocks[i] */
    uint64_t n;
    uint64_t room;
    bool lent; /* the blocks are borrowed, and read-only */
};

void tar_index_deinit(struct tar_index *index);

static inline uint64_t tar_index_offset(const struct tar_index *index, uint64_t i)
{
    return (uint64_t)index->blocks[i] * TAR_BLOCK;
}

/* Of the whole shard. -EINVAL with `err` naming file and offset: the shard is damaged; -EFBIG, more
 * than 2^32 blocks; -ENOMEM. */
int _nodiscard_ tar_index_scan(const struct tar_view *view, struct tar_index *ret,
                               struct dl_error *err);

/*
 * From the index file at `path` of Energon or DALI, whose `bytes` are at `data`. Checks that all
 * places lie in the shard, in ascending order, and that the first one is a header; the others are
 * checked when their samples are made. -EINVAL with `err` naming `path`; -ENOMEM.
 */
int _nodiscard_ tar_index_parse(const uint8_t *data, uint64_t bytes, const char *path,
                                const struct tar_view *view, struct tar_index *ret,
                                struct dl_error *err);

/* wids' JSON. */
struct tar_counts {
    void *json; /* owned */
};

int _nodiscard_ tar_counts_parse(const uint8_t *data, uint64_t bytes, const char *path,
                                 struct tar_counts *ret, struct dl_error *err);
void tar_counts_deinit(struct tar_counts *counts);

/* How many samples the shard has, known by the last part of its path. -ENOENT: it is not there. */
int _nodiscard_ tar_counts_find(const struct tar_counts *counts, const char *shard, uint64_t *ret);

#endif
