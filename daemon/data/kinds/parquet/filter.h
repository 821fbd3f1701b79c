/*
 * Which files and row groups a dataset leaves out, by a spec's `filter` on partitions, and on
 * columns whose least and greatest values are in a row group's statistics.
 *
 *   filter: {split: train, year: [2023, 2024], score: {min: 0.5}}
 *
 * All conditions must hold. For a partition this is exact. For a column, a row group that may have
 * a matching row stays, with all of its rows; so does one without statistics. Pure.
 */
#ifndef DL_DATA_PARQUET_FILTER_H
#define DL_DATA_PARQUET_FILTER_H

#include "daemon/data/kinds/parquet/schema.h"
#include "proto/value.h"

/* One value or range of it: a least and a greatest value, as numbers or as texts. */
struct parquet_bounds {
    bool is_text;
    double least, greatest;         /* numbers; infinite if unlimited */
    struct thrift_text first, last; /* texts; data may be NULL */
};

/* Whether `filter` is a map as above. -EINVAL with `err`, with a path below `place`. */
int _nodiscard_ parquet_filter_check(const struct value *filter, const char *place,
                                     struct dl_error *err);

/* Whether what has these bounds may be what `wanted`, a value of the map, wants. */
bool parquet_filter_may(const struct value *wanted, const struct parquet_bounds *bounds);

/* The bounds of a chunk; false: they are not known, or of no type that is compared. */
bool parquet_filter_bounds(const struct parquet_column *column, const struct parquet_chunk *chunk,
                           struct parquet_bounds *ret);

#endif
