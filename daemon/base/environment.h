/* The environment of the programs that the daemon starts for clients, and the daemon's own settings
 * from its environment. Pure but for getenv(). */
#ifndef DL_ENVIRONMENT_H
#define DL_ENVIRONMENT_H

#include "daemon/base/config.h"

/*
 * What of the daemon's own concerns a worker: the version of their protocol, language, time zone,
 * the tests' sanitizer options, and a path of the system's programs. Of a Python host also which
 * modules it loads beforehand, and where it finds modules: `python_path`, else NULL. Ends with
 * NULL; the caller's.
 */
char **environment_new(const struct config_dirs *python_path);
char **environment_free(char **environment);

/*
 * If a backend is configured, settings missing from the rendezvous come from the variables that job
 * scripts set for torchrun: the endpoint is $MASTER_ADDR with the backend's own port, the id is
 * $TORCHELASTIC_RUN_ID unless it is "none". 0, or -EINVAL if a required setting is invalid.
 */
int _nodiscard_ environment_complete(struct config_rendezvous *rendezvous, struct dl_error *err);

#endif
