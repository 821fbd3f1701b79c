/*
 * Bytes: a borrowed span, and a buffer that grows. Pure.
 */
#ifndef DL_BYTES_H
#define DL_BYTES_H

#include "proto/common/base.h"

/* Borrowed text or bytes, such as a payload's; not NUL-terminated. */
struct dl_span {
    const uint8_t *data; /* borrowed; may be NULL when len is 0 */
    size_t len;
};

/* A growing byte buffer; zero-initialised = empty. */
struct dl_buffer {
    uint8_t *data; /* owned */
    size_t len;
    size_t cap;
};
void buffer_deinit(struct dl_buffer *buf);
/* Room for `more` bytes after what is there. 0 or -ENOMEM, as buffer_append(). */
int _nodiscard_ buffer_reserve(struct dl_buffer *buf, size_t more);
int _nodiscard_ buffer_append(struct dl_buffer *buf, const void *data, size_t len);

/* A NUL-terminated copy on the heap; NULL when out of memory. */
char *span_dup(struct dl_span span);
struct dl_span span_str(const char *text); /* borrowed from `text` */

#endif
