/*
 * How much memory may still be taken, as the kernel has it: of the machine (MemAvailable), and of
 * every control group that this process is in, up to the root (v1 and v2). Of a group, pages of
 * files that are easily dropped count as free. Somewhat is kept for others: a daemon that takes the
 * last page has its own workers killed.
 */
#ifndef DL_AVAILABLE_H
#define DL_AVAILABLE_H

#include "proto/common/base.h"

enum { AVAILABLE_PLACE_MAX = 192 };

/* What leaves least. */
struct available {
    uint64_t bytes; /* that may be taken */
    uint64_t limit;
    uint64_t used;
    uint64_t reserve;  /* for others: not in bytes */
    unsigned pressure; /* not 0: per cent of the last 10 s in which processes waited for memory, as
                          `place` has it; then bytes is 0 */
    uint64_t total;    /* the lowest limit there is: of the machine, or of a group */
    char place[AVAILABLE_PLACE_MAX]; /* the file that says so */
};

/*
 * Reads some five small files. `root` is put before their names: "" but in tests. What cannot be
 * read sets no limit.
 */
void available_read(const char *root, struct available *ret);

#endif
