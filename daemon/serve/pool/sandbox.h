/* How far workers are closed in, and how people read it. Pure. */
#ifndef DL_SERVE_SANDBOX_H
#define DL_SERVE_SANDBOX_H

#include "daemon/base/config.h"
#include "proto/sandbox.h"

/* The most that sandbox_describe() writes, the NUL included. */
enum { SANDBOX_WORDS = 40 };

/*
 * `python`: the worker runs its user's own code, which may start programs, write files and use the
 * network. In a private daemon that code is closed in only where the configuration says so: there
 * it could do all of that by itself. Nor is a worker of a host that its client has brought.
 * `foreign`: another user than the daemon's own has named the code, of those that the site lists;
 * it is closed in whatever its language, unless nothing is.
 */
enum sandbox_level sandbox_choose(const struct config *config, bool python, bool private,
                                  bool foreign);

/* "calls, files, network, signals", or as many of them as hold; "off": none. */
void sandbox_describe(uint32_t parts, char ret[SANDBOX_WORDS]);

/* What the log should say of a worker of which `parts` hold, of that level; NULL: nothing. */
const char *sandbox_complaint(enum sandbox_level level, uint32_t parts);

#endif
