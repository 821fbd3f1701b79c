/*
 * What the verbs that need no daemon share: the spec file, the samples' lengths, and the plan that
 * they make. This folder alone knows the plan and data libraries.
 */
#ifndef DLCTL_OFFLINE_H
#define DLCTL_OFFLINE_H

#include "client/dlctl/options.h"

struct data_env;
struct dl_spec;
struct plan;
struct plan_params;

/* It is the user's own process, so that nothing is kept from it: data and plug-ins anywhere. */
extern const struct data_env offline_env;

/*
 * Reads and checks the spec file o->operand; relative paths in it start from its directory. A
 * sampler that draws and has no seed gets one here, and *ret_drawn is true. Returns a negative
 * errno with `err` filled; *ret is then untouched.
 */
int _nodiscard_ offline_spec(const struct options *o, struct dl_spec *ret, bool *ret_drawn,
                             struct dl_error *err);

/*
 * How many samples there are, and where batches are measured in tokens, the length of each, to be
 * freed by the caller; else NULL. May read the whole dataset, with progress on a terminal. Refuses
 * what has no plan; and with `compare`, for somebody who wants to see how lengths differ, samples
 * that have none.
 */
int _nodiscard_ offline_measure(const struct options *o, const struct dl_spec *spec, bool compare,
                                uint64_t *ret_length, uint32_t **ret_lengths, struct dl_error *err);

/* The prepared plan; -EINVAL where the sampler does not fit the dataset. */
int _nodiscard_ offline_plan(const struct dl_spec *spec, const struct plan_params *params,
                             struct plan **ret, struct dl_error *err);

#endif
