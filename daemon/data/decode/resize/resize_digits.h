/* The passes of resize_rows.h for processors for which vectors_have_avx512() is true. */
#ifndef DL_DATA_RESIZE_DIGITS_H
#define DL_DATA_RESIZE_DIGITS_H

#include "daemon/data/decode/resize/resize_rows.h"

#if defined(__x86_64__) && !defined(PLAIN_VECTORS)
#define RESIZE_DIGITS
extern const struct resize_kernels resize_avx512; /* number 0, where it can run; 1 is AVX2's */
#endif

#endif
