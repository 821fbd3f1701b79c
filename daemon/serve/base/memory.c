#include "daemon/serve/base/memory.h"

#include "daemon/serve/base/log.h"

static void *check(void *mem)
{
    if (!mem) {
        log_error("out of memory");
        _exit(1);
    }
    return mem;
}

void *must_alloc(size_t size)
{
    return check(calloc(1, size));
}

void *must_realloc(void *mem, size_t size)
{
    return check(realloc(mem, size));
}

char *must_strdup(const char *text)
{
    return check(strdup(text));
}
