/*
 * The control group of a client, by its name as seen from this process.
 *
 * A process's number may have been reused since it connected. So the kernel is asked for a
 * descriptor of the process (SO_PEERPIDFD, Linux 6.5), and what was read by number counts only if
 * the process of the descriptor still runs afterwards. On older kernels the descriptor is made from
 * the number in SO_PEERCRED: if a client passes its connection on, ends, and its number is reused
 * by a process of the same user, it is mistaken for that one.
 */
#ifndef DL_CONTROL_GROUP_H
#define DL_CONTROL_GROUP_H

#include "proto/common/error.h"

enum { CONTROL_GROUP_MAX = 512 }; /* bytes of a name with the final NUL */

/*
 * Parses /proc/PID/cgroup: the group of version 1's memory controller, else of version 2. False if
 * it has neither, or the name is too long or not text. Pure.
 */
bool _nodiscard_ control_group_parse(const char *text, char ret[static CONTROL_GROUP_MAX]);

/*
 * Of the process that made the connection `sock`. A negative errno with `err`: -ESRCH: it has
 * ended, or is in a PID namespace that this process does not see; ...
 */
int _nodiscard_ control_group_of_peer(int sock, char ret[static CONTROL_GROUP_MAX],
                                      struct dl_error *err);

#endif
