/*
 * What `plan` and `check` share: the spec file and the plan it makes, without a daemon. This folder
 * alone knows the plan and data libraries.
 */
#ifndef DLCTL_OFFLINE_H
#define DLCTL_OFFLINE_H

#include "client/dlctl/options.h"

struct data_env;
struct dl_spec;
struct plan;

/* It is the user's own process, so that nothing is kept from it: data and plug-ins anywhere. */
extern const struct data_env offline_env;

/*
 * Reads and checks the spec file o->operand; relative paths in it start from its directory. A
 * sampler that draws and has no seed gets one here, and *ret_drawn is true. Returns a negative
 * errno with `err` filled; *ret is then untouched.
 */
int _nodiscard_ offline_spec(const struct options *o, struct dl_spec *ret, bool *ret_drawn,
                             struct dl_error *err);

/* The plan of one epoch over `length` samples; -EINVAL where the sampler does not fit them. */
int _nodiscard_ offline_plan(const struct options *o, const struct dl_spec *spec, uint64_t length,
                             uint64_t epoch, struct plan **ret, struct dl_error *err);

#endif
