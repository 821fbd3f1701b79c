/*
 * A column of a row group, decoded: what all of its pages have, as one array. Dictionaries are
 * resolved, nulls have a place like others, and lists lie one after another, at any depth.
 *
 * Memory is bounded by what the file has: a page may unpack to PARQUET_ALLOWED bytes and 1024 times
 * its own, the values of a column may take PARQUET_VALUES_ALLOWED and 8192 times its own bytes;
 * more is taken for damage. Not thread-safe. Reads a mapped file, and may block on the disk.
 */
#ifndef DL_DATA_PARQUET_CHUNK_H
#define DL_DATA_PARQUET_CHUNK_H

#include "daemon/data/kinds/parquet/encoding.h"
#include "daemon/data/kinds/parquet/pages.h"
#include "daemon/data/kinds/parquet/schema.h"

#define PARQUET_ALLOWED        (UINT64_C(16) << 20)
#define PARQUET_VALUES_ALLOWED (UINT64_C(64) << 20)

struct parquet_buffer;

/* Lists of one depth: those that the rows are, or those that are elements of lists. */
struct parquet_lists {
    uint64_t n;
    uint64_t room;     /* of those below */
    uint64_t *offsets; /* owned; n + 1: where each begins among the elements one level deeper */
    uint8_t *defs;     /* owned; definition levels; NULL: no nulls */
};

struct parquet_values {
    uint64_t first;                 /* of its rows, in the group; of a whole chunk 0 */
    uint64_t n;                     /* elements: of flat columns as many as rows */
    uint8_t *fixed;                 /* owned; numbers: n · column->bytes */
    struct parquet_slice *slices;   /* owned; texts and bytes */
    uint8_t *defs;                  /* owned; n definition levels; NULL: no element is null */
    struct parquet_lists *lists;    /* owned; n_lists of them, the outermost ones first */
    uint32_t n_lists;               /* column->max_rep */
    struct parquet_buffer *buffers; /* owned; where slices lie, unless in the file */
    uint64_t bytes;                 /* of memory, all in all */
};

/* A chunk's place, for errors as well. */
struct parquet_place {
    const char *path;    /* of the file */
    const uint8_t *data; /* borrowed; the file, mapped */
    uint32_t group;      /* its number in the file */
    uint64_t rows;       /* of the group, or of the only page decoded */
};

/*
 * Decodes a chunk that lies in the file, of a column that is not refused. Errors name file, row
 * group and column: -EINVAL damaged; -EFBIG; -ENOTSUP: an encoding or a compression that cannot be
 * read; -ENOMEM.
 */
int _nodiscard_ parquet_chunk_decode(const struct parquet_place *place,
                                     const struct parquet_column *column,
                                     const struct parquet_chunk *chunk, struct parquet_values *ret,
                                     struct dl_error *err);
/* The dictionary of a chunk whose pages are decoded one by one. All zero: not decoded. */
struct parquet_shared {
    struct parquet_dictionary dictionary; /* owned, and what it points to: */
    struct parquet_buffer *buffers;       /* owned */
    uint64_t bytes;                       /* of memory, all in all */
};
void parquet_shared_deinit(struct parquet_shared *shared);

/*
 * The same for one page, with its place from the chunk's index: place->rows are the page's,
 * ret->first is its first. `shared` is the chunk's, and decoded with the first page that needs it;
 * values may point into it.
 */
int _nodiscard_ parquet_chunk_decode_page(const struct parquet_place *place,
                                          const struct parquet_column *column,
                                          const struct parquet_chunk *chunk,
                                          const struct parquet_page_place *page,
                                          struct parquet_shared *shared, struct parquet_values *ret,
                                          struct dl_error *err);
void parquet_values_deinit(struct parquet_values *values);

#endif
