/*
 * Plug-ins for dloaderd: datasets and collate functions in C, C++, Rust or any language that makes
 * a shared library. Compile with `pkg-config --cflags dloader-plugin`, and link with nothing: all
 * functions that a plug-in may call are in a table, struct dl_plugin_host.
 *
 *   static int noise_open(const struct dl_plugin_host *host, const char *config, void **ret)
 *           { *ret = (void *)host; return 0; }
 *   static int noise_length(void *handle, uint64_t *ret)
 *           { *ret = 1000; return 0; }
 *   static int noise_get(void *handle, uint64_t index, struct dl_plugin_sample *sample,
 *                        struct dl_plugin_rng *rng)
 *           { const struct dl_plugin_host *host = handle;
 *             return host->real(sample, NULL, host->uniform(rng)); }
 *
 *   static const struct dl_plugin noise = {.abi = DL_PLUGIN_ABI, .size = sizeof noise,
 *           .open = noise_open, .length = noise_length, .get = noise_get};
 *   const struct dl_plugin *dl_plugin_entry(void) { return &noise; }
 *
 * What a plug-in is: a map-style dataset, which has `length` and `get`; or an iterable one, which
 * has `iterate`, `next` and `iter_close`; it cannot be both. One with `collate` makes batches of
 * samples. One library may have a dataset and a collate function: it is then opened for each.
 *
 * Where it runs: in the worker processes of a loader, each of which opens it separately, and in
 * `dlctl check`. One thread calls it, one call at a time. A plug-in that crashes only takes its
 * worker with it. It may have several handles open at once: keep the state of each behind the
 * handle, not in globals, and the host table, too, since each open() gets its own.
 *
 * Results. 0 is success. A failure is a negative errno, explained by `return host->fail(host,
 * EINVAL, "column %s is missing", name);`. Results are checked as strictly as a file from a
 * stranger: a sample that is not a tree, an unknown type, or a meaningless result are errors that
 * name the plug-in.
 *
 * Memory. What open() and iterate() return belongs to the plug-in until close() and iter_close().
 * Pointers that the host passes are the host's, and good for the length of the call; the host table
 * and `config` are good until close() has returned. The batch is made from the bytes of leaves
 * later, after many more calls: they must be memory from alloc(), which belongs to its sample, or
 * stay valid until close(): memory of the handle, or a file from map(). In collate(), also what the
 * samples point to. Keys and numbers are copied.
 *
 * Versions. `abi` and `size` come first in both tables. A plug-in of another abi is refused; within
 * one, tables only grow at their ends. Entries that an older plug-in's table lacks count as NULL; a
 * newer plug-in is accepted if it sets no entry that this host does not know. With
 * DL_PLUGIN_HOST_HAS() a newer plug-in checks whether this host has a function.
 */
#ifndef DLOADER_PLUGIN_H
#define DLOADER_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DL_PLUGIN_EXPORT          __attribute__((visibility("default")))
#define DL_PLUGIN_PRINTF_(fmt, n) __attribute__((format(printf, fmt, n)))
#else
#define DL_PLUGIN_EXPORT
#define DL_PLUGIN_PRINTF_(fmt, n)
#endif

#define DL_PLUGIN_ABI            1
#define DL_PLUGIN_END            1 /* from next(): the replica has no more samples */
#define DL_PLUGIN_LENGTH_UNKNOWN UINT64_MAX

/* Element types of tensors, in the machine's byte order. A bool is a byte, 0 or 1. */
enum dl_plugin_type {
    DL_PLUGIN_BOOL = 1,
    DL_PLUGIN_UINT8,
    DL_PLUGIN_INT8,
    DL_PLUGIN_UINT16,
    DL_PLUGIN_INT16,
    DL_PLUGIN_UINT32,
    DL_PLUGIN_INT32,
    DL_PLUGIN_UINT64,
    DL_PLUGIN_INT64,
    DL_PLUGIN_FLOAT16,
    DL_PLUGIN_BFLOAT16,
    DL_PLUGIN_FLOAT32,
    DL_PLUGIN_FLOAT64,
    DL_PLUGIN_COMPLEX64,
    DL_PLUGIN_COMPLEX128
};

enum dl_plugin_kind {
    DL_PLUGIN_TENSOR = 1,
    DL_PLUGIN_DICT,
    DL_PLUGIN_LIST,
    DL_PLUGIN_TUPLE,
    DL_PLUGIN_STRING, /* UTF-8 */
    DL_PLUGIN_BYTES
};

enum { DL_PLUGIN_DIMS = 8 };

struct dl_plugin_sample; /* one that is being built, or one to be read */
struct dl_plugin_rng;    /* random numbers of one sample */

/* A node of a sample's tree, to be read. Pointers are borrowed from the sample. */
struct dl_plugin_node {
    uint32_t kind;     /* enum dl_plugin_kind */
    uint32_t type;     /* enum dl_plugin_type of a tensor; else 0 */
    uint32_t ndim;     /* of a tensor; 0: a number */
    uint32_t children; /* direct ones, which follow; 0 for a leaf */
    uint32_t next;     /* number of the first node that is not below this one */
    uint32_t key_len;  /* bytes */
    const char *key;   /* of a dict's child, not NUL-terminated; else NULL */
    uint64_t shape[8]; /* elements; C-contiguous */
    const void *data;  /* of a leaf; else NULL */
    uint64_t nbytes;
};

/* ---- what the host gives -------------------------------------------------------------------- */

/*
 * Building: in preorder, one root. `key` is the leaf's or container's name below a dict (1 to 128
 * bytes of UTF-8), and NULL elsewhere. The first failure sticks: the builder may check each result,
 * or return the last one.
 */
struct dl_plugin_host {
    uint32_t abi;
    uint32_t size;    /* bytes of this table */
    const char *path; /* of the plug-in, as it was found */

    /* Reports what is wrong and, if known, the remedy. Returns -code; a code of 0 or less is
     * EIO. */
    int (*fail)(const struct dl_plugin_host *host, int code, const char *fmt, ...)
        DL_PLUGIN_PRINTF_(3, 4);
    /* One line to the worker's standard error: the daemon shows the last ones when it dies. */
    void (*log)(const struct dl_plugin_host *host, const char *fmt, ...) DL_PLUGIN_PRINTF_(2, 3);
    /*
     * Maps a data file, read-only, until close() has returned. `path` is absolute and lies below
     * the daemon's data_roots: any user who may connect to the daemon can send a `config`, so a
     * plug-in that opens its paths itself gives away what the daemon can read. Failures are
     * reported as by fail(). *ret_data is not NULL, even for 0 bytes.
     */
    int (*map)(const struct dl_plugin_host *host, const char *path, const void **ret_data,
               uint64_t *ret_bytes);

    /* dict, list or tuple; end() closes the one begun last. */
    int (*begin)(struct dl_plugin_sample *sample, uint32_t kind, const char *key);
    int (*end)(struct dl_plugin_sample *sample);
    /* Memory of the sample, 64-byte aligned, not zeroed; NULL if out of memory, which sticks. */
    void *(*alloc)(struct dl_plugin_sample *sample, size_t bytes);
    /* `shape` in elements, at most 8 of them; `data` C-contiguous. */
    int (*tensor)(struct dl_plugin_sample *sample, const char *key, uint32_t type, uint32_t ndim,
                  const uint64_t *shape, const void *data);
    int (*string)(struct dl_plugin_sample *sample, const char *key, const char *text, size_t len);
    int (*bytes)(struct dl_plugin_sample *sample, const char *key, const void *data, size_t len);
    int (*integer)(struct dl_plugin_sample *sample, const char *key, int64_t value); /* int64 */
    int (*real)(struct dl_plugin_sample *sample, const char *key, double value);     /* float64 */
    int (*boolean)(struct dl_plugin_sample *sample, const char *key, int value);

    /*
     * The same numbers for the same seed, epoch and sample, whichever worker makes it and however
     * many there are. Use no others, and runs can be repeated.
     */
    uint64_t (*random)(struct dl_plugin_rng *rng);
    double (*uniform)(struct dl_plugin_rng *rng);             /* [0, 1) */
    uint64_t (*below)(struct dl_plugin_rng *rng, uint64_t n); /* 0..n-1; 0 for n = 0 */

    /* Reading: node 0 is the root. -ENOENT: no such node; find() takes "", "image", "pair.0". */
    uint32_t (*nodes)(const struct dl_plugin_sample *sample);
    int (*node)(const struct dl_plugin_sample *sample, uint32_t i, struct dl_plugin_node *ret);
    int (*find)(const struct dl_plugin_sample *sample, const char *path,
                struct dl_plugin_node *ret);
};

#define DL_PLUGIN_HOST_HAS(host, member)                                                 \
    ((host)->size >= offsetof(struct dl_plugin_host, member) + sizeof((host)->member) && \
     (host)->member)

/* ---- what the plug-in gives ----------------------------------------------------------------- */

/* One worker process of a loader. */
struct dl_plugin_worker {
    uint32_t number; /* below count */
    uint32_t count;
    uint64_t seed; /* of this worker only; the same in every run with the loader's seed */
};

/*
 * The replica that iterates. The samples of an epoch are divided among world · workers replicas, of
 * which this is number rank · workers + worker: the plug-in leaves out the others' samples, or each
 * replica returns all. If the loader itself deals the samples to its ranks (shard.mode batch,
 * split, dispatch), rank is 0 and world 1. A replica that is begun again must return the same
 * samples.
 */
struct dl_plugin_replica {
    uint64_t seed; /* of this replica in this epoch only */
    uint64_t epoch;
    uint32_t worker; /* below workers */
    uint32_t workers;
    uint32_t rank; /* below world */
    uint32_t world;
};

struct dl_plugin {
    uint32_t abi;  /* DL_PLUGIN_ABI */
    uint32_t size; /* sizeof(struct dl_plugin) */

    /*
     * `config`: what the loader spec has under `config`, as JSON text; "null" if it has nothing.
     * *ret: the handle that all other functions get, NULL if not set. Needed. close() is called
     * only after an open() that succeeded; NULL: there is nothing to close.
     */
    int (*open)(const struct dl_plugin_host *host, const char *config, void **ret);
    void (*close)(void *handle);
    /* Called once, after open() and before the first sample; not when loading without workers. May
     * be NULL. */
    int (*init)(void *handle, const struct dl_plugin_worker *worker);

    /*
     * Map-style. The length is below 2^63, and the same in every worker. get() builds the sample
     * `index`, which is below it; the same every time, except for its use of `rng`.
     *
     * An iterable dataset may also have length(): samples of all replicas together, or
     * DL_PLUGIN_LENGTH_UNKNOWN.
     */
    int (*length)(void *handle, uint64_t *ret);
    int (*get)(void *handle, uint64_t index, struct dl_plugin_sample *sample,
               struct dl_plugin_rng *rng);
    /*
     * Map-style: the lengths of the existing samples first..first+n-1, n ≥ 1: the size of the first
     * dimension of the first tensor, in preorder, that has one. Each is at least 1, below 2^32 - 1,
     * and the same every time, since batches of tokens are planned by them. NULL, or -ENOTSUP: they
     * are not known without the samples; get() is then called for each, as it is if the loader spec
     * uses another leaf's lengths (batch.length_of).
     */
    int (*lengths)(void *handle, uint64_t first, uint64_t n, uint64_t *ret);

    /*
     * Iterable. iterate() begins a replica; several may be open at once. next() builds its next
     * sample, or returns DL_PLUGIN_END; after a failure, the next call gives the sample behind the
     * one that could not be had. skip() passes over n samples without building them, as if next()
     * had been called n times, and returns DL_PLUGIN_END if there were fewer; NULL: they are built
     * and dropped.
     */
    int (*iterate)(void *handle, const struct dl_plugin_replica *replica, void **ret);
    int (*next)(void *iter, struct dl_plugin_sample *sample, struct dl_plugin_rng *rng);
    int (*skip)(void *iter, uint64_t n);
    void (*iter_close)(void *iter);

    /*
     * Builds one batch of samples[0..n), n ≥ 1, whose numbers in the dataset are numbers[0..n). It
     * is delivered as built: no dimension is added.
     */
    int (*collate)(void *handle, const struct dl_plugin_sample *const *samples,
                   const uint64_t *numbers, size_t n, struct dl_plugin_sample *batch);

    /*
     * Iterable: a replica's state, so that an interrupted epoch resumes at once, instead of
     * skipping all samples before. Both or neither.
     *
     * save_state() is called after each batch. It writes what load_state() needs to `state`, at
     * most `room` bytes (64 KiB), and their number to *ret_bytes, which may be 0; or the size it
     * would need: then nothing is kept. Keep it small. -ENOTSUP: this replica has no state.
     *
     * load_state() is called instead of iterate(): it begins a replica whose next sample follows
     * those taken when save_state() was called, maybe in another process, by another build, on
     * another machine. Any user who may connect to the daemon can send the bytes: check them, and
     * copy what is kept.
     */
    int (*save_state)(void *iter, void *state, size_t room, size_t *ret_bytes);
    int (*load_state)(void *handle, const struct dl_plugin_replica *replica, const void *state,
                      size_t bytes, void **ret);
};

/* The one symbol that a plug-in exports. The table stays as it is. */
DL_PLUGIN_EXPORT const struct dl_plugin *dl_plugin_entry(void);

#ifdef __cplusplus
}
#endif

#endif
