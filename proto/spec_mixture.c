/*
 * The keys of a mixture: weights of its datasets, which may change by a schedule, and what must be
 * so of them together. mixture.h has their meaning.
 */
#include "proto/mix_changes.h"
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void spec_mixture_deinit(struct spec_dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->n_points; i++)
        free(dataset->points[i].weights);
    free(dataset->points);
}

uint32_t spec_mixture_leaves(const struct spec_dataset *dataset)
{
    uint32_t leaves = 0;

    if (dataset->kind != DATASET_MIX)
        return 1;
    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        leaves += spec_mixture_leaves(&dataset->datasets[i]);
    return leaves;
}

uint32_t spec_mixture_nodes(const struct spec_dataset *dataset)
{
    uint32_t nodes = 1;

    for (uint32_t i = 0; dataset->kind == DATASET_MIX && i < dataset->n_datasets; i++)
        nodes += spec_mixture_nodes(&dataset->datasets[i]);
    return nodes;
}

bool spec_mixture_is_nested(const struct spec_dataset *dataset)
{
    bool nested = false;

    for (uint32_t i = 0; dataset->kind == DATASET_MIX && i < dataset->n_datasets; i++)
        nested = nested || dataset->datasets[i].kind == DATASET_MIX;
    return nested;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int spec_mixture_refuse(const struct spec_reading *rd, const char *place, const char *words)
{
    return dl_error_set(rd->err, EINVAL, place, "%s", words);
}

static int spec_mixture_read_weights(struct spec_reading *rd, const char *place,
                                     const struct value *v, double *weights)
{
    uint32_t n = rd->spec->dataset.n_datasets;
    char item[DL_ERROR_PATH_MAX], shown[SPEC_SHOWN_MAX];

    if (v->type != VALUE_ARRAY)
        return dl_error_set(rd->err, EINVAL, place,
                            "%s is not a list of one number for each dataset, such as [0.7, 0.3]",
                            spec_show(v, shown));
    if (v->count != n)
        return dl_error_set(
            rd->err, EINVAL, place,
            "%" PRIu32 " weights do not fit %" PRIu32 " datasets; give one for each", v->count, n);
    for (uint32_t i = 0; i < n; i++) {
        double weight = value_real(&v->items[i]);

        spec_place_item(place, i, item);
        if (!(weight >= 0) || isinf(weight))
            return dl_error_set(rd->err, EINVAL, item, "%s is not a finite, non-negative number",
                                spec_show(&v->items[i], shown));
        weights[i] = weight == 0 ? 0 : weight; /* no -0 */
    }
    return mix_weights_check(weights, n, place, rd->err);
}

/* Appends a point to the list, which has room. */
static int spec_mixture_add(struct spec_reading *rd, const char *place, const struct value *weights,
                            const struct mix_point *point)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    struct mix_point *added = &dataset->points[dataset->n_points];

    *added = *point;
    added->weights = calloc(dataset->n_datasets, sizeof *added->weights);
    if (!added->weights)
        return spec_no_memory(rd);
    dataset->n_points++;
    return spec_mixture_read_weights(rd, place, weights, added->weights);
}

static int spec_mixture_alloc(struct spec_reading *rd, uint32_t n)
{
    rd->spec->dataset.points = calloc(n, sizeof *rd->spec->dataset.points);
    return rd->spec->dataset.points ? 0 : spec_no_memory(rd);
}

int spec_read_shares(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    char place[DL_ERROR_PATH_MAX];
    int r = spec_mixture_alloc(rd, 1);

    spec_place(rd, key, place);
    return r < 0 ? r : spec_mixture_add(rd, place, v, &(struct mix_point){.step = 0});
}

/* ---- the schedule ---------------------------------------------------------------------------- */

static int spec_mixture_read_step(const struct spec_reading *rd, const char *place,
                                  const struct value *v, struct mix_point *point)
{
    const struct spec_dataset *dataset = &rd->spec->dataset;
    uint32_t n = dataset->n_points;
    char shown[SPEC_SHOWN_MAX], at[DL_ERROR_PATH_MAX];

    spec_place_below(place, "step", at);
    if (!v)
        return spec_mixture_refuse(rd, at, "missing; an entry of the schedule needs it");
    if (v->type != VALUE_INT || v->integer < 0)
        return dl_error_set(rd->err, EINVAL, at, "%s is not a non-negative integer",
                            spec_show(v, shown));
    point->step = (uint64_t)v->integer;
    if (n == 0 && point->step != 0)
        return dl_error_set(rd->err, EINVAL, at,
                            "%" PRIu64 " leaves the steps before it without "
                            "weights; begin the schedule with step: 0",
                            point->step);
    if (n > 0 && point->step <= dataset->points[n - 1].step)
        return dl_error_set(rd->err, EINVAL, at,
                            "%" PRIu64 " is not above %" PRIu64
                            ", the step of the entry before it; "
                            "put them in order",
                            point->step, dataset->points[n - 1].step);
    return 0;
}

static int spec_mixture_read_ramp(const struct spec_reading *rd, const char *place,
                                  const struct value *v, struct mix_point *point)
{
    char shown[SPEC_SHOWN_MAX], at[DL_ERROR_PATH_MAX];
    bool text = v && v->type == VALUE_STRING;

    spec_place_below(place, "ramp", at);
    point->ramp = text && strcmp(v->string, "linear") == 0;
    if (v && !point->ramp && !(text && strcmp(v->string, "none") == 0))
        return dl_error_set(rd->err, EINVAL, at, "%s is not one of none, linear",
                            spec_show(v, shown));
    if (point->ramp && rd->spec->dataset.n_points == 0)
        return spec_mixture_refuse(rd, at,
                                   "linear, but there are no weights before this entry to "
                                   "come from; leave it out");
    return 0;
}

static int spec_mixture_read_point(struct spec_reading *rd, const char *place,
                                   const struct value *v)
{
    const struct value *step, *weights, *ramp;
    struct mix_point point = {.step = 0};
    char at[DL_ERROR_PATH_MAX], shown[SPEC_SHOWN_MAX];

    if (v->type != VALUE_MAP)
        return dl_error_set(rd->err, EINVAL, place,
                            "%s is not a mapping, such as {step: 1000, weights: [0.7, 0.3]}",
                            spec_show(v, shown));
    step = value_get(v, "step");
    weights = value_get(v, "weights");
    ramp = value_get(v, "ramp");
    if (v->count > (uint32_t)(!!step + !!weights + !!ramp))
        return spec_mixture_refuse(rd, place, "has other keys than step, weights and ramp");
    int r = spec_mixture_read_step(rd, place, step, &point);
    if (r == 0)
        r = spec_mixture_read_ramp(rd, place, ramp, &point);
    if (r < 0)
        return r;
    spec_place_below(place, "weights", at);
    return weights ? spec_mixture_add(rd, at, weights, &point)
                   : spec_mixture_refuse(rd, at, "missing; an entry of the schedule needs them");
}

int spec_read_schedule(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    char list[DL_ERROR_PATH_MAX], place[DL_ERROR_PATH_MAX];

    spec_place(rd, key, list);
    if (rd->spec->dataset.n_points > 0)
        return spec_mixture_refuse(rd, list,
                                   "is given together with weights; leave out one of them");
    int r = spec_check_list(rd, key, v, "weights with their steps", "[{step: 0, weights: [1, 1]}]");
    if (r == 0)
        r = spec_mixture_alloc(rd, v->count);
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        spec_place_item(list, i, place);
        r = spec_mixture_read_point(rd, place, &v->items[i]);
    }
    return r;
}

/* A mix inside another one orders its own samples and is asked for any number of them. */
int spec_mixture_check_inner(const struct spec_reading *rd, const char *place,
                             const struct spec_dataset *inner)
{
    bool steps = inner->n_points > 1;
    const struct {
        bool is;
        const char *key, *words;
    } not [] = {
        {steps && inner->stop != MIX_STOP_NEVER, "schedule",
         "has steps, by which each of its epochs would have another length; write stop: never and "
         "a length beside it"},
        {steps && spec_dataset_is_iterable(inner), "schedule",
         "has steps, which a mix of iterable datasets has in the outermost one alone, since each "
         "worker makes a part of it; write weights, or list its datasets there"},
        {inner->by == MIX_BY_TOKENS, "by",
         "tokens: an inner mix is asked for samples, and has shares of these; leave it out, or "
         "list its datasets in the outermost mix, their weights times that of this one"},
        {inner->draw == MIX_DRAW_RANDOM, "draw",
         "random: an inner mix is exact, so that a sample of it is found without those before; "
         "leave it out, or list its datasets in the outermost mix, their weights times that of "
         "this one"},
    };
    char at[DL_ERROR_PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(not ); i++) {
        spec_place_below(place, not [i].key, at);
        if (not [i].is)
            return spec_mixture_refuse(rd, at, not [i].words);
    }
    return 0;
}

bool spec_mixture_has_inner_steps(const struct spec_dataset *dataset)
{
    bool steps = false;

    for (uint32_t i = 0; dataset->kind == DATASET_MIX && i < dataset->n_datasets; i++) {
        const struct spec_dataset *child = &dataset->datasets[i];

        steps = steps || (child->kind == DATASET_MIX && child->n_points > 1) ||
                spec_mixture_has_inner_steps(child);
    }
    return steps;
}

/* ---- together -------------------------------------------------------------------------------- */

int spec_check_mixture(const struct spec_reading *rd)
{
    const struct spec_dataset *dataset = &rd->spec->dataset;
    char place[DL_ERROR_PATH_MAX];

    if (dataset->kind != DATASET_MIX)
        return 0;
    if (dataset->n_datasets > DL_MAX_MIX_CHILDREN) {
        spec_place_below(rd->place, "datasets", place);
        return dl_error_set(rd->err, EINVAL, place,
                            "%" PRIu32 " datasets are above a mix's maximum of %" PRIu64
                            "; join some of them with concat",
                            dataset->n_datasets, (uint64_t)DL_MAX_MIX_CHILDREN);
    }
    if (spec_mixture_leaves(dataset) > DL_MAX_MIX_CHILDREN) {
        spec_place_below(rd->place, "datasets", place);
        return dl_error_set(rd->err, EINVAL, place,
                            "%" PRIu32 " datasets, with those of mixes in it, are above a mix's "
                            "maximum of %" PRIu64 "; join some of them with concat",
                            spec_mixture_leaves(dataset), (uint64_t)DL_MAX_MIX_CHILDREN);
    }
    if (dataset->n_points == 0) {
        spec_place_below(rd->place, "weights", place);
        return spec_mixture_refuse(rd, place,
                                   "missing; a mix needs one for each dataset, or a schedule");
    }
    spec_place_below(rd->place, "global_batch", place);
    if (dataset->n_points > 1 && dataset->global_batch == 0)
        return spec_mixture_refuse(rd, place,
                                   "missing; a schedule counts its steps by it: the samples of all "
                                   "ranks in a step, such as batch.size times the number of ranks");
    if (dataset->n_points == 1 && dataset->global_batch > 0)
        return spec_mixture_refuse(rd, place,
                                   "has no effect without a schedule of several entries; "
                                   "leave it out");
    spec_place_below(rd->place, "by", place);
    if (dataset->by == MIX_BY_TOKENS && spec_mixture_has_inner_steps(dataset))
        return spec_mixture_refuse(
            rd, place,
            "tokens cannot be combined with the schedule of a nested mix: how "
            "many of its samples come before a step depends on lengths; "
            "leave it out, or put the schedule into the outermost mix");
    spec_place_below(rd->place, "length", place);
    if (dataset->stop == MIX_STOP_NEVER && dataset->length == 0)
        return spec_mixture_refuse(rd, place,
                                   "missing; stop: never needs it: the samples that count "
                                   "as an epoch");
    return 0;
}
