/* Makes the k-th allocation of our own objects fail, in a test that wraps calloc and realloc; and
 * counts what they ask for. */
#ifndef DL_TEST_FAIL_ALLOC_H
#define DL_TEST_FAIL_ALLOC_H

#include <stddef.h>

static int fail_in = -1;   /* so many more succeed; -1: all */
static size_t asked_bytes; /* of all calls so far */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    asked_bytes += n * size;
    return fail_in >= 0 && fail_in-- == 0 ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    asked_bytes += size;
    return fail_in >= 0 && fail_in-- == 0 ? NULL : __real_realloc(old, size);
}

#endif
