/*
 * Datasets: where samples come from. Used by workers and by single-process loading.
 *
 * There are two kinds. A *map-style* dataset has a length and returns the sample of an index. If
 * all samples have one shape, the dataset has a `schema` and copies them straight into their batch
 * (read_rows), so that a byte moves once between the file and the trainer. Others return one sample
 * at a time (get), from which collate.h makes a batch. An *iterable* dataset returns samples one
 * after another to each of its replicas (iterate), and may not know their number.
 *
 * Not thread-safe. May block on the disk.
 */
#ifndef DL_DATASET_H
#define DL_DATASET_H

#include "daemon/cache/ids_cache.h"
#include "daemon/cache/pictures_cache.h"
#include "daemon/data/base/sample.h"
#include "proto/dataset_state.h"
#include "proto/spec.h"
#include "proto/tree.h"

struct dataset;
struct guard;
struct jinja;
struct reader;
struct remote;
struct shared_indexes;

#define DATASET_LENGTH_UNKNOWN UINT64_MAX

/*
 * Keys the randomness of a sample (rng.h): the loader's seed, the epoch, and an offset to the
 * dataset's own index, so that the datasets inside a concat have different ones.
 */
struct sample_key {
    uint64_t seed;
    uint64_t epoch;
    uint64_t base;
};

/*
 * One replica of an iterable dataset: a worker's share of one rank's pass over one epoch. Where all
 * ranks go through the same samples (replica.h) they have equal replicas, as of the one rank 0.
 */
struct replica_params {
    struct sample_key key;
    uint64_t seed;  /* unique to this worker, rank and epoch */
    uint64_t again; /* this many first samples may be requested again: see dataset_iter_ops */
    bool again_bad; /* bad ones are among these: their rounds were made without them */
    uint32_t worker;
    uint32_t workers;
    uint32_t rank;
    uint32_t world;
    /* If dataset.saves_state: what save() of such a replica gave behind sample `position` - 1,
     * where this one begins. Empty: it begins at its first sample. */
    struct dl_span state;
    uint64_t position;
};

#define DATASET_END 1 /* not an error: the replica has no more samples */

struct dataset_iter;
struct dataset_iter_ops {
    /*
     * Appends the next sample to the empty `ret`; what it points to stays until the arena of `ret`
     * is cleared. 0; DATASET_END, from then on always; or a negative errno with `err`: this sample
     * is bad, and the next call continues behind it.
     */
    int (*next)(struct dataset_iter *it, struct sample *ret, struct dl_error *err);
    /*
     * Passes over up to `n` samples, good or bad, without making them; *ret is how many, unless
     * `ret` is NULL, which may be cheaper. 0; or DATASET_END: there were fewer than n. NULL: the
     * caller reads and drops them.
     */
    int (*skip)(struct dataset_iter *it, uint64_t n, uint64_t *ret);
    /*
     * One of the first samples once more, below replica_params.again and made before; as next().
     * *number: which of them, and then its number in the replica. NULL: another replica is begun
     * for it, which must be identical. For datasets that do not guarantee that.
     */
    int (*again)(struct dataset_iter *it, uint64_t *number, struct sample *ret,
                 struct dl_error *err);
    /*
     * If dataset.saves_state: the replica's state, in at most `room` bytes. 0 and *ret_len;
     * *ret_lost: why the state is missing this time, which is not an error. -ENOTSUP: this replica
     * cannot save its state. Else a negative errno with `err`.
     */
    int (*save)(struct dataset_iter *it, void *buf, size_t room, size_t *ret_len,
                enum dataset_state_loss *ret_lost, struct dl_error *err);
    /* The name of the latest sample of next(), directly after it, as dataset_ops.name. NULL:
     * samples have no names. */
    size_t (*name)(struct dataset_iter *it, char *ret, size_t room);
    void (*close)(struct dataset_iter *it); /* frees what iterate made, and `it` itself */
};
struct dataset_iter {
    const struct dataset_iter_ops *ops;
};

/* Lengths that are asked for, of samples one after another. */
struct lengths_wanted {
    const char *leaf; /* NULL: the default one */
    uint64_t first;   /* sample */
    size_t n;
    uint32_t *ret; /* of each */
    uint64_t bad;  /* after an error: the sample at fault, or UINT64_MAX */
};

struct dataset_ops {
    /*
     * Map-style, of one shape. Copies samples indices[0..n) one after another into dst[l] for each
     * leaf l of the schema in preorder; sample i of leaf l lands at dst[l] + i·leaf bytes. Indices
     * are below length, or refused. They may lie in memory that another process writes to: each is
     * read once, checked, and used. Returns 0, or a negative errno with `err` and *ret_bad =
     * position in `indices` at fault.
     */
    int (*read_rows)(struct dataset *ds, const struct sample_key *key, const uint64_t *indices,
                     size_t n, void *const *dst, size_t *ret_bad, struct dl_error *err);
    /* In its place, where rows have nothing in common: one, whose index is below length, to row
     * `row` of each leaf. */
    int (*read_row)(struct dataset *ds, const struct sample_key *key, uint64_t index,
                    void *const *dst, size_t row, struct dl_error *err);
    /* Map-style, of varying shape. As next() of an iterator, for one index, below length. */
    int (*get)(struct dataset *ds, const struct sample_key *key, uint64_t index, struct sample *ret,
               struct dl_error *err);
    /* Iterable. A replica at its beginning; several may be open at once, of one worker. */
    int (*iterate)(struct dataset *ds, const struct replica_params *params,
                   struct dataset_iter **ret, struct dl_error *err);
    /*
     * Map-style: the lengths for dataset_known_lengths() (lengths.h), of existing samples.
     * -ENOTSUP, without side effects: they are not known without loading the samples, or not for
     * this leaf. May be NULL.
     */
    int (*lengths)(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err);
    /*
     * Map-style: writes a sample's name for people, its file or "FILE: row 17", in the form of
     * dataset_put_name(); returns its length, as snprintf() does; `index` is below length. 0: only
     * its index identifies it. May be NULL; samples then have no names.
     */
    size_t (*name)(struct dataset *ds, uint64_t index, char *ret, size_t room);
    /* Prefetches the beginning of a sample that is needed soon; below length. May be NULL. */
    void (*expect)(struct dataset *ds, uint64_t index);
    /* Of far files, after expect() of all samples that are wanted together: reads what says where
     * this one's bytes are, and expects these. It may wait. May be NULL. */
    void (*locate)(struct dataset *ds, uint64_t index);
    void (*close)(struct dataset *ds); /* frees what open made, and ds itself */
};

struct dataset {
    const struct dataset_ops *ops; /* read_rows, read_row, get or iterate: exactly one of them */
    uint64_t length;    /* samples; iterable: of all replicas together, as it says, or unknown */
    struct tree schema; /* owned; of one sample; empty unless dataset_is_fixed() */
    uint32_t n_leaves;  /* tensors in the schema */
    bool can_skip;      /* its iterators have skip() */
    bool saves_state;   /* they have save(), and iterate() resumes from such a state */
    bool tells_origins; /* a mix of iterable datasets: its iterators report each sample's dataset */
    uint64_t *sizes; /* owned; map-style mix: samples in each dataset that it and mixes in it list;
                        else NULL */
    uint32_t n_sizes;
    uint64_t content; /* fingerprint of the data: dataset_fingerprint.h; 0: not known */
    uint32_t raw;     /* map-style, with get: what leaves of bytes become, a dtype; 0: they stay */
};

static inline bool dataset_is_iterable(const struct dataset *ds)
{
    return ds->ops->iterate != NULL;
}

/* All samples have the shape of `schema`. */
static inline bool dataset_is_fixed(const struct dataset *ds)
{
    return ds->ops->read_rows || ds->ops->read_row;
}

/*
 * Reports the progress of long work: listing folders, indexing shards, measuring lengths,
 * fingerprinting files. Called now and then in the thread that does it: `done` of `all`
 * (UINT64_MAX: unknown). `what`: "images", static; when it changes, another stage has begun.
 */
enum { DATA_TELL_EVERY = 1024 }; /* names of a folder: they take half a millisecond or more */
struct data_progress {
    void (*tell)(void *owner, const char *what, uint64_t done, uint64_t all);
    void (*turn_to)(void *owner, const char *path); /* a file or directory, about to be opened */
    void *owner;
};

/* Where decoded pictures of a folder are kept, and shared with other workers; or ids that the
 * tokenizer of a file makes. */
struct data_pictures {
    char *root; /* owned; the folder, or the tokenizer's file, as in the spec */
    struct pictures_cache cache;
    struct ids_cache ids; /* one of the two is there */
};

/* What opening a dataset depends on besides the spec. Borrowed, for the dataset's life. */
struct data_env {
    char **roots;   /* data files must lie below, links resolved; n_roots 0: anywhere */
    char **plugins; /* the same for plug-ins; n_plugins 0: plug-ins are refused */
    uint32_t n_roots;
    uint32_t n_plugins;
    char **seen_as; /* of each root, as clients see it, "": as it is; NULL: of all. See seen.h */
    const struct reader *reader; /* a user whose rights also limit ours; may be NULL */
    bool foreign;                /* for another user: what that one sends is not unpickled */
    uint32_t worker;             /* number of this worker, of `workers`; 0 of 0: not a worker */
    uint32_t workers;
    uint64_t seed;                   /* of the worker, for plug-ins that want one at their start */
    struct data_pictures *pictures;  /* of the folders of dataset.cache, */
    uint32_t n_pictures;             /* number of these; others are not cached */
    struct shared_indexes *indexes;  /* NULL: not shared; see shared_index.h */
    struct index_files *index_files; /* NULL: not kept on disk; see index_files.h */
    struct remote *remote;           /* way to files behind URLs; NULL: URLs are refused */
    bool served;                     /* to all files, which another machine has */
    struct guard *guard;             /* of mapped files; NULL: changes go unnoticed */
    const struct data_progress *progress; /* may be NULL */
    /*
     * Opens a dataset of kind python as dataset_open() does; `place` is its place in the spec.
     * NULL: this process is not a Python interpreter.
     */
    int (*open_python)(const struct spec_dataset *spec, const char *place,
                       const struct data_env *env, struct dataset **ret, struct dl_error *err);
    void *python; /* its context */
    /* A chat template by jinja2, as jinja_parse(). NULL: the same. */
    int (*open_template)(const char *text, size_t n, struct jinja **ret, char *why);
};

/* `env` may be NULL. */
static inline void data_tell(const struct data_env *env, const char *what, uint64_t done,
                             uint64_t all)
{
    if (env && env->progress)
        env->progress->tell(env->progress->owner, what, done, all);
}

/* Before what may wait for storage: should it not come back, that is where it hangs. `env` may be
 * NULL. */
static inline void data_turn_to(const struct data_env *env, const char *path)
{
    if (env && env->progress && env->progress->turn_to)
        env->progress->turn_to(env->progress->owner, path);
}

/*
 * Opens the dataset a spec describes. Errors name the file (err->path) and its defect: missing,
 * truncated, wrong magic, size that does not fit the shape, unequal lengths.
 */
int _nodiscard_ dataset_open(const struct spec_dataset *spec, const struct data_env *env,
                             struct dataset **ret, struct dl_error *err);
struct dataset *dataset_close(struct dataset *ds); /* NULL is fine; returns NULL */

static inline void dataset_closep(struct dataset **ds)
{
    *ds = dataset_close(*ds);
}

static inline void dataset_expect(struct dataset *ds, uint64_t index)
{
    if (ds->ops->expect)
        ds->ops->expect(ds, index);
}

static inline void dataset_locate(struct dataset *ds, uint64_t index)
{
    if (ds->ops->locate)
        ds->ops->locate(ds, index);
}

static inline size_t dataset_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    return ds->ops->name ? ds->ops->name(ds, index, ret, room) : 0;
}

static inline size_t dataset_iter_name(struct dataset_iter *it, char *ret, size_t room)
{
    return it && it->ops->name ? it->ops->name(it, ret, room) : 0;
}

/* The name of number `n` of the `what` of a file, in the form of error messages. */
size_t dataset_put_name(const char *path, const char *what, uint64_t n, char *ret, size_t room);

/* As read_rows(), whichever of the two there is. */
int _nodiscard_ dataset_read_rows(struct dataset *ds, const struct sample_key *key,
                                  const uint64_t *indices, size_t n, void *const *dst,
                                  size_t *ret_bad, struct dl_error *err);
/* One sample of a map-style dataset of either sort, outside of a batch. As get(); an index beyond
 * the length is refused. */
int _nodiscard_ dataset_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                            struct sample *ret, struct dl_error *err);

/* The error for an invalid index: -ERANGE. */
int dataset_refuse_index(const struct dataset *ds, uint64_t index, struct dl_error *err);

/* The seed of one replica, or of a worker: base_seed(seed, epoch) + rank · workers + worker. */
uint64_t dataset_replica_seed(uint64_t seed, uint64_t epoch, uint32_t rank, uint32_t workers,
                              uint32_t worker);

/* The seed of the generators that all samples of one step share, where they are not keyed. */
uint64_t dataset_step_seed(uint64_t seed, uint64_t epoch, uint32_t rank, uint64_t step);

#endif
