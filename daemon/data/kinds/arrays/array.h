/*
 * A table of equal rows in memory: an open idx, npy or records file.
 *
 * `struct array_header` describes the file, with all its axes; `struct array` is the open table,
 * whose first axis has become the rows. Both are checked: the header's size fits the file, and no
 * product overflows. The readers of the three formats are declared here too; their parsers take
 * memory, so that they can be tested and fuzzed without files.
 */
#ifndef DL_DATA_ARRAY_H
#define DL_DATA_ARRAY_H

#include "daemon/data/files/source.h"
#include "daemon/data/kinds/arrays/stored.h"

struct array_header {
    uint32_t dtype;
    uint32_t ndim; /* up to TREE_DIMS; the first is the rows; 0 only from npy_parse_value() */
    uint64_t shape[TREE_DIMS];
    uint64_t data_off;   /* bytes before the first row */
    uint64_t data_bytes; /* product of shape times element size */
    struct stored_order order;
};

struct array {
    struct source source; /* owned */
    const uint8_t *rows;  /* borrowed from source */
    uint64_t count;       /* rows; below 2^63 */
    uint64_t row_bytes;   /* may be 0 */
    uint32_t dtype;
    uint32_t ndim; /* of one row */
    uint64_t shape[TREE_DIMS];
    struct stored_order order; /* other orders are converted when read */
};

/* Takes the content of `source` over and zeroes it. `rows` points into it. */
void array_init(struct array *array, const struct array_header *header, struct source *source,
                const uint8_t *rows);
void array_deinit(struct array *array); /* zeroes it; a zeroed one is fine */

/*
 * Copies rows indices[0..n) one after another to `dst`. Returns n, or the position of the first
 * invalid index; the rows before it were copied. Another process may write to `indices`: each is
 * read once, checked, and used.
 */
size_t array_read_rows(const struct array *array, const uint64_t *indices, size_t n, void *dst);

/* Prefetches the beginning of row `index`, which must exist. */
void array_expect(const struct array *array, uint64_t index);

/* Fills data_bytes; -EINVAL with `err` naming `path` when the shape is beyond 63 bits. */
int _nodiscard_ array_header_measure(struct array_header *header, const char *path,
                                     struct dl_error *err);

/* 0 when data_off + data_bytes is exactly `bytes`, the size of the file; else -EINVAL. */
int _nodiscard_ array_header_fits(const struct array_header *header, uint64_t bytes,
                                  const char *path, struct dl_error *err);

/* "(60000, 28, 28)" as Python writes it, cut to fit. Returns `text`. */
enum { SHAPE_TEXT_MAX = 200 };
const char *shape_text(uint32_t ndim, const uint64_t *shape, char text[static SHAPE_TEXT_MAX]);

/*
 * IDX (the MNIST files): 00 00 type ndim, then ndim big-endian dimensions of 32 bits. Plain or
 * gzip by content. One-byte elements of a plain file are used in place; the others are turned into
 * the machine's byte order once, in private memory.
 */
int _nodiscard_ array_open_idx(const char *path, const struct data_env *env, struct array *ret,
                               struct dl_error *err);
/* Only the header, from the first `len` bytes of a file. */
int _nodiscard_ idx_parse(const uint8_t *data, uint64_t len, const char *path,
                          struct array_header *ret, struct dl_error *err);
/* A whole gzip file, header and rows, into private memory. */
int _nodiscard_ idx_unpack(const uint8_t *data, uint64_t len, const char *path, struct array *ret,
                           struct dl_error *err);

/* NumPy's .npy, versions 1 to 3; used in place. */
int _nodiscard_ array_open_npy(const char *path, const struct data_env *env, struct array *ret,
                               struct dl_error *err);
bool npy_is(const uint8_t *data, uint64_t len); /* by how it starts */
int _nodiscard_ npy_parse(const uint8_t *data, uint64_t len, const char *path,
                          struct array_header *ret, struct dl_error *err);
/* The same for an array that is one value, and may have no dimension: ret->ndim 0. */
int _nodiscard_ npy_parse_value(const uint8_t *data, uint64_t len, const char *path,
                                struct array_header *ret, struct dl_error *err);

/* Raw records of the spec's dtype and shape, after its offset; used in place. */
int _nodiscard_ array_open_records(const struct spec_dataset *spec, const struct data_env *env,
                                   struct array *ret, struct dl_error *err);

#endif
