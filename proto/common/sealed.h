/*
 * Sealed memfds: bytes that are handed from one process to others, and that nobody can change any
 * more. Reentrant; may block on the kernel.
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
 * How many bytes `fd`, which comes from somebody else, has: it may be mapped and read without fear.
 * -EINVAL: it is no memfd sealed against writing, shrinking and growing, or is empty.
 */
int _nodiscard_ sealed_size(int fd, uint64_t *ret);

#endif
