/*
 * Iterable datasets one after another: each replica of the chain goes through the replicas of its
 * parts in turn, as ChainDataset does.
 */
#include "daemon/data/base/place.h"
#include "daemon/data/files/file_hasher.h"
#include "daemon/data/kinds/combine/combine.h"
#include "daemon/data/kinds/kinds.h"

#include <errno.h>

/* Parts draw apart from each other, as long as each has fewer samples than this. */
enum { PART_KEY_BITS = 48 };

struct chain {
    struct dataset base;
    struct dataset **parts; /* owned, n of them */
    uint32_t n;
};

struct chain_iter {
    struct dataset_iter base;
    const struct chain *chain; /* borrowed */
    struct replica_params params;
    struct dataset_iter *it; /* owned; of part `part`; NULL: not begun */
    uint32_t part;
};

static void chain_close_part(struct chain_iter *ci)
{
    if (ci->it)
        ci->it->ops->close(ci->it);
    ci->it = NULL;
}

/* Makes ci->it the part's; DATASET_END behind the last one. A part that fails is passed over. */
static int chain_begin_part(struct chain_iter *ci, struct dl_error *err)
{
    struct replica_params params = ci->params;

    if (ci->it)
        return 0;
    if (ci->part == ci->chain->n)
        return DATASET_END;
    struct dataset *part = ci->chain->parts[ci->part];
    params.key.base += (uint64_t)ci->part << PART_KEY_BITS;
    int r = part->ops->iterate(part, &params, &ci->it, err);
    if (r < 0) {
        ci->it = NULL;
        ci->part++;
    }
    return r;
}

static int chain_next(struct dataset_iter *it, struct sample *ret, struct dl_error *err)
{
    struct chain_iter *ci = container_of(it, struct chain_iter, base);
    int r;

    while ((r = chain_begin_part(ci, err)) == 0) {
        r = ci->it->ops->next(ci->it, ret, err);
        if (r != DATASET_END)
            return r;
        chain_close_part(ci);
        ci->part++;
    }
    return r;
}

/* A part that cannot be begun is one bad sample, as in next(). */
static int chain_skip(struct dataset_iter *it, uint64_t n, uint64_t *ret)
{
    struct chain_iter *ci = container_of(it, struct chain_iter, base);
    struct dl_error err;
    uint64_t passed = 0;
    int r = 0;

    while (passed < n && (r = chain_begin_part(ci, &err)) != DATASET_END) {
        uint64_t of_part = 1;

        if (r == 0 && ci->it->ops->skip(ci->it, n - passed, &of_part) == DATASET_END) {
            chain_close_part(ci);
            ci->part++;
        }
        passed += of_part;
    }
    if (ret)
        *ret = passed;
    return passed < n ? DATASET_END : 0;
}

static size_t chain_name(struct dataset_iter *it, char *ret, size_t room)
{
    return dataset_iter_name(container_of(it, struct chain_iter, base)->it, ret, room);
}

static void chain_iter_close(struct dataset_iter *it)
{
    struct chain_iter *ci = container_of(it, struct chain_iter, base);

    chain_close_part(ci);
    free(ci);
}

static const struct dataset_iter_ops chain_iter_ops = {
    .next = chain_next, .name = chain_name, .close = chain_iter_close};
static const struct dataset_iter_ops chain_skip_ops = {
    .next = chain_next, .skip = chain_skip, .name = chain_name, .close = chain_iter_close};

static int chain_iterate(struct dataset *ds, const struct replica_params *params,
                         struct dataset_iter **ret, struct dl_error *err)
{
    struct chain_iter *ci = calloc(1, sizeof *ci);

    if (!ci)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    *ci = (struct chain_iter){.base.ops = ds->can_skip ? &chain_skip_ops : &chain_iter_ops,
                              .chain = container_of(ds, struct chain, base),
                              .params = *params};
    *ret = &ci->base;
    return 0;
}

static void chain_close(struct dataset *ds)
{
    struct chain *chain = container_of(ds, struct chain, base);

    for (uint32_t i = 0; chain->parts && i < chain->n; i++)
        dataset_close(chain->parts[i]);
    free(chain->parts);
    free(chain);
}

static const struct dataset_ops chain_ops = {.iterate = chain_iterate, .close = chain_close};

/* ---- opening -------------------------------------------------------------------------------- */

static int chain_add_part(struct chain *chain, uint32_t i, const struct spec_dataset *spec,
                          const char *place, const struct data_env *env, struct dl_error *err)
{
    uint64_t *length = &chain->base.length;
    char path[DL_ERROR_PATH_MAX];

    place_item(path, place, "datasets", i);
    int r = dataset_open_at(&spec->datasets[i], path, env, &chain->parts[i], err);
    if (r < 0)
        return r;
    if (!dataset_is_iterable(chain->parts[i]))
        return dl_error_set(err, EINVAL, path,
                            "is map-style; chain takes iterable datasets, concat map-style ones");
    chain->base.content = file_hasher_join(chain->base.content, chain->parts[i]->content);
    chain->base.can_skip = chain->base.can_skip && chain->parts[i]->can_skip;
    /* Known if each is. */
    if (chain->parts[i]->length == DATASET_LENGTH_UNKNOWN ||
        add_overflows(*length, chain->parts[i]->length, length))
        *length = DATASET_LENGTH_UNKNOWN;
    return 0;
}

int chain_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
               struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct chain *chain;
    int r = 0;

    if (spec->n_datasets == 0 || spec->n_datasets > DL_MAX_DATASET_PARTS)
        return dl_error_set(err, EINVAL, place, "%u datasets; a chain has 1 to %llu",
                            spec->n_datasets, (ull)DL_MAX_DATASET_PARTS);
    chain = calloc(1, sizeof *chain);
    if (!chain)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &chain->base;
    ds->ops = &chain_ops;
    ds->can_skip = true; /* until a part does not */
    chain->n = spec->n_datasets;
    chain->parts = calloc(chain->n, sizeof(struct dataset *));
    if (!chain->parts)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    for (uint32_t i = 0; r == 0 && i < chain->n; i++)
        r = chain_add_part(chain, i, spec, place, env, err);
    if (r < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}
