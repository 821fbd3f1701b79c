/*
 * Makes the k-th allocation of our own objects fail, and counts what they ask for: of those calls
 * that the program's dependencies in meson.build wrap (wrap_calloc_dep and its like).
 */
#ifndef DL_TEST_FAIL_ALLOC_H
#define DL_TEST_FAIL_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

static int fail_in = -1;     /* so many more succeed; -1: all */
static size_t asked_bytes;   /* of all calls so far, but for texts */
static unsigned asked_times; /* how many these were */

static bool alloc_fails(size_t bytes)
{
    asked_bytes += bytes;
    asked_times++;
    return fail_in >= 0 && fail_in-- == 0;
}

/* Weak: what is not wrapped is not there. Visible: libdlclient's calls come here, too. */
#define WRAPPED(type, name, parameters, bytes, arguments)                 \
    type __real_##name parameters __attribute__((weak));                  \
    __attribute__((visibility("default"))) type __wrap_##name parameters; \
    __attribute__((visibility("default"))) type __wrap_##name parameters  \
    {                                                                     \
        return alloc_fails(bytes) ? NULL : __real_##name arguments;       \
    }

WRAPPED(void *, malloc, (size_t size), size, (size))
WRAPPED(void *, calloc, (size_t n, size_t size), n *size, (n, size))
WRAPPED(void *, realloc, (void *old, size_t size), size, (old, size))
WRAPPED(void *, reallocarray, (void *old, size_t n, size_t size), n *size, (old, n, size))
WRAPPED(void *, aligned_alloc, (size_t align, size_t size), size, (align, size))
WRAPPED(char *, strdup, (const char *text), 0, (text))
WRAPPED(char *, strndup, (const char *text, size_t n), 0, (text, n))

#undef WRAPPED

#endif
