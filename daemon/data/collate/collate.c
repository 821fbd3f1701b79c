/*
 * Collating from outside: its part of the spec, and the order of the steps.
 *
 * The first sample decides the batch's tree, as in PyTorch. Each sample is walked once against it,
 * to find the bytes of each leaf; a sample whose tree equals the first one's, byte for byte, needs
 * no walk. Then the batch is laid out and written leaf by leaf.
 */
#include "daemon/data/collate/collate_batch.h"

#include "daemon/data/plugin/plugin.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

static int collate_copy_names(struct collate *c, const struct spec_collate *spec,
                              const char *length_of)
{
    if (length_of) {
        c->length_of = strdup(length_of);
        if (!c->length_of)
            return -ENOMEM;
    }
    if (!spec->fields)
        return 0;
    c->fields = calloc(max_u64(spec->n_fields, 1), sizeof *c->fields);
    if (!c->fields)
        return -ENOMEM;
    for (; c->n_fields < spec->n_fields; c->n_fields++) {
        c->fields[c->n_fields] = strdup(spec->fields[c->n_fields]);
        if (!c->fields[c->n_fields])
            return -ENOMEM;
    }
    return 0;
}

/* What the padded length is a multiple of: of the interval, too, where it is a bucket's. */
static int collate_choose_multiple(struct collate *c, const struct dl_spec *spec,
                                   struct dl_error *err)
{
    uint64_t a = max_u64(spec->collate.multiple_of, 1), b = 1, common;

    if (spec->collate.to == PAD_TO_BUCKET)
        b = max_u64(spec->batch.interval, 1);
    common = a;
    for (uint64_t rest = b; rest > 0;) {
        uint64_t next = common % rest;
        common = rest;
        rest = next;
    }
    if (mul_overflows(a / common, b, &c->multiple_of))
        return dl_error_set(err, EINVAL, "collate.multiple_of",
                            "%" PRIu64 " and batch.interval %" PRIu64
                            " have no common multiple within the limits; choose a smaller one",
                            a, b);
    return 0;
}

static int collate_check_kind(const struct spec_collate *spec, struct dl_error *err)
{
    switch (spec->kind) {
    case COLLATE_DEFAULT:
    case COLLATE_PAD:
    case COLLATE_NONE:
    case COLLATE_PLUGIN:
        return 0;
    case COLLATE_PACK:
        if (spec->length > 0 && spec->length <= INT32_MAX)
            return 0;
        return dl_error_set(err, EINVAL, "collate.length",
                            "%" PRIu64
                            " is not a valid length of a row; write one from 1 to %" PRId32,
                            spec->length, INT32_MAX);
    case COLLATE_PYTHON:
        break;
    }
    return dl_error_set(err, EINVAL, "collate.kind", "%u is not a kind of collate",
                        (unsigned)spec->kind);
}

static void collate_freep(struct collate **collate)
{
    *collate = collate_free(*collate);
}

int collate_new(const struct dl_spec *spec, const struct data_env *env, struct collate **ret,
                struct dl_error *err)
{
    int r = collate_check_kind(&spec->collate, err);

    if (r < 0)
        return r;
    _cleanup_(collate_freep) struct collate *c = calloc(1, sizeof *c);
    if (!c || collate_copy_names(c, &spec->collate, spec->batch.length_of) < 0)
        return dl_error_set(err, ENOMEM, "collate", "out of memory");
    c->kind = spec->collate.kind;
    c->side = spec->collate.side;
    c->length = spec->collate.length;
    c->overlap = spec->batch.overlap;
    c->cuts = spec->batch.strategy == STRATEGY_CUT;
    c->value = spec->collate.value;
    c->batched = spec->batch_size > 0;
    r = collate_choose_multiple(c, spec, err);
    if (r == 0 && c->kind == COLLATE_PLUGIN)
        r = plugin_collate_open(&spec->collate, env, &c->plugin, err);
    if (r == 0)
        *ret = steal_ptr(c);
    return r;
}

struct collate *collate_free(struct collate *c)
{
    if (!c)
        return NULL;
    for (uint32_t i = 0; i < c->n_fields; i++)
        free(c->fields[i]);
    free(c->fields);
    free(c->length_of);
    free(c->leaves);
    free(c->sources);
    free(c->parts);
    tree_deinit(&c->tree);
    plugin_collate_close(c->plugin);
    sample_deinit(&c->made);
    arena_deinit(&c->arena);
    free(c);
    return NULL;
}

/* What the plug-in makes of the samples stands for them: one sample, which is the batch. */
static int collate_make_batch(struct collate *c, struct dl_error *err)
{
    arena_clear(&c->arena);
    sample_clear(&c->made);
    c->made.arena = &c->arena;
    int r = plugin_collate(c->plugin, c->samples, c->numbers, c->n, &c->made, err);
    c->samples = &c->made;
    c->n = 1;
    return r;
}

/* Where the leaves come from, by kind. */
static int collate_measure_kind(struct collate *c, size_t *ret_bad, struct dl_error *err)
{
    int r = 0;

    switch (c->kind) {
    case COLLATE_DEFAULT:
    case COLLATE_PAD:
    case COLLATE_PACK:
        c->width = c->n;
        r = collate_match(c, ret_bad, err);
        return r == 0 && c->kind == COLLATE_PACK ? collate_check_packed(c, ret_bad, err) : r;
    case COLLATE_PLUGIN:
        *ret_bad = SIZE_MAX; /* the batch's fault, not one sample's */
        r = collate_make_batch(c, err);
        break;
    case COLLATE_PYTHON: /* refused by collate_new() */
    case COLLATE_NONE:
        break;
    }
    c->width = 1;
    for (size_t i = 0; i < c->n && r == 0; i++) {
        if (c->kind == COLLATE_NONE)
            *ret_bad = i;
        r = collate_take(c, &c->samples[i], err);
    }
    return r;
}

int collate_measure(struct collate *c, const struct sample *samples, const uint64_t *numbers,
                    size_t n, const struct planned *planned, uint64_t begin,
                    struct batch_layout *ret, size_t *ret_bad, struct dl_error *err)
{
    int r;

    assert(n >= 1 && (c->batched || n == 1));
    c->samples = samples;
    c->numbers = numbers;
    c->n = n;
    c->planned = planned;
    c->layout.begin = begin;
    c->n_leaves = 0;
    tree_clear(&c->tree);
    *ret_bad = 0;
    for (size_t i = 0; i < n; i++) {
        r = sample_check(&samples[i], err);
        if (r < 0) {
            *ret_bad = i;
            return r;
        }
    }
    r = collate_measure_kind(c, ret_bad, err);
    if (r < 0)
        return r;
    *ret_bad = c->plugin ? SIZE_MAX : 0;
    r = collate_lay_out(c, err);
    if (r < 0)
        return r;
    *ret = c->layout;
    return 0;
}
