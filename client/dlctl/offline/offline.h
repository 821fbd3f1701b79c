/*
 * What the verbs that need no daemon share: the spec file, the samples' lengths, and the plan that
 * they make. This folder alone knows the plan and data libraries.
 */
#ifndef DLCTL_OFFLINE_H
#define DLCTL_OFFLINE_H

#include "client/dlctl/options.h"
#include "client/dlctl/run/progress.h"
#include "daemon/data/base/dataset.h"

struct dl_spec;
struct plan;
struct plan_params;

/* It is the user's own process, so that nothing is kept from it: data and plug-ins anywhere. */
extern const struct data_env offline_env;

/* What opens a dataset and shows how far that is; for the dataset's life, in one place. */
struct offline_watch {
    struct data_env env;
    struct data_progress progress;
    struct progress shown;
    const char *what; /* NULL: nothing took long yet */
    bool quiet;
};
void offline_watch_begin(struct offline_watch *watch, const struct options *o);
void offline_watch_end(struct offline_watch *watch); /* shows no more; again is fine */

/*
 * Reads and checks the spec file o->operand; relative paths in it start from its directory. A
 * sampler that draws and has no seed gets one here, and *ret_drawn is true. Returns a negative
 * errno with `err` filled; *ret is then untouched.
 */
int _nodiscard_ offline_spec(const struct options *o, struct dl_spec *ret, bool *ret_drawn,
                             struct dl_error *err);

/* The changed weights of the state o->changes, which must be of that spec; NULL: there are none, or
 * no state was named. Counted. */
struct mix_changes;
int _nodiscard_ offline_changes(const struct options *o, const struct dl_spec *spec,
                                struct mix_changes **ret, struct dl_error *err);

/*
 * With shard.replicas that number of neighbouring ranks read the same batches, as a client has
 * it: *ret of them, of which rank / *ret of world / *ret is the data's. A world of 1, which need
 * not have been told, is one rank's data. -EINVAL: the world is not a multiple.
 */
int _nodiscard_ offline_replicas(const struct options *o, const struct dl_spec *spec, uint64_t *ret,
                                 struct dl_error *err);

struct offline_measures {
    uint64_t length;   /* samples */
    uint32_t *lengths; /* owned; where batches are measured in tokens, of each sample; else NULL */
    uint64_t *sizes;   /* owned; samples of each of a mix's datasets; else NULL */
};

/*
 * How many samples there are, and what else a plan depends on; *ret is to be deinited in any case.
 * May read the whole dataset, with progress on a terminal. Refuses what has no plan; and with
 * `compare`, which shows how lengths differ, samples without one.
 */
int _nodiscard_ offline_measure(const struct options *o, const struct dl_spec *spec, bool compare,
                                struct offline_measures *ret, struct dl_error *err);
void offline_measures_deinit(struct offline_measures *measures);

/* The prepared plan; -EINVAL where the sampler does not fit the dataset. */
int _nodiscard_ offline_plan(const struct dl_spec *spec, const struct plan_params *params,
                             struct plan **ret, struct dl_error *err);

#endif
