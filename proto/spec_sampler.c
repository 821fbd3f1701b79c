/*
 * The sampler's own keys: lists of indices and weights, valid combinations, and what must fit the
 * dataset. The checks are those of PyTorch's samplers and of torch.multinomial().
 */
#include "proto/spec_table.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

int spec_read_indices(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    int r = spec_check_list(rd, key, v, "non-negative integers", "[4, 0, 7]");
    if (r < 0)
        return r;
    rd->spec->indices = calloc((size_t)v->count + 1, sizeof *rd->spec->indices);
    if (!rd->spec->indices)
        return spec_no_memory(rd);
    rd->spec->n_indices = v->count;
    return spec_read_whole(rd, key, v, rd->spec->indices);
}

int spec_read_weights(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    double sum = 0;
    char place[SPEC_PATH_MAX];

    if (v->type == VALUE_NULL)
        return 0;
    int r = spec_check_list(rd, key, v, "one number for each sample", "[0.5, 2, 0]");
    if (r < 0)
        return r;
    rd->spec->weights = calloc(v->count, sizeof *rd->spec->weights);
    if (!rd->spec->weights)
        return spec_no_memory(rd);
    for (uint32_t i = 0; i < v->count; i++) {
        double weight = value_real(&v->items[i]);
        if (!(weight >= 0) || isinf(weight))
            return spec_refuse_item(rd, key, v, i, "a finite, non-negative number");
        rd->spec->weights[i] = weight == 0 ? 0 : weight; /* no -0 */
        sum += weight;
    }
    rd->spec->n_weights = v->count;
    spec_key_path(key, place);
    if (sum == 0)
        return dl_error_set(rd->err, EINVAL, place,
                            "all weights are 0; at least one must be positive");
    if (isinf(sum))
        return dl_error_set(rd->err, EINVAL, place,
                            "their sum exceeds the largest float64; scale them down");
    return 0;
}

static int spec_sampler_check_weighted(const struct dl_spec *spec, struct dl_error *err)
{
    if (spec->weights && !spec->replacement && spec->num_samples > spec->n_weights)
        return dl_error_set(err, EINVAL, "sampler.num_samples",
                            "%" PRIu64 " samples cannot be drawn without replacement from %" PRIu32
                            " weights; lower it, or write replacement: true",
                            spec->num_samples, spec->n_weights);
    return 0;
}

int spec_check_sampler(struct spec_reading *rd)
{
    const struct dl_spec *spec = rd->spec;

    int r = spec->sampler == SAMPLER_WEIGHTED ? spec_sampler_check_weighted(spec, rd->err) : 0;
    if (r == 0 && spec_dataset_is_iterable(&spec->dataset))
        return spec_check_iterable(spec, rd->err);
    if (r == 0 && spec->dataset.kind == DATASET_RANGE)
        r = spec_check_length(spec, spec->dataset.length, rd->err);
    return r;
}

int spec_check_world(const struct dl_spec *spec, uint64_t world, struct dl_error *err)
{
    uint64_t size = max_u64(spec->batch_size, 1);

    if (spec->shard == SHARD_DISPATCH && size > DL_MAX_BATCH_SIZE / world)
        return dl_error_set(err, EINVAL, "batch.size",
                            "%" PRIu64 " samples for each of %" PRIu64
                            " ranks are above the maximum of %" PRIu64
                            " in the common batch of shard.mode dispatch; lower size, or write "
                            "another mode",
                            size, world, (uint64_t)DL_MAX_BATCH_SIZE);
    if (spec->shard != SHARD_SPLIT || spec->batch.tokens || size % world == 0)
        return 0;
    return dl_error_set(err, EINVAL, "batch.size",
                        "%" PRIu64 " cannot be split evenly among %" PRIu64
                        " ranks, as shard.mode split does; write a multiple of %" PRIu64,
                        size, world, world);
}

int spec_check_iterable(const struct dl_spec *spec, struct dl_error *err)
{
    if (spec->sampler == SAMPLER_SEQUENTIAL && spec->batch.tokens)
        return dl_error_set(
            err, EINVAL, "batch.tokens",
            "%" PRIu64 " has no meaning, as the dataset is iterable: the lengths of its samples "
            "are not known in advance; write batch: {size: n}, or use a dataset with an index",
            spec->batch.tokens);
    if (spec->on_error == ON_ERROR_SUBSTITUTE && spec->shard != SHARD_STRIDED)
        return dl_error_set(err, EINVAL, "workers.on_error",
                            "\"substitute\" does not work with shard.mode %s and an iterable "
                            "dataset: the next sample is another rank's; write skip, or leave "
                            "shard.mode out",
                            spec_choice_name(spec_key_find("shard", "mode"), spec->shard));
    if (spec->dataset.kind == DATASET_MIX && spec->dataset.draw == MIX_DRAW_RANDOM)
        return dl_error_set(
            err, EINVAL, "dataset.draw",
            "\"random\" is not available for a mix of iterable datasets; write exact, or "
            "leave it out");
    if (spec->sampler == SAMPLER_SEQUENTIAL)
        return 0;
    return dl_error_set(err, EINVAL, "sampler.kind",
                        "\"%s\" has no meaning, as the dataset is iterable: samples come in its "
                        "own order; leave sampler out, or shuffle in the dataset (tar: shuffle)",
                        sampler_kind_name(spec->sampler));
}

int spec_check_length(const struct dl_spec *spec, uint64_t length, struct dl_error *err)
{
    char place[SPEC_PATH_MAX];

    if (length == UINT64_MAX && spec->sampler != SAMPLER_CLIENT)
        return dl_error_set(err, EINVAL, "sampler.kind",
                            "\"%s\" needs the number of the dataset's samples, which is unknown "
                            "(in Python: __len__); write client, and feed the indices",
                            sampler_kind_name(spec->sampler));
    if (spec->sampler == SAMPLER_WEIGHTED && !spec->weights && !spec->replacement &&
        spec->num_samples > length)
        return dl_error_set(err, EINVAL, "sampler.num_samples",
                            "%" PRIu64 " samples cannot be drawn without replacement from a "
                            "dataset of %" PRIu64 "; lower it, or write replacement: true",
                            spec->num_samples, length);
    if (spec->sampler == SAMPLER_WEIGHTED && spec->weights && spec->n_weights != length)
        return dl_error_set(err, EINVAL, "sampler.weights",
                            "%" PRIu32 " weights do not fit a dataset of %" PRIu64
                            " samples; give one for each",
                            spec->n_weights, length);
    for (uint32_t i = 0; i < spec->n_indices; i++) {
        if (spec->indices[i] < length)
            continue;
        snprintf(place, sizeof place, "sampler.indices.%" PRIu32, i);
        return dl_error_set(err, EINVAL, place,
                            "%" PRIu64 " is past the end of a dataset of %" PRIu64
                            " samples, whose indices start from 0",
                            spec->indices[i], length);
    }
    if (spec->batch.tokens && length == 0)
        return dl_error_set(err, EINVAL, "dataset",
                            "it has no samples for batches of %" PRIu64 " tokens",
                            spec->batch.tokens);
    if (spec->num_samples > 0 && length == 0)
        return dl_error_set(err, EINVAL, "sampler.num_samples",
                            "%" PRIu64 " samples cannot be drawn from a dataset that has none",
                            spec->num_samples);
    return 0;
}
