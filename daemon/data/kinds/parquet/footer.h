/*
 * The footer of a Parquet file: its schema, and where the row groups' columns lie. parquet-format,
 * parquet.thrift.
 *
 * Texts of a footer point into it: they are there as long as the file is mapped. Memory is in
 * proportion to the footer's bytes. Pure but for memory.
 */
#ifndef DL_DATA_PARQUET_FOOTER_H
#define DL_DATA_PARQUET_FOOTER_H

#include "daemon/data/kinds/parquet/thrift.h"
#include "proto/common/error.h"

enum parquet_type {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96, /* nanoseconds of a day, and the day: Impala's timestamps */
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTE_ARRAY,
    PARQUET_FIXED_BYTES,
    PARQUET_GROUP, /* of the schema: it has columns below it instead */
};
enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };

/* What a column's values are, as far as its physical type leaves that open. */
enum parquet_logical {
    PARQUET_NO_LOGICAL,
    PARQUET_STRING, /* and enum, JSON */
    PARQUET_MAP,
    PARQUET_LIST,
    PARQUET_DECIMAL,
    PARQUET_INTEGER,
    PARQUET_HALF,
    PARQUET_OTHER, /* numbers and bytes that are taken as they are: dates, times, UUID */
};

struct parquet_element { /* of the schema, in preorder */
    struct thrift_text name;
    uint32_t type;        /* enum parquet_type */
    uint32_t type_length; /* FIXED_BYTES */
    uint32_t repetition;
    uint32_t children;
    enum parquet_logical logical;
    int32_t scale; /* DECIMAL: divided by ten to this */
    uint8_t bits;  /* INTEGER */
    bool has_sign;
};

struct parquet_chunk {    /* one column of a row group */
    uint64_t values;      /* with nulls, and of lists one for each that is empty */
    uint64_t first;       /* byte of its first page */
    uint64_t bytes;       /* of its pages, */
    uint64_t unpacked;    /* size when unpacked, by the file */
    uint64_t index;       /* byte of its offset index (pages.h), */
    uint64_t index_bytes; /* its size; 0: not in the file */
    uint32_t codec;
    uint32_t type;
    bool packs_all;                     /* as the footer */
    struct thrift_text least, greatest; /* of its values, as they are stored; NULL: not known */
};

struct parquet_row_group {
    uint64_t rows;
};

struct parquet_footer {
    const uint8_t *data; /* borrowed; the footer's own bytes */
    uint64_t bytes;
    struct parquet_element *elements; /* owned */
    uint32_t n_elements;
    uint64_t rows;
    struct thrift_text arrow;         /* the schema of Arrow's writer, in base64; may be NULL */
    bool packs_all;                   /* its writer marked compressed pages as uncompressed */
    struct parquet_row_group *groups; /* owned; of parquet_footer_groups() */
    uint32_t n_groups;
    struct parquet_chunk *chunks; /* owned; for each group those of the requested leaves */
};

/*
 * Finds the footer of a file of `bytes` at `data`, and reads its schema. -EINVAL, with `err` naming
 * `path`: no Parquet file, cut, damaged, encrypted; -ENOMEM.
 */
int _nodiscard_ parquet_footer_open(const uint8_t *data, uint64_t bytes, const char *path,
                                    struct parquet_footer *ret, struct dl_error *err);

/*
 * Reads the row groups, with the chunks of `leaves`, `n` of them, ascending, counted through the
 * leaves of the schema. `bytes` of the file: each chunk lies in it.
 */
int _nodiscard_ parquet_footer_groups(struct parquet_footer *footer, const uint32_t *leaves,
                                      uint32_t n, uint64_t bytes, const char *path,
                                      struct dl_error *err);
void parquet_footer_deinit(struct parquet_footer *footer);

#endif
