#include "daemon/base/memory.h"

#include "daemon/base/log.h"

void *must_have(void *mem)
{
    if (!mem) {
        log_error("out of memory");
        _exit(1);
    }
    return mem;
}

void *must_alloc(size_t size)
{
    return must_have(calloc(1, size));
}

void *must_realloc(void *mem, size_t size)
{
    return must_have(realloc(mem, size));
}

char *must_strdup(const char *text)
{
    return must_have(strdup(text));
}

void must_append(struct dl_buffer *buf, const void *data, size_t len)
{
    if (buffer_append(buf, data, len) < 0)
        must_have(NULL);
}
