/*
 * The offset index of a column chunk: where each of its data pages lies, and at which row it
 * begins, so that a row can be read without other pages. parquet-format, PageIndex.md: OffsetIndex.
 * Pure but for memory.
 *
 * It is accepted if it fits the chunk; decoding a page checks its rows.
 */
#ifndef DL_DATA_PARQUET_PAGES_H
#define DL_DATA_PARQUET_PAGES_H

#include "daemon/data/kinds/parquet/footer.h"

struct parquet_page_place {
    uint64_t at;    /* byte of the file where its header begins */
    uint64_t bytes; /* with the header */
    uint64_t first; /* its first row, of the group */
    uint32_t number;
};

struct parquet_pages {
    struct parquet_page_place *places; /* owned; ascending in bytes and in rows */
    uint32_t n;                        /* 0: no index, or an invalid one */
};

/*
 * Reads the index of a chunk, which lies in the file, as its index does; of a group of `rows`, more
 * than 0. -ENOMEM. Memory is in proportion to the index's bytes.
 */
int _nodiscard_ parquet_pages_read(const uint8_t *file, const struct parquet_chunk *chunk,
                                   uint64_t rows, struct parquet_pages *ret);
void parquet_pages_deinit(struct parquet_pages *pages);

/* The page that has `row`; pages->n is not 0. */
uint32_t parquet_pages_find(const struct parquet_pages *pages, uint64_t row);

/* The row behind the page's last one; of a group of `rows`. */
static inline uint64_t parquet_pages_end(const struct parquet_pages *pages, uint32_t page,
                                         uint64_t rows)
{
    return page + 1 < pages->n ? pages->places[page + 1].first : rows;
}

#endif
