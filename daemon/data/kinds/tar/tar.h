/*
 * Tar shards of WebDataset's layout (tar_sample.h has the samples): an iterable dataset, or, with
 * an index, a map-style one. The former:
 *
 * A replica goes through its shards one after another, and through each from its beginning. With
 * `divide` the shard at place p of the epoch's order belongs to rank p mod world size, and of a
 * rank's shards the one at place j to worker j mod workers (WebDataset's split_by_node, then
 * split_by_worker): with fewer shards than that, some replicas are empty. Without it each replica
 * has all.
 *
 * With `shuffle` n > 0 the order of the shards is drawn anew for each epoch, the same for all
 * replicas and before they are divided; and samples go through a buffer of n, from which the next
 * one is drawn. The order depends only on seed, epoch, rank, world size, worker and workers. The
 * buffer holds places in mapped files, 24 bytes each, not copies.
 *
 * Damage is an error in its place, and the replica continues: after a bad sample with the next one,
 * after a damaged header with the next shard.
 */
#ifndef DL_DATA_TAR_H
#define DL_DATA_TAR_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/globs.h"

/*
 * The same samples by index, those of the first shard first: a map-style dataset. Their beginnings
 * are found by one scan of all shards, or by an index (tar_index.h); with wids' index a shard is
 * scanned when its first sample is needed. 4 bytes of memory a sample. Compressed shards are
 * refused. tar_indexed.c
 */
int _nodiscard_ tar_indexed_open(const struct spec_dataset *spec, const char *place,
                                 const struct data_env *env, struct dataset **ret,
                                 struct dl_error *err);

#endif
