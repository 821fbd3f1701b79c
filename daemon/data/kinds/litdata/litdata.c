#include "daemon/data/files/remote.h"
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/litdata/litdata_chunk.h"
#include "daemon/data/kinds/litdata/litdata_private.h"

#include <errno.h>

/* ---- samples -------------------------------------------------------------------------------- */

/* One that is being made. */
struct litdata_sample {
    struct litdata *lit;
    struct shard_file *chunk;
    uint64_t number; /* in the chunk */
    struct decoding decoding;
    struct sample *ret;
    struct dl_error *err;
};

static int litdata_refuse_item(const struct litdata_sample *s, const struct dl_error *why,
                               const char *name)
{
    return dl_error_set(s->err, why->code, s->chunk->path, "sample %llu: its %s %s", (ull)s->number,
                        name ? name : "value", why->message);
}

/* Out of its compression, in lit->item. */
static int litdata_unpack_item(struct litdata_sample *s, const uint8_t **at, uint64_t *size)
{
    struct litdata *lit = s->lit;

    free(lit->item);
    lit->item = NULL;
    if (compression_of(*at, *size) != COMPRESSION_ZSTD)
        return dl_error_set(s->err, EINVAL, s->chunk->path,
                            "sample %llu is not compressed by zstd, but index.json says so",
                            (ull)s->number);
    int r =
        unpack(COMPRESSION_ZSTD, *at, *size, UINT32_MAX, s->chunk->path, &lit->item, size, s->err);
    *at = lit->item;
    return r;
}

/* The values of sample `index`, in lit->values, as long as its chunk is kept. */
static int litdata_split(struct litdata_sample *s, uint64_t index)
{
    struct litdata *lit = s->lit;
    struct shard_files *chunks = &lit->index.chunks;
    const uint8_t *data, *at;
    uint64_t bytes, size;

    s->chunk = shard_files_of(chunks, index);
    s->number = index - s->chunk->first;
    int r = shard_files_use(chunks, s->chunk, &data, &bytes, s->err);
    if (r == 0)
        r = shard_file_find(data, bytes, s->number, s->chunk->path, &at, &size, s->err);
    if (r == 0 && lit->index.packs_items)
        r = litdata_unpack_item(s, &at, &size);
    if (r < 0 || litdata_chunk_split(&lit->index, at, size, lit->values))
        return r;
    return dl_error_set(s->err, EINVAL, s->chunk->path,
                        "sample %llu: its %llu bytes are not those of its leaves; the chunk is "
                        "damaged",
                        (ull)s->number, (ull)size);
}

static int litdata_add_leaf(const struct litdata_sample *s, uint32_t leaf, const char *name)
{
    struct dl_error why = {0};
    int r = litdata_value_add(&s->lit->values[leaf], name, &s->decoding, s->ret, &why);

    if (why.code)
        return litdata_refuse_item(s, &why, name);
    return r < 0 ? sample_check(s->ret, s->err) : 0;
}

static int litdata_add_node(const struct litdata_sample *s, uint32_t i, const char *name)
{
    const struct litdata_node *node = &s->lit->index.shape.nodes[i];
    int r = 0;

    if (node->leaf != LITDATA_NO_LEAF)
        return litdata_add_leaf(s, node->leaf, name);
    sample_begin(s->ret, node->kind, name);
    i++;
    for (uint32_t child = 0; r == 0 && child < node->children; child++) {
        r = litdata_add_node(s, i, s->lit->index.shape.nodes[i].key);
        i += s->lit->index.shape.nodes[i].span;
    }
    if (r == 0)
        sample_end(s->ret);
    return r;
}

static int litdata_add_fields(const struct litdata_sample *s)
{
    struct litdata *lit = s->lit;
    int r = 0;

    if (lit->fields.choice.n > 0)
        sample_begin(s->ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < litdata_fields(lit); i++) {
        const char *name;
        uint32_t node = litdata_field(lit, i, &name);
        r = litdata_add_node(s, node, name);
    }
    if (r < 0)
        return r;
    if (lit->fields.choice.n > 0)
        sample_end(s->ret);
    return sample_check(s->ret, s->err);
}

/* What the sample points to stays until the batch is made. */
static int litdata_hold(const struct litdata_sample *s)
{
    struct litdata *lit = s->lit;
    uint8_t *item = lit->item;

    lit->item = NULL;
    if (!item)
        return shard_file_hold(s->chunk, s->ret->arena, s->err);
    if (arena_hold(s->ret->arena, free, item) == 0)
        return 0;
    return dl_error_set(s->err, ENOMEM, "dataset", "out of memory for a sample");
}

static int litdata_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                       struct sample *ret, struct dl_error *err)
{
    struct litdata *lit = container_of(ds, struct litdata, base);
    struct litdata_sample s = {.lit = lit,
                               .decoding = {.fields = &lit->fields, .key = key, .index = index},
                               .ret = ret,
                               .err = err};

    int r = litdata_split(&s, index);
    if (r == 0)
        r = litdata_hold(&s);
    return r < 0 ? r : litdata_add_fields(&s);
}

/* The leaf called `name` in samples, or the first with a dimension; shape.leaves if no leaf's
 * lengths are known. */
static uint32_t litdata_length_leaf(const struct litdata *lit, const char *name)
{
    const struct litdata_shape *shape = &lit->index.shape;

    for (uint32_t i = 0; i < litdata_fields(lit); i++) {
        const char *called;
        uint32_t first = litdata_field(lit, i, &called);
        for (uint32_t j = first; j < first + shape->nodes[first].span; j++) {
            const struct litdata_node *node = &shape->nodes[j];
            const char *own = j == first ? called : node->key;
            /* A nested leaf's path would have to be parsed, which is not worth it here. */
            bool flat = j == first || (first == 0 && lit->fields.choice.n == 0 && node->key);
            if (node->leaf == LITDATA_NO_LEAF)
                continue;
            if (name ? flat && own && strcmp(own, name) == 0
                     : litdata_leaf_has_dimensions(&lit->index.leaves[node->leaf]))
                return node->leaf;
        }
    }
    return shape->leaves;
}

/* Of arrays, by their sizes or what stands before their elements. */
static int litdata_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    struct litdata *lit = container_of(ds, struct litdata, base);
    struct litdata_sample s = {.lit = lit, .err = err};
    uint32_t leaf = litdata_length_leaf(lit, w->leaf);
    int r = 0;

    if (leaf == lit->index.shape.leaves || lit->index.leaves[leaf].sort < LITDATA_ROW ||
        lit->index.leaves[leaf].sort > LITDATA_TENSOR)
        return -ENOTSUP;
    for (size_t i = 0; r == 0 && i < w->n; i++) {
        w->bad = w->first + i;
        r = litdata_split(&s, w->first + i);
        if (r == 0)
            w->ret[i] = litdata_value_length(&lit->values[leaf]);
    }
    return r;
}

/* ---- samples of one shape ------------------------------------------------------------------- */

/* A block of tokens, which may span items. */
static int litdata_copy_block(struct litdata_sample *s, uint64_t index, uint8_t *out)
{
    struct shard_files *chunks = &s->lit->index.chunks;
    const uint8_t *data;
    uint64_t bytes, at, size = s->lit->block_bytes;

    s->chunk = shard_files_of(chunks, index);
    int r = shard_files_use(chunks, s->chunk, &data, &bytes, s->err);
    if (r < 0)
        return r;
    at = 4 * (s->chunk->samples + 2) + (index - s->chunk->first) * size;
    if (at > bytes || size > bytes - at)
        return dl_error_set(s->err, EINVAL, s->chunk->path,
                            "has fewer tokens than index.json says; it is damaged");
    memcpy(out, data + at, size);
    return 0;
}

static int litdata_copy_leaves(struct litdata_sample *s, uint64_t index, size_t i, void *const *dst)
{
    struct litdata *lit = s->lit;
    int r = litdata_split(s, index);

    for (uint32_t leaf = 0; r == 0 && leaf < lit->base.n_leaves; leaf++) {
        const struct litdata_value *value = &lit->values[lit->order[leaf]];
        uint64_t size = litdata_leaf_bytes(value->leaf);
        uint8_t *to = (uint8_t *)dst[leaf] + i * size;
        if (value->size != size)
            return dl_error_set(
                s->err, EINVAL, s->chunk->path,
                "sample %llu: one of its numbers has %llu bytes, not %llu; the chunk "
                "is damaged",
                (ull)s->number, (ull)value->size, (ull)size);
        memcpy(to, value->data, size);
        if (value->leaf->sort == LITDATA_BOOL)
            *to = *to != 0;
    }
    return r;
}

static int litdata_read_row(struct dataset *ds, const struct sample_key *key, uint64_t index,
                            void *const *dst, size_t i, struct dl_error *err)
{
    struct litdata *lit = container_of(ds, struct litdata, base);
    struct litdata_sample s = {.lit = lit, .err = err};

    if (lit->block_bytes)
        return litdata_copy_block(&s, index, (uint8_t *)dst[0] + i * lit->block_bytes);
    return litdata_copy_leaves(&s, index, i, dst);
}

static void litdata_expect(struct dataset *ds, uint64_t index)
{
    struct litdata *lit = container_of(ds, struct litdata, base);
    const struct shard_file *chunk = shard_files_of(&lit->index.chunks, index);

    if (!lit->block_bytes) {
        shard_files_expect(&lit->index.chunks, index);
    } else if (chunk->source.data) {
        const uint8_t *block = chunk->source.data + 4 * (chunk->samples + 2) +
                               (index - chunk->first) * lit->block_bytes;
        __builtin_prefetch(block);
        remote_expect(block, lit->block_bytes);
    }
}

static size_t litdata_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    return shard_files_name(&container_of(ds, struct litdata, base)->index.chunks, index, ret,
                            room);
}

static void litdata_close(struct dataset *ds)
{
    struct litdata *lit = container_of(ds, struct litdata, base);

    tree_deinit(&ds->schema);
    fields_close(&lit->fields);
    litdata_index_deinit(&lit->index);
    free(lit->values);
    free(lit->item);
    free(lit->chosen);
    free(lit->order);
    free(lit->root);
    free(lit);
}

const struct dataset_ops litdata_ops = {.get = litdata_get,
                                        .lengths = litdata_lengths,
                                        .name = litdata_name,
                                        .expect = litdata_expect,
                                        .close = litdata_close};
const struct dataset_ops litdata_rows_ops = {.read_row = litdata_read_row,
                                             .name = litdata_name,
                                             .expect = litdata_expect,
                                             .close = litdata_close};
