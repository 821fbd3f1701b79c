/*
 * dloaderd --helper: lends workers to daemons of other machines (daemon/helper/link.h). It accepts
 * connections, and starts for each a process that serves it: dloader-worker --far, which asks for
 * proof, starts a worker, and ends with the connection. So what a stranger sends is read by a
 * process of its own, and whatever happens to one connection happens to no other.
 */
#ifndef DL_LEND_H
#define DL_LEND_H

/* At that address, or, NULL, that of the configuration, until a signal ends it. Returns the
 * process's exit status. */
int lend_run(const char *address, const char *config_path, const char *log_level);

#endif
