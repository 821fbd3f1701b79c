/* The headers of a column chunk's pages. parquet-format, parquet.thrift: PageHeader. Pure. */
#ifndef DL_DATA_PARQUET_PAGE_H
#define DL_DATA_PARQUET_PAGE_H

#include "proto/common/base.h"

enum parquet_page_sort { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2 };

struct parquet_page {
    uint32_t sort; /* others than these are passed over */
    uint32_t packed_bytes;
    uint32_t bytes;  /* when it is unpacked */
    uint32_t values; /* of data: with nulls */
    uint32_t encoding;
    uint32_t rep_encoding, def_encoding; /* DATA */
    uint32_t rep_bytes, def_bytes;       /* DATA_2: of levels in front, which are never packed */
    bool is_packed;                      /* DATA_2 may say that it is not */
    bool has_crc;
    uint32_t crc;        /* CRC-32 of the packed bytes */
    const uint8_t *body; /* borrowed; packed_bytes of it */
};

/* The page at *at, before `end`; *at moves behind it. false: damaged, or cut. */
bool parquet_page_next(const uint8_t **at, const uint8_t *end, struct parquet_page *ret);

#endif
