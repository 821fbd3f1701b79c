/*
 * Batches measured in tokens: how their keys, those of collate and of the sampler must fit
 * together. A batch is counted with its padding, so every setting that pads must fit it, too.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

int spec_read_leaf(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    if (v->type != VALUE_STRING || !spec_good_leaf(v->string))
        return spec_refuse(rd, key, v, "is not the name of a leaf, such as tokens or pair.0%s",
                           spec_quote_hint(v));
    rd->spec->batch.length_of = strdup(v->string);
    return rd->spec->batch.length_of ? 0 : spec_no_memory(rd);
}

static uint64_t spec_batch_round_up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static bool spec_batch_has_buckets(const struct dl_spec *spec)
{
    return spec->batch.strategy == STRATEGY_BUCKET;
}

/* What a sample of n tokens counts as, where it is not packed. */
static uint64_t spec_batch_padded_length(const struct dl_spec *spec, uint64_t n)
{
    if (spec->collate.kind == COLLATE_PAD && spec->collate.length)
        return spec->collate.length;
    return spec_batch_round_up(
        spec_batch_has_buckets(spec) ? spec_batch_round_up(n, spec->batch.interval) : n,
        spec_pad_multiple(spec));
}

/* ---- what each rule says -------------------------------------------------------------------- */

static int spec_batch_check_pack(const struct dl_spec *spec, struct dl_error *err)
{
    uint64_t tokens = spec->batch.tokens, length = spec->collate.length;
    uint64_t below = tokens / length * length, above = below + length;
    char remedy[64];

    if (tokens == below)
        return 0;
    if (below == 0)
        snprintf(remedy, sizeof remedy, "%" PRIu64, above);
    else if (above > DL_MAX_BATCH_SIZE)
        snprintf(remedy, sizeof remedy, "%" PRIu64, below);
    else
        snprintf(remedy, sizeof remedy, "%" PRIu64 " or %" PRIu64, below, above);
    return dl_error_set(err, EINVAL, "batch.tokens",
                        "%" PRIu64 " is not a multiple of collate.length %" PRIu64 "; write %s",
                        tokens, length, remedy);
}

static int spec_batch_refuse_size(const char *place, uint64_t n, const struct dl_spec *spec,
                                  struct dl_error *err)
{
    return dl_error_set(err, EINVAL, place,
                        "%" PRIu64 " is above batch.tokens %" PRIu64
                        ", so no sample would fit a batch; lower it, or raise tokens",
                        n, spec->batch.tokens);
}

/* A sample of one token must fit, with all that pads it. */
static int spec_batch_check_fits(const struct dl_spec *spec, struct dl_error *err)
{
    uint64_t tokens = spec->batch.tokens, interval = spec->batch.interval;
    const struct spec_collate *collate = &spec->collate;
    bool pads = collate->kind == COLLATE_PAD;

    if (collate->kind == COLLATE_PACK)
        return spec_batch_check_pack(spec, err);
    if (pads && collate->length > tokens)
        return spec_batch_refuse_size("collate.length", collate->length, spec, err);
    if (pads && collate->multiple_of > tokens)
        return spec_batch_refuse_size("collate.multiple_of", collate->multiple_of, spec, err);
    if (spec_batch_has_buckets(spec) && interval > tokens)
        return spec_batch_refuse_size("batch.interval", interval, spec, err);
    uint64_t least = spec_batch_padded_length(spec, 1);
    if (least > tokens)
        return dl_error_set(err, EINVAL, "collate.multiple_of",
                            "%" PRIu64 " and batch.interval %" PRIu64 " pad each sample to %" PRIu64
                            " tokens at the least, above batch.tokens %" PRIu64
                            "; lower one of them, or raise tokens",
                            collate->multiple_of, interval, least, tokens);
    return 0;
}

static int spec_batch_check_max_length(const struct dl_spec *spec, struct dl_error *err)
{
    uint64_t n = spec->batch.max_length, length = spec->collate.length,
             overlap = spec->batch.overlap;
    static const char place[] = "batch.max_length";

    if (overlap > 0 && overlap >= (n ? min_u64(n, length) : length))
        return dl_error_set(err, EINVAL, "batch.overlap",
                            "%" PRIu64 " leaves a part of a sample nothing of its own; write less "
                            "than collate.length, and than max_length",
                            overlap);
    if (n == 0)
        return 0;
    if (length && n > length) /* of a row, or of all samples */
        return dl_error_set(
            err, EINVAL, place,
            "%" PRIu64 " is above collate.length %" PRIu64
            ": a sample of that many tokens would not fit %s; lower it, or raise length",
            n, length, spec->collate.kind == COLLATE_PACK ? "a row" : "it");
    return 0;
}

int spec_check_batch(struct spec_reading *rd)
{
    struct dl_spec *spec = rd->spec;

    if (spec->collate.kind == COLLATE_PAD && spec->collate.length)
        spec->collate.multiple_of = 1;
    if (!spec->batch.tokens)
        return 0;
    spec->batch_size = 1;
    int r = spec_batch_check_fits(spec, rd->err);
    if (r == 0)
        r = spec_batch_check_max_length(spec, rd->err);
    if (r == 0 && spec->collate.kind != COLLATE_PACK && !spec->batch.strategy)
        spec->batch.strategy = STRATEGY_SORTED;
    return r;
}
