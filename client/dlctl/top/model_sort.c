/* The order of a model's rows. */
#include "client/dlctl/top/model.h"

#include <assert.h>
#include <math.h>

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = {
        [TOP_BY_NAME] = "name", [TOP_BY_RATE] = "rate",     [TOP_BY_WAIT] = "wait",
        [TOP_BY_CPU] = "cpu",   [TOP_BY_MEMORY] = "memory", [TOP_BY_ERRORS] = "errors",
    };

    return names[sort];
}

static int compare_counts(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_names(const struct top_place *a, const struct top_place *b)
{
    int order = strcmp(a->loader, b->loader);

    if (order == 0)
        order = compare_counts(a->uid, b->uid);
    if (order == 0)
        order = strcmp(a->job, b->job);
    if (order == 0)
        order = compare_counts(a->epoch, b->epoch);
    return order ? order : compare_counts(a->number, b->number);
}

/* What is idle, or not known, comes last, whichever way. */
static int compare(const struct top_place *a, const struct top_place *b, int sign)
{
    if (a->idle != b->idle)
        return a->idle ? 1 : -1;
    if (isnan(a->by) != isnan(b->by))
        return isnan(a->by) ? 1 : -1;
    if (!isnan(a->by) && a->by != b->by)
        return a->by > b->by ? -sign : sign;
    return sign * compare_names(a, b);
}

/* Each kind of row begins with its place. */
static int compare_rows(const void *a, const void *b)
{
    return compare(a, b, 1);
}

static int compare_rows_back(const void *a, const void *b)
{
    return compare(a, b, -1);
}

static double by_loader(const struct top_loader *l, enum top_sort sort)
{
    switch (sort) {
    case TOP_BY_RATE:
        return l->batches_per_s;
    case TOP_BY_WAIT:
        return l->wait;
    case TOP_BY_CPU:
        return l->cpu;
    case TOP_BY_MEMORY:
        return (double)l->memory;
    case TOP_BY_ERRORS:
        return (double)l->faults + (double)l->bad + (double)l->retries;
    default:
        return NAN;
    }
}

static double by_rank(const struct top_rank *r, enum top_sort sort)
{
    return sort == TOP_BY_RATE ? r->steps_per_s : sort == TOP_BY_WAIT ? r->wait : NAN;
}

static double by_worker(const struct top_worker *w, enum top_sort sort)
{
    switch (sort) {
    case TOP_BY_RATE:
        return w->tasks_per_s;
    case TOP_BY_CPU:
        return w->cpu;
    case TOP_BY_MEMORY:
        return w->memory;
    case TOP_BY_ERRORS:
        return (double)w->restarts;
    default:
        return NAN;
    }
}

static_assert(offsetof(struct top_loader, at) == 0, "rows are compared by what they begin with");
static_assert(offsetof(struct top_epoch, at) == 0, "rows are compared by what they begin with");
static_assert(offsetof(struct top_rank, at) == 0, "rows are compared by what they begin with");
static_assert(offsetof(struct top_worker, at) == 0, "rows are compared by what they begin with");

void top_model_sort(struct top_model *m, enum top_sort sort, bool reverse)
{
    int (*order)(const void *, const void *) = reverse ? compare_rows_back : compare_rows;

    for (uint32_t i = 0; i < m->n_loaders; i++)
        m->loaders[i].at.by = by_loader(&m->loaders[i], sort);
    for (uint32_t i = 0; i < m->n_epochs; i++)
        m->epochs[i].at.by = sort == TOP_BY_RATE ? m->epochs[i].steps_per_s : NAN;
    for (uint32_t i = 0; i < m->n_ranks; i++)
        m->ranks[i].at.by = by_rank(&m->ranks[i], sort);
    for (uint32_t i = 0; i < m->n_workers; i++)
        m->workers[i].at.by = by_worker(&m->workers[i], sort);
    qsort(m->loaders, m->n_loaders, sizeof *m->loaders, order);
    qsort(m->epochs, m->n_epochs, sizeof *m->epochs, order);
    qsort(m->ranks, m->n_ranks, sizeof *m->ranks, order);
    qsort(m->workers, m->n_workers, sizeof *m->workers, order);
}
