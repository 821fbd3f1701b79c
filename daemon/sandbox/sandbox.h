/*
 * A process closes itself in, before it reads what others have written: workers, in which parsers
 * of files and code of plug-ins run, and the fetcher, which parses what servers say. What breaks
 * out of them finds a process that can do its work and nothing else: no other program, process or
 * file; of the network nothing, or connections of its own.
 *
 * Three means, each by itself and each as far as it goes:
 * - rlimits and no_new_privs, of every worker;
 * - seccomp (by libseccomp, where it was built in): a list of calls that fail with EPERM. A list of
 *   those that may be made would have to know each libc to come and each library of each plug-in,
 *   and would break workers that do no harm;
 * - Landlock (where the kernel has it): which files can be opened, and that none is written.
 *
 * All of it holds for threads and processes to come, not for threads that are there already, so it
 * has to be done while there is one thread.
 */
#ifndef DL_SANDBOX_H
#define DL_SANDBOX_H

#include "proto/common/base.h"
#include "proto/sandbox.h"

/*
 * What tests are built with needs somewhat more. At the end of a worker a leak check stops the
 * process from a second one, which shares its memory, and reads about it in /proc; and coverage
 * writes what it counted.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANDBOX_SANITIZED 1
#endif
#endif
#ifndef SANDBOX_SANITIZED
#define SANDBOX_SANITIZED 0
#endif
#ifndef SANDBOX_COVERED
#define SANDBOX_COVERED 0
#endif

/* For any worker, as soon as it runs: no privileges to gain, no core file, no life without its
 * parent. */
void sandbox_harden(void);

/* When memory runs out, the kernel kills workers first: they are replaced, and nothing is lost.
 * Part of sandbox_harden(). */
void sandbox_go_first(void);

/* Closes the descriptors from `first` on. */
void sandbox_close_from(int first);

/*
 * Forbids system calls. `landlock`: files are going to be closed in by it; else the calls that open
 * a file to write are forbidden here. Returns SANDBOX_CALLS, or 0: it cannot be done.
 */
uint32_t sandbox_calls(enum sandbox_level level, bool landlock);
/* As SANDBOX_FULL, but for sockets that go out: by IP, to the system's resolvers, and to the kernel
 * for its routes. `accepts`: and for sockets that come in, on one that listens already. */
uint32_t sandbox_calls_online(bool landlock, bool accepts);

/* Which files may be read, while that is being said. */
struct sandbox_files {
    int ruleset; /* owned; -1: none, and what follows does nothing */
    int abi;     /* of the kernel's Landlock */
};

/* Whether the kernel has Landlock: its version, or 0. */
int sandbox_landlock(void);

void sandbox_files_begin(struct sandbox_files *files);
/* As that, but TCP ports may be connected to. */
void sandbox_files_begin_online(struct sandbox_files *files);
/* A file, or a directory with all below it, links in `path` resolved. What is not there is not
 * allowed. */
void sandbox_files_allow(struct sandbox_files *files, const char *path);
/* A directory whose files may be made, written and cut, too. */
void sandbox_files_allow_writing(struct sandbox_files *files, const char *path);
/* From here on it holds. Returns which parts do: SANDBOX_FILES, _NETWORK, _SIGNALS. */
uint32_t sandbox_files_hold(struct sandbox_files *files);

#endif
