/* Mixtures of iterable datasets. See mix_streams.h. */
#include "daemon/data/kinds/combine/mix_streams.h"
#include "daemon/data/base/place.h"
#include "daemon/data/kinds/kinds.h"

#include <assert.h>
#include <errno.h>

#include "daemon/data/files/file_hasher.h"
#include "daemon/plan/sampler.h"

/* Keeps seeds apart from all other draws for a seed. */
#define MIX_STREAMS_STREAM UINT64_C(0x6d69782073747265)

/* Parts draw apart from each other, as long as each has fewer samples than this. */
enum { MIX_STREAMS_KEY_BITS = 48 };

/* Mixtures in a mixture are numbered behind its parts, for drawing seeds. */
#define MIX_STREAMS_INNER (UINT64_C(1) << 32)

/* ---- the datasets' replicas ------------------------------------------------------------------ */

static uint64_t mix_streams_seed(uint64_t seed, uint64_t cycle, uint64_t number)
{
    const struct sampler_key key = {.seed = seed, .epoch = cycle, .stream = MIX_STREAMS_STREAM};

    return sampler_native_bits(&key, number).high >> 1; /* 63 bits, as PyTorch's have */
}

/* In its first cycle, a dataset has the seed and epoch that it would have alone. But a nested
 * mixture would number its parts as this one does, so it gets its own seed. */
static struct replica_params mix_streams_params(const struct mix_streams_iter *mi, uint32_t i)
{
    struct replica_params params = mi->params;
    uint64_t cycle = mi->streams[i].cycle;

    params.key.base += (uint64_t)i << MIX_STREAMS_KEY_BITS;
    if (mi->mix->parts[i]->tells_origins)
        params.key = (struct sample_key){
            .seed = mix_streams_seed(mi->params.key.seed, cycle, MIX_STREAMS_INNER + i),
            .epoch = mi->params.key.epoch};
    else if (cycle > 0)
        params.key.seed = mix_streams_seed(params.key.seed, cycle, i);
    params.seed = mix_streams_seed(params.seed, cycle, i);
    params.again = 0; /* another replica of the mixture makes samples once more */
    params.position = 0;
    return params;
}

int mix_streams_begin(struct mix_streams_iter *mi, uint32_t i, struct dl_span state,
                      struct dl_error *err)
{
    struct dataset *part = mi->mix->parts[i];
    struct replica_params params = mix_streams_params(mi, i);

    if (state.len > 0) {
        params.state = state;
        params.position = mi->streams[i].count;
    }
    int r = part->ops->iterate(part, &params, &mi->streams[i].it, err);
    if (r < 0)
        mi->streams[i].it = NULL;
    return r;
}

static void mix_streams_close_part(struct mix_stream *stream)
{
    if (stream->it)
        stream->it->ops->close(stream->it);
    stream->it = NULL;
}

static int mix_streams_refuse_nothing(const struct mix_streams_iter *mi, uint32_t i,
                                      struct dl_error *err)
{
    const struct replica_params *params = &mi->params;
    char path[DL_ERROR_PATH_MAX];

    place_item(path, mi->mix->place, "datasets", i);
    if (mi->streams[i].cycle > 0)
        return dl_error_set(
            err, EIO, path,
            "has no samples when it begins again; write stop: first, or let it give "
            "its samples a second time");
    return dl_error_set(
        err, EIO, path,
        "has a weight, but no samples for worker %u of %u of rank %u of %u; give it "
        "at least as many shards as there are workers in all, lower workers.count, "
        "or write divide: false",
        params->worker, params->workers, params->rank, params->world);
}

/* ---- the replica ----------------------------------------------------------------------------- */

static bool mix_streams_is_out(const struct mix_streams_iter *mi, uint32_t i)
{
    const struct mix_shares *shares = &mi->order.shares;
    uint64_t at = mi->first + mi->position;
    uint32_t last = shares->n_stretches - 1;

    return mix_shares_stretch(shares, at) == last && mix_shares_weight(shares, last, i, at) == 0;
}

/* The dataset whose turn it is has ended: has the replica, too? */
static bool mix_streams_is_over(const struct mix_streams_iter *mi)
{
    bool all = mi->mix->stop == MIX_STOP_ALL;

    for (uint32_t i = 0; all && i < mi->mix->n; i++)
        all = mi->streams[i].through || mix_streams_is_out(mi, i);
    return all || mi->mix->stop == MIX_STOP_FIRST;
}

/* The next sample of the stream; without `ret` it is passed over. */
static int mix_streams_take(struct mix_stream *stream, struct sample *ret, struct dl_error *err)
{
    return ret ? stream->it->ops->next(stream->it, ret, err)
               : stream->it->ops->skip(stream->it, 1, NULL);
}

/* Marks which dataset gave the sample; a nested mixture has marked its own part already. */
static void mix_streams_mark(const struct mix_streams *mix, uint32_t i, struct sample *sample)
{
    bool inner = mix->parts[i]->tells_origins;

    if (sample)
        sample->origin = (uint8_t)(mix->leaves[i] + (inner ? sample->origin : 0U));
}

/* One sample of dataset i, which begins as often as it has to; what fails has had its turn. */
static int mix_streams_turn(struct mix_streams_iter *mi, uint32_t i, struct sample *ret,
                            struct dl_error *err)
{
    struct mix_stream *stream = &mi->streams[i];
    int r = 0;

    for (;;) {
        if (!stream->it)
            r = mix_streams_begin(mi, i, (struct dl_span){NULL, 0}, err);
        if (r < 0)
            return r;
        r = mix_streams_take(stream, ret, err);
        if (r != DATASET_END) {
            stream->count++;
            mix_streams_mark(mi->mix, i, ret);
            return r;
        }
        mix_streams_close_part(stream);
        stream->through = true;
        bool over = mix_streams_is_over(mi);
        if (stream->count == 0) {
            mi->ended = over; /* after this has been returned */
            return mix_streams_refuse_nothing(mi, i, err);
        }
        if (over)
            return DATASET_END;
        stream->cycle++;
        stream->count = 0;
        r = 0;
    }
}

static int mix_streams_one(struct mix_streams_iter *mi, struct sample *ret, struct dl_error *err)
{
    if (mi->ended || mi->position == mi->end)
        return DATASET_END;
    struct mix_place place = mix_order_at(&mi->order, mi->first + mi->position);
    int r = mix_streams_turn(mi, place.child, ret, err);

    mi->last = place.child;
    if (r == DATASET_END)
        mi->ended = true;
    else
        mi->position++;
    return r;
}

static int mix_streams_next(struct dataset_iter *it, struct sample *ret, struct dl_error *err)
{
    return mix_streams_one(container_of(it, struct mix_streams_iter, base), ret, err);
}

/* One by one: only reading shows where a dataset ends. */
static int mix_streams_skip(struct dataset_iter *it, uint64_t n, uint64_t *ret)
{
    struct mix_streams_iter *mi = container_of(it, struct mix_streams_iter, base);
    struct dl_error err;
    uint64_t passed = 0;

    while (passed < n && mix_streams_one(mi, NULL, &err) != DATASET_END)
        passed++;
    if (ret)
        *ret = passed;
    return passed < n ? DATASET_END : 0;
}

static int mix_streams_iter_save(struct dataset_iter *it, void *buf, size_t room, size_t *ret_len,
                                 enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    return mix_streams_save(container_of(it, struct mix_streams_iter, base), buf, room, ret_len,
                            ret_lost, err);
}

static size_t mix_streams_name(struct dataset_iter *it, char *ret, size_t room)
{
    const struct mix_streams_iter *mi = container_of(it, struct mix_streams_iter, base);

    return dataset_iter_name(mi->streams[mi->last].it, ret, room);
}

static void mix_streams_iter_close(struct dataset_iter *it)
{
    struct mix_streams_iter *mi = container_of(it, struct mix_streams_iter, base);

    for (uint32_t i = 0; mi->streams && i < mi->mix->n; i++)
        mix_streams_close_part(&mi->streams[i]);
    mix_order_deinit(&mi->order);
    free(mi->streams);
    free(mi);
}

static const struct dataset_iter_ops mix_streams_iter_ops = {.next = mix_streams_next,
                                                             .save = mix_streams_iter_save,
                                                             .name = mix_streams_name,
                                                             .close = mix_streams_iter_close};
static const struct dataset_iter_ops mix_streams_skip_ops = {.next = mix_streams_next,
                                                             .skip = mix_streams_skip,
                                                             .save = mix_streams_iter_save,
                                                             .name = mix_streams_name,
                                                             .close = mix_streams_iter_close};

/* ---- beginning one --------------------------------------------------------------------------- */

/* Where the replica's epoch lies in its order. */
static int mix_streams_measure(struct mix_streams_iter *mi, const struct mix_replica *replica,
                               struct dl_error *err)
{
    const struct mix_streams *mix = mi->mix;
    uint64_t epoch = mi->params.key.epoch, part = mix_replica_part(replica, mix->length);

    mi->end = MIX_POSITIONS;
    if (mix->stop != MIX_STOP_NEVER)
        return 0;
    mi->end = part;
    if (!mul_overflows(epoch, part, &mi->first) && mi->first <= MIX_POSITIONS - part)
        return 0;
    return dl_error_set(err, EINVAL, mix->place,
                        "%llu samples in each epoch, of which this is number %llu, are above the "
                        "maximum of 2^46 in all; lower length",
                        (ull)mix->length, (ull)epoch);
}

/* Each replica's order has choices of its own, so that they do not all err to the same side. */
static int mix_streams_order(struct mix_streams_iter *mi, const struct mix_replica *replica,
                             struct dl_error *err)
{
    const struct mix_streams *mix = mi->mix;
    struct mix_point *points = calloc(mix->schedule.n_points, sizeof *points);
    struct mix_schedule schedule;
    uint64_t number = (uint64_t)replica->rank * replica->workers + replica->worker;

    if (!points)
        return dl_error_set(err, ENOMEM, mix->place, "out of memory for the mixture");
    mix_replica_schedule(&mix->schedule, replica, points, &schedule);
    int r = mix_order_init(&mi->order, &schedule,
                           mix_streams_seed(mi->params.key.seed, 0, UINT64_MAX - number),
                           mix->stop == MIX_STOP_NEVER ? 0 : mi->params.key.epoch);
    free(points);
    if (r == -EINVAL)
        return dl_error_set(err, EINVAL, mix->place,
                            "the schedule's steps are above the maximum of 2^46 samples, or a ramp "
                            "is above 2^32");
    return r < 0 ? dl_error_set(err, -r, mix->place, "out of memory for the mixture") : 0;
}

static int mix_streams_iterate(struct dataset *ds, const struct replica_params *params,
                               struct dataset_iter **ret, struct dl_error *err)
{
    const struct mix_streams *mix = container_of(ds, struct mix_streams, base);
    const struct mix_replica replica = {.rank = params->rank,
                                        .world = (uint32_t)max_u64(params->world, 1),
                                        .worker = params->worker,
                                        .workers = (uint32_t)max_u64(params->workers, 1)};
    struct mix_streams_iter *mi = calloc(1, sizeof *mi);

    if (!mi)
        return dl_error_set(err, ENOMEM, mix->place, "out of memory");
    *mi = (struct mix_streams_iter){
        .base.ops = ds->can_skip ? &mix_streams_skip_ops : &mix_streams_iter_ops,
        .mix = mix,
        .params = *params,
    };
    mi->params.state = (struct dl_span){NULL, 0};
    mi->streams = calloc(mix->n, sizeof *mi->streams);
    int r = mi->streams ? mix_streams_order(mi, &replica, err)
                        : dl_error_set(err, ENOMEM, mix->place, "out of memory");
    if (r == 0)
        r = mix_streams_measure(mi, &replica, err);
    if (r == 0 && params->state.len > 0)
        r = mix_streams_resume(mi, params->state, err);
    if (r < 0) {
        mix_streams_iter_close(&mi->base);
        return r;
    }
    *ret = &mi->base;
    return 0;
}

/* ---- the dataset ----------------------------------------------------------------------------- */

static void mix_streams_close(struct dataset *ds)
{
    struct mix_streams *mix = container_of(ds, struct mix_streams, base);

    for (uint32_t i = 0; mix->parts && i < mix->n; i++)
        dataset_close(mix->parts[i]);
    for (uint32_t i = 0; mix->points && i < mix->schedule.n_points; i++)
        free(mix->points[i].weights);
    free(mix->points);
    free(mix->leaves);
    free(mix->parts);
    free(mix->place);
    free(mix);
}

static const struct dataset_ops mix_streams_ops = {.iterate = mix_streams_iterate,
                                                   .close = mix_streams_close};

/* 0 or -ENOMEM. */
static int mix_streams_copy(struct mix_streams *mix, const struct spec_dataset *spec)
{
    mix->points = calloc(spec->n_points, sizeof *mix->points);
    mix->leaves = calloc(spec->n_datasets, sizeof *mix->leaves);
    if (!mix->points || !mix->leaves)
        return -ENOMEM;
    for (uint32_t i = 1; i < spec->n_datasets; i++)
        mix->leaves[i] = mix->leaves[i - 1] + spec_mixture_leaves(&spec->datasets[i - 1]);
    mix->schedule = (struct mix_schedule){.n = spec->n_datasets,
                                          .n_points = spec->n_points,
                                          .points = mix->points,
                                          .step_samples = spec->global_batch};
    for (uint32_t i = 0; i < spec->n_points; i++) {
        mix->points[i] = spec->points[i];
        mix->points[i].weights = calloc(spec->n_datasets, sizeof(double));
        if (!mix->points[i].weights)
            return -ENOMEM;
        memcpy(mix->points[i].weights, spec->points[i].weights, spec->n_datasets * sizeof(double));
    }
    return 0;
}

/* What the mixture can do with its parts. It saves no state if one of them can neither save its own
 * nor skip to where it was. */
static int mix_streams_look(struct mix_streams *mix, struct dl_error *err)
{
    bool saves = false, can = true;

    mix->base.can_skip = true;
    for (uint32_t i = 0; i < mix->n; i++) {
        const struct dataset *part = mix->parts[i];
        char path[DL_ERROR_PATH_MAX];

        place_item(path, mix->place, "datasets", i);
        if (!dataset_is_iterable(part))
            return dl_error_set(err, EINVAL, path,
                                "is map-style, and %s.datasets.0 iterable; a mix takes only "
                                "map-style or only iterable datasets",
                                mix->place);
        mix->base.content = file_hasher_join(mix->base.content, part->content);
        mix->base.can_skip = mix->base.can_skip && part->can_skip;
        saves = saves || part->saves_state;
        can = can && (part->saves_state || part->can_skip);
    }
    mix->base.saves_state = saves && can;
    return 0;
}

/* A worker's part of a nested mixture has other steps than the outermost one. Foreign code reveals
 * that it is iterable only once it is open. */
static int mix_streams_refuse_steps(const struct mix_streams *mix, const struct spec_dataset *spec,
                                    struct dl_error *err)
{
    char path[DL_ERROR_PATH_MAX];

    for (uint32_t i = 0; i < spec->n_datasets; i++) {
        if (spec->datasets[i].kind != DATASET_MIX || spec->datasets[i].n_points == 1)
            continue;
        place_item(path, mix->place, "datasets", i);
        return dl_error_set(err, EINVAL, path,
                            "has a schedule, which a mix of iterable datasets has in the outermost "
                            "one alone; write weights, or list its datasets there");
    }
    return 0;
}

static int mix_streams_open_parts(struct mix_streams *mix, const struct spec_dataset *spec,
                                  const struct data_env *env, struct dl_error *err)
{
    int r = mix_streams_refuse_steps(mix, spec, err);

    for (uint32_t i = 1; r == 0 && i < mix->n; i++) {
        char path[DL_ERROR_PATH_MAX];

        place_item(path, mix->place, "datasets", i);
        r = dataset_open_at(&spec->datasets[i], path, env, &mix->parts[i], err);
    }
    return r < 0 ? r : mix_streams_look(mix, err);
}

/* Of parts that are iterable, as the first is, which becomes the mixture's in any case. */
static int mix_streams_open(const struct spec_dataset *spec, const char *place,
                            const struct data_env *env, struct dataset *first, struct dataset **ret,
                            struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL, *part = first;
    struct mix_streams *mix = calloc(1, sizeof *mix);

    if (!mix)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &mix->base;
    ds->ops = &mix_streams_ops;
    ds->tells_origins = true;
    ds->length = spec->stop == MIX_STOP_NEVER ? spec->length : DATASET_LENGTH_UNKNOWN;
    mix->n = spec->n_datasets;
    mix->stop = spec->stop;
    mix->length = spec->length;
    mix->place = strdup(place);
    mix->parts = calloc(mix->n, sizeof *mix->parts);
    if (!mix->place || !mix->parts || mix_streams_copy(mix, spec) < 0)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    mix->parts[0] = steal_ptr(part);
    int r = mix_streams_open_parts(mix, spec, env, err);
    if (r < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}

/* Map-style datasets are one list, ordered by the plan (concat.c); iterable ones are mixed here
 * (mix_streams.h). All must be of the first one's style. */
int mix_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
             struct dataset **ret, struct dl_error *err)
{
    struct dataset *first;
    char path[DL_ERROR_PATH_MAX];

    if (spec->n_datasets == 0 || spec->n_datasets > DL_MAX_MIX_CHILDREN)
        return dl_error_set(err, EINVAL, place, "%u datasets; a mix has 1 to %llu",
                            spec->n_datasets, (ull)DL_MAX_MIX_CHILDREN);
    place_item(path, place, "datasets", 0);
    int r = dataset_open_at(&spec->datasets[0], path, env, &first, err);
    if (r < 0)
        return r;
    return dataset_is_iterable(first) ? mix_streams_open(spec, place, env, first, ret, err)
                                      : concat_open_from(spec, place, env, first, ret, err);
}
