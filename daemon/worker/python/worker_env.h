/*
 * What this worker reads files with, for functions that its Python code calls: the way to files
 * behind URLs, and who hears of what could not be read.
 */
#ifndef DL_WORKER_ENV_H
#define DL_WORKER_ENV_H

#include "daemon/data/base/dataset.h"

/* From now on; `env` is borrowed until it is another one. NULL: of no worker. */
void worker_env_set(const struct data_env *env);

/* Never NULL: a process that is no worker, or not any more, has an empty one. */
const struct data_env *worker_env(void);

#endif
