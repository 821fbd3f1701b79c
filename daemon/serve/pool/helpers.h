/*
 * How many of a loader's workers run on other machines: members of its pool like the others, each
 * with a stand-in for a process (daemon/helper/link.h). They come after the loader's own ones in
 * number, begin once one of these has opened the dataset, and get the steps for which none of these
 * has room. Whatever becomes of them, the loader goes on. Pure.
 */
#ifndef DL_POOL_HELPERS_H
#define DL_POOL_HELPERS_H

#include "daemon/base/config.h"
#include "daemon/serve/pool/python.h"

/* Tasks that such a worker has at most, as many as its far end has slots for: enough to hide the
 * way there. */
enum { HELPERS_TASKS = 4 };

/* A helper that is of no use is tried again so much later at most. */
#define HELPERS_PAUSE_MS UINT64_C(5000)

/* Where their number is left to the daemon: at first, and the most. */
enum { HELPERS_FIRST = 2, HELPERS_MOST = 16 };

/* The number is only the most: loader_size.c finds how many are worth it. */
bool helpers_are_sized(const struct config *config, const struct dl_spec *spec);
/* 0: none; *ret_why: why not although helpers are configured, in words, else NULL. */
uint32_t helpers_count(const struct config *config, const struct dl_spec *spec,
                       const struct python_run *python, bool foreign, const char **ret_why);

/* Of the worker that is the loader's `helper`th on other machines, at its `attempt`th: helpers take
 * turns, so that one that is down is soon replaced by another. `found`: those that have announced
 * themselves. NULL: there are none, or none any more. */
const char *helpers_address(const struct config *config, const struct config_dirs *found,
                            uint32_t helper, uint64_t attempt);

#endif
