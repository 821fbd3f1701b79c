/*
 * Which node of a cluster the former daemon was, if its process has certainly ended: the other
 * nodes then need not wait for its heartbeat to time out.
 *
 * Each daemon notes its node's id in a file beside its socket, and locks that file as long as it
 * lives; the kernel unlocks it when the process ends, however it ends. So the holder of the lock
 * knows that the writer of the line is dead. This holds for one file on one running kernel, so the
 * line begins with both: a copy, or a line from before a reboot, does not count. Two daemons whose
 * nodes have the same name have two files, so neither is mistaken for the other.
 *
 *   BOOT-ID DEVICE INODE NODE     the machine's boot_id, and three numbers in hexadecimal
 *
 * One per process, since the lock is the process's. Main thread only.
 */
#ifndef DL_PREDECESSOR_H
#define DL_PREDECESSOR_H

#include "proto/common/error.h"

struct predecessor;

/*
 * Opens or creates the file at `path`, and writes `id` there. *ret_before: the id of the former
 * daemon, which is dead; 0: no former daemon, or not certain. 0, or a negative errno with `err`:
 * nothing is written, *ret is NULL and *ret_before 0. -EBUSY: another process holds it.
 */
int _nodiscard_ predecessor_open(const char *path, uint64_t id, struct predecessor **ret,
                                 uint64_t *ret_before, struct dl_error *err);
/* The node has left: the next daemon has nothing to look for. The file goes. NULL is fine. */
void predecessor_forget(struct predecessor *predecessor);
/* Gives up the lock; the id stays noted unless it was forgotten. NULL is fine; returns NULL. */
struct predecessor *predecessor_close(struct predecessor *predecessor);

#endif
