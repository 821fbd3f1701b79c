/*
 * One shard of an MDS dataset. Little-endian:
 *
 *   0   u32      number of samples
 *   4   u32 …    where each sample begins, and where the last one ends
 *       JSON     the columns once more
 *       …        the samples: a u32 for each column whose values vary in size, then the values
 *
 * Not thread-safe. May block on the disk.
 */
#ifndef DL_DATA_MDS_SHARD_H
#define DL_DATA_MDS_SHARD_H

#include "daemon/data/mds/mds_index.h"
#include "daemon/data/source.h"

#include <limits.h>

/* What a compressed shard was unpacked to. Counted: by the shard while it keeps it, and by the
 * arena of each sample that lies in it. */
struct mds_unpacked {
    uint32_t refs;
    uint64_t bytes;
    uint8_t *data; /* owned */
};

struct mds_shard {
    const struct mds_shard_entry *entry; /* borrowed */
    uint64_t first;                      /* sample: its first one */
    char *path;                          /* owned; of what is open; NULL: nothing was yet */
    struct source source;                /* owned; zero: not open, or compressed */
    struct mds_unpacked *unpacked;       /* counted; NULL: none is kept */
    uint64_t used;                       /* when it was of use last: the greatest is the latest */
};

struct mds_unpacked *mds_unpacked_ref(struct mds_unpacked *unpacked);
void mds_unpacked_unref(void *unpacked); /* NULL is fine */

/* Whether the compressed form alone is in the directory `root`, and the path of the one that is
 * read, cut where it is too long. */
bool mds_shard_is_packed(const struct mds_shard_entry *entry, const char *root,
                         const struct data_env *env, char ret[static PATH_MAX]);

/* Makes the shard's bytes be there: mapped, or unpacked. `root` is the directory. Errors name the
 * file. */
int _nodiscard_ mds_shard_open(struct mds_shard *shard, const char *root,
                               const struct data_env *env, struct dl_error *err);
void mds_shard_close(struct mds_shard *shard); /* may be opened again */

/* A shard in memory, `bytes` at `data`: 0 if its table has `samples` places in it. -EINVAL with
 * `err` naming `path`. */
int _nodiscard_ mds_shard_check(const uint8_t *data, uint64_t bytes, uint64_t samples,
                                const char *path, struct dl_error *err);

/* Where sample `i` of a shard that was checked lies, checked. -EINVAL with `err` naming `path`. */
int _nodiscard_ mds_shard_find(const uint8_t *data, uint64_t bytes, uint64_t i, const char *path,
                               const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err);

/*
 * Where the values of a sample of `bytes` at `data` lie: ret[c].data and .size for each column, of
 * which there are index->n_columns. false: they are not as many bytes as there are.
 */
bool mds_shard_split(const struct mds_index *index, const uint8_t *data, uint64_t bytes,
                     struct mds_value *ret);

#endif
