/*
 * Row groups of numbers that are kept, as rows (rows.h), for all workers of a user
 * (daemon/cache/pictures_cache.h), if the spec has a `shared`: each is decoded once, by whoever
 * wants it first, and lies in memory once.
 *
 * A group is kept under the identity of its file, by its path, and what its rows are: other
 * columns, types or `nulls` are other rows. A file that was replaced or written to since it was
 * opened is neither found nor kept. What is read there are numbers of any value, at places that
 * this process knows: who writes to it meanwhile can change what they are, and nothing else.
 */
#ifndef DL_DATA_PARQUET_SHARED_H
#define DL_DATA_PARQUET_SHARED_H

#include "daemon/data/kinds/parquet/table.h"

struct parquet_layout;

/* As `spec` and `env` have it; to be called before the files are opened. */
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
