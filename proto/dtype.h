/* Element types, as numbers, names and sizes: the table of dtype.def. Pure. */
#ifndef DL_DTYPE_H
#define DL_DTYPE_H

#include "proto/common/base.h"

enum dl_dtype {
#define DTYPE(NAME, number, bytes, name, numpy, dlpack) DL_DTYPE_##NAME = number,
#include "proto/dtype.def"
#undef DTYPE
};

/* Size of one element in bytes; 0 for a number that names no type. */
size_t dtype_bytes(uint32_t dtype);

/* "uint8", "float32", ...; "?" for a number that names no type. */
const char *dtype_name(uint32_t dtype);

/* NumPy's, without byte-order mark: "f4"; "" for what NumPy has not, and for a number that names no
 * type. */
const char *dtype_numpy(uint32_t dtype);

/* 0 and *ret, or -EINVAL for an unknown name. `numpy` names are without byte-order mark. */
int _nodiscard_ dtype_from_name(const char *name, uint32_t *ret);
int _nodiscard_ dtype_from_numpy(const char *numpy, uint32_t *ret);

/* The integer type with that many bits; 0 if unknown. */
uint32_t dtype_integer(int64_t bits, bool is_signed);

/* DLPack type code; -1 for a number that names no type. */
int dtype_dlpack_code(uint32_t dtype);

#endif
