/*
 * Epochs: the plans of a loader, one for each (epoch, world, and what other world sizes had
 * before), shared by the ranks that read it.
 *
 * Reaching a step far into a torch-ordered epoch takes as many swaps as lie before it. Work that
 * would hold up the loop for longer than a millisecond is done in libuv's thread pool, and batches
 * of tokens are planned there, a whole epoch at once; meanwhile the plan is busy and must not be
 * used. Its memory stays charged until no thread works on it, even if it is no longer needed.
 */
#ifndef DL_EPOCH_H
#define DL_EPOCH_H

#include "daemon/plan/plan.h"
#include "daemon/serve/loader/crew.h"
#include "daemon/serve/loader/length_table.h"
#include "daemon/serve/ring/charge.h"

struct epoch;

struct epoch_set {
    struct epoch *epochs; /* owned list, in use by streams */
    struct payer payer;   /* for the memory of the plans */
    struct crew *crew;    /* borrowed; works on them, for */
    uint32_t uid;
};

/*
 * The plan for `params`, made if it is new; counted: epoch_unref(). Lists are compared by address:
 * those of one set's epochs are the loader spec's. `lengths` are those of params->tokens; may be
 * NULL. Returns 0 or -errno; -EDQUOT, and -ENOMEM of charge_take(), with `err`.
 */
int _nodiscard_ epoch_ref(struct epoch_set *set, const struct plan_params *params,
                          struct length_table *lengths, struct epoch **ret, struct dl_error *err);
void epoch_unref(struct epoch_set *set, struct epoch *epoch);

const struct plan *epoch_plan(const struct epoch *epoch);

/*
 * Plans the whole epoch (plan_prepare()). 0: done; 1: a thread works on it, and `done` of the first
 * caller is called from the loop afterwards, unless the epoch was given up; -ENOMEM: it failed.
 * Until it is done the plan must not be used.
 */
int _nodiscard_ epoch_work_out(struct epoch *epoch, void (*done)(void *owner), void *owner);

/*
 * Of an epoch that is cut window by window (plan_lazy.h), of which epoch_work_out() only begins the
 * order: plan_window() and plan_cut_window(), once it is done.
 */
size_t epoch_window(struct epoch *epoch, uint64_t *ret);
int _nodiscard_ epoch_cut_window(struct epoch *epoch);

/* Of such an epoch: whether its order is there, and no thread at it. Then plan_change(). */
bool epoch_is_begun(const struct epoch *epoch);
int _nodiscard_ epoch_change(struct epoch *epoch, struct mix_changes *changes);

/*
 * Prepares for epoch_step(rank, step). True: ready. False: a thread works on it, and `done` of the
 * first caller is called from the loop afterwards, unless the epoch was given up.
 */
bool _nodiscard_ epoch_prepare(struct epoch *epoch, uint64_t rank, uint64_t step,
                               void (*done)(void *owner), void *owner);

/* Whether epoch_prepare() has nothing to do that would take a thread. */
bool epoch_is_near(const struct epoch *epoch, uint64_t rank, uint64_t step);

/* plan_step() of a prepared step. */
size_t epoch_step(struct epoch *epoch, uint64_t rank, uint64_t step, uint64_t *indices);

#endif
