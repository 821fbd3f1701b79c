/* The Python host of a helper's end: a process of its own that forks the end's worker, as the
 * daemon's hosts do (daemon/serve/pool/host.h). */
#ifndef DL_HELPER_FAR_PYTHON_H
#define DL_HELPER_FAR_PYTHON_H

#include "daemon/data/base/dataset.h"
#include "proto/fdpass.h"

struct far_python {
    int pid;
    int sock; /* owned; while pid is not 0 */
    struct frame_reader reader;
};

/* All zero, then this: starts the interpreter, and has it fork a worker whose socket is `sock`,
 * borrowed. `object`: a file, borrowed, with the pickle of what its workers run; -1: the spec names
 * it. Waits for both, telling `progress` every second. Negative errno with `err`. */
int _nodiscard_ far_python_start(struct far_python *host, const char *interpreter, int sock,
                                 int object, const struct data_progress *progress,
                                 struct dl_error *err);
/* Waits a while for how the worker has ended, which is known to have: as of waitpid(). */
int far_python_reap(struct far_python *host);
/* Kills both. Fine on one that was not started. */
void far_python_deinit(struct far_python *host);

#endif
