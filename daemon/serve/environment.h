/* The environment of the programs that the daemon starts for others. Pure but for getenv(). */
#ifndef DL_ENVIRONMENT_H
#define DL_ENVIRONMENT_H

#include "daemon/serve/config.h"

/*
 * What of the daemon's own concerns a worker: language, time zone, the tests' sanitizer options,
 * and a path of the system's programs. Of a Python host also which modules it loads beforehand, and
 * where it finds modules: `python_path`, else NULL. Ends with NULL; the caller's.
 */
char **environment_new(const struct config_dirs *python_path);
char **environment_free(char **environment);

#endif
