#include "daemon/serve/epoch.h"

#include "daemon/serve/log.h"

#include <assert.h>

#include <utlist.h>

/* Samples that may be shuffled on the loop: a fifth of a millisecond, more in huge datasets. */
enum { BACKLOG_ON_LOOP = 20000 };

struct epoch {
    struct epoch *prev, *next; /* epoch_set.epochs */
    struct plan_params params;
    struct plan *plan; /* owned */
    uint32_t refs;
    bool busy; /* a thread uses the plan */
    uv_work_t work;
    uint64_t rank;
    uint64_t step;
    uint64_t *scratch; /* owned while busy: one batch of indices */
    void (*done)(void *owner);
    void *owner;
};

/* The lists are the spec's, the same ones for all epochs of a loader. */
static bool same(const struct plan_params *a, const struct plan_params *b)
{
    return a->length == b->length && a->order == b->order && a->seed == b->seed &&
           a->epoch == b->epoch && a->world == b->world && a->batch_size == b->batch_size &&
           a->drop_last == b->drop_last && a->even == b->even && a->num_samples == b->num_samples &&
           a->replacement == b->replacement && a->indices == b->indices &&
           a->n_indices == b->n_indices && a->weights == b->weights;
}

int epoch_ref(struct epoch_set *set, const struct plan_params *params, struct epoch **ret)
{
    struct epoch *epoch;

    DL_FOREACH (set->epochs, epoch) {
        if (same(&epoch->params, params)) {
            epoch->refs++;
            *ret = epoch;
            return 0;
        }
    }
    epoch = must_alloc(sizeof *epoch);
    epoch->params = *params;
    epoch->refs = 1;
    int r = plan_new(params, &epoch->plan);
    if (r < 0) {
        free(epoch);
        return r;
    }
    DL_APPEND(set->epochs, epoch);
    *ret = epoch;
    return 0;
}

static void destroy(struct epoch *epoch)
{
    plan_free(epoch->plan);
    free(epoch->scratch);
    free(epoch);
}

void epoch_unref(struct epoch_set *set, struct epoch *epoch)
{
    assert(epoch->refs > 0);
    if (--epoch->refs > 0)
        return;
    DL_DELETE(set->epochs, epoch);
    if (!epoch->busy) /* else when the thread is done */
        destroy(epoch);
}

const struct plan *epoch_plan(const struct epoch *epoch)
{
    return epoch->plan;
}

const struct plan_params *epoch_params(const struct epoch *epoch)
{
    return &epoch->params;
}

static void work(uv_work_t *request)
{
    struct epoch *epoch = container_of(request, struct epoch, work);

    plan_step(epoch->plan, epoch->rank, epoch->step, epoch->scratch);
}

static void after_work(uv_work_t *request, int status)
{
    struct epoch *epoch = container_of(request, struct epoch, work);

    (void)status; /* nobody cancels it */
    epoch->busy = false;
    if (epoch->refs == 0)
        destroy(epoch);
    else
        epoch->done(epoch->owner);
}

bool epoch_prepare(struct epoch *epoch, uv_loop_t *loop, uint64_t rank, uint64_t step,
                   void (*done)(void *owner), void *owner)
{
    if (epoch->busy)
        return false;
    if (plan_backlog(epoch->plan, rank, step) <= BACKLOG_ON_LOOP)
        return true;
    if (!epoch->scratch)
        epoch->scratch = must_alloc(max_u64(epoch->params.batch_size, 1) * sizeof(uint64_t));
    epoch->rank = rank;
    epoch->step = step;
    epoch->done = done;
    epoch->owner = owner;
    epoch->busy = uv_queue_work(loop, &epoch->work, work, after_work) == 0;
    return !epoch->busy;
}

size_t epoch_step(struct epoch *epoch, uint64_t rank, uint64_t step, uint64_t *indices)
{
    assert(!epoch->busy);
    return plan_step(epoch->plan, rank, step, indices);
}
