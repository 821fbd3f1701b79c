#include "daemon/data/local_plan.h"

#include "daemon/cache/disk_cache.h"
#include "daemon/data/lengths_take.h"

#include <assert.h>
#include <errno.h>

void local_plans_deinit(struct local_plans *plans)
{
    assert(!plans->last);
    free(plans->lengths);
}

/* Takes the lengths, if batches of tokens need them. */
static int local_plan_local_plans_measure(struct local_plans *plans, struct dataset *ds,
                                          struct dl_error *err)
{
    char dir[PATH_MAX];

    if (!plans->spec->batch.tokens || plans->lengths)
        return 0;
    disk_cache_dir(dir);
    return lengths_take(ds, plans->spec, plans->env, dir, &plans->lengths, err);
}

static int local_plan_refuse(const struct dl_spec *spec, const struct plan_params *params, int r,
                             struct dl_error *err)
{
    if (r == -ENOMEM && spec->order == ORDER_TORCH)
        return dl_error_set(err, ENOMEM, "sampler.order",
                            "torch needs memory for each sample of an epoch, more than the "
                            "system has; write order: native");
    return dl_error_set(err, -r, "dataset", "%llu samples for %llu ranks cannot be planned: %s",
                        (ull)params->length, (ull)params->world, strerror(-r));
}

static int local_plan_make(struct local_plans *plans, struct dataset *ds,
                           const struct local_plan_key *key, struct local_plan **ret,
                           struct dl_error *err)
{
    struct plan_params params = plan_params_of(plans->spec, ds->length);
    struct local_plan *plan = calloc(1, sizeof *plan);
    uint64_t count;
    int r;

    if (!plan)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    plan->key = *key;
    params.mix.sizes = ds->sizes;
    plan_set_changes(&params, key->changes);
    params.epoch = key->epoch;
    params.world = key->world;
    params.before = key->before;
    params.tokens.lengths = plans->lengths;
    r = plan_check_changes(&params, err);
    if (r == 0 && plan_is_mix(&params))
        r = plan_mix_count(&params.mix, params.epoch, &count, err);
    if (r < 0) {
        free(plan);
        return r;
    }
    r = plan_new(&params, &plan->plan);
    if (r == 0)
        r = plan_prepare(plan->plan);
    if (r == 0) {
        mix_changes_ref(plan->key.changes);
        *ret = plan;
        return 0;
    }
    plan_free(plan->plan);
    free(plan);
    return local_plan_refuse(plans->spec, &params, r, err);
}

static bool local_plan_same_key(const struct local_plan_key *a, const struct local_plan_key *b)
{
    return a->epoch == b->epoch && a->world == b->world && history_equal(&a->before, &b->before) &&
           mix_changes_equal(a->changes, b->changes);
}

int local_plan_ref(struct local_plans *plans, struct dataset *ds, const struct local_plan_key *key,
                   struct local_plan **ret, struct dl_error *err)
{
    int r = spec_check_world(plans->spec, key->world, err);

    if (r == 0)
        r = spec_check_history(plans->spec, &key->before, err);
    if (r == 0)
        r = local_plan_local_plans_measure(plans, ds, err);
    if (r == 0 && (!plans->last || !local_plan_same_key(&plans->last->key, key)))
        r = local_plan_make(plans, ds, key, &plans->last, err);
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
    mix_changes_unref(plan->key.changes);
    free(plan);
}
