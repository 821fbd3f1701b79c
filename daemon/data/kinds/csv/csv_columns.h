/*
 * The columns of comma-separated values: their names, and the types of their numbers, set by a spec
 * or found in the first rows. Not thread-safe.
 */
#ifndef DL_DATA_CSV_COLUMNS_H
#define DL_DATA_CSV_COLUMNS_H

#include "daemon/data/kinds/csv/csv_cell.h"
#include "proto/common/error.h"
#include "proto/value.h"

/* The most columns in a file, and the rows examined for their types. */
enum { CSV_COLUMNS_MAX = 65536, CSV_ROWS_JUDGED = 1000 };

struct csv_column {
    char *name;         /* owned */
    enum csv_sort sort; /* of the cells that were looked at */
    uint32_t dtype;     /* of its numbers; 0: they are texts */
    bool filled;        /* an empty cell is the number `fill` */
    uint8_t fill[8];    /* one element */
};

struct csv_columns {
    struct csv_column *all; /* owned */
    uint32_t n;
};

/*
 * Reads the first row: its cells are the names of the columns, of which an empty one is called
 * "Unnamed: 0" by its number; or, without `header`, there are as many columns, which are called 0,
 * 1, ... Errors name `path`: a name that is too long, not UTF-8 or given twice, too many columns,
 * no row at all; -ENOMEM.
 */
int _nodiscard_ csv_columns_read(const uint8_t *at, const uint8_t *end, uint8_t separator,
                                 bool header, const char *path, struct csv_columns *ret,
                                 struct dl_error *err);
void csv_columns_deinit(struct csv_columns *columns); /* zeroes it; a zeroed one is fine */

/* Whether both have the same names in the same order. */
bool csv_columns_equal(const struct csv_columns *a, const struct csv_columns *b);

/* NULL if the column does not exist. */
struct csv_column *csv_columns_find(const struct csv_columns *columns, const char *name);

/* Updates the columns' types by another row. A missing cell is ignored. */
void csv_columns_judge(struct csv_columns *columns, const uint8_t *at, const uint8_t *end,
                       uint8_t separator);

/*
 * Decides the types: by `types`, a map of names to "string" or to what a dtype is called, and by
 * the rows that were judged: int64, float64, bool, or text. Then what stands for an empty cell of a
 * number: `nulls`, if it is a number that the type has. Errors are at `place`, the dataset's.
 */
int _nodiscard_ csv_columns_decide(struct csv_columns *columns, const struct value *types,
                                   const struct value *nulls, const char *place,
                                   struct dl_error *err);

#endif
