/*
 * The columns of a Parquet file: its schema's leaves, what each becomes, and which structs and
 * lists it is in. A map is a list of structs of a key and a value. Pure but for memory.
 */
#ifndef DL_DATA_PARQUET_SCHEMA_H
#define DL_DATA_PARQUET_SCHEMA_H

#include "daemon/data/kinds/parquet/footer.h"
#include "proto/value.h"

/* How a value as it is stored becomes an element of `dtype`. */
enum parquet_convert {
    PARQUET_AS_IS,
    PARQUET_NARROW,      /* the low bytes of an INT32 */
    PARQUET_NANOSECONDS, /* of an INT96, since 1970 */
    PARQUET_TO_NUMBER,   /* of a decimal number: it, divided by ten to `scale` */
};

enum { PARQUET_ABOVE_MAX = 24 }; /* structs and lists in each other, as Arrow's */

/* A struct or a list that a column is in. */
struct parquet_above {
    uint32_t id;   /* of the file: the same for all columns that are in it */
    uint16_t name; /* bytes of its name, with those around it, in the column's own path */
    uint8_t def;   /* definition level from which on it is there */
    uint8_t depth; /* lists around it */
    bool is_list;
};

enum parquet_sort { PARQUET_NUMBER, PARQUET_TEXT, PARQUET_BYTES };

struct parquet_column {
    char *path; /* owned; "x"; of a struct's, "image.bytes"; lists add no name to their own */
    struct parquet_above *above; /* owned; n_above of them, the outermost one first */
    uint32_t n_above;
    uint32_t leaf;       /* which leaf of the schema */
    const char *refused; /* why it cannot be read; NULL: it can */
    enum parquet_type type;
    enum parquet_sort sort;
    enum parquet_convert convert;
    uint32_t dtype; /* NUMBER */
    int32_t scale;  /* TO_NUMBER */
    bool is_decimal;
    uint32_t width;  /* bytes of a value as it is stored; 0: they vary */
    uint32_t bytes;  /* of an element of dtype; TEXT and BYTES: 0 */
    uint8_t max_def; /* definition level of a value that is there */
    uint8_t max_rep; /* lists around it */
    uint8_t
        list_def[PARQUET_ABOVE_MAX];   /* of each of them: from which level on it has an element */
    uint32_t sizes[PARQUET_ABOVE_MAX]; /* of the lists: how many elements each has; 0: any number */
    bool has_sizes;                    /* one of them is not 0 */
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
 * Sets the types of decimal columns by `types`, dataset.types, whose names are columns or structs
 * of the file; those that it leaves out stay refused. -EINVAL with `err` below `place`, if that is
 * not NULL: a named column is not decimal.
 */
int _nodiscard_ parquet_schema_set_types(struct parquet_schema *schema, const struct value *types,
                                         const char *place, struct dl_error *err);

/* The column of that name; or NULL. */
const struct parquet_column *parquet_schema_find(const struct parquet_schema *schema,
                                                 const char *path);

/* Whether the struct or list that it is in, at `level` below n_above, is called so. */
static inline bool parquet_column_is_in(const struct parquet_column *column, uint32_t level,
                                        const char *name)
{
    return strlen(name) == column->above[level].name &&
           memcmp(column->path, name, column->above[level].name) == 0;
}

/* From which definition level on a column has a place for a value. */
static inline uint8_t parquet_column_least(const struct parquet_column *column)
{
    return column->max_rep > 0 ? column->list_def[column->max_rep - 1] : 0;
}

/* Whether their values become the same, however they are stored. */
bool parquet_columns_equal(const struct parquet_column *a, const struct parquet_column *b);

#endif
