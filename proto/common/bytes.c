#include "proto/common/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void buffer_deinit(struct dl_buffer *buf)
{
    free(buf->data);
    memset(buf, 0, sizeof *buf);
}

int buffer_reserve(struct dl_buffer *buf, size_t more)
{
    size_t need, cap;
    uint8_t *data;

    if (more <= buf->cap - buf->len)
        return 0;
    if (__builtin_add_overflow(buf->len, more, &need) || need > SIZE_MAX / 2)
        return -ENOMEM;
    cap = max_u64(max_u64(need, buf->cap * 2), 256);
    data = realloc(buf->data, cap);
    if (!data)
        return -ENOMEM;
    buf->data = data;
    buf->cap = cap;
    return 0;
}

int buffer_append(struct dl_buffer *buf, const void *data, size_t len)
{
    int r = buffer_reserve(buf, len);

    if (r < 0)
        return r;
    if (len > 0)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    return 0;
}

char *span_dup(struct dl_span span)
{
    char *text = malloc(span.len + 1);

    if (!text)
        return NULL;
    if (span.len > 0)
        memcpy(text, span.data, span.len);
    text[span.len] = '\0';
    return text;
}

struct dl_span span_str(const char *text)
{
    return (struct dl_span){(const uint8_t *)text, strlen(text)};
}
