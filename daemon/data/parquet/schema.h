/*
 * The columns of a Parquet file: its schema's leaves, and what each becomes. A column is flat or a
 * list, or one of the structs of a list (a map is such a list), each also in structs. Lists in
 * lists, and structs in those of a list, are known by name and by what is in the way. Pure but for
 * memory.
 */
#ifndef DL_DATA_PARQUET_SCHEMA_H
#define DL_DATA_PARQUET_SCHEMA_H

#include "daemon/data/parquet/footer.h"
#include "proto/value.h"

/* How a value as it is stored becomes an element of `dtype`. */
enum parquet_convert {
    PARQUET_AS_IS,
    PARQUET_NARROW,      /* the low bytes of an INT32 */
    PARQUET_NANOSECONDS, /* of an INT96, since 1970 */
    PARQUET_TO_NUMBER,   /* of a decimal number: it, divided by ten to `scale` */
};

enum { PARQUET_STRUCTS_MAX = 8 }; /* in each other */

enum parquet_sort { PARQUET_NUMBER, PARQUET_TEXT, PARQUET_BYTES };

struct parquet_column {
    char *path;                            /* owned; "x"; of a struct's, "image.bytes" */
    uint16_t structs[PARQUET_STRUCTS_MAX]; /* bytes of the names of those it is in, in its own; */
    uint32_t n_structs;                    /* the outermost one first */
    uint32_t leaf;                         /* which leaf of the schema */
    bool in_list;                          /* the innermost struct is an element of a list */
    const char *refused;                   /* why it cannot be read; NULL: it can */
    enum parquet_type type;
    enum parquet_sort sort;
    enum parquet_convert convert;
    uint32_t dtype; /* NUMBER */
    int32_t scale;  /* TO_NUMBER */
    bool is_decimal;
    uint32_t width;   /* bytes of a value as it is stored; 0: they vary */
    uint32_t bytes;   /* of an element of dtype; TEXT and BYTES: 0 */
    uint8_t max_def;  /* definition level of a value that is there */
    uint8_t max_rep;  /* 1: a list */
    uint8_t list_def; /* of a list: from which level on there is an element */
};

struct parquet_schema {
    struct parquet_column *columns; /* owned; n of them, in the schema's order */
    uint32_t n;
};

/* -EINVAL with `err` naming `path`: no tree; -ENOMEM. */
int _nodiscard_ parquet_schema_make(const struct parquet_footer *footer, const char *path,
                                    struct parquet_schema *ret, struct dl_error *err);
void parquet_schema_deinit(struct parquet_schema *schema);

/*
 * What the decimal numbers of columns become, by `types`, dataset.types, whose names are columns or
 * structs of the file; those that it leaves out stay refused. -EINVAL with `err` below `place`, if
 * that is not NULL: one has no decimal numbers.
 */
int _nodiscard_ parquet_schema_set_types(struct parquet_schema *schema, const struct value *types,
                                         const char *place, struct dl_error *err);

/* The column of that name; NULL: there is none. */
const struct parquet_column *parquet_schema_find(const struct parquet_schema *schema,
                                                 const char *path);

/* Whether the struct it is in, at `level` below n_structs, is called so. */
static inline bool parquet_column_is_in(const struct parquet_column *column, uint32_t level,
                                        const char *name)
{
    return strlen(name) == column->structs[level] &&
           memcmp(column->path, name, column->structs[level]) == 0;
}

/* Whether their values become the same, however they are stored. */
bool parquet_columns_equal(const struct parquet_column *a, const struct parquet_column *b);

#endif
