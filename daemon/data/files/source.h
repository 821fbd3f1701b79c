/*
 * Where the bytes of a dataset come from: a mapped data file, or private memory made from one. A
 * path may be a URL, if `env` has a way to it: remote.h.
 *
 * A source is opened once, checked by its descriptor (its name may change under us), and only read
 * afterwards. A mapped file that is truncated later raises SIGBUS on access, which env->guard
 * handles. If `env` has a reader, that user's rights apply, too: reader.h. Opening and reading may
 * block on the disk. Not thread-safe.
 */
#ifndef DL_DATA_SOURCE_H
#define DL_DATA_SOURCE_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/gunzip.h"
#include "proto/remote_wire.h"
#include <dirent.h>
#include <sys/stat.h>

/* Whether it is read by env->remote. `env` may be NULL. */
static inline bool source_is_remote(const char *path, const struct data_env *env)
{
    return (env && env->served) || remote_is_url(path);
}

struct source {
    const uint8_t *data; /* owned mapping; not NULL once open, even of 0 bytes */
    uint64_t bytes;
    struct guarded *guarded;   /* owned; NULL: private memory, or unguarded */
    struct remote_map *remote; /* owned; NULL: not a remote file */
};

/*
 * Maps the regular file at `path`, read-only. Errors name `path`: -ENOENT, -EACCES (permissions,
 * or the file that was opened lies outside `env`'s roots), -EISDIR, -EINVAL (not a regular file),
 * ...
 */
int _nodiscard_ source_open(const char *path, const struct data_env *env, struct source *ret,
                            struct dl_error *err);

/* The same; *ret_st is the fstat() of the opened file. */
int _nodiscard_ source_open_known(const char *path, const struct data_env *env, struct source *ret,
                                  struct stat *ret_st, struct dl_error *err);

/*
 * Only opens it: returns a descriptor for reading, and the size. For files that are read once: if
 * one is truncated then, it just ends early.
 */
int _nodiscard_ source_open_file(const char *path, const struct data_env *env, int *ret_fd,
                                 uint64_t *ret_bytes, struct dl_error *err);

/* Up to `bytes` of such a file into `out`, fewer at its end: how many, in *ret. */
int _nodiscard_ source_read_file(int fd, const char *path, uint8_t *out, uint64_t bytes,
                                 uint64_t *ret, struct dl_error *err);

/* A directory that is being listed. */
struct source_dir { /* all zero is empty */
    struct stat st;
    DIR *dir;      /* owned; NULL: it is remote */
    void *entries; /* owned mapping; its entries */
    uint64_t entries_bytes, at;
    struct dirent entry;
};

/* Its roots are checked as a file's are. -ENOTDIR. */
int _nodiscard_ source_dir_open(const char *path, const struct data_env *env,
                                struct source_dir *ret, struct dl_error *err);
/* As readdir(), with errno set to 0 at the end; names in any order, "." and ".." may be among them.
 */
struct dirent *source_dir_read(struct source_dir *dir);
void source_dir_close(struct source_dir *dir); /* zeroes it; a zeroed one is fine */

/* stat(), or lstat() without `follow`, with the rights of `env`'s reader if any. -errno. */
int _nodiscard_ source_stat(const char *path, bool follow, const struct data_env *env,
                            struct stat *ret);

/*
 * 0 when names may be looked up below the directory `dir`, for the pattern `path`: below `env`'s
 * roots, links resolved. Else -EACCES, whether or not there is such a directory.
 */
int _nodiscard_ source_allows(const char *dir, const char *path, const struct data_env *env,
                              struct dl_error *err);

/*
 * Private zeroed memory of `bytes`, to be written through *ret_memory and then frozen by
 * source_freeze(). -ENOMEM with `err` naming `path`, the file it is for.
 */
int _nodiscard_ source_alloc(uint64_t bytes, const char *path, struct source *ret,
                             uint8_t **ret_memory, struct dl_error *err);
void source_freeze(struct source *source);

/* Whether `path` lies below the directory `root`, by their names: resolve links before. */
bool path_below(const char *path, const char *root);

void source_close(struct source *source); /* zeroes it; a zeroed one is fine */

/* By content, not by name. */
bool source_is_gzip(const struct source *source);

#endif
