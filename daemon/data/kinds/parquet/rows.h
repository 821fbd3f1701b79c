/*
 * Row groups that consist only of numbers, decoded to rows: a sample's values lie together, so that
 * a random one costs a cache line or two, instead of one per column.
 *
 * If a column has nulls without a replacement, its group stays in columns.
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

/* Adds a column with one number per row. -ENOMEM. Its offset is then the last one's. */
int _nodiscard_ parquet_layout_add(struct parquet_layout *layout, const struct parquet_table *table,
                                   uint32_t column);
void parquet_layout_deinit(struct parquet_layout *layout);

/*
 * The rows of a settled group, made if missing; NULL: it has nulls. They stay until another group
 * is requested. Errors as of parquet_table_column().
 */
int _nodiscard_ parquet_rows_take(struct parquet_table *table, const struct parquet_layout *layout,
                                  struct parquet_group *group, const uint8_t **ret,
                                  struct dl_error *err);

/* Whether the group's rows exist, or it is known to have nulls: parquet_rows_take() then drops no
 * other group. */
static inline bool parquet_rows_are_there(const struct parquet_group *group)
{
    return group->decoded && (group->decoded->rows || group->decoded->has_nulls);
}

#endif
