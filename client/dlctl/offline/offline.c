/*
 * The spec file, the dataset's length, the samples' lengths and the plan that they make, without a
 * daemon: see offline.h.
 */
#include "client/dlctl/offline/offline.h"

#include "client/dlctl/spec.h"
#include "client/dlctl/state.h"
#include "daemon/cache/disk_cache.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/index_files.h"
#include "daemon/data/lengths_take.h"
#include "daemon/plan/plan.h"
#include "proto/shared/weight_files.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <sys/random.h>

/* ---- the spec ------------------------------------------------------------------------------- */

/* The absolute directory of `path`, without links. */
static int offline_directory_of(const char *path, char ret[PATH_MAX], struct dl_error *err)
{
    _cleanup_free_ char *copy = strdup(path);

    if (!copy || !realpath(dirname(copy), ret)) {
        int code = copy ? errno : ENOMEM;
        return dl_error_set(err, code, path, "its directory: %s", strerror(code));
    }
    return 0;
}

static int offline_parse_spec(const char *path, struct dl_spec *ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value value = {0};
    char base[PATH_MAX];
    int r;

    r = spec_read_file(path, &value, err);
    if (r == 0)
        r = offline_directory_of(path, base, err);
    return r < 0 ? r : spec_from_value(&value, base, ret, err);
}

static char root_dir[] = "/";
static char *offline_everywhere[] = {root_dir};
const struct data_env offline_env = {.plugins = offline_everywhere, .n_plugins = 1};

int offline_spec(const struct options *o, struct dl_spec *ret, bool *ret_drawn,
                 struct dl_error *err)
{
    struct dl_spec spec = {0};
    bool draw;
    int r;

    r = offline_parse_spec(o->operand, &spec, err);
    if (r < 0)
        return r;
    draw = !spec.has_seed;
    if (draw) {
        if (getrandom(&spec.seed, sizeof spec.seed, 0) != sizeof spec.seed) {
            spec_deinit(&spec);
            return dl_error_set(err, EIO, "seed", "cannot be drawn; give one in the spec");
        }
        spec.seed &= INT64_MAX; /* fits any JSON reader's integer */
        spec.has_seed = true;
    }
    *ret = spec;
    *ret_drawn = draw;
    return 0;
}

/* ---- the dataset ---------------------------------------------------------------------------- */

static void offline_watch_tell(void *owner, const char *what, uint64_t done, uint64_t all)
{
    struct offline_watch *watch = owner;

    if (!watch->what || strcmp(watch->what, what) != 0) {
        progress_end(&watch->shown);
        progress_begin(&watch->shown, all, watch->quiet);
        watch->what = what;
    }
    if (progress_due(&watch->shown))
        progress_draw_count(&watch->shown, what, done);
}

void offline_watch_begin(struct offline_watch *watch, const struct options *o)
{
    *watch = (struct offline_watch){.env = offline_env, .quiet = o->quiet || o->json};
    watch->progress = (struct data_progress){.tell = offline_watch_tell, .owner = watch};
    watch->env.progress = &watch->progress;
}

void offline_watch_end(struct offline_watch *watch)
{
    progress_end(&watch->shown);
    watch->what = NULL;
}

/* The lengths of all samples, from the user's cache where they are there. */
static int offline_take_lengths(struct dataset *ds, const struct dl_spec *spec,
                                const struct data_env *env, uint32_t **ret, struct dl_error *err)
{
    char dir[PATH_MAX];

    disk_cache_dir(dir);
    return lengths_take(ds, spec, env, dir, ret, err);
}

/* What a plan is made of is known without a look at the dataset. */
static bool offline_knows_length(const struct options *o, const struct dl_spec *spec, uint64_t *ret)
{
    bool range = spec->dataset.kind == DATASET_RANGE && !spec->dataset.iterable;

    if (spec->batch.tokens || spec->dataset.kind == DATASET_MIX || (!o->has_length && !range))
        return false;
    *ret = o->has_length ? o->length : spec->dataset.length;
    return true;
}

static int offline_measure_dataset(struct dataset *ds, const struct dl_spec *spec,
                                   const struct data_env *env, bool compare,
                                   struct offline_measures *ret, struct dl_error *err)
{
    if (dataset_is_iterable(ds))
        return dl_error_set(err, EINVAL, "dataset.kind",
                            "an iterable dataset has no plan: its samples come in its own order");
    if (spec->sampler == SAMPLER_CLIENT)
        return dl_error_set(err, EINVAL, "sampler.kind", "client: only a client has this order");
    if (compare) {
        int r = lengths_check_sequences(ds, spec->batch.length_of, err);
        if (r < 0)
            return r;
    }
    ret->length = ds->length;
    if (ds->n_sizes > 0) {
        ret->sizes = calloc(ds->n_sizes, sizeof *ret->sizes);
        if (!ret->sizes)
            return dl_error_set(err, ENOMEM, "dataset", "out of memory");
        memcpy(ret->sizes, ds->sizes, ds->n_sizes * sizeof *ret->sizes);
    }
    return spec->batch.tokens ? offline_take_lengths(ds, spec, env, &ret->lengths, err) : 0;
}

void offline_measures_deinit(struct offline_measures *measures)
{
    free(measures->lengths);
    free(measures->sizes);
    *measures = (struct offline_measures){0};
}

int offline_measure(const struct options *o, const struct dl_spec *spec, bool compare,
                    struct offline_measures *ret, struct dl_error *err)
{
    struct dataset *ds = NULL;
    struct index_files files;
    struct offline_watch watch;
    int r;

    *ret = (struct offline_measures){0};
    if (offline_knows_length(o, spec, &ret->length))
        return 0;
    if (o->has_length && !spec->batch.tokens)
        return dl_error_set(
            err, EINVAL, "--length",
            "a mix needs the number of samples of each of its datasets, not only of "
            "all; leave it out");
    if (o->has_length)
        return dl_error_set(err, EINVAL, "--length",
                            "batches of tokens need the length of each sample, not only the "
                            "number of samples; leave it out");
    offline_watch_begin(&watch, o);
    index_files_begin_own(&files, &spec->dataset);
    watch.env.index_files = &files;
    r = dataset_open(&spec->dataset, &watch.env, &ds, err);
    watch.env.index_files = NULL;
    index_files_end(&files);
    if (r == 0)
        r = offline_measure_dataset(ds, spec, &watch.env, compare, ret, err);
    offline_watch_end(&watch);
    if (ds)
        dataset_close(ds);
    return r;
}

int offline_replicas(const struct options *o, const struct dl_spec *spec, uint64_t *ret,
                     struct dl_error *err)
{
    *ret = o->world > 1 ? max_u64(spec->replicas, 1) : 1;
    if (o->world % *ret == 0)
        return 0;
    return dl_error_set(err, EINVAL, "world",
                        "%" PRIu64 " is not a multiple of shard.replicas, %" PRIu64, o->world,
                        *ret);
}

/* ---- the plan ------------------------------------------------------------------------------- */

static int offline_refuse_plan(const struct plan_params *params, int r, struct dl_error *err)
{
    if (r == -ENOMEM && params->order == PLAN_TORCH)
        return dl_error_set(err, ENOMEM, "sampler.order",
                            "torch needs memory for each sample of an epoch, more than the "
                            "system has; write order: native");
    return dl_error_set(err, -r, "dataset",
                        "%" PRIu64 " samples for %" PRIu64 " ranks cannot be planned: %s",
                        params->length, params->world, strerror(-r));
}

int offline_plan(const struct dl_spec *spec, const struct plan_params *params, struct plan **ret,
                 struct dl_error *err)
{
    struct plan *plan = NULL;
    uint64_t count;
    int r = spec_check_length(spec, params->length, err);

    if (r == 0)
        r = plan_check_changes(params, err);
    if (r == 0 && plan_is_mix(params))
        r = plan_mix_count(&params->mix, params->epoch, &count, err);
    if (r == 0)
        r = spec_check_world(spec, params->world, err);
    if (r < 0)
        return r;
    r = plan_new(params, &plan);
    if (r == 0)
        r = plan_prepare(plan);
    if (r < 0) {
        plan_free(plan);
        return offline_refuse_plan(params, r, err);
    }
    *ret = plan;
    return 0;
}

/* ---- changed weights ------------------------------------------------------------------------- */

static int offline_check_state(const struct options *o, const struct dl_spec *spec,
                               const struct state_token *token, struct dl_error *err)
{
    uint64_t parts[STATE_PARTS];

    if (spec_parts(spec, parts) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    if (parts[STATE_DATASET] != token->identity.parts[STATE_DATASET])
        return dl_error_set(err, EINVAL, o->changes,
                            "is a state of another dataset than that of %s", o->operand);
    if (spec->seed != token->identity.seed)
        return dl_error_set(err, EINVAL, o->changes,
                            "is a state of seed %" PRIu64 "; write that into the spec",
                            token->identity.seed);
    return 0;
}

int offline_changes(const struct options *o, const struct dl_spec *spec, struct mix_changes **ret,
                    struct dl_error *err)
{
    _cleanup_(state_file_deinit) struct state_file file = {0};
    _cleanup_(mix_changes_unrefp) struct mix_changes *changes = NULL;
    struct state_token token;
    struct dl_span list;
    char dir[PATH_MAX];

    *ret = NULL;
    if (!o->changes)
        return 0;
    int r = state_file_read(o->changes, &file, err);
    struct dl_span state = {file.bytes, file.len};
    if (r == 0)
        r = state_split(o->changes, &state, &list, &changes, &token, err);
    if (r == 0)
        r = offline_check_state(o, spec, &token, err);
    weight_files_dir(dir);
    if (r == 0)
        r = weight_files_fill(dir, changes, o->epoch, err);
    if (r == 0)
        *ret = steal_ptr(changes);
    return r;
}
