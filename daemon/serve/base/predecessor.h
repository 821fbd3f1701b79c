/*
 * Which node of a cluster the daemon before this one was, where it is certain that its process has
 * ended: the others need not wait then until it has been silent for long enough.
 *
 * Each daemon notes its node's id in a file beside its socket, and locks that file as long as it
 * lives; the kernel unlocks it when the process ends, however it ends. So whoever holds the lock
 * knows that whoever wrote there is dead. This holds for one file on one running kernel, and so the
 * line begins with both: what was copied, or left from before the machine was started, says
 * nothing. Two daemons with one name for their nodes have two files, and neither is taken for the
 * other.
 *
 *   BOOT-ID DEVICE INODE NODE     the machine's boot_id, and three numbers in hexadecimal
 *
 * One in a process, as the lock is the process's. Main thread only.
 */
#ifndef DL_PREDECESSOR_H
#define DL_PREDECESSOR_H

#include "proto/common/error.h"

struct predecessor;

/*
 * Opens the file at `path`, or makes it, and notes `id` there. *ret_before: the id of the one
 * before, which is dead; 0: there was none, or that is not certain. 0, or a negative errno with
 * `err`: nothing is noted, *ret is NULL and *ret_before 0. -EBUSY: another process has it.
 */
int _nodiscard_ predecessor_open(const char *path, uint64_t id, struct predecessor **ret,
                                 uint64_t *ret_before, struct dl_error *err);
/* The node has left: the next daemon has nothing to look for. The file goes. NULL is fine. */
void predecessor_forget(struct predecessor *predecessor);
/* Gives up the lock; the id stays noted unless it was forgotten. NULL is fine; returns NULL. */
struct predecessor *predecessor_close(struct predecessor *predecessor);

#endif
