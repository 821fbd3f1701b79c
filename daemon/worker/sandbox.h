/* Which files a worker may read: those that its spec is about. How it is closed in:
 * daemon/sandbox/sandbox.h. */
#ifndef DL_WORKER_SANDBOX_H
#define DL_WORKER_SANDBOX_H

#include "daemon/data/base/dataset.h"
#include "daemon/sandbox/sandbox.h"

/* What the spec's dataset and its libraries read. */
void sandbox_files_allow_spec(struct sandbox_files *files, const struct dl_spec *spec,
                              const struct data_env *env);
#endif
