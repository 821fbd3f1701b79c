/*
 * The plans of a dataset that is loaded in this process (local.h): made for an epoch, and shared by
 * the ranks, for which an order of its own each would take memory. For batches of tokens the
 * samples' lengths are taken before the first one.
 */
#ifndef DL_LOCAL_PLAN_H
#define DL_LOCAL_PLAN_H

#include "daemon/data/base/dataset.h"
#include "daemon/plan/plan.h"

struct local_plan_key {
    uint64_t epoch;
    uint32_t world;
    struct history before;
    struct mix_changes *changes; /* of a mixture's weights; NULL: none */
};

struct local_plan {
    struct plan *plan;         /* owned */
    struct local_plan_key key; /* its changes are counted */
    uint32_t refs;
};

/* Zero but for what is borrowed. */
struct local_plans {
    const struct dl_spec *spec; /* borrowed */
    const struct data_env *env; /* borrowed */
    struct local_plan *last;    /* borrowed from those who have it */
    uint32_t *lengths;          /* owned; NULL until they are needed */
};

void local_plans_deinit(struct local_plans *plans); /* all plans were released */

/* Counted. May take as long as the dataset's lengths do. */
int _nodiscard_ local_plan_ref(struct local_plans *plans, struct dataset *ds,
                               const struct local_plan_key *key, struct local_plan **ret,
                               struct dl_error *err);
void local_plan_unref(struct local_plans *plans, struct local_plan *plan); /* NULL is fine */

#endif
