/*
 * How much memory is still available, by the kernel's figures: for the machine (MemAvailable) and
 * for every control group that this process is in, up to the root (v1 and v2). A group's easily
 * dropped file pages count as free. A reserve is kept: a daemon that takes the last page gets its
 * own workers killed.
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
    unsigned pressure; /* if not 0: per cent of the last 10 s in which processes waited for memory,
                          according to `place`; then bytes is 0 */
    uint64_t total;    /* the lowest limit there is: of the machine, or of a group */
    char place[AVAILABLE_PLACE_MAX]; /* the file that the figure is from */
};

/*
 * Reads some five small files. `root` is put before their names: "" but in tests. What cannot be
 * read sets no limit.
 */
void available_read(const char *root, struct available *ret);

#endif
