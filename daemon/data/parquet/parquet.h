/*
 * Parquet files, or directories of them. Map-style: sample i counts through the rows of the files,
 * in the order of files.h, without the row groups that a filter leaves out.
 *
 * A row group's column is decoded when its first row is wanted, and kept with others as long as all
 * of them have no more than the spec's `cache` bytes in this process: samples that come group by
 * group, or from a few groups at a time, are then decoded once. The group in hand is kept in any
 * case. Of groups that come and go faster, pages alone are decoded, if the files have an index of
 * them: cache.c.
 *
 * A sample is {column: value, ...}, in the order of the first file's schema, or of the names of the
 * spec's fields; then the partitions.
 *
 *   BOOLEAN, INT32, INT64, FLOAT, DOUBLE      a number of the logical type: int8 ... uint64,
 * float16 dates, times, timestamps                  the integer that is stored INT96 int64,
 * nanoseconds since 1970 BYTE_ARRAY                                string (UTF-8) where the logical
 * type says so, or bytes FIXED_LEN_BYTE_ARRAY                      bytes a list of numbers tensor
 * [n]; of the others, a list a struct of these                         a dict; or an image, of
 * {bytes, path} a partition                               int64 where all of them are whole
 * numbers, or string
 *
 * Decimals, maps and what is nested more deeply are refused where they are among the fields. A null
 * is an error of its sample; or, where the spec says a number, that number, an empty text or list.
 *
 * Where all of them are flat numbers, samples have one shape. The lengths of lists are known
 * without decoding other columns.
 */
#ifndef DL_DATA_PARQUET_H
#define DL_DATA_PARQUET_H

#include "daemon/data/dataset.h"

int _nodiscard_ parquet_open(const struct spec_dataset *spec, const char *place,
                             const struct data_env *env, struct dataset **ret,
                             struct dl_error *err);

#endif
