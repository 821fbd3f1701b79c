/*
 * The dataset of kind plugin: files[0].path, opened with `config`. Map-style (get) or iterable,
 * depending on the plug-in.
 */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/plugin/plugin_private.h"

#include <errno.h>
#include <stdio.h>

/* ---- a map-style dataset -------------------------------------------------------------------- */

struct plugin_dataset {
    struct dataset base;
    struct plugin *plugin; /* owned */
};

enum { WHAT_MAX = 64 };

static int plugin_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                      struct sample *ret, struct dl_error *err)
{
    struct plugin *p = container_of(ds, struct plugin_dataset, base)->plugin;
    struct dl_error why = {0};
    struct dl_plugin_sample built = {.sample = ret, .why = &why};
    struct dl_plugin_rng rng;
    char what[WHAT_MAX];

    rng_init(&rng.rng, key->seed, key->epoch, key->base + index);
    snprintf(what, sizeof what, "sample %llu", (ull)index);
    p->said.code = 0;
    return plugin_judge_sample(p, p->table.get(p->handle, index, &built, &rng), &built, what, err);
}

/* The plug-in counts in 64 bits; this many of its lengths are read at once. */
enum { LENGTHS_CHUNK = 1024 };

static int plugin_take_lengths(struct plugin *p, uint64_t first, size_t n, uint32_t *ret,
                               uint64_t *ret_bad, struct dl_error *err)
{
    uint64_t lengths[LENGTHS_CHUNK] = {0};
    int r;

    p->said.code = 0;
    r = p->table.lengths(p->handle, first, n, lengths);
    if (r == -ENOTSUP)
        return r;
    if ((r = plugin_judge(p, r, NULL, "lengths()", err)) < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        uint64_t sample = first + i;

        if (lengths[i] >= LENGTH_UNKNOWN) {
            *ret_bad = sample;
            return dl_error_set(err, EOVERFLOW, p->path,
                                "lengths(): sample %llu has %llu tokens; a sample has fewer than "
                                "2^32 - 1",
                                (ull)sample, (ull)lengths[i]);
        }
        ret[i] = (uint32_t)lengths[i];
    }
    return 0;
}

/* The plug-in does not name the leaf of its lengths: they are those of the default one. */
static int plugin_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    struct plugin *p = container_of(ds, struct plugin_dataset, base)->plugin;
    int r = 0;

    if (w->leaf || !p->table.lengths)
        return -ENOTSUP;
    for (size_t done = 0; done < w->n && r == 0; done += LENGTHS_CHUNK)
        r = plugin_take_lengths(p, w->first + done, min_u64(w->n - done, LENGTHS_CHUNK),
                                w->ret + done, &w->bad, err);
    return r;
}

/* ---- an iterable dataset -------------------------------------------------------------------- */

struct plugin_iter {
    struct dataset_iter base;
    struct plugin *plugin;       /* borrowed */
    void *iter;                  /* the plug-in's */
    struct replica_params about; /* for random numbers */
    uint64_t number;             /* of the next sample, in this replica */
    bool ended;
    struct dl_error fault; /* of a skip: the next next() reports it, and ends */
};

static int plugin_next(struct dataset_iter *it, struct sample *ret, struct dl_error *err)
{
    struct plugin_iter *iter = container_of(it, struct plugin_iter, base);
    struct plugin *p = iter->plugin;
    struct dl_error why = {0};
    struct dl_plugin_sample built = {.sample = ret, .why = &why};
    const struct sample_key *key = &iter->about.key;
    struct dl_plugin_rng rng;
    char what[WHAT_MAX];
    int r;

    if (iter->fault.code) {
        iter->ended = true;
        r = dl_error_set(err, iter->fault.code, p->path, "%s", iter->fault.message);
        iter->fault.code = 0;
        return r;
    }
    if (iter->ended)
        return DATASET_END;
    rng_init(&rng.rng, iter->about.seed, key->epoch, key->base + iter->number);
    snprintf(what, sizeof what, "sample %llu of worker %u of rank %u", (ull)iter->number,
             iter->about.worker, iter->about.rank);
    p->said.code = 0;
    r = p->table.next(iter->iter, &built, &rng);
    iter->number++;
    if (r == DL_PLUGIN_END) {
        iter->ended = true;
        sample_clear(ret);
        return DATASET_END;
    }
    return plugin_judge_sample(p, r, &built, what, err);
}

static int plugin_skip_some(struct plugin_iter *iter, uint64_t n)
{
    struct plugin *p = iter->plugin;

    if (iter->fault.code)
        return 0;
    if (iter->ended)
        return DATASET_END;
    p->said.code = 0;
    int r = p->table.skip(iter->iter, n);
    iter->number += n;
    iter->ended = r == DL_PLUGIN_END;
    if (iter->ended)
        return DATASET_END;
    (void)!plugin_judge(p, r, NULL, "skip()", &iter->fault);
    return 0;
}

/* The plug-in does not say how many there were before the end: they are counted one by one. */
static int plugin_skip(struct dataset_iter *it, uint64_t n, uint64_t *ret)
{
    struct plugin_iter *iter = container_of(it, struct plugin_iter, base);
    int r = 0;

    if (!ret)
        return plugin_skip_some(iter, n);
    for (*ret = 0; *ret < n && !iter->fault.code && r == 0; *ret += r == 0)
        r = plugin_skip_some(iter, 1);
    if (iter->fault.code)
        *ret = n; /* the next next() reports what lies behind them */
    return r;
}

static int plugin_save(struct dataset_iter *it, void *buf, size_t room, size_t *ret_len,
                       enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    struct plugin_iter *iter = container_of(it, struct plugin_iter, base);
    struct plugin *p = iter->plugin;

    *ret_len = 0;
    if (iter->fault.code)
        return -ENOTSUP;
    p->said.code = 0;
    int r = p->table.save_state(iter->iter, buf, room, ret_len);
    if (r == -ENOTSUP || (r = plugin_judge(p, r, NULL, "save_state()", err)) < 0)
        return r;
    if (*ret_len > room)
        *ret_lost = DATASET_STATE_TOO_LARGE;
    return 0;
}

static void plugin_iter_close(struct dataset_iter *it)
{
    struct plugin_iter *iter = container_of(it, struct plugin_iter, base);

    iter->plugin->table.iter_close(iter->iter);
    free(iter);
}

static const struct dataset_iter_ops iter_ops = {
    .next = plugin_next, .save = plugin_save, .close = plugin_iter_close};
static const struct dataset_iter_ops skipping_ops = {
    .next = plugin_next, .skip = plugin_skip, .save = plugin_save, .close = plugin_iter_close};

/* From the first sample on, or where the replica's state says. */
static int plugin_begin(struct plugin *p, const struct replica_params *params, void **ret,
                        struct dl_error *err)
{
    struct dl_plugin_replica replica = {.seed = params->seed,
                                        .epoch = params->key.epoch,
                                        .worker = params->worker,
                                        .workers = params->workers,
                                        .rank = params->rank,
                                        .world = params->world};
    const struct dl_span *state = &params->state;

    p->said.code = 0;
    if (!state->data)
        return plugin_judge(p, p->table.iterate(p->handle, &replica, ret), NULL, "iterate()", err);
    return plugin_judge(p, p->table.load_state(p->handle, &replica, state->data, state->len, ret),
                        NULL, "load_state()", err);
}

static int plugin_iterate(struct dataset *ds, const struct replica_params *params,
                          struct dataset_iter **ret, struct dl_error *err)
{
    struct plugin *p = container_of(ds, struct plugin_dataset, base)->plugin;
    _cleanup_free_ struct plugin_iter *iter = calloc(1, sizeof *iter);

    if (!iter)
        return dl_error_set(err, ENOMEM, p->path, "out of memory");
    iter->base.ops = p->table.skip ? &skipping_ops : &iter_ops;
    iter->plugin = p;
    iter->about = *params;
    iter->number = params->position;
    int r = plugin_begin(p, params, &iter->iter, err);
    if (r < 0)
        return r;
    *ret = &steal_ptr(iter)->base;
    return 0;
}

/* ---- opening a dataset ---------------------------------------------------------------------- */

static void plugin_dataset_close(struct dataset *ds)
{
    struct plugin_dataset *plugin_ds = container_of(ds, struct plugin_dataset, base);

    plugin_free(plugin_ds->plugin);
    tree_deinit(&ds->schema);
    free(plugin_ds);
}

static const struct dataset_ops map_ops = {
    .get = plugin_get, .lengths = plugin_lengths, .close = plugin_dataset_close};
static const struct dataset_ops iterable_ops = {.iterate = plugin_iterate,
                                                .close = plugin_dataset_close};

static int plugin_measure(struct plugin *p, uint64_t *ret, struct dl_error *err)
{
    uint64_t length = DATASET_LENGTH_UNKNOWN;
    int r;

    p->said.code = 0;
    if (p->table.length &&
        (r = plugin_judge(p, p->table.length(p->handle, &length), NULL, "length()", err)) < 0)
        return r;
    if (length > INT64_MAX && !(p->table.iterate && length == DATASET_LENGTH_UNKNOWN))
        return dl_error_set(err, EOVERFLOW, p->path,
                            "length(): %llu samples; a dataset has fewer than 2^63", (ull)length);
    *ret = length;
    return 0;
}

int plugin_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                struct dataset **ret, struct dl_error *err)
{
    _cleanup_(plugin_freep) struct plugin *p = NULL;
    struct plugin_choice choice = {.role = PLUGIN_DATASET, .config = &spec->config, .place = place};
    uint64_t length = 0;
    int r;

    if (spec->n_files != 1 || !spec->files[0].path)
        return dl_error_set(err, EINVAL, place, "a plug-in has one path, not %u", spec->n_files);
    choice.path = spec->files[0].path;
    if ((r = plugin_new(&choice, env, &p, err)) < 0 || (r = plugin_measure(p, &length, err)) < 0)
        return r;
    struct plugin_dataset *ds = calloc(1, sizeof *ds);
    if (!ds)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds->base.ops = p->table.iterate ? &iterable_ops : &map_ops;
    ds->base.length = length;
    ds->base.can_skip = p->table.skip != NULL;
    ds->base.saves_state = p->table.save_state != NULL;
    ds->plugin = steal_ptr(p);
    *ret = &ds->base;
    return 0;
}
