/*
 * Sealed memfds: bytes that one process hands to others and that nobody can change any more.
 * Reentrant; may block on the kernel.
 */
#ifndef DL_SEALED_H
#define DL_SEALED_H

#include "proto/common/base.h"

/*
 * A copy of `len` > 0 bytes in a memfd of that name, sealed against writing, shrinking, growing and
 * other seals: the descriptor, which the caller closes; or a negative errno.
 */
int _nodiscard_ sealed_new(const char *name, const void *data, uint64_t len);

/*
 * Checks a received `fd` and returns its size: it can then be mapped and read safely. -EINVAL
 * unless it is a memfd sealed against writing, shrinking and growing, and is not empty.
 */
int _nodiscard_ sealed_size(int fd, uint64_t *ret);

#endif
