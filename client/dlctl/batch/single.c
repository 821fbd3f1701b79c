/* What `peek` and `replay` share: see single.h. */
#include "client/dlctl/batch/single.h"

#include "client/dlctl/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Samples that are fed at most, unless they are named: batch.size can be far more than it means,
 * where a batch sampler gives batches of its own sizes. */
enum { FEED_DEFAULT = 64 };

/* The daemon remembers the jobs that it has seen: these are few. */
enum { JOBS = 16 };

void single_deinit(struct single *s)
{
    dl_epoch_end(s->epoch);
    dl_loader_close(s->loader);
    dl_client_close(s->client);
}

/* ---- the samples, where the client is the sampler ------------------------------------------- */

/* The samples that --indices names, or the first ones. *ret is owned by the caller. */
static int choose(const struct single *s, uint64_t **ret, size_t *ret_n)
{
    const char *list = s->o->indices;
    uint64_t *indices, index;
    size_t n = 0;

    if (!list) {
        uint64_t length = dl_loader_length(s->loader);

        n = max_u64(dl_loader_batch_size(s->loader), 1);
        n = min_u64(min_u64(n, FEED_DEFAULT), length == DL_UNKNOWN ? FEED_DEFAULT : length);
    }
    for (const char *rest = list; rest && options_next_index(&rest, &index);)
        n++;
    indices = calloc(max_u64(n, 1), sizeof *indices);
    if (!indices)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (!list || !options_next_index(&list, &indices[i]))
            indices[i] = i;
    *ret = indices;
    *ret_n = n;
    return 0;
}

static int feed(struct single *s)
{
    _cleanup_free_ uint64_t *indices = NULL;
    size_t n = 0;
    int r = choose(s, &indices, &n);

    if (r < 0)
        return r;
    if (n > 0)
        r = dl_epoch_feed_batch(s->epoch, indices, n);
    s->fed = true;
    return r < 0 ? r : dl_epoch_feed_end(s->epoch);
}

/* ---- the batch ------------------------------------------------------------------------------ */

/* Under that name of a job. */
static int start_as(struct single *s, const char *job)
{
    struct dl_epoch_options options = {.rank = (uint32_t)s->o->rank,
                                       .world = (uint32_t)s->o->world,
                                       .credits = 1,
                                       .state = s->state,
                                       .state_len = s->state_len,
                                       .job = job};

    if (!s->state) {
        options.epoch = s->o->epoch;
        options.step = s->o->step;
    }
    return dl_epoch_start(s->loader, &options, &s->epoch);
}

/*
 * Of a job of its own: ranks of others may be in other epochs, and those that are dispatched
 * together do not wait for this one. Where another dlctl has that name, the next is tried.
 */
static int start(struct single *s)
{
    int r = -EBUSY;

    if (!s->state && s->o->epoch == DL_RESUME) /* that is no epoch, and is refused without a job */
        return start_as(s, NULL);
    for (int i = 0; i < JOBS && (r == -EBUSY || r == -EINVAL); i++) {
        char job[32];

        snprintf(job, sizeof job, "dlctl-%d", ((int)getpid() + i) % JOBS);
        r = start_as(s, job);
    }
    return r;
}

/* Only an epoch that is fed says -ENODATA. */
static int next(struct single *s)
{
    int r = s->o->indices ? feed(s) : 0;

    if (r < 0)
        return r;
    r = dl_epoch_next(s->epoch, -1, &s->batch);
    if (r == -ENODATA && !s->fed) {
        if (!s->chooses)
            return r;
        r = feed(s);
        if (r == 0)
            r = dl_epoch_next(s->epoch, -1, &s->batch);
    }
    return r;
}

int single_load(struct single *s)
{
    const char *warning;
    int r = start(s);

    if (r == 0)
        r = next(s);
    warning = s->epoch ? dl_epoch_warning(s->epoch) : NULL;
    if (warning)
        report_warning(s->o, warning);
    return r;
}

int single_no_such_step(const struct single *s)
{
    uint64_t steps = s->fed ? 0 : dl_epoch_steps(s->epoch);
    struct dl_error err = {0};

    if (steps == 0)
        dl_error_set(&err, ENODATA, "--step", "%" PRIu64 ": there is no batch: the %s is empty",
                     s->o->step, s->fed ? "dataset" : "epoch");
    else if (steps == DL_UNKNOWN)
        dl_error_set(&err, ENODATA, "--step", "%" PRIu64 ": the epoch ended before it", s->o->step);
    else
        dl_error_set(&err, ENODATA, "--step",
                     "%" PRIu64 ": the epoch has %" PRIu64 " steps for this rank, 0 to %" PRIu64,
                     s->o->step, steps, steps - 1);
    return report_error(s->o, &err);
}
