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
 *   BOOLEAN, INT32, INT64, FLOAT, DOUBLE   a number of the logical type: int8 ... uint64, float16
 *   dates, times, timestamps               the integer that is stored
 *   INT96                                  int64, nanoseconds since 1970
 *   BYTE_ARRAY                             string (UTF-8) where the logical type says so, or bytes
 *   FIXED_LEN_BYTE_ARRAY                   bytes
 *   a list                                 of numbers a tensor [n]; of the others, a list
 *   lists of one size                      of numbers a tensor [size], or [size, size]
 *   a struct                               a dict; or an image, of {bytes, path}
 *   a map                                  a list of dicts of key and value
 *   a partition                            int64 where all of them are whole numbers, or string
 *
 * Lists, structs and maps may be in each other, up to PARQUET_ABOVE_MAX of them: what comes out is
 * what arrow.h makes of the same table, by the same code. Decimals without a type are refused where
 * they are among the fields. A null is an error of its sample; or, where the spec says a number,
 * that number, an empty text or list.
 *
 * Where all of them are flat numbers, samples have one shape. The lengths of lists are known
 * without decoding other columns.
 *
 * A reader of our own, not carquet (MIT, C), at 310d5ce of February 2026: of files that pyarrow 26
 * wrote, its reader of batches refused those with data pages of version 2, DELTA_BINARY_PACKED,
 * DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY, BYTE_STREAM_SPLIT or brotli; of lists it gives levels.
 * Where both read a file, ours takes less time, but for texts that are all different. Milliseconds
 * of processor time for all values of 1,000,000 rows, row groups of 100,000, one thread, medians of
 * 5, both by gcc 12 -O3:
 *
 *   8 columns of numbers      none   23 ms, carquet 25     snappy   64, 119     zstd  115, 165
 *   ... of 1,000 values each                               snappy   49,  95     zstd   60,  97
 *   ... one in ten null                                    snappy  135, 137
 *   3 columns of 1,000 words                               snappy   26,  40     zstd   29,  40
 *   1 column of texts, none alike                          snappy   41,  34
 */
#ifndef DL_DATA_PARQUET_H
#define DL_DATA_PARQUET_H

#include "daemon/data/dataset.h"

int _nodiscard_ parquet_open(const struct spec_dataset *spec, const char *place,
                             const struct data_env *env, struct dataset **ret,
                             struct dl_error *err);

#endif
