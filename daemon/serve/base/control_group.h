/*
 * The control group of a client, by the name that this process sees it by.
 *
 * By a process's number alone nobody can tell whether it is still the process that connected. So
 * the kernel is asked for a descriptor of it (SO_PEERPIDFD, Linux 6.5), and what was read of the
 * number counts only if the process of the descriptor still runs then. On an older kernel the
 * descriptor is one of the number that the kernel noted (SO_PEERCRED): a client that hands its
 * connection on, ends, and has its number reused by a process of the same user is taken for that.
 */
#ifndef DL_CONTROL_GROUP_H
#define DL_CONTROL_GROUP_H

#include "proto/common/error.h"

enum { CONTROL_GROUP_MAX = 512 }; /* bytes of a name with the final NUL */

/*
 * Of a text as /proc/PID/cgroup has it: the group of the memory controller in version 1, else of
 * version 2. False: there is none, or its name is too long or no text. Pure.
 */
bool _nodiscard_ control_group_parse(const char *text, char ret[static CONTROL_GROUP_MAX]);

/*
 * Of the process that made the connection `sock`. A negative errno with `err`: -ESRCH: it has
 * ended, or is in a PID namespace that this process does not see; ...
 */
int _nodiscard_ control_group_of_peer(int sock, char ret[static CONTROL_GROUP_MAX],
                                      struct dl_error *err);

#endif
