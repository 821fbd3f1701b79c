/*
 * What a sample of a Parquet dataset has, as steps that build it: which columns, partitions,
 * structs, images and sounds, and what they are called. Pure but for memory.
 */
#ifndef DL_DATA_PARQUET_FIELDS_H
#define DL_DATA_PARQUET_FIELDS_H

#include "daemon/data/parquet/table.h"

enum parquet_step_sort {
    STEP_COLUMN,
    STEP_IMAGE, /* of a column of bytes */
    STEP_AUDIO, /* likewise */
    STEP_KEY,   /* a partition */
    STEP_BEGIN, /* a struct's dict, and its end */
    STEP_LIST,  /* one of structs: the columns behind it, up to its end, have a field of each */
    STEP_END,
};

struct parquet_step {
    enum parquet_step_sort sort;
    uint32_t number; /* COLUMN, IMAGE, AUDIO: of the table's columns; KEY: of its keys */
    char *name;      /* owned; in the sample; of END NULL */
};

struct parquet_fields {
    struct parquet_step *steps; /* owned */
    uint32_t n;
    uint32_t room;
    bool fixed; /* all of them are numbers, one for each row */
};

/*
 * By spec->fields, spec->images and spec->audios. -EINVAL with `err` naming the first file, or the
 * key below `place`: there is no such column, or it cannot be read; -ENOMEM.
 */
int _nodiscard_ parquet_fields_make(const struct spec_dataset *spec, const char *place,
                                    struct parquet_table *table, struct parquet_fields *ret,
                                    struct dl_error *err);
void parquet_fields_deinit(struct parquet_fields *fields);

#endif
