/*
 * The files of a Parquet dataset: named, found by patterns, or below a directory, and the values
 * that their directories' names have: year=2024/month=5/part-0.parquet, as Hive writes them.
 *
 * Of a directory that the spec names, files that end in .parquet, .parq or .pq count, in the order
 * of their paths' bytes; names that begin with _ or . are passed over, files and directories alike.
 * Directories with a = in their names count as partitions below a directory that the spec names,
 * and from the first one on that a pattern has found. May block on the disk.
 */
#ifndef DL_DATA_PARQUET_FILES_H
#define DL_DATA_PARQUET_FILES_H

#include "daemon/data/files/globs.h"

struct parquet_files {
    struct file_list list; /* owned */
    uint32_t *from;        /* owned; of each path: the byte from which on partitions may stand */
    uint32_t from_room;
};

/* -EINVAL: a directory without such files; otherwise as file_list_make(). */
int _nodiscard_ parquet_files_make(const struct spec_dataset *spec, const struct data_env *env,
                                   struct parquet_files *ret, struct dl_error *err);
void parquet_files_deinit(struct parquet_files *files);

/* A directory's name=value. */
struct parquet_partition {
    char name[DL_BOUND_NAME_BYTES + 1];
    char value[DL_BOUND_NAME_BYTES + 1]; /* %XX is what it stands for; "": null */
};

/* The next one in the path at *at, which moves behind it. False at the end. */
bool parquet_partition_next(const char **at, struct parquet_partition *ret);

#endif
