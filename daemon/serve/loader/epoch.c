#include "daemon/serve/loader/epoch.h"

#include "daemon/base/memory.h"
#include "daemon/plan/plan_lazy.h"

#include <assert.h>

#include <utlist.h>

/* Samples that may be shuffled on the loop: a fifth of a millisecond, more in huge datasets. */
enum { BACKLOG_ON_LOOP = 20000 };

struct epoch {
    struct epoch *prev, *next; /* epoch_set.epochs */
    struct plan_params params;
    struct plan *plan;            /* owned */
    struct length_table *lengths; /* counted; may be NULL */
    struct mix_changes *changes;  /* counted; those of `params` */
    uint32_t refs;
    struct charge charge; /* returned when no thread is at the plan any more */
    bool busy;            /* a thread uses the plan */
    int worked_out;       /* 1: not yet; else the result of plan_prepare() */
    struct crew *crew;    /* borrowed */
    uint32_t uid;
    struct crew_job job;
    uint64_t rank;
    uint64_t step;
    uint64_t *scratch; /* owned while busy: one batch of indices */
    void (*done)(void *owner);
    void *owner;
};

/* The remedy if an order is too large. */
static const char *epoch_remedy(const struct plan_params *params)
{
    if (params->tokens.tokens == 0 && params->order == PLAN_TORCH)
        return "write sampler.order: native";
    return "take a subset or a split of the dataset";
}

int epoch_ref(struct epoch_set *set, const struct plan_params *params, struct length_table *lengths,
              struct epoch **ret, struct dl_error *err)
{
    struct epoch *epoch;

    DL_FOREACH (set->epochs, epoch) {
        if (plan_params_equal(&epoch->params, params)) {
            epoch->refs++;
            *ret = epoch;
            return 0;
        }
    }
    epoch = must_alloc(sizeof *epoch);
    epoch->params = *params;
    epoch->crew = set->crew;
    epoch->uid = set->uid;
    epoch->refs = 1;
    epoch->worked_out = params->tokens.tokens != 0;
    int r = plan_new(params, &epoch->plan);
    if (r == 0)
        r = charge_take(&epoch->charge, &set->payer, plan_bytes(epoch->plan), epoch_remedy(params),
                        err);
    if (r < 0) {
        plan_free(epoch->plan);
        free(epoch);
        return r;
    }
    if (epoch->worked_out == 0) /* it comes bit by bit, with the steps */
        charge_settle(&epoch->charge);
    epoch->lengths = length_table_ref(lengths);
    epoch->changes = mix_changes_ref(plan_changes(params));
    DL_APPEND(set->epochs, epoch);
    *ret = epoch;
    return 0;
}

static void epoch_destroy(struct epoch *epoch)
{
    charge_return(&epoch->charge);
    plan_free(epoch->plan);
    length_table_unref(epoch->lengths);
    mix_changes_unref(epoch->changes);
    free(epoch->scratch);
    free(epoch);
}

void epoch_unref(struct epoch_set *set, struct epoch *epoch)
{
    assert(epoch->refs > 0);
    if (--epoch->refs > 0)
        return;
    DL_DELETE(set->epochs, epoch);
    if (!epoch->busy || crew_cancel(&epoch->job)) /* else when the thread is done */
        epoch_destroy(epoch);
}

const struct plan *epoch_plan(const struct epoch *epoch)
{
    return epoch->plan;
}

static void epoch_thread_work_out(struct crew_job *job)
{
    struct epoch *epoch = container_of(job, struct epoch, job);

    epoch->worked_out =
        plan_is_lazy(epoch->plan) ? plan_begin(epoch->plan) : plan_prepare(epoch->plan);
}

static void epoch_thread_step(struct crew_job *job)
{
    struct epoch *epoch = container_of(job, struct epoch, job);

    plan_step(epoch->plan, epoch->rank, epoch->step, epoch->scratch);
}

static void epoch_thread_done(struct crew_job *job)
{
    struct epoch *epoch = container_of(job, struct epoch, job);

    epoch->busy = false;
    if (epoch->refs == 0) {
        epoch_destroy(epoch);
        return;
    }
    charge_settle(&epoch->charge);
    charge_shrink(&epoch->charge, plan_bytes(epoch->plan)); /* of what it took to work it out */
    epoch->done(epoch->owner);
}

static void epoch_begin(struct epoch *epoch, void (*what)(struct crew_job *job),
                        void (*done)(void *owner), void *owner)
{
    epoch->done = done;
    epoch->owner = owner;
    epoch->busy = true;
    crew_start(epoch->crew, epoch->uid, &epoch->job, what, epoch_thread_done);
}

int epoch_work_out(struct epoch *epoch, void (*done)(void *owner), void *owner)
{
    if (epoch->busy)
        return 1;
    if (epoch->worked_out == 1)
        epoch_begin(epoch, epoch_thread_work_out, done, owner);
    return epoch->busy ? 1 : epoch->worked_out;
}

size_t epoch_window(struct epoch *epoch, uint64_t *ret)
{
    assert(!epoch->busy && epoch->worked_out == 0);
    return plan_window(epoch->plan, ret);
}

int epoch_cut_window(struct epoch *epoch)
{
    assert(!epoch->busy && epoch->worked_out == 0);
    int r = plan_cut_window(epoch->plan);

    if (plan_is_whole(epoch->plan))
        charge_shrink(&epoch->charge, plan_bytes(epoch->plan));
    return r;
}

bool epoch_is_begun(const struct epoch *epoch)
{
    return !epoch->busy && epoch->worked_out == 0;
}

int epoch_change(struct epoch *epoch, struct mix_changes *changes)
{
    int r = 0;

    assert(epoch_is_begun(epoch) && plan_is_lazy(epoch->plan));
    if (!mix_changes_equal(plan_changes_now(epoch->plan), changes))
        r = plan_change(epoch->plan, changes);
    if (r < 0)
        return r;
    mix_changes_ref(changes);
    mix_changes_unref(epoch->changes);
    epoch->changes = changes;
    plan_set_changes(&epoch->params, changes);
    return 0;
}

bool epoch_is_near(const struct epoch *epoch, uint64_t rank, uint64_t step)
{
    return !epoch->busy && epoch->worked_out == 0 &&
           plan_backlog(epoch->plan, rank, step) <= BACKLOG_ON_LOOP;
}

bool epoch_prepare(struct epoch *epoch, uint64_t rank, uint64_t step, void (*done)(void *owner),
                   void *owner)
{
    if (epoch->busy)
        return false;
    assert(epoch->worked_out == 0);
    if (epoch_is_near(epoch, rank, step))
        return true;
    if (!epoch->scratch)
        epoch->scratch = must_alloc(plan_most(epoch->plan) * sizeof *epoch->scratch);
    epoch->rank = rank;
    epoch->step = step;
    epoch_begin(epoch, epoch_thread_step, done, owner);
    return false;
}

size_t epoch_step(struct epoch *epoch, uint64_t rank, uint64_t step, uint64_t *indices)
{
    assert(!epoch->busy);
    return plan_step(epoch->plan, rank, step, indices);
}
