/*
 * Sealed memfds: bytes that one process hands to others and that nobody can change any more, or
 * memory whose size nobody can.
 * Reentrant; may block on the kernel.
 */
#ifndef DL_SEALED_H
#define DL_SEALED_H

#include "proto/common/base.h"

/*
 * A copy of `len` bytes in a memfd of that name, sealed against writing, shrinking, growing and
 * other seals: the descriptor, which the caller closes; or a negative errno.
 */
int _nodiscard_ sealed_new(const char *name, const void *data, uint64_t len);

/*
 * `bytes` zeroes in a memfd of that name, sealed against shrinking, growing and other seals: who
 * has it mapped cannot lose it by another process. Returns likewise.
 */
int _nodiscard_ sealed_memory(const char *name, uint64_t bytes);

/* A memfd that is to be sealed, and that nobody can run, if the kernel has that. Returns likewise.
 */
int _nodiscard_ sealed_begin(const char *name);

/*
 * Checks a received `fd` and returns its size: it can then be mapped and read safely. -EINVAL
 * unless it is a memfd sealed against writing, shrinking and growing, and is not empty.
 */
int _nodiscard_ sealed_size(int fd, uint64_t *ret);

#endif
