#include "daemon/data/collate/lengths.h"

#include "daemon/data/collate/collate_batch.h"

#include <errno.h>

/* ---- the leaf of a sample ------------------------------------------------------------------- */

/* A search for a leaf in one sample. */
struct look {
    const struct tree *tree;
    const char *leaf; /* NULL: the first that has a dimension */
    uint64_t sample;
};

static bool lengths_has_dimension(const struct tree_node *node)
{
    return node->kind == TREE_TENSOR && node->ndim > 0;
}

/* The leaves that have a length: "tokens, pair.0", or "none of its leaves". */
static void lengths_say_candidates(const struct tree *tree, char *out, size_t room)
{
    char path[COLLATE_WORDS];
    size_t len = collate_say(out, room, 0, "%s", "");

    for (uint32_t i = 0; i < tree->count && len < room - 1; i++) {
        if (!lengths_has_dimension(&tree->nodes[i]))
            continue;
        collate_path(tree, i, path, sizeof path);
        len = collate_say(out, room, len, "%s%s", len > 0 ? ", " : "",
                          path[0] ? path : "the sample itself: leave length_of out");
    }
    if (len == 0)
        collate_say(out, room, len, "none of its leaves");
}

static int lengths_refuse_named(const struct look *look, const char *has, struct dl_error *err)
{
    char there[2 * COLLATE_WORDS];

    lengths_say_candidates(look->tree, there, sizeof there);
    return dl_error_set(err, EINVAL, "batch.length_of",
                        "sample %llu has %s; a length can be taken of %s", (ull)look->sample, has,
                        there);
}

/* The leaf that the spec names. */
static int lengths_find_named(const struct look *look, const struct tree_node **ret,
                              struct dl_error *err)
{
    char what[COLLATE_WORDS], has[2 * COLLATE_WORDS];
    uint32_t i = 0;

    if (look->tree->count == 0 || !collate_find(look->tree, 0, look->leaf, &i)) {
        collate_say(has, sizeof has, 0, "no %s", look->leaf);
        return lengths_refuse_named(look, has, err);
    }
    *ret = &look->tree->nodes[i];
    if (lengths_has_dimension(*ret))
        return 0;
    collate_say(has, sizeof has, 0, "%s at %s, which has no dimension",
                collate_say_node(*ret, what, sizeof what), look->leaf);
    return lengths_refuse_named(look, has, err);
}

static int lengths_find_first(const struct look *look, const struct tree_node **ret,
                              struct dl_error *err)
{
    char what[COLLATE_WORDS] = "nothing";
    const struct tree *tree = look->tree;

    for (uint32_t i = 0; i < tree->count; i++) {
        if (lengths_has_dimension(&tree->nodes[i])) {
            *ret = &tree->nodes[i];
            return 0;
        }
    }
    if (tree->count > 0)
        collate_say_node(tree->nodes, what, sizeof what);
    return dl_error_set(err, EINVAL, "dataset",
                        "sample %llu has no leaf with a dimension, so it has no length: it is "
                        "%s; give its tokens as a tensor, or leave batch.tokens out",
                        (ull)look->sample, what);
}

static int lengths_find(const struct look *look, const struct tree_node **ret, struct dl_error *err)
{
    return look->leaf ? lengths_find_named(look, ret, err) : lengths_find_first(look, ret, err);
}

/* 0 for an empty sample: whether that may be is the caller's to say. */
static int lengths_look_at(const struct look *look, uint32_t *ret, struct dl_error *err)
{
    const struct tree_node *node = NULL;
    int r = lengths_find(look, &node, err);

    if (r < 0)
        return r;
    if (node->shape[0] > UINT32_MAX)
        return dl_error_set(err, EOVERFLOW, "dataset",
                            "sample %llu has %llu tokens; the maximum is 2^32 - 1: divide it",
                            (ull)look->sample, (ull)node->shape[0]);
    *ret = (uint32_t)node->shape[0];
    return 0;
}

/* ---- known lengths -------------------------------------------------------------------------- */

/* All samples have one shape: one length is that of all. */
static int lengths_take_fixed(const struct dataset *ds, struct lengths_wanted *w, uint32_t *ret,
                              struct dl_error *err)
{
    const struct look look = {.tree = &ds->schema, .leaf = w->leaf, .sample = w->first};
    int r = lengths_look_at(&look, ret, err);

    if (r < 0)
        w->bad = w->first;
    return r;
}

int dataset_known_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    uint32_t length = LENGTH_UNKNOWN;
    int r = 0;

    w->bad = UINT64_MAX;
    if (ds->ops->lengths) {
        r = ds->ops->lengths(ds, w, err);
        if (r == 0)
            return 0;
    } else if (dataset_is_fixed(ds) && w->n > 0) {
        r = lengths_take_fixed(ds, w, &length, err);
    }
    if (r < 0 && r != -ENOTSUP)
        return r;
    for (size_t i = 0; i < w->n; i++)
        w->ret[i] = length;
    return 0;
}

/* ---- what has to be loaded ------------------------------------------------------------------ */

/* Its memory is kept from one sample to the next. */
struct loading {
    struct arena arena;
    struct sample sample;
};

static void lengths_loading_deinit(struct loading *loading)
{
    sample_deinit(&loading->sample);
    arena_deinit(&loading->arena);
}

static int lengths_load(struct dataset *ds, uint64_t index, struct loading *loading,
                        struct dl_error *err)
{
    static const struct sample_key key; /* a length must not depend on chance */

    loading->sample.arena = &loading->arena;
    sample_clear(&loading->sample);
    arena_clear(&loading->arena);
    return dataset_get(ds, &key, index, &loading->sample, err);
}

static int lengths_load_length(struct dataset *ds, const char *leaf, uint64_t index,
                               struct loading *loading, uint32_t *ret, struct dl_error *err)
{
    const struct look look = {.tree = &loading->sample.tree, .leaf = leaf, .sample = index};
    int r = lengths_load(ds, index, loading, err);

    return r < 0 ? r : lengths_look_at(&look, ret, err);
}

/* Refuses even if a leaf has a length. */
static int lengths_refuse_fixed(const struct dataset *ds, const char *leaf, struct dl_error *err)
{
    const struct look look = {.tree = &ds->schema, .leaf = leaf};
    const struct tree_node *node = &ds->schema.nodes[0];
    struct dl_error none = {0};
    char what[COLLATE_WORDS];

    (void)!lengths_find(&look, &node, &none);
    return dl_error_set(err, EINVAL, "dataset",
                        "every sample is %s: samples of one shape have no lengths to compare; "
                        "use batch.size",
                        collate_say_node(node, what, sizeof what));
}

int lengths_check_sequences(struct dataset *ds, const char *leaf, struct dl_error *err)
{
    enum { SEQUENCE_NDIM = 2 }; /* tokens, or a row of features at each place */
    _cleanup_(lengths_loading_deinit) struct loading loading = {0};
    const struct look look = {.tree = &loading.sample.tree, .leaf = leaf};
    const struct tree_node *node = NULL;
    char what[COLLATE_WORDS];
    int r;

    if (dataset_is_iterable(ds) || ds->length == 0)
        return 0; /* refused for that, where lengths are taken */
    if (dataset_is_fixed(ds))
        return lengths_refuse_fixed(ds, leaf, err);
    r = lengths_load(ds, 0, &loading, err);
    if (r == 0)
        r = lengths_find(&look, &node, err);
    if (r == 0 && !leaf && node->ndim > SEQUENCE_NDIM)
        r = dl_error_set(err, EINVAL, "dataset",
                         "sample 0 is %s, which is not a sequence and has no length; if its "
                         "first dimension is one, name the leaf in batch.length_of",
                         collate_say_node(node, what, sizeof what));
    return r;
}

static int lengths_refuse_range(const struct dataset *ds, struct lengths_wanted *w,
                                struct dl_error *err)
{
    w->bad = UINT64_MAX;
    if (dataset_is_iterable(ds))
        return dl_error_set(err, EINVAL, "dataset",
                            "is iterable: the lengths of its samples are not known in advance; "
                            "leave batch.tokens out, or use a map-style dataset");
    if (w->first > ds->length || w->n > ds->length - w->first) {
        w->bad = max_u64(w->first, ds->length);
        return dataset_refuse_index(ds, w->bad, err);
    }
    return 0;
}

int dataset_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    _cleanup_(lengths_loading_deinit) struct loading loading = {0};
    int r;

    if ((r = lengths_refuse_range(ds, w, err)) < 0 || (r = dataset_known_lengths(ds, w, err)) < 0)
        return r;
    for (size_t i = 0; i < w->n && r == 0; i++) {
        uint64_t sample = w->first + i;

        w->bad = sample;
        if (w->ret[i] == LENGTH_UNKNOWN)
            r = lengths_load_length(ds, w->leaf, sample, &loading, &w->ret[i], err);
    }
    if (r == 0)
        w->bad = UINT64_MAX;
    return r;
}
