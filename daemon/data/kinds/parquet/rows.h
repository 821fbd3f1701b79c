/*
 * Row groups of numbers alone, decoded to rows: what a sample has lies together, so that one in
 * random order costs a line or two of memory, and not one for each of its columns.
 *
 * Where a column has nulls that nothing stands for, its group stays in columns.
 */
#ifndef DL_DATA_PARQUET_ROWS_H
#define DL_DATA_PARQUET_ROWS_H

#include "daemon/data/kinds/parquet/table.h"

/* How a row lies in memory; all zero: groups stay in columns. */
struct parquet_layout {
    uint32_t *columns; /* owned; numbers of the table's, */
    uint32_t *offsets; /* owned; and where in a row each begins */
    uint32_t n;
    uint32_t bytes; /* of a row */
};

/* One column more, of a number a row. -ENOMEM. Its offset is that of the last one then. */
int _nodiscard_ parquet_layout_add(struct parquet_layout *layout, const struct parquet_table *table,
                                   uint32_t column);
void parquet_layout_deinit(struct parquet_layout *layout);

/*
 * The group's rows, made if they are not there yet, of a group that was settled; NULL: it has
 * nulls. There until another group is asked for. Errors as of parquet_table_column().
 */
int _nodiscard_ parquet_rows_take(struct parquet_table *table, const struct parquet_layout *layout,
                                  struct parquet_group *group, const uint8_t **ret,
                                  struct dl_error *err);

/* Whether the group's rows are there, or known to have nulls: parquet_rows_take() forgets none. */
static inline bool parquet_rows_are_there(const struct parquet_group *group)
{
    return group->decoded && (group->decoded->rows || group->decoded->has_nulls);
}

#endif
