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
 * One that is overwritten in place gives new contents at once, and no signal:
 * guard_find_written() finds it by its size and times.
 *
 * What cannot be fetched of a remote file (remote.h) reads as zeroes, too, and is told here.
 *
 * One thread.
 */
#ifndef DL_DATA_GUARD_H
#define DL_DATA_GUARD_H

#include "proto/common/error.h"

#include <signal.h>

struct guarded; /* one file */
struct remote;

struct guard { /* all zero: nothing is mapped */
    struct guarded *files;
    struct guarded *closed; /* not mapped any more, and changed while they were; to be told */
    volatile sig_atomic_t damaged; /* something was read that is not there */
    struct remote *remote;         /* borrowed; NULL: no file is */
};

/* The process's handler of SIGBUS is this guard's until guard_uninstall(); there is one at a time.
 */
void guard_install(struct guard *guard);
void guard_uninstall(void);

/* The mapping of `bytes` at `data`, of what is open as `fd`, lies at `place` and is called `path`.
 * NULL: no memory. */
struct guarded *guard_add(struct guard *guard, const void *data, uint64_t bytes, int fd,
                          const char *path, const char *place);
void guard_remove(struct guarded *file); /* before it is unmapped; NULL is fine */

/* The guard has no file any more. */
void guard_deinit(struct guard *guard);

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

/*
 * A file that was written to since it was opened: `ret` names it, and what has changed. Each comes
 * once. False: there is no further one. Writes do not count that leave size and times as they were,
 * or come within a tick of the kernel's clock after the opening. It asks for each file's metadata,
 * which may block.
 */
bool guard_find_written(struct guard *guard, struct dl_error *ret);
static inline bool guard_is_empty(const struct guard *guard)
{
    return !guard->files && !guard->closed;
}

#endif
