/* Runs of equal and of packed values, taken a block at a time. Pure. */
#ifndef DL_DATA_PARQUET_ENCODING_RUNS_H
#define DL_DATA_PARQUET_ENCODING_RUNS_H

#include "daemon/data/kinds/parquet/encoding.h"

enum { PARQUET_RUNS_BLOCK = 1024 };

struct parquet_runs {
    const uint8_t *at, *end;            /* borrowed; the next run, and the end of all */
    unsigned width;                     /* bits of a value; at most 32 */
    uint64_t left;                      /* of the current run */
    const uint8_t *packed, *packed_end; /* its values; NULL: all are `value` */
    uint64_t taken;                     /* of these */
    uint32_t value;
};

/* Takes the next n. False if fewer are left, or they are damaged. */
bool _nodiscard_ parquet_runs_take(struct parquet_runs *runs, uint32_t n, uint32_t *ret);

#endif
