/*
 * What a sample of a Parquet dataset has: columns, structs, lists and partitions, and what they are
 * called. Below a step they are a tree of fields as Arrow's files have, which arrow_value.h makes
 * values of. Pure but for memory.
 */
#ifndef DL_DATA_PARQUET_FIELDS_H
#define DL_DATA_PARQUET_FIELDS_H

#include "daemon/data/kinds/arrow/arrow_schema.h"
#include "daemon/data/kinds/parquet/table.h"

enum parquet_step_sort {
    STEP_VALUE,
    STEP_KEY, /* a partition */
};

struct parquet_step {
    enum parquet_step_sort sort;
    uint32_t number; /* VALUE: of the schema's fields; KEY: of the table's keys */
    char *name;      /* owned; in the sample */
};

/* Where a field is in the table. */
struct parquet_node {
    uint32_t column; /* of the table's: its own, or the first of those that are in it */
    uint32_t level;  /* column->above of that; n_above: the column */
    uint32_t parent; /* field; ARROW_NONE: a step's */
};

struct parquet_fields {
    struct parquet_step *steps; /* owned; in order */
    uint32_t n;
    struct arrow_schema schema; /* owned; of each step that is a value, what it is called in the
                                   file, and all below it */
    struct parquet_node *nodes; /* owned; of each field */
    bool fixed;                 /* all of them are numbers, one for each row */
    bool images;                /* there are some */
};

/*
 * By spec->fields, spec->images and spec->audios. -EINVAL with `err` naming the first file, or the
 * key below `place`: the column is missing or unreadable; -ENOMEM.
 */
int _nodiscard_ parquet_fields_make(const struct spec_dataset *spec, const char *place,
                                    struct parquet_table *table, struct parquet_fields *ret,
                                    struct dl_error *err);
void parquet_fields_deinit(struct parquet_fields *fields);

/* The column of the table that a step is, which is a number for each row. */
static inline uint32_t parquet_step_column(const struct parquet_fields *fields,
                                           const struct parquet_step *step)
{
    return fields->nodes[step->number].column;
}

#endif
