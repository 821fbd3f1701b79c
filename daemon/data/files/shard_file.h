/*
 * Files of samples that a directory's index lists, as MDS and litData write them. Little-endian:
 *
 *   0   u32      number of samples
 *   4   u32 …    where each sample begins, and where the last one ends
 *       …        anything
 *       …        the samples
 *
 * A file is mapped when its first sample is needed. One that exists only in compressed form is
 * unpacked then, and kept while all unpacked ones stay within their limit: samples that come file
 * by file are then unpacked once.
 *
 * Not thread-safe. May block on the disk.
 */
#ifndef DL_DATA_SHARD_FILE_H
#define DL_DATA_SHARD_FILE_H

#include "daemon/data/files/globs.h"
#include "daemon/data/files/source.h"

#include <limits.h>

/* What a compressed file was unpacked to. Counted: by the file while it keeps it, and by the arena
 * of each sample that lies in it. */
struct shard_unpacked {
    uint32_t refs;
    uint64_t bytes;
    uint8_t *data; /* owned */
};

struct shard_file {
    /* As the index has it: */
    char *raw;          /* owned; its path below the directory */
    char *packed;       /* owned; of its compressed form; may be NULL */
    uint64_t raw_bytes; /* below 2^32: places in it have 32 bits */
    uint64_t samples;   /* in its table */
    uint64_t count;     /* of the dataset's, that it has */
    /* Of the dataset: */
    uint64_t first;                  /* sample: its first one */
    char *path;                      /* owned; of the opened file; NULL before */
    struct source source;            /* owned; zero: not open, or compressed */
    struct shard_unpacked *unpacked; /* counted; may be NULL */
    uint64_t used;                   /* when it was of use last: the greatest is the latest */
};

#define SHARD_NOT_FRAMED 1

struct shard_files {          /* all zero is empty */
    struct shard_file *files; /* owned */
    uint32_t n;
    const char *root; /* borrowed; the directory */
    const struct data_env *env;
    /*
     * Unpacks the samples of a file at `data` that is compressed in parts, with the table in front
     * as above, into memory that the caller frees. 0; SHARD_NOT_FRAMED: another kind of file; or a
     * negative errno with `err` naming `path`. NULL: the format has no such files.
     */
    int (*unframe)(const uint8_t *data, uint64_t bytes, const char *path, uint8_t **ret,
                   uint64_t *ret_bytes, struct dl_error *err);
    uint64_t most_unpacked; /* bytes to keep, besides the current file */
    uint64_t unpacked;
    uint64_t uses;
};

/* Whether `name` stays below the index's directory: other files are off limits. */
bool shard_file_good_name(const char *name);

/* Whether the directory `root` has only the compressed form; returns the path of the file to read,
 * cut if it is too long. */
bool shard_file_is_packed(const struct shard_file *file, const char *root,
                          const struct data_env *env, char ret[static PATH_MAX]);

/* A file in memory, `bytes` at `data`: 0 if its table has `samples` places in it. -EINVAL with
 * `err` naming `path`. */
int _nodiscard_ shard_file_check(const uint8_t *data, uint64_t bytes, uint64_t samples,
                                 const char *path, struct dl_error *err);

/* Where sample `i` of a file that was checked lies, checked. -EINVAL with `err` naming `path`. */
int _nodiscard_ shard_file_find(const uint8_t *data, uint64_t bytes, uint64_t i, const char *path,
                                const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err);

/* Checks that the files exist, with the sizes in the index: now, not hours later. Counts their
 * samples into *ret_samples. Errors name the file. */
int _nodiscard_ shard_files_begin(struct shard_files *files, uint64_t *ret_samples,
                                  struct dl_error *err);

/* Adds to *ret the directory's index.json and the files, as they are there. */
int _nodiscard_ shard_files_list(const struct shard_files *files, const char *root,
                                 const struct data_env *env, struct file_list *ret,
                                 struct dl_error *err);

/* The file that has sample `index`, which there is. */
struct shard_file *shard_files_of(const struct shard_files *files, uint64_t index);

/* Opens a file and returns its bytes, which stay until another file is requested, or while
 * shard_file_hold() holds them. Errors name the file. */
int _nodiscard_ shard_files_use(struct shard_files *files, struct shard_file *file,
                                const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err);

/* Keeps what a sample of `file` points to until its batch is made. -ENOMEM. */
int _nodiscard_ shard_file_hold(const struct shard_file *file, struct arena *arena,
                                struct dl_error *err);

/* As dataset_ops.expect and .name, of a dataset whose samples these are. */
void shard_files_expect(struct shard_files *files, uint64_t index);
size_t shard_files_name(const struct shard_files *files, uint64_t index, char *ret, size_t room);

void shard_files_deinit(struct shard_files *files); /* zeroes it */

#endif
