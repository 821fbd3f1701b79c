/*
 * How a page's values are encoded: from bytes to numbers, or to places of bytes. parquet-format,
 * Encodings.md. Nothing is read but what lies between begin and end, and nothing written but what
 * there is room for. Pure but for memory.
 */
#ifndef DL_DATA_PARQUET_ENCODING_H
#define DL_DATA_PARQUET_ENCODING_H

#include "proto/common/base.h"

enum parquet_encoding {
    ENCODING_PLAIN = 0,
    ENCODING_PLAIN_DICTIONARY = 2, /* of a dictionary: plain; of data: indices */
    ENCODING_RLE = 3,
    ENCODING_BIT_PACKED = 4, /* only of levels, by writers before 2014 */
    ENCODING_DELTA_BINARY_PACKED = 5,
    ENCODING_DELTA_LENGTH_BYTE_ARRAY = 6,
    ENCODING_DELTA_BYTE_ARRAY = 7,
    ENCODING_RLE_DICTIONARY = 8,
    ENCODING_BYTE_STREAM_SPLIT = 9,
};

struct parquet_slice {
    const uint8_t *data; /* borrowed; unpacked, or in the file */
    uint32_t bytes;
};

struct parquet_dictionary {
    uint64_t n;
    uint8_t *fixed;               /* owned; values of one width; else NULL */
    struct parquet_slice *slices; /* owned; else NULL */
};

/* The values of a page. */
struct parquet_encoded {
    uint32_t encoding;
    const uint8_t *at, *end;                     /* borrowed */
    uint64_t n;                                  /* values that are there */
    uint32_t width;                              /* bytes of each; 0: they vary */
    bool boolean;                                /* stored as bits */
    const struct parquet_dictionary *dictionary; /* may be NULL */
};

/* Memory for bytes that lie nowhere as they are: values of DELTA_BYTE_ARRAY. */
struct parquet_joined {
    uint64_t most; /* bytes */
    uint8_t *data; /* the caller's to free(); may be NULL */
    uint64_t bytes;
};

/*
 * The n values, one after another, into n · width bytes at `ret`. 0; -EINVAL: damaged; -ENOTSUP: an
 * encoding that such values do not have; -ENOMEM; -EFBIG: more than joined->most.
 */
int _nodiscard_ parquet_decode_fixed(const struct parquet_encoded *e, struct parquet_joined *joined,
                                     uint8_t *ret);

/* The same of values of varying length. */
int _nodiscard_ parquet_decode_slices(const struct parquet_encoded *e,
                                      struct parquet_joined *joined, struct parquet_slice *ret);

/* n levels of 0 to `most`, from exactly the bytes between `at` and `end`. false: damaged. */
bool parquet_decode_levels(const uint8_t *at, const uint8_t *end, uint8_t most, uint64_t n,
                           uint8_t *ret);

/* The numbers of DELTA_BINARY_PACKED: exactly n of `width` bytes, 4 or 8; *ret_end: what comes
 * behind them. false: damaged. */
bool parquet_decode_delta(const uint8_t *at, const uint8_t *end, uint64_t n, uint32_t width,
                          uint8_t *ret, const uint8_t **ret_end);

#endif
