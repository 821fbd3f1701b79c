/*
 * Python in a loader: whether its spec has any, and by which interpreter. base/rights.h says which
 * users may have it at all, and comes first.
 */
#ifndef DL_PYTHON_H
#define DL_PYTHON_H

#include "daemon/base/config.h"
#include "daemon/serve/pool/host.h"
#include "proto/spec.h"

/* What a loader's workers are run with; zeroed: as programs of their own, without Python. */
struct python_run {
    char *interpreter;    /* owned, absolute; NULL: none, or host */
    uint64_t host_number; /* in the spec, of the host that its client brings; 0: none */
    struct host *host;    /* owned; that one, once it is there */
    char *fallback;       /* owned; the interpreter for what C turns out not to do; NULL: none */
};

static inline bool python_runs(const struct python_run *run)
{
    return run->interpreter || run->host_number;
}

void python_run_deinit(struct python_run *run);

/* The number of the host that the spec names, anywhere in its dataset; 0: none. */
uint64_t python_host_number(const struct dl_spec *spec);

/*
 * What the spec's workers are to be run with; the host itself is left to the caller. The
 * interpreters are those of `python`, by default its first one; without it whichever is named.
 * -EINVAL or -EPERM with place, value and remedy.
 */
int _nodiscard_ python_choose(const struct config *config, const struct dl_spec *spec,
                              struct python_run *ret, struct dl_error *err);

/* C cannot do what a worker was to do: from now on they are run by the fallback. False: there is
 * none. */
bool python_fall_back(struct python_run *run);

/*
 * Whether the loader is one of PyTorch's in all but the processes: step s is made by worker s mod
 * workers and each worker's steps in their order, so that what a dataset keeps from one sample to
 * the next is the same in each run. Not so where batches may come in any order, or are seeded by
 * themselves: a step then goes to whichever worker has least to do.
 */
bool python_in_turn(const struct dl_spec *spec);

#endif
