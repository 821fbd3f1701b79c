/*
 * Small things every module uses: clean-up on scope exit, hand-over of ownership, checked
 * arithmetic. No state, no I/O; any process, any thread.
 */
#ifndef DL_BASE_H
#define DL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef NDEBUG
#error "asserts state invariants that releases rely on: build with -Db_ndebug=false"
#endif

#define _cleanup_(fn)  __attribute__((cleanup(fn)))
#define _nodiscard_    __attribute__((warn_unused_result))
#define _printf_(f, a) __attribute__((format(printf, f, a)))
#define _unused_       __attribute__((unused))

typedef unsigned long long ull; /* for printf */

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Hands ownership over: the variable forgets what it held. */
#define steal_ptr(p)                 \
    ({                               \
        __typeof__(p) _stolen = (p); \
        (p) = NULL;                  \
        _stolen;                     \
    })

static inline int steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

static inline void close_fdp(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* `p` is the address of any object pointer: free() through it and forget. */
static inline void free_memoryp(void *p)
{
    void *mem;
    memcpy(&mem, p, sizeof mem);
    free(mem);
    memset(p, 0, sizeof mem);
}

#define _cleanup_free_ _cleanup_(free_memoryp)
#define _cleanup_fd_   _cleanup_(close_fdp)

enum { CACHE_LINE = 64 }; /* bytes */

/* True when a·b or a+b does not fit; *ret is then untouched by no promise and must not be used. */
static inline bool _nodiscard_ mul_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
    return __builtin_mul_overflow(a, b, ret);
}

static inline bool _nodiscard_ add_overflows(uint64_t a, uint64_t b, uint64_t *ret)
{
    return __builtin_add_overflow(a, b, ret);
}

/* `align` is a power of two; the caller has bounded `n` well below 2^63. */
static inline uint64_t align_up(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
