/*
 * Shared indexes: what a dataset finds out about its files when it opens (which they are, where
 * samples lie in them), as bytes that hold no addresses. The first worker that opens the dataset
 * makes them, in a sealed memfd; the daemon keeps that for the loader's life, and every other
 * worker, including replacements of dead ones, maps it instead of scanning the files again: one
 * copy in memory, one scan, and one answer for all, even if the files change meanwhile.
 *
 * An index belongs to the dataset at its place in the spec, and has a form, its layout of bytes.
 * Another process made its content, perhaps of another release: the worker checks it, and makes a
 * new one if it is invalid. It cannot change once it is mapped.
 *
 * In a trainer's own process or dlctl, which share with no one, an index is private memory. Not
 * thread-safe.
 */
#ifndef DL_DATA_SHARED_INDEX_H
#define DL_DATA_SHARED_INDEX_H

#include "proto/common/bytes.h"

struct data_env;

/* Numbers of layouts, never reused: a changed layout takes the next number. */
enum shared_index_form {
    SHARED_INDEX_CLASS_LIST = 1, /* class_index.h */
    SHARED_INDEX_TAR = 2,        /* tar/tar_cached.h */
    SHARED_INDEX_TFRECORD = 3,   /* tfrecord/tfrecord_index.h */
    SHARED_INDEX_FILES = 4,      /* files/files_list.h */
};

/* All zero is empty. */
struct shared_index {
    const uint8_t *data; /* owned */
    uint64_t bytes;
    bool mapped; /* else of malloc() */
};
void shared_index_deinit(struct shared_index *index); /* zeroes it */

/* One that was given and is not mapped yet. */
struct shared_index_given {
    char *place; /* owned */
    uint32_t form;
    int fd; /* owned */
};

/* What a worker has of them while it opens its dataset. */
struct shared_indexes {
    struct shared_index_given *given; /* owned array */
    uint32_t n;
    /* Sends an index to all other workers, and has it kept on disk under `key`, unless that is 0:
     * 0, or a negative errno. `fd` stays the caller's. */
    int (*offer)(void *owner, const char *place, uint32_t form, uint64_t key, int fd);
    void *owner;
};

/* Consumes `fd`, also on failure. -ENOMEM. */
int _nodiscard_ shared_indexes_add(struct shared_indexes *indexes, struct dl_span place,
                                   uint32_t form, int fd);
/* Closes those not requested. */
void shared_indexes_deinit(struct shared_indexes *indexes);

/*
 * The index that another worker, or this one, made for the dataset at `place`. False if no index
 * has that form, or it cannot be mapped. `env` may be NULL.
 */
bool _nodiscard_ shared_index_find(const struct data_env *env, const char *place,
                                   enum shared_index_form form, struct shared_index *ret);

/*
 * Makes an index of `bytes`, not empty, which are taken over, and gives it to all other workers. If
 * the system has no shared memory for it, it stays private. `key`: for keeping it on disk
 * (index_files.h), if it is worth that, or 0.
 */
void shared_index_make(const struct data_env *env, const char *place, enum shared_index_form form,
                       uint64_t key, struct dl_buffer *bytes, struct shared_index *ret);

#endif
