/*
 * Touching a fresh page costs about a microsecond, zeroing recently freed memory a hundredth of
 * that: so small arrays come from the heap, where an epoch reuses those of the last one. Large ones
 * are mapped, since the heap would zero them whole before the first step.
 */
#include "daemon/plan/lazy_zero.h"

#include <errno.h>
#include <sys/mman.h>

enum { HEAP_MAX = 4 << 20 }; /* bytes */

int lazy_zero_new(uint64_t size, bool whole, void **ret)
{
    void *mem = NULL;

    if (size > PTRDIFF_MAX)
        return -ENOMEM;
    if (size > HEAP_MAX) {
        mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mem == MAP_FAILED)
            return -ENOMEM;
        /* Advice only. A huge page is zeroed at once: good for one pass over the whole array, but
         * some 100 µs for each of the first swaps, which land all over it. */
        (void)madvise(mem, size, whole ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    } else if (size > 0) {
        mem = calloc(1, size);
        if (!mem)
            return -ENOMEM;
    }
    *ret = mem;
    return 0;
}

void lazy_zero_free(void *mem, uint64_t size)
{
    if (size <= HEAP_MAX)
        free(mem);
    else
        munmap(mem, size);
}
