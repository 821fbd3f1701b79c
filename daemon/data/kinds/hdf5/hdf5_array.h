/*
 * One dataset of an HDF5 file: numbers of one type, in one piece (compact, contiguous) or in
 * chunks, plain or by the filters shuffle, deflate and fletcher32. Row i is [i, ...].
 *
 * Chunks that filters have packed are unpacked whole, and kept, the latest used, in the memory that
 * all arrays of a file share. Not thread-safe.
 */
#ifndef DL_DATA_HDF5_ARRAY_H
#define DL_DATA_HDF5_ARRAY_H

#include "daemon/data/kinds/hdf5/hdf5_head.h"
#include "proto/limits.h"

enum { HDF5_FILTERS_MAX = 8, HDF5_DIMS_MAX = DL_BOUND_TENSOR_DIMS };
enum hdf5_filter { HDF5_DEFLATE = 1, HDF5_SHUFFLE = 2, HDF5_FLETCHER32 = 3 };

struct hdf5_chunk {
    uint64_t number;  /* of all places of chunks, the last dimension's fastest */
    uint64_t at;      /* in the file */
    uint32_t bytes;   /* stored */
    uint32_t skipped; /* a bit for each filter that it went without */
    uint32_t unpacked_bytes;
    uint8_t *unpacked;                 /* owned; may be NULL */
    struct hdf5_chunk *before, *after; /* of those that are: the one used earlier, and later */
};

/* Chunks that are kept unpacked. */
struct hdf5_cache {
    uint64_t most; /* bytes, besides the current one */
    uint64_t bytes;
    struct hdf5_chunk *oldest, *latest;
};

/* A row of hdf5_foreign.h may be text: it then has no dtype and no dimensions. */
enum hdf5_text { HDF5_NO_TEXT, HDF5_TEXT_IN_ROOM, HDF5_TEXT_POINTER };

struct hdf5_array {
    struct hdf5_view view;
    const char *name; /* borrowed; for messages */
    uint32_t dtype;
    unsigned element; /* bytes */
    uint32_t ndim;    /* at least 1 */
    uint64_t dims[HDF5_DIMS_MAX];
    uint8_t fill[8];    /* one element, of what was never written */
    uint64_t row_bytes; /* of text: of a pointer to it, or its room, filled up by NUL */
    enum hdf5_text text;

    struct hdf5_foreign_array *foreign; /* owned; hdf5_foreign.h reads it, and what follows is of
                                           no use; NULL: it does not */
    bool is_chunked;
    const uint8_t *whole;          /* in one piece; borrowed; NULL: nothing was written */
    uint64_t tree;                 /* of the chunks; may be HDF5_NONE */
    uint64_t chunk[HDF5_DIMS_MAX]; /* dimensions of one */
    uint64_t chunk_bytes;          /* unpacked */
    struct hdf5_chunk *chunks;     /* owned; by number */
    size_t n_chunks;
    unsigned n_filters;
    enum hdf5_filter filters[HDF5_FILTERS_MAX]; /* in the order they were applied in */
};

/*
 * The dataset whose header is at `at`. -EINVAL: damaged, or not an array; -ENOTSUP: an unsupported
 * feature; -ENOMEM. `err` names the file and the array.
 */
int _nodiscard_ hdf5_array_open(const struct hdf5_view *view, uint64_t at, const char *name,
                                struct hdf5_array *ret, struct dl_error *err);
void hdf5_array_close(struct hdf5_array *array, struct hdf5_cache *cache);

/* Its chunks, for hdf5_array_open(): hdf5_chunks.c */
int _nodiscard_ hdf5_chunks_list(struct hdf5_array *array, struct dl_error *err);

/* Copies row `row` < dims[0]. -EINVAL: a chunk is damaged; -ENOMEM. */
int _nodiscard_ hdf5_array_read(struct hdf5_array *array, struct hdf5_cache *cache, uint64_t row,
                                void *out, struct dl_error *err);

/* "its dataset x: ", and what; -code. */
int hdf5_array_refuse(const struct hdf5_array *array, int code, const char *what,
                      struct dl_error *err);

#endif
