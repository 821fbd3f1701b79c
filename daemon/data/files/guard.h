/*
 * Guards mapped data files: a file that is truncated while in use must cost only the samples in the
 * lost part, and not kill the process.
 *
 * A worker installs its guard: reading behind the file's new end, which raises SIGBUS, then returns
 * zeroes, and the guard remembers. After reading, the reader calls guard_check() before it uses the
 * data. That also maps the file again in place of the zeroes, so that the next read there is
 * detected, too. A library must not handle signals: a client that loads in its own process checks
 * the sizes every few milliseconds (guard_look()); a file that is cut and read in between kills it
 * like any program.
 *
 * What lies between the file's new end and the end of that page reads as zeroes without a signal. A
 * file that is deleted, or replaced under its name, keeps its content.
 *
 * One that is overwritten in place shows its new content at once, without a signal:
 * guard_find_written() detects it by size and times.
 *
 * Parts of a remote file (remote.h) that cannot be fetched also read as zeroes, and are reported
 * here.
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
    struct guarded *closed;        /* no longer mapped, and changed before: still to be reported */
    volatile sig_atomic_t damaged; /* something was read that is not there */
    struct remote *remote;         /* borrowed; NULL: no file is */
};

/* Handles the process's SIGBUS by this guard until guard_uninstall(); only one at a time. */
void guard_install(struct guard *guard);
void guard_uninstall(void);

/* Adds the mapping of `bytes` at `data`, of the open file `fd`, which lies at `place` and is called
 * `path`. NULL: out of memory. */
struct guarded *guard_add(struct guard *guard, const void *data, uint64_t bytes, int fd,
                          const char *path, const char *place);
void guard_remove(struct guarded *file); /* before it is unmapped; NULL is fine */

/* The guard must have no files left. */
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

/* The same by checking the files, even if they were not read. */
int _nodiscard_ guard_look(struct guard *guard, struct dl_error *err);

/*
 * Finds a file that was written to since it was opened: `ret` names it and the change. Each is
 * reported once. False at the end. Writes that leave size and times unchanged, or come within a
 * tick of the kernel's clock after opening, go unnoticed. Asks for each file's metadata, which may
 * block.
 */
bool guard_find_written(struct guard *guard, struct dl_error *ret);
static inline bool guard_is_empty(const struct guard *guard)
{
    return !guard->files && !guard->closed;
}

#endif
