/*
 * What a process of ours has used, as the kernel tells it: by the clock of its computing, and by
 * /proc. Read when somebody looks, and at no other time: it takes some 30 us, and never waits for a
 * disk.
 */
#ifndef DL_USAGE_H
#define DL_USAGE_H

#include "proto/common/base.h"

struct usage {
    uint64_t cpu_ns; /* of all its threads, in itself and in the kernel */
    uint64_t bytes;  /* resident and its own: no files, no segments of the ring */
};

/* False: there is no such process. */
bool _nodiscard_ usage_read(int pid, struct usage *ret);

/* How long its main thread was ready to run so far, and had no processor. False: there is no such
 * process, or the kernel does not count that. */
bool _nodiscard_ usage_read_cpu_wait(int pid, uint64_t *ret_ns);

/* The text of /proc/PID/schedstat, for tests. False: it is none. */
bool _nodiscard_ usage_parse_schedstat(const char *text, uint64_t *ret_ns);

/* The text of /proc/PID/statm, for tests. False: it is none. */
bool _nodiscard_ usage_parse_statm(const char *text, uint64_t *ret_pages);

#endif
