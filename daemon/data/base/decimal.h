/*
 * Decimal numbers of tables: integers of up to 128 bits, times a power of ten, which become int64
 * or float64, by dataset.types. Pure.
 */
#ifndef DL_DATA_DECIMAL_H
#define DL_DATA_DECIMAL_H

#include "proto/common/error.h"
#include "proto/value.h"

__extension__ typedef __int128 decimal_int;

/* Reads a two's complement number of `bytes` bytes. False if it does not fit or `bytes` is 0. */
bool decimal_read(const uint8_t *at, uint64_t bytes, bool big_endian, decimal_int *ret);

/*
 * number / 10^scale as one element of `dtype`: float64, the nearest; int64, if it is exactly that:
 * -ERANGE. -ENOMEM.
 */
int _nodiscard_ decimal_convert(decimal_int number, int32_t scale, uint32_t dtype, void *out);

/* Both, for a value at `at`. -ERANGE and -ENOMEM with `err`, whose message continues "its column
 * x". */
int _nodiscard_ decimal_element(const uint8_t *at, uint64_t bytes, bool big_endian, int32_t scale,
                                uint32_t dtype, void *out, struct dl_error *err);

/* The column's dtype by `types` (dataset.types); 0 if not set. */
uint32_t decimal_type(const struct value *types, const char *column);

/* Whether `types` is a map of columns to int64 or float64, or null. -EINVAL with `err` below
 * `place`. */
int _nodiscard_ decimal_types_check(const struct value *types, const char *place,
                                    struct dl_error *err);

/* The error text for a column whose type is not set. */
#define DECIMAL_UNTYPED                                                                   \
    "has decimal numbers, which no tensor has; say with dataset.types what they become, " \
    "float64 or, where they are whole, int64"
#define DECIMAL_NONE "is not a column of the files that has decimal numbers"
#endif
