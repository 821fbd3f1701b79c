/* Bytes as text of 64 digits, by RFC 4648, with its padding. Pure. */
#ifndef DL_BASE64_H
#define DL_BASE64_H

#include "proto/common/base.h"

#include <sys/types.h>

#define BASE64_BYTES(len) ((len) / 4 * 3) /* at most, of so many digits */

/* The bytes that `len` digits stand for, in BASE64_BYTES(len) at `ret`, and how many; -1: they
 * stand for none. */
ssize_t base64_decode(const void *text, size_t len, uint8_t *ret);

#endif
