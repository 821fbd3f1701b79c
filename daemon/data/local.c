#include "daemon/data/local.h"

#include "daemon/data/files/guard.h"
#include "daemon/data/kinds/index_files.h"
#include "daemon/data/local_plan.h"
#include "proto/shared/words.h"
#include "proto/slot_cut.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

struct local {
    const struct dl_spec *spec; /* borrowed */
    struct local_plans plans;
    struct data_env *envs;     /* owned, n of them */
    struct fetcher **fetchers; /* owned, n of them: one, or of an iterable dataset one for each
                                  worker that there would be */
    uint32_t n;
    struct index_files index_files; /* while datasets are opened */
    struct guard guard;
    struct timespec looked; /* when its files were looked at */
    uint32_t passes;        /* ever */
    struct quarantine quarantine;
    struct bad_list bad; /* of the batch made last */
    char warning[DL_ERROR_MESSAGE_MAX];
};

/* A step that was fed. */
struct fed {
    struct fed *next;
    size_t n;
    uint64_t indices[];
};

struct local_pass {
    struct local *local; /* borrowed */
    struct local_where where;
    struct local_plan *plan; /* counted; NULL: an iterable dataset, or the client is the sampler */
    uint64_t *indices;       /* owned; of one step of the plan */
    uint64_t *ends;          /* owned; of an iterable dataset: how many rounds each replica has */
    uint64_t step;           /* the next one */
    uint64_t steps;          /* or DATASET_LENGTH_UNKNOWN */
    uint64_t samples;
    uint64_t made;     /* tasks, ever */
    uint32_t repeated; /* of the last step's samples */
    struct fed *fed, **last_fed;
    uint32_t stream;
    uint32_t ended; /* replicas */
    bool fed_all;
    uint8_t *state; /* owned; where.state */
};

/* ---- the dataset ---------------------------------------------------------------------------- */

static void local_freep(struct local **local)
{
    *local = local_free(*local);
}

static int local_add_fetcher(struct local *local, const struct data_env *env, uint32_t workers,
                             struct dl_error *err)
{
    struct data_env *own = &local->envs[local->n];

    *own = *env;
    own->worker = local->n;
    own->guard = &local->guard;
    own->index_files = &local->index_files;
    own->workers = local->spec->workers; /* 0: no worker, and no worker's init */
    own->seed = dataset_replica_seed(local->spec->seed, UINT64_MAX, 0, workers, local->n);
    int r = fetcher_new(local->spec, own, &local->fetchers[local->n], err);
    if (r == 0)
        local->n++;
    return r;
}

static int local_check_spec(const struct local *local, struct dl_error *err)
{
    int r = spec_check_share(local->spec, local_length(local), err);
    if (r < 0)
        return r;
    if (local_is_iterable(local))
        return spec_check_iterable(local->spec, err);
    return spec_check_length(local->spec, local_length(local), err);
}

int local_new(const struct dl_spec *spec, const struct data_env *env, struct local **ret,
              struct dl_error *err)
{
    uint32_t workers = (uint32_t)max_u64(spec->workers, 1);
    _cleanup_(local_freep) struct local *local = calloc(1, sizeof *local);

    if (!local)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    local->spec = spec;
    local->envs = calloc(workers, sizeof *local->envs);
    local->fetchers = calloc(workers, sizeof(struct fetcher *));
    if (!local->envs || !local->fetchers)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    index_files_begin_own(&local->index_files, &spec->dataset);
    int r = local_add_fetcher(local, env, workers, err);
    if (r == 0)
        r = local_check_spec(local, err);
    while (r == 0 && local_is_iterable(local) && local->n < workers)
        r = local_add_fetcher(local, env, workers, err);
    index_files_end(&local->index_files);
    if (r < 0)
        return r;
    local->quarantine.limit = spec_max_bad(spec, local_length(local));
    local->plans.spec = spec;
    local->plans.env = &local->envs[0];
    *ret = steal_ptr(local);
    return 0;
}

struct local *local_free(struct local *local)
{
    if (!local)
        return NULL;
    for (uint32_t i = 0; i < local->n; i++)
        fetcher_free(local->fetchers[i]);
    guard_deinit(&local->guard);
    local_plans_deinit(&local->plans);
    quarantine_deinit(&local->quarantine);
    bad_list_deinit(&local->bad);
    free(local->fetchers);
    free(local->envs);
    free(local);
    return NULL;
}

bool local_is_iterable(const struct local *local)
{
    return fetcher_is_iterable(local->fetchers[0]);
}

uint64_t local_length(const struct local *local)
{
    return fetcher_length(local->fetchers[0]);
}

bool local_can_skip(const struct local *local)
{
    return fetcher_dataset(local->fetchers[0])->can_skip;
}

uint64_t local_content(const struct local *local)
{
    return fetcher_dataset(local->fetchers[0])->content;
}

uint64_t local_slot_bytes(const struct local *local)
{
    return fetcher_slot_bytes(local->fetchers[0]);
}

const struct quarantine *local_quarantine(const struct local *local)
{
    return &local->quarantine;
}

const char *local_warning(const struct local *local)
{
    return local->warning[0] ? local->warning : NULL;
}

/* ---- a pass --------------------------------------------------------------------------------- */

static int local_take_plan(struct local_pass *pass, struct dl_error *err)
{
    const struct local_where *where = &pass->where;
    struct local_plan_key key = {where->epoch, where->world, where->before, where->changes};
    int r = local_plan_ref(&pass->local->plans, fetcher_dataset(pass->local->fetchers[0]), &key,
                           &pass->plan, err);

    if (r < 0)
        return r;
    pass->steps = plan_steps(pass->plan->plan, where->rank);
    pass->samples = plan_samples(pass->plan->plan, where->rank);
    pass->indices = calloc(plan_most(pass->plan->plan), sizeof *pass->indices);
    return pass->indices ? 0 : dl_error_set(err, ENOMEM, "batch", "out of memory");
}

static int local_prepare_replicas(struct local_pass *pass, struct dl_error *err)
{
    uint64_t length = local_length(pass->local);
    int r = spec_check_world(pass->local->spec, pass->where.world, err);

    if (r < 0)
        return r;
    pass->ends = calloc(pass->local->n, sizeof *pass->ends);
    if (!pass->ends)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    for (uint32_t i = 0; i < pass->local->n; i++)
        pass->ends[i] = UINT64_MAX;
    if (length == DATASET_LENGTH_UNKNOWN)
        return 0;
    struct plan_params params = plan_params_of(pass->local->spec, length);
    params.world = pass->where.world;
    struct plan_extent extent = plan_estimate(&params, pass->where.rank);
    pass->samples = extent.samples;
    pass->steps = extent.steps;
    return 0;
}

static void local_pass_freep(struct local_pass **pass)
{
    *pass = local_end(*pass);
}

int local_start(struct local *local, const struct local_where *where, struct local_pass **ret,
                struct dl_error *err)
{
    _cleanup_(local_pass_freep) struct local_pass *pass = calloc(1, sizeof *pass);
    int r = 0;

    if (!pass)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    if (where->world == 0 || where->rank >= where->world)
        return dl_error_set(err, EINVAL, "rank", "%u is not below the world size %u", where->rank,
                            where->world);
    pass->local = local;
    pass->where = *where;
    if (where->state.len > 0) {
        pass->state = malloc(where->state.len);
        if (!pass->state)
            return dl_error_set(err, ENOMEM, "", "out of memory");
        memcpy(pass->state, where->state.data, where->state.len);
        pass->where.state.data = pass->state;
    }
    pass->step = where->step;
    pass->stream = ++local->passes;
    pass->last_fed = &pass->fed;
    pass->steps = pass->samples = DATASET_LENGTH_UNKNOWN;
    if (where->before.n > 0 && (local_is_iterable(local) || local->spec->sampler == SAMPLER_CLIENT))
        return dl_error_set(err, EINVAL, "before",
                            "another number of ranks cannot continue an iterable dataset or a "
                            "sampler of kind client");
    if (local_is_iterable(local))
        r = local_prepare_replicas(pass, err);
    else if (local->spec->sampler != SAMPLER_CLIENT)
        r = local_take_plan(pass, err);
    if (r < 0)
        return r;
    if (pass->plan && where->step > pass->steps)
        return dl_error_set(err, EINVAL, "step",
                            "step %llu is past the end: rank %u of %u has %llu steps",
                            (ull)where->step, where->rank, where->world, (ull)pass->steps);
    *ret = steal_ptr(pass);
    return 0;
}

static void local_drop_fed(struct local_pass *pass)
{
    struct fed *fed = pass->fed;

    pass->fed = fed->next;
    if (!pass->fed)
        pass->last_fed = &pass->fed;
    free(fed);
}

struct local_pass *local_end(struct local_pass *pass)
{
    if (!pass)
        return NULL;
    for (uint32_t i = 0; pass->ends && i < pass->local->n; i++)
        fetcher_forget(pass->local->fetchers[i], pass->stream);
    while (pass->fed)
        local_drop_fed(pass);
    local_plan_unref(&pass->local->plans, pass->plan);
    free(pass->indices);
    free(pass->ends);
    free(pass->state);
    free(pass);
    return NULL;
}

uint64_t local_steps(const struct local_pass *pass)
{
    return pass->steps;
}

uint64_t local_samples(const struct local_pass *pass)
{
    return pass->samples;
}

int local_feed(struct local_pass *pass, const uint64_t *indices, size_t n, struct dl_error *err)
{
    uint64_t most = max_u64(pass->local->spec->batch_size, 1);

    if (pass->plan || pass->ends || pass->fed_all)
        return dl_error_set(err, EINVAL, "sampler.kind",
                            pass->fed_all ? "the order has already ended"
                                          : "only sampler.kind client can be fed");
    if (n == 0 || n > most)
        return dl_error_set(err, EINVAL, "batch.size", "%zu indices for a step of 1 to %llu", n,
                            (ull)most);
    struct fed *fed = malloc(sizeof *fed + n * sizeof *indices);
    if (!fed)
        return dl_error_set(err, ENOMEM, "", "out of memory for indices");
    fed->next = NULL;
    fed->n = n;
    memcpy(fed->indices, indices, n * sizeof *indices);
    *pass->last_fed = fed;
    pass->last_fed = &fed->next;
    return 0;
}

void local_feed_end(struct local_pass *pass)
{
    pass->fed_all = true;
}

/* ---- batches -------------------------------------------------------------------------------- */

/*
 * Whether a batch of the rank's samples alone is another than its rows of the batch of all ranks:
 * what it is padded to depends on the others, and what plugins make of it may.
 */
static bool local_needs_all_ranks(const struct dl_spec *spec)
{
    const struct spec_collate *collate = &spec->collate;

    return spec->shard == SHARD_DISPATCH && collate->kind != COLLATE_DEFAULT &&
           !(collate->kind == COLLATE_PAD && collate->length);
}

/* The step's indices, as many as there are. */
static uint32_t local_put_indices(struct local_pass *pass)
{
    const struct local_where *where = &pass->where;
    uint64_t rank = local_needs_all_ranks(pass->local->spec) ? PLAN_ALL : where->rank;

    pass->repeated = (uint32_t)plan_repeated(pass->plan->plan, where->rank, pass->step);
    return (uint32_t)plan_step(pass->plan->plan, rank, pass->step, pass->indices);
}

/* The step's task but for its slot; 0, LOCAL_END or -ENODATA. */
static int local_next_task(struct local_pass *pass, struct slot_task *ret)
{
    const struct dl_spec *spec = pass->local->spec;

    *ret = (struct slot_task){.epoch = pass->where.epoch,
                              .step = pass->step,
                              .what = spec->batch_size == 0 ? SLOT_SAMPLE : SLOT_BATCH};
    if (pass->ends) {
        while (pass->ended < pass->local->n &&
               pass->step / pass->local->n >= pass->ends[pass->step % pass->local->n])
            pass->step++;
        ret->step = ret->settled = pass->step;
        ret->samples = (uint32_t)spec_round_samples(spec, pass->where.world);
        ret->stream = pass->stream;
        ret->rank = pass->where.rank;
        ret->world = pass->where.world;
        if (pass->local->n == 1)
            ret->state = pass->where.state;
        return pass->ended == pass->local->n ? LOCAL_END : 0;
    }
    if (pass->plan) {
        if (pass->step >= pass->steps)
            return LOCAL_END;
        ret->indices = pass->indices;
        ret->samples = local_put_indices(pass);
        if (spec->batch.tokens) {
            struct plan_step_size size =
                plan_step_size(pass->plan->plan, pass->where.rank, pass->step);
            ret->planned = slot_planned_bytes(size.samples, size.rows + size.begins);
        }
        return 0;
    }
    if (!pass->fed)
        return pass->fed_all ? LOCAL_END : -ENODATA;
    ret->indices = pass->fed->indices;
    ret->samples = (uint32_t)pass->fed->n;
    return 0;
}

/* What of the batch of all ranks is the rank's. */
static struct plan_slice local_slice_of(struct local_pass *pass, const struct slot_header *header)
{
    const struct local_where *where = &pass->where;

    if (pass->plan)
        return plan_slice(pass->plan->plan, where->rank, pass->step);
    struct plan_rows rows = plan_rows(header->samples, header->repeated, where->world, where->rank);
    pass->repeated = (uint32_t)rows.repeated;
    return (struct plan_slice){rows.first, rows.samples};
}

/* The rank's rows of the batch of all ranks; FETCH_END: there are none. */
static int local_take_rows(struct local_pass *pass, void *slot, struct dl_error *err)
{
    const struct slot_header *header = slot;
    struct plan_slice slice = local_slice_of(pass, header);
    uint32_t bad;

    if (slice.samples == 0)
        return FETCH_END;
    if (slice.samples == header->samples ||
        slot_cut(slot, (uint32_t)slice.first, (uint32_t)slice.samples, &bad) == 0)
        return 0;
    const struct tree_node *nodes = (const void *)((const char *)slot + header->tree_off);
    char text[512];
    words_no_rows(&nodes[bad], bad, header->samples, text, sizeof text);
    return dl_error_set(err, EINVAL, "", "it %s", text);
}

/* Warns of a mapped file that was written to. */
static void local_watch(struct local *local)
{
    struct dl_error what, said;

    if (!guard_find_written(&local->guard, &what))
        return;
    (void)dl_error_set(&said, what.code, "", "%s: %s", what.path,
                       what.message); /* cuts it to fit */
    memcpy(local->warning, said.message, sizeof local->warning);
}

/*
 * Looks at the mapped files, whether they were cut or written to, once in a tick of the system's
 * coarse clock, which is a few milliseconds: for each batch of a small size it would cost a third
 * of it.
 */
static int local_look(struct local *local, struct dl_error *err)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (now.tv_sec == local->looked.tv_sec && now.tv_nsec == local->looked.tv_nsec)
        return 0;
    int r = guard_look(&local->guard, err);
    if (r == 0) /* else the next batch is to hear of it too */
        local->looked = now;
    if (r == 0)
        local_watch(local);
    return r;
}

/* As local_next(), and FETCH_END when the step turned out not to exist. */
static int local_load(struct local_pass *pass, struct slot_task *task, void *slot, uint64_t bytes,
                      uint64_t *ret_used, struct dl_error *err)
{
    uint32_t fetcher = pass->ends ? (uint32_t)(pass->step % pass->local->n) : 0;

    task->generation = ++pass->made;
    if (!slot_prepare(slot, bytes, task)) {
        *ret_used = slot_state_end(task);
        return -ENOBUFS;
    }
    if (task->planned)
        plan_put_planned(pass->plan->plan, pass->where.rank, pass->step,
                         slot_planned(slot, task->samples));
    int r = local_look(pass->local, err);
    if (r == 0)
        r = fetcher_fill(pass->local->fetchers[fetcher], slot, bytes, ret_used, err);
    if (r != 0)
        return r;
    if (pass->ends)
        pass->repeated = ((const struct slot_header *)slot)->repeated;
    bool all_ranks = pass->ends ? pass->local->spec->shard == SHARD_DISPATCH
                                : local_needs_all_ranks(pass->local->spec);
    return all_ranks ? local_take_rows(pass, slot, err) : 0;
}

uint32_t local_repeated(const struct local_pass *pass)
{
    return pass->repeated;
}

static void local_warn(void *owner, const struct bad_sample *sample)
{
    struct local *local = owner;

    words_bad(sample, &local->quarantine, local->spec->on_error == ON_ERROR_SKIP, local->warning,
              sizeof local->warning);
}

/* Counts what is bad in the batch that was made. */
static int local_count_bad(struct local_pass *pass, const struct slot_task *task, const void *slot,
                           uint64_t bytes, struct dl_error *err)
{
    struct local *local = pass->local;
    bool apart = local->spec->shard == SHARD_STRIDED;
    struct bad_place place = {0};

    if (local->spec->on_error <= ON_ERROR_RAISE)
        return 0;
    if (slot_read_bad(slot, bytes, &local->bad) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory for a list of bad samples");
    if (pass->ends)
        place = (struct bad_place){.rank = apart ? pass->where.rank : 0,
                                   .world = apart ? pass->where.world : 1,
                                   .worker = (uint32_t)(pass->step % local->n)};
    else if (local->spec->on_error == ON_ERROR_SKIP)
        pass->repeated = bad_list_left(&local->bad, task->samples, pass->repeated);
    return quarantine_take(&local->quarantine, &place, &local->bad, local_warn, local, err)
               ? 0
               : -err->code;
}

void local_skip(struct local_pass *pass)
{
    pass->step++;
    if (pass->fed)
        local_drop_fed(pass);
}

int local_next(struct local_pass *pass, void *slot, uint64_t bytes, uint64_t *ret_step,
               uint64_t *ret_used, struct dl_error *err)
{
    struct slot_task task;
    int r;

    pass->local->warning[0] = '\0';
    while ((r = local_next_task(pass, &task)) == 0) {
        *ret_step = pass->step;
        r = local_load(pass, &task, slot, bytes, ret_used, err);
        if (r == -ENOBUFS)
            return r;
        if (r == 0)
            r = local_count_bad(pass, &task, slot, bytes, err);
        local_skip(pass);
        if (r != FETCH_END)
            return r;
        pass->ends[task.step % pass->local->n] = task.step / pass->local->n;
        pass->ended++;
    }
    if (r > 0)
        local_watch(pass->local); /* what the last batch was made of, too */
    return r;
}
