/* Bytes as text of 64 digits, by RFC 4648, with its padding. Pure. */
#ifndef DL_BASE64_H
#define DL_BASE64_H

#include "proto/common/base.h"

#include <sys/types.h>

#define BASE64_BYTES(len) ((len) / 4 * 3) /* at most, for `len` digits */

/* Decodes `len` digits into `ret`, which has room for BASE64_BYTES(len). Returns the number of
 * bytes, or -1 if the text is not base64. */
ssize_t base64_decode(const void *text, size_t len, uint8_t *ret);

#endif
