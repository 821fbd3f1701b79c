/*
 * Collating, from outside: what the spec says of it, and the order of the steps.
 *
 * The first sample decides the batch's tree, as it does for PyTorch. Each sample is walked once
 * against it, which finds where the bytes of each leaf are; a sample whose tree is the first one's,
 * byte for byte, needs no walk. From then on the batch is laid out and written leaf by leaf.
 */
#include "daemon/data/collate/collate_batch.h"

#include "daemon/data/plugin/plugin.h"

#include <assert.h>
#include <errno.h>

bool collate_room(void *array, size_t *room, uint64_t need, size_t size)
{
    uint64_t more = max_u64(2 * (uint64_t)*room, max_u64(need, 16)), bytes;
    void *old, *bigger;

    if (need <= *room)
        return true;
    if (mul_overflows(more, size, &bytes) || bytes > PTRDIFF_MAX)
        return false;
    memcpy(&old, array, sizeof old);
    bigger = realloc(old, bytes);
    if (!bigger)
        return false;
    memcpy(array, &bigger, sizeof bigger);
    *room = more;
    return true;
}

static int copy_fields(struct collate *c, const struct spec_collate *spec)
{
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

int collate_new(const struct dl_spec *spec, const struct data_env *env, struct collate **ret,
                struct dl_error *err)
{
    struct collate *c;

    switch (spec->collate.kind) {
    case COLLATE_DEFAULT:
    case COLLATE_PAD:
    case COLLATE_NONE:
    case COLLATE_PLUGIN:
        break;
    default:
        return dl_error_set(err, EINVAL, "collate.kind", "%u is no kind of collate",
                            (unsigned)spec->collate.kind);
    }
    c = calloc(1, sizeof *c);
    if (!c || copy_fields(c, &spec->collate) < 0) {
        collate_free(c);
        return dl_error_set(err, ENOMEM, "collate", "out of memory");
    }
    c->kind = spec->collate.kind;
    c->side = spec->collate.side;
    c->multiple_of = max_u64(spec->collate.multiple_of, 1);
    c->value = spec->collate.value;
    c->batched = spec->batch_size > 0;
    if (c->kind == COLLATE_PLUGIN) {
        int r = plugin_collate_open(&spec->collate, env, &c->plugin, err);
        if (r < 0) {
            collate_free(c);
            return r;
        }
    }
    *ret = c;
    return 0;
}

struct collate *collate_free(struct collate *c)
{
    if (!c)
        return NULL;
    for (uint32_t i = 0; i < c->n_fields; i++)
        free(c->fields[i]);
    free(c->fields);
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
static int make_batch(struct collate *c, struct dl_error *err)
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
static int measure(struct collate *c, size_t *ret_bad, struct dl_error *err)
{
    int r = 0;

    switch (c->kind) {
    case COLLATE_DEFAULT:
    case COLLATE_PAD:
        c->width = c->n;
        return collate_match(c, ret_bad, err);
    case COLLATE_PLUGIN:
        *ret_bad = SIZE_MAX; /* the batch's fault, not one sample's */
        r = make_batch(c, err);
        break;
    case COLLATE_PACK:
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
                    size_t n, uint64_t begin, struct batch_layout *ret, size_t *ret_bad,
                    struct dl_error *err)
{
    int r;

    assert(n >= 1 && (c->batched || n == 1));
    c->samples = samples;
    c->numbers = numbers;
    c->n = n;
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
    r = measure(c, ret_bad, err);
    if (r < 0)
        return r;
    *ret_bad = c->plugin ? SIZE_MAX : 0;
    r = collate_lay_out(c, err);
    if (r < 0)
        return r;
    *ret = c->layout;
    return 0;
}
