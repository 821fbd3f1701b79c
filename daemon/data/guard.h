/*
 * Guarding mapped data files: one that somebody cuts while it is in use must cost the samples that
 * lay there, and nobody's life.
 *
 * A worker installs its guard: reading behind the file's new end, which raises SIGBUS, then gives
 * zeroes, and the guard remembers. Who has read asks guard_check() before anything is made of what
 * was read. It also puts the file back where the zeroes were, so that the next one to read there
 * is found out as well. A library has no signals to handle: a client that loads by itself looks at
 * the sizes every few milliseconds (guard_look()); a file that is cut and read in between kills it
 * as it would any program.
 *
 * What lies between the file's new end and the end of that page reads as zeroes without a signal.
 * A file that is deleted, or replaced by another under its name, stays what it was.
 *
 * One thread.
 */
#ifndef DL_DATA_GUARD_H
#define DL_DATA_GUARD_H

#include "proto/common/error.h"

#include <signal.h>

struct guarded; /* one file */

struct guard { /* all zero: nothing is mapped */
    struct guarded *files;
    volatile sig_atomic_t damaged; /* something was read that is not there */
};

/* The process's handler of SIGBUS is this guard's until guard_uninstall(); there is one at a time.
 */
void guard_install(struct guard *guard);
void guard_uninstall(void);

/* The mapping of `bytes` at `data`, of what is open as `fd` and called `path`. NULL: no memory. */
struct guarded *guard_add(struct guard *guard, const void *data, uint64_t bytes, int fd,
                          const char *path);
void guard_remove(struct guarded *file); /* before it is unmapped; NULL is fine */

int guard_tell(struct guard *guard, struct dl_error *err);

/*
 * What was read since the last call: 0, or -EIO with `err`, naming the file, its size then and now.
 * `guard` may be NULL.
 */
static inline int _nodiscard_ guard_check(struct guard *guard, struct dl_error *err)
{
    return guard && guard->damaged ? guard_tell(guard, err) : 0;
}

/* The same by looking at the files, of which none need have been read. */
int _nodiscard_ guard_look(struct guard *guard, struct dl_error *err);

#endif
