/*
 * WIDE_VECTORS before a function: the compiler makes it three times, with AVX-512, with AVX2 and
 * without, and the processor chooses when the program starts. All give the same bytes: none fuses
 * a multiplication and an addition, by -ffp-contract=off (meson.build).
 *
 * That needs GCC and a linker and libc with indirect functions; a sanitizer's code may not run as
 * early as they are resolved. Elsewhere the function is there once.
 */
#ifndef DL_DATA_VECTORS_H
#define DL_DATA_VECTORS_H

#include <features.h>
#include <stdbool.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(PLAIN_VECTORS)
#define WIDE_VECTORS __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define WIDE_VECTORS
#endif

/*
 * Whether this processor has AVX2, and the kernel keeps its registers. For code by intrinsics that
 * is chosen at run time: __builtin_cpu_supports() needs libgcc, which the wheel's compiler does not
 * have. Any thread.
 */
bool vectors_have_avx2(void);
/* Likewise of AVX2 and AVX-512 (F, BW, VL) with sums of products of bytes, VNNI, and bytes from
 * anywhere in a register, VBMI: Intel's from Ice Lake on, AMD's from Zen 4 on. */
bool vectors_have_avx512(void);

#endif
