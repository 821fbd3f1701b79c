#include "daemon/data/fetch.h"

#include "daemon/data/base/sample_batch.h"
#include "daemon/data/collate/collate.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/files/guard.h"
#include "daemon/data/replica.h"
#include "daemon/data/rows.h"
#include "proto/common/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

enum {
    /* What a slot begins with where samples vary, besides header and indices. */
    SLOT_FIRST_BYTES = 64 * 1024,
};

struct fetcher {
    struct dataset *dataset;   /* owned */
    struct rows *rows;         /* owned; else NULL */
    struct collate *collate;   /* owned; NULL with rows */
    struct sample_batch batch; /* the samples of a map-style dataset, without rows */
    struct planned planned;    /* owned; of the task at hand */
    struct replica_set replicas;
    uint64_t batch_size; /* 0: not batched */
    uint64_t tokens;     /* of a batch; 0: batch_size counts */
    uint64_t most;       /* samples of a batch */
    uint64_t task_most;  /* samples of a task, which is for all ranks where they are dispatched */
    char *length_of;     /* owned; NULL: the first leaf with a dimension */
    uint64_t seed;
    uint64_t slot_bytes;
    enum on_error on_error;
    uint64_t collate_ns; /* of the last fill */
    struct slow_watch watch;
    struct guard *guard; /* borrowed; may be NULL */
};

/* ---- opening -------------------------------------------------------------------------------- */

/*
 * The slot of a full batch; "all of it in one batch" is written as a large number. Of a batch of
 * tokens nobody can say how many samples it has: its slot is as large as it turns out to need.
 */
static int fetch_measure_slot(struct fetcher *f, struct dl_error *err)
{
    uint64_t most = f->tokens ? 0 : f->most;
    struct batch_layout layout;

    if (most > 0 && !dataset_is_iterable(f->dataset))
        most = max_u64(min_u64(most, f->dataset->length), 1);
    if (!f->rows) {
        uint64_t state = f->dataset->saves_state ? DATASET_STATE_MAX : 0;
        f->slot_bytes = align_up(slot_indices_end(most) + SLOT_FIRST_BYTES + state, SLOT_ALIGN);
        return 0;
    }
    int r = rows_measure(f->rows, most, slot_indices_end(most), &layout, err);
    if (r < 0)
        return r;
    uint64_t bad = f->on_error <= ON_ERROR_RAISE ? 0 : slot_bad_bytes();
    f->slot_bytes = align_up(layout.used + bad, SLOT_ALIGN);
    return 0;
}

static int fetch_check_spec(const struct dl_spec *spec, struct dl_error *err)
{
    if (spec->batch_size > DL_MAX_BATCH_SIZE)
        return dl_error_set(err, EINVAL, "batch.size", "%llu is more than %llu",
                            (unsigned long long)spec->batch_size,
                            (unsigned long long)DL_MAX_BATCH_SIZE);
    if (spec->batch.tokens > DL_MAX_BATCH_SIZE)
        return dl_error_set(err, EINVAL, "batch.tokens", "%llu is more than %llu",
                            (unsigned long long)spec->batch.tokens,
                            (unsigned long long)DL_MAX_BATCH_SIZE);
    return 0;
}

static int fetch_open_rows(struct fetcher *f, const struct spec_collate *collate,
                           struct dl_error *err)
{
    struct batch_mix *mix = NULL;
    int r = 0;

    if (batch_mix_is_wanted(collate))
        r = batch_mix_new(collate, &f->dataset->schema, &mix, err);
    return r < 0 ? r : rows_new(f->dataset, f->batch_size, mix, &f->rows, err);
}

static void fetch_fetcher_freep(struct fetcher **fetcher)
{
    *fetcher = fetcher_free(*fetcher);
}

int fetcher_new(const struct dl_spec *spec, const struct data_env *env, struct fetcher **ret,
                struct dl_error *err)
{
    _cleanup_(fetch_fetcher_freep)
    struct fetcher *f = NULL;
    int r;

    r = fetch_check_spec(spec, err);
    if (r < 0)
        return r;
    f = calloc(1, sizeof *f);
    if (!f || (spec->batch.length_of && !(f->length_of = strdup(spec->batch.length_of))))
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    f->batch_size = spec->batch_size;
    f->tokens = spec->batch.tokens;
    f->most = spec_most_samples(spec);
    f->task_most = spec->shard == SHARD_DISPATCH ? DL_MAX_BATCH_SIZE : f->most;
    f->seed = spec->seed;
    f->on_error = spec->on_error;
    f->guard = env->guard;
    r = dataset_open(&spec->dataset, env, &f->dataset, err);
    /* First: what made no sense was perhaps not there. */
    if (guard_check(f->guard, err) < 0)
        return -EIO;
    if (r < 0)
        return r;
    f->replicas = (struct replica_set){.dataset = f->dataset,
                                       .seed = spec->seed,
                                       .worker = env->worker,
                                       .workers = (uint32_t)max_u64(env->workers, 1),
                                       .shard = spec->shard,
                                       .drop_last = spec->drop_last,
                                       .even = spec->even,
                                       .on_error = spec->on_error,
                                       .guard = env->guard,
                                       .watch = &f->watch};
    if (dataset_is_fixed(f->dataset) && spec->collate.kind <= COLLATE_DEFAULT && !f->tokens)
        r = fetch_open_rows(f, &spec->collate, err);
    else if (batch_mix_is_wanted(&spec->collate))
        r = dl_error_set(err, EINVAL, "collate",
                         "mixup and cutmix need samples that are all of one shape, such as "
                         "pictures after RandomResizedCrop or CenterCrop, and an index");
    else
        r = collate_new(spec, env, &f->collate, err);
    if (r == 0)
        r = fetch_measure_slot(f, err);
    if (r < 0)
        return r;
    *ret = steal_ptr(f);
    return 0;
}

struct fetcher *fetcher_free(struct fetcher *f)
{
    if (!f)
        return NULL;
    replica_set_deinit(&f->replicas);
    sample_batch_deinit(&f->batch);
    planned_deinit(&f->planned);
    free(f->length_of);
    collate_free(f->collate);
    rows_free(f->rows);
    dataset_close(f->dataset);
    free(f);
    return NULL;
}

struct dataset *fetcher_dataset(const struct fetcher *f)
{
    return f->dataset;
}

bool fetcher_is_iterable(const struct fetcher *f)
{
    return dataset_is_iterable(f->dataset);
}

uint64_t fetcher_length(const struct fetcher *f)
{
    return f->dataset->length;
}

uint64_t fetcher_slot_bytes(const struct fetcher *f)
{
    return f->slot_bytes;
}

uint64_t fetcher_collate_ns(const struct fetcher *f)
{
    return f->collate_ns;
}

const struct slow_watch *fetcher_slowest(const struct fetcher *f)
{
    return &f->watch;
}

void fetcher_forget(struct fetcher *f, uint32_t stream)
{
    replica_forget(&f->replicas, stream);
}

/* ---- one task ------------------------------------------------------------------------------- */

/* The error's path and message become one text, as dlctl prints them. */
static int fetch_put_error(void *slot, uint64_t slot_bytes, uint64_t begin, uint64_t index,
                           const struct dl_error *err)
{
    char text[sizeof err->path + sizeof err->message + 2];

    snprintf(text, sizeof text, "%s%s%s", err->path, err->path[0] ? ": " : "", err->message);
    return slot_put_error(
        slot, slot_bytes,
        &(struct slot_error){.code = err->code, .begin = begin, .index = index, .text = text});
}

static int fetch_refuse_samples(const struct fetcher *f, uint32_t samples, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "", "a task of %u samples, where %s is %llu", samples,
                        f->tokens ? "batch.tokens" : "batch.size",
                        (unsigned long long)(f->tokens ? f->tokens : f->batch_size));
}

/* Whether the task is one of this loader. */
static bool fetch_is_ours(const struct fetcher *f, const struct slot_task *task)
{
    if ((task->stream != 0) != fetcher_is_iterable(f) ||
        (task->stream != 0 && task->rank >= task->world))
        return false;
    if (task->what == SLOT_LENGTHS)
        return !fetcher_is_iterable(f) && task->planned == 0;
    return (task->what == SLOT_SAMPLE) == (f->batch_size == 0) &&
           (task->planned == 0 || (f->tokens && !fetcher_is_iterable(f)));
}

static int fetch_read_task(const struct fetcher *f, const void *slot, uint64_t slot_bytes,
                           struct slot_task *ret, struct dl_error *err)
{
    bool sound = slot_read_task(slot, slot_bytes, ret);

    if (slot_bytes < SLOT_HEADER_BYTES)
        return dl_error_set(err, EINVAL, "", "a slot of %llu bytes has no room for its header",
                            (unsigned long long)slot_bytes);
    if (ret->samples == 0 || (ret->samples > f->task_most && ret->what != SLOT_LENGTHS))
        return fetch_refuse_samples(f, ret->samples, err);
    if (!sound || !fetch_is_ours(f, ret))
        return dl_error_set(err, EINVAL, "", "the slot's header is damaged");
    return 0;
}

/* Each filler returns as fetcher_fill(), but leaves the error's text to it: *ret_bad is its sample.
 */

/*
 * The sample of `index` in the batch, or what workers.on_error makes of it: another one, or
 * none. `position` is that in the task. Negative: it cannot be had, and *ret_bad is at fault.
 */
static int fetch_collect(struct fetcher *f, const struct sample_key *key, uint64_t index,
                         uint64_t position, uint64_t *ret_bad, struct dl_error *err)
{
    for (unsigned further = 0;; further++) {
        struct sample *sample = sample_batch_add(&f->batch, index);
        int r = sample ? dataset_get(f->dataset, key, index, sample, err)
                       : dl_error_set(err, ENOMEM, "", "out of memory for a sample");
        if (r == 0)
            r = sample_check(sample, err);
        if (guard_check(f->guard, err) < 0)
            r = -EIO;
        if (r == 0) {
            sample_batch_keep(&f->batch);
            return 0;
        }
        if (further == 0)
            *ret_bad = index;
        /* An index that is none is the fault of who asked for it. */
        if (f->on_error <= ON_ERROR_RAISE || !bad_is_sample(err) || index >= f->dataset->length)
            return r;
        if (bad_list_add(&f->batch.bad, index, position, err) < 0)
            return dl_error_set(err, ENOMEM, "", "out of memory for a list of bad samples");
        if (f->on_error == ON_ERROR_SKIP)
            return 0;
        if (further == BAD_FURTHER)
            return bad_nothing_left(&f->batch.bad, err);
        index = index + 1 < f->dataset->length ? index + 1 : 0;
    }
}

/* So many samples before their turn they are announced: time enough for one access to memory. */
enum { GET_AHEAD = 8 };

/* All samples of a map-style dataset that the task has, and that can be had. */
static int fetch_collect_all(struct fetcher *f, const struct slot_task *task, uint64_t *ret_bad,
                             struct dl_error *err)
{
    const struct sample_key key = {.seed = f->seed, .epoch = task->epoch};
    int r = 0;

    sample_batch_clear(&f->batch);
    slow_watch_begin(&f->watch);
    for (uint64_t i = 0; r == 0 && i < task->samples; i++) {
        uint64_t index = __atomic_load_n(&task->indices[i], __ATOMIC_RELAXED);
        if (i + GET_AHEAD < task->samples) {
            uint64_t ahead = __atomic_load_n(&task->indices[i + GET_AHEAD], __ATOMIC_RELAXED);
            if (ahead < f->dataset->length)
                dataset_expect(f->dataset, ahead);
        }
        r = fetch_collect(f, &key, index, i, ret_bad, err);
        (void)slow_watch_sample(&f->watch, index);
    }
    slow_watch_end(&f->watch, task->samples);
    if (r < 0 || f->batch.n > 0)
        return r;
    *ret_bad = f->batch.bad.items[0].index;
    return bad_nothing_left(&f->batch.bad, err);
}

/* Adds the bad samples of the batch to the slot, if there are any. */
static int fetch_put_bad(struct fetcher *f, const struct sample_batch *batch, void *slot,
                         uint64_t slot_bytes, uint64_t *ret_used)
{
    if (f->on_error <= ON_ERROR_RAISE || batch->bad.n == 0)
        return 0;
    if (!slot_put_bad(slot, slot_bytes, &batch->bad, ret_used))
        return -ENOBUFS;
    memcpy(slot_indices(slot), batch->numbers, batch->n * sizeof *batch->numbers);
    return 0;
}

/* Where the collated batch begins: behind the task, or where fewer indices end. */
static uint64_t fetch_batch_begin(const struct sample_batch *batch, const struct slot_task *task)
{
    return batch->n == task->samples ? slot_task_end(task) : slot_indices_end(batch->n);
}

/* `n` rows behind what ends at `begin`, if they fit. *ret_at: the one at fault; n: none. */
static int fetch_put_rows(struct fetcher *f, uint64_t epoch, const uint64_t *indices, uint64_t n,
                          uint64_t begin, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                          size_t *ret_at, struct dl_error *err)
{
    const struct sample_key key = {.seed = f->seed, .epoch = epoch};
    struct batch_layout layout;

    *ret_at = n;
    int r = rows_measure(f->rows, n, begin, &layout, err);
    if (r < 0)
        return r;
    *ret_used = layout.used;
    if (layout.used > slot_bytes)
        return -ENOBUFS;
    slot_put_batch(slot, n, &layout);
    slow_watch_begin(&f->watch);
    r = rows_write(f->rows, &key, indices, slot, &f->watch, ret_at, err);
    slow_watch_end(&f->watch, n);
    return r;
}

/* The rows that can be had, after one could not: each is taken by itself, to find the others. */
static int fetch_fill_some_rows(struct fetcher *f, const struct slot_task *task, void *slot,
                                uint64_t slot_bytes, uint64_t *ret_used, uint64_t *ret_bad,
                                struct dl_error *err)
{
    struct sample_batch *batch = &f->batch;
    size_t at;

    int r = fetch_collect_all(f, task, ret_bad, err);
    if (r < 0)
        return r;
    r = fetch_put_rows(f, task->epoch, batch->numbers, batch->n, fetch_batch_begin(batch, task),
                       slot, slot_bytes, ret_used, &at, err);
    if (r < 0) {
        *ret_bad = at < batch->n ? batch->numbers[at] : UINT64_MAX;
        return r;
    }
    return fetch_put_bad(f, batch, slot, slot_bytes, ret_used);
}

static int fetch_fill_rows(struct fetcher *f, const struct slot_task *task, void *slot,
                           uint64_t slot_bytes, uint64_t *ret_used, uint64_t *ret_bad,
                           struct dl_error *err)
{
    size_t at;

    int r = fetch_put_rows(f, task->epoch, task->indices, task->samples, slot_task_end(task), slot,
                           slot_bytes, ret_used, &at, err);
    /* Which of the rows it was shows when each is taken by itself. */
    if (r == 0 && guard_check(f->guard, err) < 0)
        return fetch_fill_some_rows(f, task, slot, slot_bytes, ret_used, ret_bad, err);
    if (r == 0 || at >= task->samples)
        return r;
    if (f->on_error > ON_ERROR_RAISE && bad_is_sample(err))
        return fetch_fill_some_rows(f, task, slot, slot_bytes, ret_used, ret_bad, err);
    *ret_bad = task->indices[at];
    return r;
}

static int fetch_fill_lengths(struct fetcher *f, const struct slot_task *task, void *slot,
                              uint64_t slot_bytes, uint64_t *ret_used, uint64_t *ret_bad,
                              struct dl_error *err)
{
    uint64_t first = __atomic_load_n(task->indices, __ATOMIC_RELAXED);
    uint32_t *lengths = slot_put_lengths(slot, slot_bytes, task, ret_used);

    if (!lengths)
        return -ENOBUFS;
    int r = dataset_lengths(f->dataset, f->length_of, first, task->samples, lengths, ret_bad, err);
    return guard_check(f->guard, err) < 0 ? -EIO : r;
}

static int fetch_collate_batch(struct fetcher *f, const struct sample_batch *batch,
                               const struct planned *planned, uint64_t begin, void *slot,
                               uint64_t slot_bytes, uint64_t *ret_used, uint64_t *ret_bad,
                               struct dl_error *err)
{
    struct batch_layout layout = {0};
    size_t bad = SIZE_MAX;

    int r = planned ? collate_fit(f->collate, batch->samples, batch->numbers, batch->n, planned,
                                  &bad, err)
                    : 0;
    if (r == 0)
        r = collate_measure(f->collate, batch->samples, batch->numbers, batch->n, planned, begin,
                            &layout, &bad, err);
    if (r < 0) {
        *ret_bad = bad < batch->n ? batch->numbers[bad] : UINT64_MAX;
        return r;
    }
    *ret_used = layout.used;
    if (layout.used > slot_bytes)
        return -ENOBUFS;
    slot_put_batch(slot, batch->n, &layout);
    collate_write(f->collate, slot);
    return 0;
}

/* Collates the batch into the slot, behind what ends at `begin`, if it fits. */
static int fetch_fill_batch(struct fetcher *f, const struct sample_batch *batch,
                            const struct planned *planned, uint64_t begin, void *slot,
                            uint64_t slot_bytes, uint64_t *ret_used, uint64_t *ret_bad,
                            struct dl_error *err)
{
    uint64_t began = clock_ns();

    int r = fetch_collate_batch(f, batch, planned, begin, slot, slot_bytes, ret_used, ret_bad, err);
    f->collate_ns = clock_ns() - began;
    return r;
}

static int fetch_fill_collected(struct fetcher *f, const struct slot_task *task, void *slot,
                                uint64_t slot_bytes, uint64_t *ret_used, uint64_t *ret_bad,
                                struct dl_error *err)
{
    struct sample_batch *batch = &f->batch;

    int r = task->planned ? planned_read(&f->planned, slot, task, err) : 0;
    if (r == 0)
        r = fetch_collect_all(f, task, ret_bad, err);
    if (r < 0)
        return r;
    r = fetch_fill_batch(f, batch, task->planned ? &f->planned : NULL,
                         fetch_batch_begin(batch, task), slot, slot_bytes, ret_used, ret_bad, err);
    return r < 0 ? r : fetch_put_bad(f, batch, slot, slot_bytes, ret_used);
}

/* Where the dataset says that the replica stands behind the round. */
static int fetch_put_state(struct fetcher *f, const struct round *round, void *slot,
                           uint64_t slot_bytes, uint64_t *ret_used, struct dl_error *err)
{
    uint8_t head[DATASET_STATE_HEAD_BYTES];
    enum dataset_state_loss lost;
    struct dataset_state state;

    int r = replica_save(&f->replicas, round, &state, &lost, err);
    if (r < 0)
        return r;
    slot_put_lost(slot, lost);
    if (state.round == 0)
        return 0;
    dataset_state_write_head(&state, head);
    return slot_put_state(slot, slot_bytes, head, state.state, ret_used) ? 0 : -ENOBUFS;
}

/* Whose each sample is, for the daemon to count. */
static int fetch_put_origins(const struct sample_batch *batch, void *slot, uint64_t slot_bytes,
                             uint64_t *ret_used)
{
    uint8_t *origins = slot_put_origins(slot, slot_bytes, batch->n, ret_used);

    for (size_t i = 0; origins && i < batch->n; i++)
        origins[i] = batch->samples[i].origin;
    return origins ? 0 : -ENOBUFS;
}

static int fetch_fill_round(struct fetcher *f, const struct slot_task *task, void *slot,
                            uint64_t slot_bytes, uint64_t *ret_used, uint64_t *ret_bad,
                            struct dl_error *err)
{
    struct replica_set *set = &f->replicas;
    uint64_t rounds = task->settled / set->workers;
    struct round round = {
        .stream = task->stream,
        .rank = task->rank,
        .world = task->world,
        .epoch = task->epoch,
        .size = task->samples,
        .number = task->step / set->workers,
        /* Of this worker: step settled and later ones may come. */
        .settled = rounds + (task->settled % set->workers > set->worker),
        .state = task->state,
    };
    struct sample_batch *batch;

    slow_watch_begin(&f->watch);
    int r = replica_round(set, &round, &batch, ret_bad, err);
    if (r == 0 && batch->n > 0)
        slow_watch_end(&f->watch, batch->n);
    if (r == -EAGAIN) {
        *ret_used = replica_retained_bytes(set, task->stream);
        return -ENOBUFS;
    }
    if (r != 0)
        return r == DATASET_END ? FETCH_END : r;
    r = fetch_fill_batch(f, batch, NULL, slot_indices_end(batch->n), slot, slot_bytes, ret_used,
                         ret_bad, err);
    if (r == 0 && !slot_put_bad(slot, slot_bytes, &batch->bad, ret_used))
        r = -ENOBUFS;
    if (r == 0 && f->dataset->tells_origins)
        r = fetch_put_origins(batch, slot, slot_bytes, ret_used);
    if (r == 0 && f->dataset->saves_state)
        r = fetch_put_state(f, &round, slot, slot_bytes, ret_used, err);
    if (r == -ENOBUFS)
        replica_retain(set, &round, *ret_used);
    if (r != 0)
        return r;
    memcpy(slot_indices(slot), batch->numbers, batch->n * sizeof *batch->numbers);
    slot_put_repeated(slot, batch->repeated);
    return 0;
}

int fetcher_fill_samples(struct fetcher *f, const struct slot_task *task, void *slot,
                         uint64_t slot_bytes, uint64_t *ret_used, struct dl_error *err)
{
    uint64_t bad = UINT64_MAX;

    assert(!fetcher_is_iterable(f) && task->samples > 0 && task->planned == 0);
    f->collate_ns = f->watch.ns = 0;
    return (f->rows ? fetch_fill_rows : fetch_fill_collected)(f, task, slot, slot_bytes, ret_used,
                                                              &bad, err);
}

void fetcher_expect(struct fetcher *f, const void *slot, uint64_t slot_bytes)
{
    struct slot_task task;

    if (!slot_read_task(slot, slot_bytes, &task) || task.stream != 0)
        return;
    for (uint64_t i = 0; i < task.samples; i++) {
        uint64_t index = __atomic_load_n(&task.indices[i], __ATOMIC_RELAXED);
        if (index < f->dataset->length)
            dataset_expect(f->dataset, index);
    }
}

int fetcher_fill(struct fetcher *f, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                 struct dl_error *err)
{
    struct dl_error own = {0};
    struct slot_task task = {0};
    uint64_t bad = UINT64_MAX, used = 0;
    int r;

    assert((uintptr_t)slot % TREE_ALIGN == 0);
    if (!err)
        err = &own;
    f->collate_ns = f->watch.ns = 0;
    r = fetch_read_task(f, slot, slot_bytes, &task, err);
    if (r < 0)
        return fetch_put_error(slot, slot_bytes, SLOT_HEADER_BYTES, UINT64_MAX, err);
    if (task.what == SLOT_LENGTHS)
        r = fetch_fill_lengths(f, &task, slot, slot_bytes, &used, &bad, err);
    else if (task.stream != 0)
        r = fetch_fill_round(f, &task, slot, slot_bytes, &used, &bad, err);
    else if (f->rows)
        r = fetch_fill_rows(f, &task, slot, slot_bytes, &used, &bad, err);
    else
        r = fetch_fill_collected(f, &task, slot, slot_bytes, &used, &bad, err);
    if (r == 0 || r == -ENOBUFS)
        *ret_used = used;
    if (r >= 0 || r == -ENOBUFS)
        return r;
    /* These mean something else to who asked. */
    if (err->code == ENOBUFS || err->code == ENODATA || err->code == ECANCELED)
        err->code = EIO;
    return fetch_put_error(slot, slot_bytes, task.stream ? SLOT_HEADER_BYTES : slot_task_end(&task),
                           bad, err);
}
