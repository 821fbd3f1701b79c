/*
 * Indexes of files that workers have made, on their way to the cache on disk
 * (daemon/cache/index_cache.h), which they cannot write to. Main thread; threads of the crew write.
 */
#ifndef DL_INDEX_KEEP_H
#define DL_INDEX_KEEP_H

#include "daemon/serve/loader/crew.h"

/* Whose threads write it where, and for which user. */
struct index_keep_for {
    struct crew *crew; /* borrowed */
    uint32_t uid;
    const char *dir;   /* copied; "": nowhere */
    const char *label; /* copied; for the log */
};

/* Keeps what is in the sealed memfd `fd`, which stays the caller's; what fails is logged. */
void index_keep(const struct index_keep_for *whose, uint64_t key, int fd);

#endif
