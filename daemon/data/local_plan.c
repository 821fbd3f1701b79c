#include "daemon/data/local_plan.h"

#include "daemon/cache/lengths_cache.h"
#include "daemon/data/lengths_take.h"

#include <assert.h>
#include <errno.h>

void local_plans_deinit(struct local_plans *plans)
{
    assert(!plans->last);
    free(plans->lengths);
}

int local_plans_measure(struct local_plans *plans, struct dataset *ds,
                        const struct lengths_progress *progress, struct dl_error *err)
{
    char dir[PATH_MAX];

    if (!plans->spec->batch.tokens || plans->lengths)
        return 0;
    lengths_cache_dir(dir);
    return lengths_take(ds, plans->spec, plans->env, dir, progress, &plans->lengths, err);
}

static int refuse(const struct dl_spec *spec, const struct plan_params *params, int r,
                  struct dl_error *err)
{
    if (r == -ENOMEM && spec->order == ORDER_TORCH)
        return dl_error_set(err, ENOMEM, "sampler.order",
                            "torch takes memory for each sample of an epoch, more than there is; "
                            "write order: native");
    return dl_error_set(err, -r, "dataset", "%llu samples for %llu ranks cannot be planned: %s",
                        (unsigned long long)params->length, (unsigned long long)params->world,
                        strerror(-r));
}

static int make(struct local_plans *plans, struct dataset *ds, uint64_t epoch, uint32_t world,
                struct local_plan **ret, struct dl_error *err)
{
    struct plan_params params = plan_params_of(plans->spec, ds->length);
    struct local_plan *plan = calloc(1, sizeof *plan);
    int r;

    if (!plan)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    *plan = (struct local_plan){.epoch = epoch, .world = world};
    params.epoch = epoch;
    params.world = world;
    params.tokens.lengths = plans->lengths;
    r = plan_new(&params, &plan->plan);
    if (r == 0)
        r = plan_prepare(plan->plan);
    if (r == 0) {
        *ret = plan;
        return 0;
    }
    plan_free(plan->plan);
    free(plan);
    return refuse(plans->spec, &params, r, err);
}

int local_plan_ref(struct local_plans *plans, struct dataset *ds, uint64_t epoch, uint32_t world,
                   struct local_plan **ret, struct dl_error *err)
{
    struct local_plan *last = plans->last;
    int r = spec_check_world(plans->spec, world, err);

    if (r == 0)
        r = local_plans_measure(plans, ds, NULL, err);

    if (r == 0 && (!last || last->epoch != epoch || last->world != world))
        r = make(plans, ds, epoch, world, &plans->last, err);
    if (r < 0)
        return r;
    plans->last->refs++;
    *ret = plans->last;
    return 0;
}

void local_plan_unref(struct local_plans *plans, struct local_plan *plan)
{
    if (!plan || --plan->refs > 0)
        return;
    if (plans->last == plan)
        plans->last = NULL;
    plan_free(plan->plan);
    free(plan);
}
