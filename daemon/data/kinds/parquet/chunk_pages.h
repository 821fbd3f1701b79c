/* A column chunk on its way through its pages. Internal to chunk.c and chunk_put.c. */
#ifndef DL_DATA_PARQUET_CHUNK_PAGES_H
#define DL_DATA_PARQUET_CHUNK_PAGES_H

#include "daemon/data/kinds/parquet/chunk.h"
#include "daemon/data/kinds/parquet/page.h"

struct chunk_scratch {
    uint8_t *data; /* owned */
    uint64_t room;
};

struct chunk_decoding {
    const struct parquet_place *place;
    const struct parquet_column *column;
    const struct parquet_chunk *chunk;
    struct dl_error *err;
    struct parquet_values values;
    struct parquet_dictionary dictionary;       /* owned; its slices lie in values.buffers */
    struct chunk_scratch unpacked, levels, raw; /* owned */
    uint64_t done;                              /* of chunk->values */
    uint64_t rows;                              /* of lists: begun */
    uint32_t open;                              /* lists of the last row that may continue */
    uint64_t room;                              /* of elements */
    uint64_t filled;                            /* elements and lists that stand for null lists */
    uint32_t page;                              /* its number */
};

/* Of a page, or of a part of it. */
struct chunk_levels {
    uint32_t n;
    uint8_t *rep; /* NULL: the column is not nested */
    uint8_t *def; /* NULL: the column is required */
};

int chunk_refuse(const struct chunk_decoding *d, int code, const char *what);
int chunk_damaged(const struct chunk_decoding *d, const char *what); /* in the page in hand */
int chunk_no_memory(const struct chunk_decoding *d);

/* Kept with the values; NULL: no memory. */
uint8_t *chunk_keep(struct chunk_decoding *d, uint64_t bytes);
/* Memory for one page, used again for the next; NULL. */
uint8_t *chunk_scratch(struct chunk_scratch *scratch, uint64_t bytes);

enum { CHUNK_LIST_BYTES = sizeof(uint64_t) + 1 }; /* of a list in its place */

/* Room for `more` further lists at a depth (chunk_put.c). */
int _nodiscard_ chunk_reserve_lists(struct chunk_decoding *d, struct parquet_lists *lists,
                                    uint64_t more);

/* Room for `n` elements in all. */
int _nodiscard_ chunk_reserve_values(struct chunk_decoding *d, uint64_t n);

/* Values of one width to `fixed`, or places to `slices`; the other one is NULL. */
int _nodiscard_ chunk_decode(struct chunk_decoding *d, const struct parquet_encoded *e,
                             uint8_t *fixed, struct parquet_slice *slices);

/* Adds the elements of a page; e->n follows from its levels (chunk_put.c). */
int _nodiscard_ chunk_put(struct chunk_decoding *d, const struct chunk_levels *levels,
                          struct parquet_encoded *e);

#endif
