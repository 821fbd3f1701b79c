/* What an interpreter reads while it runs a dataset: the modules it has yet to import. */
#ifndef DL_WORKER_PYTHON_READS_H
#define DL_WORKER_PYTHON_READS_H

#include "daemon/worker/sandbox.h"

void reads_allow(struct sandbox_files *files);

#endif
