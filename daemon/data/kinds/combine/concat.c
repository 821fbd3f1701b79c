/*
 * Datasets one after another: sample i is that of the part whose range it falls into, found by
 * binary search in the parts' ends, as ConcatDataset does. Parts with a fixed shape must have the
 * same one, since one batch may hold samples of each; collate checks all others.
 */
#include "daemon/data/base/place.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/data/files/file_hasher.h"
#include "daemon/data/kinds/combine/combine.h"
#include "daemon/data/kinds/kinds.h"
#include "proto/common/bisect.h"

#include <errno.h>
#include <stdio.h>

enum {
    LARGE_LEAF = 1024, /* bytes of one sample; copying it takes as long as memory's delay */
    CONCAT_SMALL_AHEAD = 16,
};

struct concat {
    struct dataset base;
    struct dataset **parts; /* owned, n of them */
    const char *kind; /* concat, or mix: to that, too, the samples of all parts are one list */
    uint64_t *ends;   /* owned; samples in parts 0..p together */
    uint32_t n;
    uint32_t n_fixed; /* parts with a fixed shape */
    uint32_t fixed;   /* the first of them */
    uint32_t ahead;   /* samples to prefetch */
    struct leaf_cursor cursor;
};

/* ---- reading rows --------------------------------------------------------------------------- */

/* The first part that ends beyond `index`, which lies below the last end. */
static uint32_t concat_find_part(const struct concat *concat, uint64_t index)
{
    return (uint32_t)bisect_ends(concat->ends, concat->n - 1, index);
}

static uint64_t concat_part_begin(const struct concat *concat, uint32_t part)
{
    return part > 0 ? concat->ends[part - 1] : 0;
}

/* One piece of the task, translated: the part of each sample, and its index there. */
struct concat_piece {
    uint32_t parts[COMBINE_CHUNK];
    uint64_t inner[COMBINE_CHUNK];
};

/* How far ahead samples were announced, and where the run begins that this ended in. */
struct horizon {
    size_t next, run;
};

/* Returns n, or the position of the first invalid index. */
static size_t concat_translate(const struct concat *concat, const uint64_t *indices, size_t n,
                               struct concat_piece *piece, uint64_t *ret_bad_index)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        if (index >= concat->base.length) {
            *ret_bad_index = index;
            return i;
        }
        piece->parts[i] = concat_find_part(concat, index);
        piece->inner[i] = index - concat_part_begin(concat, piece->parts[i]);
    }
    return n;
}

/*
 * A part's read_rows() looks ahead within what it is given; runs of a shuffled order are too short
 * for that. So what comes within `ahead` samples is announced here, but for the inside of long
 * runs.
 */
static void concat_announce(const struct concat *concat, const struct concat_piece *piece, size_t n,
                            struct horizon *horizon, size_t until)
{
    for (; horizon->next < until && horizon->next < n; horizon->next++) {
        uint32_t part = piece->parts[horizon->next];
        if (horizon->next == 0 || part != piece->parts[horizon->next - 1])
            horizon->run = horizon->next;
        if (horizon->next - horizon->run < concat->ahead)
            dataset_expect(concat->parts[part], piece->inner[horizon->next]);
    }
}

/* Each run of samples of one part is one read_rows() of that part. */
static int concat_read_piece(struct concat *concat, const struct sample_key *key,
                             const struct concat_piece *piece, size_t n, size_t *ret_bad,
                             struct dl_error *err)
{
    struct horizon horizon = {0};
    size_t end;

    for (size_t begin = 0; begin < n; begin = end) {
        struct dataset *part = concat->parts[piece->parts[begin]];
        for (end = begin + 1; end < n && piece->parts[end] == piece->parts[begin]; end++)
            ;
        concat_announce(concat, piece, n, &horizon, end + concat->ahead);
        struct sample_key inner = *key;
        inner.base += concat_part_begin(concat, piece->parts[begin]);
        int r = dataset_read_rows(part, &inner, piece->inner + begin, end - begin,
                                  concat->cursor.dst, ret_bad, err);
        if (r < 0) {
            *ret_bad += begin;
            return r;
        }
        leaf_cursor_advance(&concat->cursor, end - begin);
    }
    return 0;
}

static int concat_read_rows(struct dataset *ds, const struct sample_key *key,
                            const uint64_t *indices, size_t n, void *const *dst, size_t *ret_bad,
                            struct dl_error *err)
{
    struct concat *concat = container_of(ds, struct concat, base);
    struct concat_piece piece;
    uint64_t bad_index = 0;

    leaf_cursor_begin(&concat->cursor, dst);
    for (size_t begin = 0; begin < n; begin += COMBINE_CHUNK) {
        size_t count = min_u64(n - begin, COMBINE_CHUNK);
        size_t good = concat_translate(concat, indices + begin, count, &piece, &bad_index);
        int r = concat_read_piece(concat, key, &piece, good, ret_bad, err);
        if (r < 0) {
            *ret_bad += begin;
            return r;
        }
        if (good < count) {
            *ret_bad = begin + good;
            return dataset_refuse_index(ds, bad_index, err);
        }
    }
    return 0;
}

static int concat_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                      struct sample *ret, struct dl_error *err)
{
    const struct concat *concat = container_of(ds, struct concat, base);
    uint32_t part = concat_find_part(concat, index);
    struct sample_key inner = *key;

    inner.base += concat_part_begin(concat, part);
    return dataset_get(concat->parts[part], &inner, index - concat_part_begin(concat, part), ret,
                       err);
}

static void concat_expect(struct dataset *ds, uint64_t index)
{
    const struct concat *concat = container_of(ds, struct concat, base);
    uint32_t part = concat_find_part(concat, index);

    dataset_expect(concat->parts[part], index - concat_part_begin(concat, part));
}

static void concat_locate(struct dataset *ds, uint64_t index)
{
    const struct concat *concat = container_of(ds, struct concat, base);
    uint32_t part = concat_find_part(concat, index);

    dataset_locate(concat->parts[part], index - concat_part_begin(concat, part));
}

static size_t concat_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct concat *concat = container_of(ds, struct concat, base);
    uint32_t part = concat_find_part(concat, index);

    return dataset_name(concat->parts[part], index - concat_part_begin(concat, part), ret, room);
}

/* Each part's own, in one call of it. */
static int concat_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    const struct concat *concat = container_of(ds, struct concat, base);
    struct lengths_wanted inner = {.leaf = w->leaf};

    for (size_t done = 0; done < w->n; done += inner.n) {
        uint32_t part = concat_find_part(concat, w->first + done);
        uint64_t begin = concat_part_begin(concat, part);
        inner.first = w->first + done - begin;
        inner.n = min_u64(w->n - done, concat->ends[part] - (w->first + done));
        inner.ret = w->ret + done;
        int r = dataset_known_lengths(concat->parts[part], &inner, err);
        if (r < 0) {
            w->bad = inner.bad == UINT64_MAX ? inner.bad : inner.bad + begin;
            return r;
        }
    }
    return 0;
}

static void concat_close(struct dataset *ds)
{
    struct concat *concat = container_of(ds, struct concat, base);

    for (uint32_t i = 0; concat->parts && i < concat->n; i++)
        dataset_close(concat->parts[i]);
    free(concat->parts);
    free(concat->ends);
    free(ds->sizes);
    leaf_cursor_deinit(&concat->cursor);
    tree_deinit(&ds->schema);
    free(concat);
}

static const struct dataset_ops concat_ops = {.read_rows = concat_read_rows,
                                              .name = concat_name,
                                              .expect = concat_expect,
                                              .locate = concat_locate,
                                              .close = concat_close};
static const struct dataset_ops concat_varying_ops = {.get = concat_get,
                                                      .lengths = concat_lengths,
                                                      .name = concat_name,
                                                      .expect = concat_expect,
                                                      .locate = concat_locate,
                                                      .close = concat_close};

/* ---- equal samples -------------------------------------------------------------------------- */

enum { DESCRIPTION_MAX = 256, NODE_NAME_MAX = 256 };

/* "float32 (3, 4)", "a dict of image, label", "a list of 3". Returns `text`. */
static const char *concat_describe(const struct tree *tree, const struct tree_node *node,
                                   char text[static DESCRIPTION_MAX])
{
    const struct tree_node *child = node + 1;
    size_t len;

    if (node->kind == TREE_TENSOR) {
        len = (size_t)snprintf(text, DESCRIPTION_MAX, "%s (", dtype_name(node->dtype));
        for (uint32_t i = 0; i < node->ndim && len < DESCRIPTION_MAX; i++)
            len += (size_t)snprintf(text + len, DESCRIPTION_MAX - len, "%s%llu", i ? ", " : "",
                                    (ull)node->shape[i]);
        if (len < DESCRIPTION_MAX)
            snprintf(text + len, DESCRIPTION_MAX - len, node->ndim == 1 ? ",)" : ")");
        return text;
    }
    if (node->kind != TREE_DICT) {
        snprintf(text, DESCRIPTION_MAX, "a %s of %u", node->kind == TREE_LIST ? "list" : "tuple",
                 node->children);
        return text;
    }
    len = (size_t)snprintf(text, DESCRIPTION_MAX, "a dict of");
    for (uint32_t i = 0; i < node->children && len < DESCRIPTION_MAX; i++, child = tree_skip(child))
        len += (size_t)snprintf(text + len, DESCRIPTION_MAX - len, "%s %.*s", i ? "," : "",
                                (int)child->key_len, tree->keys + child->key_off);
    return text;
}

static bool concat_same_key(const struct tree *a, const struct tree_node *x, const struct tree *b,
                            const struct tree_node *y)
{
    return x->key_len == y->key_len &&
           (x->key_len == 0 || memcmp(a->keys + x->key_off, b->keys + y->key_off, x->key_len) == 0);
}

/* Compares the node and its children's keys, but not what is below them. */
static bool concat_same_node(const struct tree *a, const struct tree_node *x, const struct tree *b,
                             const struct tree_node *y)
{
    const struct tree_node *xc = x + 1, *yc = y + 1;

    if (x->kind != y->kind || x->children != y->children || x->dtype != y->dtype ||
        x->ndim != y->ndim || memcmp(x->shape, y->shape, sizeof x->shape) != 0)
        return false;
    for (uint32_t i = 0; i < x->children; i++, xc = tree_skip(xc), yc = tree_skip(yc))
        if (!concat_same_key(a, xc, b, yc))
            return false;
    return true;
}

/* The first node, in preorder, where the trees differ; UINT32_MAX: nowhere. */
static uint32_t concat_first_difference(const struct tree *a, const struct tree *b)
{
    for (uint32_t i = 0; i < a->count && i < b->count; i++)
        if (!concat_same_node(a, &a->nodes[i], b, &b->nodes[i]))
            return i;
    return UINT32_MAX;
}

/* " at image", " at pair.0"; nothing for the sample itself. */
static void concat_name_node(const struct tree *tree, uint32_t target, char *text, size_t room)
{
    const struct tree_node *node = tree->nodes, *wanted = &tree->nodes[target];
    size_t len = 0;

    text[0] = '\0';
    while (node != wanted && len < room) {
        bool dict = node->kind == TREE_DICT;
        const struct tree_node *child = node + 1;
        uint32_t i = 0;
        for (; tree_skip(child) <= wanted; child = tree_skip(child))
            i++;
        const char *before = len > 0 ? "." : " at ";
        len += (size_t)(dict ? snprintf(text + len, room - len, "%s%.*s", before,
                                        (int)child->key_len, tree->keys + child->key_off)
                             : snprintf(text + len, room - len, "%s%u", before, i));
        node = child;
    }
}

static int concat_check_part(struct concat *concat, uint32_t i, const char *place,
                             struct dl_error *err)
{
    const struct dataset *part = concat->parts[i];
    const struct tree *first = &concat->parts[concat->fixed]->schema, *tree = &part->schema;
    char mine[DESCRIPTION_MAX], theirs[DESCRIPTION_MAX], at[NODE_NAME_MAX];
    char path[DL_ERROR_PATH_MAX];

    place_item(path, place, "datasets", i);
    int r = combine_check(part, path, err);
    if (r < 0 || !dataset_is_fixed(part))
        return r;
    if (concat->n_fixed++ == 0)
        concat->fixed = i;
    uint32_t node = concat->fixed == i ? UINT32_MAX : concat_first_difference(first, tree);
    if (node == UINT32_MAX)
        return 0;
    concat_name_node(first, node, at, sizeof at);
    return dl_error_set(err, EINVAL, path,
                        "its samples are not those of %s.datasets.%u%s: %s, not %s; all parts of a "
                        "%s need equal samples",
                        place, concat->fixed, at, concat_describe(tree, &tree->nodes[node], mine),
                        concat_describe(first, &first->nodes[node], theirs), concat->kind);
}

/* The sizes of a mix's parts; a nested mix counts with its own parts. */
static void concat_add_sizes(struct concat *concat, const struct dataset *part)
{
    struct dataset *ds = &concat->base;

    if (!ds->sizes)
        return;
    if (part->n_sizes == 0)
        ds->sizes[ds->n_sizes++] = part->length;
    for (uint32_t i = 0; i < part->n_sizes; i++)
        ds->sizes[ds->n_sizes++] = part->sizes[i];
}

/* ---- opening -------------------------------------------------------------------------------- */

static int concat_add_part(struct concat *concat, uint32_t i, const struct spec_dataset *spec,
                           const char *place, const struct data_env *env, struct dl_error *err)
{
    char path[DL_ERROR_PATH_MAX];

    place_item(path, place, "datasets", i);
    int r = concat->parts[i]
                ? 0
                : dataset_open_at(&spec->datasets[i], path, env, &concat->parts[i], err);
    if (r == 0)
        r = concat_check_part(concat, i, place, err);
    if (r < 0)
        return r;
    concat_add_sizes(concat, concat->parts[i]);
    concat->base.content = file_hasher_join(concat->base.content, concat->parts[i]->content);
    if (add_overflows(concat_part_begin(concat, i), concat->parts[i]->length, &concat->ends[i]) ||
        concat->ends[i] > INT64_MAX)
        return dl_error_set(err, EINVAL, path,
                            "the parts up to this one have 2^63 samples or more together");
    return 0;
}

int concat_open_from(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                     struct dataset *first, struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL, *part = first;
    struct concat *concat;
    int r = 0;

    if (spec->n_datasets == 0 || spec->n_datasets > DL_MAX_DATASET_PARTS)
        return dl_error_set(err, EINVAL, place, "%u datasets; a %s has 1 to %llu", spec->n_datasets,
                            dataset_kind_name(spec->kind), (ull)DL_MAX_DATASET_PARTS);
    concat = calloc(1, sizeof *concat);
    if (!concat)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &concat->base;
    ds->ops = &concat_ops;
    concat->kind = dataset_kind_name(spec->kind);
    concat->n = spec->n_datasets;
    concat->parts = calloc(concat->n, sizeof *concat->parts);
    concat->ends = calloc(concat->n, sizeof *concat->ends);
    bool mixes = spec->kind == DATASET_MIX;
    ds->sizes = mixes ? calloc(spec_mixture_leaves(spec), sizeof *ds->sizes) : NULL;
    if (!concat->parts || !concat->ends || (mixes && !ds->sizes))
        return dl_error_set(err, ENOMEM, place, "out of memory");
    concat->parts[0] = steal_ptr(part);
    for (uint32_t i = 0; r == 0 && i < concat->n; i++)
        r = concat_add_part(concat, i, spec, place, env, err);
    if (r < 0)
        return r;
    ds->length = concat->ends[concat->n - 1];
    if (concat->n_fixed < concat->n)
        ds->ops = &concat_varying_ops;
    else if (combine_schema(concat->parts[0], ds, &concat->cursor) < 0)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    concat->ahead = CONCAT_SMALL_AHEAD;
    for (uint32_t i = 0; i < concat->cursor.n; i++)
        if (concat->cursor.row_bytes[i] >= LARGE_LEAF)
            concat->ahead = 1;
    *ret = steal_ptr(ds);
    return 0;
}

int concat_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                struct dataset **ret, struct dl_error *err)
{
    return concat_open_from(spec, place, env, NULL, ret, err);
}
