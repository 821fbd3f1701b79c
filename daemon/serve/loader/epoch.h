/*
 * Epochs: the plans of a loader, one for each (epoch, world, and what other world sizes had
 * before), shared by the ranks that read it.
 *
 * Reaching a step far into a torch-ordered epoch takes as many swaps as lie before it. What would
 * hold the loop for longer than a millisecond is done in libuv's thread pool, and batches of tokens
 * are worked out there, a whole epoch at once; meanwhile the plan is busy and nobody else may use
 * it. What it takes stays charged until no thread is at it any more, also if nobody wants it.
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
 * The plan for `params`, made if it is new; counted: epoch_unref(). Lists are told apart by their
 * addresses: those of one set's epochs are the loader spec's. `lengths` are those of
 * params->tokens; NULL: none. Returns 0 or -errno; -EDQUOT, and -ENOMEM of charge_take(), with
 * `err`.
 */
int _nodiscard_ epoch_ref(struct epoch_set *set, const struct plan_params *params,
                          struct length_table *lengths, struct epoch **ret, struct dl_error *err);
void epoch_unref(struct epoch_set *set, struct epoch *epoch);

const struct plan *epoch_plan(const struct epoch *epoch);

/*
 * Has the plan worked out (plan_prepare()). 0: it is; 1: a thread is at it, and `done` of the
 * caller who began that is called from the loop afterwards, unless the epoch was given up; -ENOMEM:
 * it cannot be. Before it is, nothing else may be asked of the plan.
 */
int _nodiscard_ epoch_work_out(struct epoch *epoch, void (*done)(void *owner), void *owner);

/*
 * Makes ready for epoch_step(rank, step). True: it is. False: a thread is at it, and `done` of
 * the caller who began that is called from the loop afterwards, unless the epoch was given up.
 */
bool _nodiscard_ epoch_prepare(struct epoch *epoch, uint64_t rank, uint64_t step,
                               void (*done)(void *owner), void *owner);

/* plan_step() of a prepared step. */
size_t epoch_step(struct epoch *epoch, uint64_t rank, uint64_t step, uint64_t *indices);

#endif
