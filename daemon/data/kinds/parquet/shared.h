/*
 * Row groups of numbers that are kept, as rows (rows.h), for all workers of a user
 * (daemon/cache/pictures_cache.h), if the spec has `shared`: each is decoded once, by the first
 * worker that needs it, and is in memory once.
 *
 * A group is kept under the identity of its file, its path, and the layout of its rows: other
 * columns, types or `nulls` make other rows. A file that was replaced or written to since it was
 * opened is neither found nor kept. The memory holds only numbers, at places that this process
 * computes: a process that writes to it can change their values, and nothing else.
 */
#ifndef DL_DATA_PARQUET_SHARED_H
#define DL_DATA_PARQUET_SHARED_H

#include "daemon/data/kinds/parquet/table.h"

struct parquet_layout;

/* By `spec` and `env`; call it before the files are opened. */
void parquet_shared_init(struct parquet_table *table, const struct spec_dataset *spec,
                         const struct data_env *env);

/* The group's rows; NULL: they are not there. They are there as long as the arena is. */
const uint8_t *parquet_shared_find(const struct parquet_table *table,
                                   const struct parquet_layout *layout,
                                   const struct parquet_group *group);

/* They were not found, and are made in this process by now: keeps them, if there is room and they
 * are among those that are kept. The rows to use from now on, or NULL: they are not kept. */
const uint8_t *parquet_shared_add(const struct parquet_table *table,
                                  const struct parquet_layout *layout,
                                  const struct parquet_group *group, const uint8_t *rows);

#endif
