#include "daemon/data/fetch.h"

#include "daemon/data/base/sample_batch.h"
#include "daemon/data/collate/collate.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/files/guard.h"
#include "daemon/data/replica.h"
#include "daemon/data/rows.h"
#include "proto/common/clock.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>

enum {
    /* What a slot begins with where samples vary, besides header and indices. */
    SLOT_FIRST_BYTES = 64 * 1024,
};

/* The map-style task whose batch did not fit: its samples are in `batch` until another task comes.
 */
struct kept {
    uint64_t *indices; /* owned; `n` of them; NULL: none is kept */
    uint64_t epoch, step;
    uint32_t n;
};

struct fetcher {
    struct dataset *dataset;   /* owned */
    struct rows *rows;         /* owned; else NULL */
    struct collate *collate;   /* owned; NULL with rows */
    struct sample_batch batch; /* the samples of a map-style dataset, without rows */
    struct kept kept;
    struct planned planned; /* owned; of the task at hand */
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
                            (ull)spec->batch_size, (ull)DL_MAX_BATCH_SIZE);
    if (spec->batch.tokens > DL_MAX_BATCH_SIZE)
        return dl_error_set(err, EINVAL, "batch.tokens", "%llu is more than %llu",
                            (ull)spec->batch.tokens, (ull)DL_MAX_BATCH_SIZE);
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
    _cleanup_(fetch_fetcher_freep) struct fetcher *f = NULL;
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
    free(f->kept.indices);
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
                        (ull)(f->tokens ? f->tokens : f->batch_size));
}

/* Whether the task is one of this loader. */
static bool fetch_is_ours(const struct fetcher *f, const struct slot_task *task)
{
    if ((task->stream != 0) != fetcher_is_iterable(f) ||
        (task->stream != 0 && task->rank >= task->world))
        return false;
    if (slot_asks_lengths(task))
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
                            (ull)slot_bytes);
    if (ret->samples == 0 || (ret->samples > f->task_most && !slot_asks_lengths(ret)))
        return fetch_refuse_samples(f, ret->samples, err);
    if (!sound || !fetch_is_ours(f, ret))
        return dl_error_set(err, EINVAL, "", "the slot's header is damaged");
    return 0;
}

/* A task that is being done. */
struct filling {
    struct fetcher *f;
    const struct slot_task *task;
    void *slot;
    uint64_t slot_bytes;
    uint64_t used; /* bytes of the slot; with -ENOBUFS those that are needed */
    uint64_t bad;  /* the sample at fault; UINT64_MAX: none is */
    struct dl_error *err;
};

/* Each filler returns as fetcher_fill(), but leaves the error's text to it. */

/*
 * The sample of `index` in the batch, or what workers.on_error makes of it: another one, or
 * none. `position` is that in the task.
 */
static int fetch_collect(struct filling *fill, const struct sample_key *key, uint64_t index,
                         uint64_t position)
{
    struct fetcher *f = fill->f;
    struct dl_error *err = fill->err;

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
            fill->bad = index;
        /* The caller asked for an index beyond the dataset. */
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

static uint64_t fetch_index(const struct slot_task *task, uint64_t i)
{
    return __atomic_load_n(&task->indices[i], __ATOMIC_RELAXED);
}

/* A sample is announced this many samples before its turn: time enough for one access to memory. */
enum { GET_AHEAD = 8 };

/* All samples of a map-style dataset that the task has, and that can be had. */
static int fetch_collect_all(struct filling *fill)
{
    struct fetcher *f = fill->f;
    const struct slot_task *task = fill->task;
    const struct sample_key key = {.seed = f->seed, .epoch = task->epoch};
    int r = 0;

    sample_batch_clear(&f->batch);
    slow_watch_begin(&f->watch);
    for (uint64_t i = 0; r == 0 && i < task->samples; i++) {
        uint64_t index = fetch_index(task, i);
        if (i + GET_AHEAD < task->samples) {
            uint64_t ahead = fetch_index(task, i + GET_AHEAD);
            if (ahead < f->dataset->length)
                dataset_expect(f->dataset, ahead);
        }
        r = fetch_collect(fill, &key, index, i);
        (void)slow_watch_sample(&f->watch, index);
    }
    slow_watch_end(&f->watch, task->samples);
    if (r < 0 || f->batch.n > 0)
        return r;
    fill->bad = f->batch.bad.items[0].index;
    return bad_nothing_left(&f->batch.bad, fill->err);
}

/* Adds the bad samples of the batch to the slot, if there are any. */
static int fetch_put_bad(struct filling *fill)
{
    const struct sample_batch *batch = &fill->f->batch;

    if (fill->f->on_error <= ON_ERROR_RAISE || batch->bad.n == 0)
        return 0;
    if (!slot_put_bad(fill->slot, fill->slot_bytes, &batch->bad, &fill->used))
        return -ENOBUFS;
    memcpy(slot_indices(fill->slot), batch->numbers, batch->n * sizeof *batch->numbers);
    return 0;
}

/* Where the collected batch begins: behind the task, or where fewer indices end. */
static uint64_t fetch_batch_begin(const struct filling *fill)
{
    uint64_t n = fill->f->batch.n;

    return n == fill->task->samples ? slot_task_end(fill->task) : slot_indices_end(n);
}

/* `n` rows behind what ends at `begin`, if they fit. *ret_at: the one at fault; n: none is. */
static int fetch_put_rows(struct filling *fill, const uint64_t *indices, uint64_t n, uint64_t begin,
                          size_t *ret_at)
{
    struct fetcher *f = fill->f;
    const struct sample_key key = {.seed = f->seed, .epoch = fill->task->epoch};
    struct batch_layout layout;

    *ret_at = n;
    int r = rows_measure(f->rows, n, begin, &layout, fill->err);
    if (r < 0)
        return r;
    fill->used = layout.used;
    if (layout.used > fill->slot_bytes)
        return -ENOBUFS;
    slot_put_batch(fill->slot, n, &layout);
    slow_watch_begin(&f->watch);
    r = rows_write(f->rows, &key, indices, fill->slot, &f->watch, ret_at, fill->err);
    slow_watch_end(&f->watch, n);
    return r;
}

/* The rows that can be had, after one could not: each is taken by itself, to find the others. */
static int fetch_fill_some_rows(struct filling *fill)
{
    const struct sample_batch *batch = &fill->f->batch;
    size_t at;

    int r = fetch_collect_all(fill);
    if (r < 0)
        return r;
    r = fetch_put_rows(fill, batch->numbers, batch->n, fetch_batch_begin(fill), &at);
    if (r < 0) {
        fill->bad = at < batch->n ? batch->numbers[at] : UINT64_MAX;
        return r;
    }
    return fetch_put_bad(fill);
}

static int fetch_fill_rows(struct filling *fill)
{
    const struct slot_task *task = fill->task;
    struct fetcher *f = fill->f;
    size_t at;

    int r = fetch_put_rows(fill, task->indices, task->samples, slot_task_end(task), &at);
    /* Which of the rows it was shows when each is taken by itself. */
    if (r == 0 && guard_check(f->guard, fill->err) < 0)
        return fetch_fill_some_rows(fill);
    if (r == 0 || at >= task->samples)
        return r;
    if (f->on_error > ON_ERROR_RAISE && bad_is_sample(fill->err))
        return fetch_fill_some_rows(fill);
    fill->bad = task->indices[at];
    return r;
}

/* Samples of the task, from its sample `at` on, that follow each other in the dataset. */
static uint32_t fetch_count_run(const struct slot_task *task, uint32_t at)
{
    uint64_t first = fetch_index(task, at);
    uint32_t n = 1;

    if (task->what == SLOT_LENGTHS)
        return task->samples;
    while (at + n < task->samples && fetch_index(task, at + n) == first + n)
        n++;
    return n;
}

static int fetch_fill_lengths(struct filling *fill)
{
    const struct slot_task *task = fill->task;
    struct fetcher *f = fill->f;
    uint32_t *lengths = slot_put_lengths(fill->slot, fill->slot_bytes, task, &fill->used);
    int r = 0;

    if (!lengths)
        return -ENOBUFS;
    for (uint32_t at = 0, n; at < task->samples && r == 0; at += n) {
        n = fetch_count_run(task, at);
        struct lengths_wanted w = {
            .leaf = f->length_of, .first = fetch_index(task, at), .n = n, .ret = lengths + at};
        r = dataset_lengths(f->dataset, &w, fill->err);
        fill->bad = w.bad;
    }
    return guard_check(f->guard, fill->err) < 0 ? -EIO : r;
}

static int fetch_blame(struct filling *fill, const struct sample_batch *batch, size_t bad, int r)
{
    if (r < 0)
        fill->bad = bad < batch->n ? batch->numbers[bad] : UINT64_MAX;
    return r;
}

static int fetch_collate(struct filling *fill, const struct sample_batch *batch,
                         const struct planned *planned, uint64_t begin)
{
    struct collate *collate = fill->f->collate;
    struct batch_layout layout = {0};
    size_t bad = SIZE_MAX;

    int r = collate_measure(collate, batch->samples, batch->numbers, batch->n, planned, begin,
                            &layout, &bad, fill->err);
    if (fetch_blame(fill, batch, bad, r) < 0)
        return r;
    fill->used = layout.used;
    if (layout.used > fill->slot_bytes)
        return -ENOBUFS;
    slot_put_batch(fill->slot, batch->n, &layout);
    collate_write(collate, fill->slot);
    return 0;
}

/* Collates the batch into the slot, behind what ends at `begin`, if it fits. `planned` may be NULL.
 */
static int fetch_fill_batch(struct filling *fill, const struct sample_batch *batch,
                            const struct planned *planned, uint64_t begin)
{
    uint64_t began = clock_ns();

    int r = fetch_collate(fill, batch, planned, begin);
    fill->f->collate_ns = clock_ns() - began;
    return r;
}

/* The samples of the task, of those lengths if it has a plan: in f->batch. */
static int fetch_collect_planned(struct filling *fill, const struct planned *planned)
{
    struct sample_batch *batch = &fill->f->batch;
    size_t bad = SIZE_MAX;

    int r = fetch_collect_all(fill);
    if (r < 0 || !planned)
        return r;
    r = collate_fit(fill->f->collate, batch->samples, batch->numbers, batch->n, planned, &bad,
                    fill->err);
    return fetch_blame(fill, batch, bad, r);
}

/* Without memory for that they are collected again. */
static void fetch_keep_samples(struct fetcher *f, const struct slot_task *task)
{
    uint64_t *indices = malloc(task->samples * sizeof *indices);

    for (uint64_t i = 0; indices && i < task->samples; i++)
        indices[i] = fetch_index(task, i);
    free(f->kept.indices);
    f->kept = (struct kept){indices, task->epoch, task->step, task->samples};
}

/* Whether f->batch has the task's samples; if not, it is given up. */
static bool fetch_has_kept(struct fetcher *f, const struct slot_task *task)
{
    _cleanup_free_ uint64_t *indices = steal_ptr(f->kept.indices);
    bool same = indices && task->epoch == f->kept.epoch && task->step == f->kept.step &&
                task->samples == f->kept.n;

    for (uint64_t i = 0; same && i < task->samples; i++)
        same = fetch_index(task, i) == indices[i];
    return same;
}

static int fetch_fill_collected(struct filling *fill)
{
    struct fetcher *f = fill->f;
    const struct planned *planned = fill->task->planned > 0 ? &f->planned : NULL;

    int r = planned ? planned_read(&f->planned, fill->slot, fill->task, fill->err) : 0;
    if (r == 0 && !fetch_has_kept(f, fill->task))
        r = fetch_collect_planned(fill, planned);
    if (r == 0)
        r = fetch_fill_batch(fill, &f->batch, planned, fetch_batch_begin(fill));
    if (r == 0)
        r = fetch_put_bad(fill);
    if (r == -ENOBUFS)
        fetch_keep_samples(f, fill->task);
    return r;
}

/* Where the dataset says that the replica stands behind the round. */
static int fetch_put_state(struct filling *fill, const struct round *round)
{
    uint8_t head[DATASET_STATE_HEAD_BYTES];
    enum dataset_state_loss lost;
    struct dataset_state state;

    int r = replica_save(&fill->f->replicas, round, &state, &lost, fill->err);
    if (r < 0)
        return r;
    slot_put_lost(fill->slot, lost);
    if (state.round == 0)
        return 0;
    dataset_state_write_head(&state, head);
    return slot_put_state(fill->slot, fill->slot_bytes, head, state.state, &fill->used) ? 0
                                                                                        : -ENOBUFS;
}

/* Whose each sample is, for the daemon to count. */
static int fetch_put_origins(struct filling *fill, const struct sample_batch *batch)
{
    uint8_t *origins = slot_put_origins(fill->slot, fill->slot_bytes, batch->n, &fill->used);

    for (size_t i = 0; origins && i < batch->n; i++)
        origins[i] = batch->samples[i].origin;
    return origins ? 0 : -ENOBUFS;
}

static struct round fetch_round_of(const struct slot_task *task, const struct replica_set *set)
{
    uint64_t rounds = task->settled / set->workers;

    return (struct round){
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
}

/* A round's batch, and what goes with it. */
static int fetch_put_round(struct filling *fill, const struct round *round,
                           const struct sample_batch *batch)
{
    const struct dataset *dataset = fill->f->dataset;

    int r = fetch_fill_batch(fill, batch, NULL, slot_indices_end(batch->n));
    if (r == 0 && !slot_put_bad(fill->slot, fill->slot_bytes, &batch->bad, &fill->used))
        r = -ENOBUFS;
    if (r == 0 && dataset->tells_origins)
        r = fetch_put_origins(fill, batch);
    if (r == 0 && dataset->saves_state)
        r = fetch_put_state(fill, round);
    if (r != 0)
        return r;
    memcpy(slot_indices(fill->slot), batch->numbers, batch->n * sizeof *batch->numbers);
    slot_put_repeated(fill->slot, batch->repeated);
    return 0;
}

static int fetch_fill_round(struct filling *fill)
{
    struct fetcher *f = fill->f;
    struct replica_set *set = &f->replicas;
    struct round round = fetch_round_of(fill->task, set);
    struct sample_batch *batch;

    slow_watch_begin(&f->watch);
    int r = replica_round(set, &round, &batch, &fill->bad, fill->err);
    if (r == 0 && batch->n > 0)
        slow_watch_end(&f->watch, batch->n);
    if (r == -EAGAIN) {
        fill->used = replica_retained_bytes(set, round.stream);
        return -ENOBUFS;
    }
    if (r != 0)
        return r == DATASET_END ? FETCH_END : r;
    r = fetch_put_round(fill, &round, batch);
    if (r == -ENOBUFS)
        replica_retain(set, &round, fill->used);
    return r;
}

int fetcher_fill_samples(struct fetcher *f, const struct slot_task *task, void *slot,
                         uint64_t slot_bytes, uint64_t *ret_used, struct dl_error *err)
{
    struct filling fill = {.f = f,
                           .task = task,
                           .slot = slot,
                           .slot_bytes = slot_bytes,
                           .bad = UINT64_MAX,
                           .err = err};

    assert(!fetcher_is_iterable(f) && task->samples > 0 && task->planned == 0);
    f->collate_ns = f->watch.ns = 0;
    int r = f->rows ? fetch_fill_rows(&fill) : fetch_fill_collected(&fill);
    *ret_used = fill.used;
    return r;
}

void fetcher_expect(struct fetcher *f, const void *slot, uint64_t slot_bytes)
{
    struct slot_task task;

    if (!slot_read_task(slot, slot_bytes, &task) || task.stream != 0)
        return;
    for (uint64_t i = 0; i < task.samples; i++) {
        uint64_t index = fetch_index(&task, i);
        if (index < f->dataset->length)
            dataset_expect(f->dataset, index);
    }
    for (uint64_t i = 0; f->dataset->ops->locate && i < task.samples; i++) {
        uint64_t index = fetch_index(&task, i);
        if (index < f->dataset->length)
            dataset_locate(f->dataset, index);
    }
}

void fetcher_foresee(struct fetcher *f, struct dl_span indices)
{
    uint64_t index;

    for (size_t at = 0; at + sizeof index <= indices.len; at += sizeof index) {
        memcpy(&index, indices.data + at, sizeof index);
        index = le64toh(index);
        if (!dataset_is_iterable(f->dataset) && index < f->dataset->length)
            dataset_expect(f->dataset, index);
    }
}

static int fetch_fill(struct filling *fill)
{
    if (slot_asks_lengths(fill->task))
        return fetch_fill_lengths(fill);
    if (fill->task->stream != 0)
        return fetch_fill_round(fill);
    return fill->f->rows ? fetch_fill_rows(fill) : fetch_fill_collected(fill);
}

int fetcher_fill(struct fetcher *f, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                 struct dl_error *err)
{
    struct dl_error own = {0};
    struct slot_task task = {0};
    struct filling fill = {.f = f,
                           .task = &task,
                           .slot = slot,
                           .slot_bytes = slot_bytes,
                           .bad = UINT64_MAX,
                           .err = err ? err : &own};

    assert((uintptr_t)slot % TREE_ALIGN == 0);
    err = fill.err;
    f->collate_ns = f->watch.ns = 0;
    int r = fetch_read_task(f, slot, slot_bytes, &task, err);
    if (r < 0)
        return fetch_put_error(slot, slot_bytes, SLOT_HEADER_BYTES, UINT64_MAX, err);
    r = fetch_fill(&fill);
    if (r == 0 || r == -ENOBUFS)
        *ret_used = fill.used;
    if (r >= 0 || r == -ENOBUFS)
        return r;
    /* These mean something else to the caller. */
    if (err->code == ENOBUFS || err->code == ENODATA || err->code == ECANCELED)
        err->code = EIO;
    return fetch_put_error(slot, slot_bytes, task.stream ? SLOT_HEADER_BYTES : slot_task_end(&task),
                           fill.bad, err);
}
