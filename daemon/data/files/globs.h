/*
 * Lists of files as a spec writes them: paths, patterns, and ranges of numbers.
 *
 *   /data/part-{000..127}.tar    the 128 files of these names; the zeroes are kept; several ranges
 *                                in a path make all combinations, the last one running fastest
 *   /data/2024-*.jsonl           glob(7): the files that match, in the order of their bytes
 *
 * Ranges are expanded first, then patterns. A * ? [ or \ in a name is written with a backslash
 * before it. May block on the disk.
 */
#ifndef DL_DATA_GLOBS_H
#define DL_DATA_GLOBS_H

#include "daemon/data/base/dataset.h"

/* The most files, and bytes of paths, that a spec's list may expand to. */
enum { FILE_LIST_MAX = 2000000, FILE_LIST_BYTES = 256 << 20 };

struct file_list {
    char **paths; /* owned, and each of them */
    uint32_t n;
    uint32_t room;
    uint64_t bytes; /* of the paths */
};

/*
 * The files of spec->files[0..n_files), in that order, which are expected. A path without a pattern
 * is listed even if the file is missing; a pattern without a match is refused: -EINVAL with `err`
 * naming it. -EACCES: a pattern outside `env`'s roots, or a directory that may not be read; -E2BIG:
 * more files than that; -ENOMEM.
 */
int _nodiscard_ file_list_make(const struct spec_dataset *spec, const struct data_env *env,
                               struct file_list *ret, struct dl_error *err);
/* The same of files that are not opened before their samples are read: nothing is asked for. */
int _nodiscard_ file_list_find(const struct spec_dataset *spec, const struct data_env *env,
                               struct file_list *ret, struct dl_error *err);
/* Of remote ones that are opened now the first block is asked for, of all at once. */
void file_list_expect(const struct file_list *list, const struct data_env *env);
/* One more, as it is called; NULL is refused. */
int _nodiscard_ file_list_add(struct file_list *list, const char *path, struct dl_error *err);
void file_list_deinit(struct file_list *list);

#endif
