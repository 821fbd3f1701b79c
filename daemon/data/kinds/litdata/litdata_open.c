#include "daemon/data/kinds/arrow/arrow.h"
#include "daemon/data/kinds/arrow/arrow_table.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/litdata/litdata_chunk.h"
#include "daemon/data/kinds/litdata/litdata_private.h"

#include <errno.h>
#include <stdio.h>

/* ---- fields ------------------------------------------------------------------------ */

static int litdata_find_key(const struct litdata *lit, const char *key, uint32_t *ret,
                            struct dl_error *err)
{
    const struct litdata_node *nodes = lit->index.shape.nodes;

    for (uint32_t i = 1; nodes[0].kind == TREE_DICT && i < lit->index.shape.n; i += nodes[i].span) {
        if (strcmp(nodes[i].key, key) == 0) {
            *ret = i;
            return 0;
        }
    }
    return dl_error_set(err, EINVAL, lit->root, "has no samples with a key %s; see dataset.fields",
                        key);
}

/* Whether node `i` and all below it can be part of a sample of this spec. */
static int litdata_check_node(const struct litdata *lit, uint32_t i, struct dl_error *err)
{
    const struct litdata_shape *shape = &lit->index.shape;

    for (uint32_t end = i + shape->nodes[i].span; i < end; i++) {
        uint32_t leaf = shape->nodes[i].leaf;
        const char *key = shape->nodes[i].key ? shape->nodes[i].key : "value";
        enum litdata_sort sort =
            leaf == LITDATA_NO_LEAF ? LITDATA_BYTES : lit->index.leaves[leaf].sort;
        if (sort == LITDATA_PICKLE)
            return dl_error_set(err, EINVAL, lit->root,
                                "its %s is pickled, and unpickling can run any code; choose others "
                                "with dataset.fields",
                                key);
        if (sort == LITDATA_UNKNOWN)
            return dl_error_set(err, EINVAL, lit->root,
                                "its %s has the format \"%.60s\", which cannot be read; choose "
                                "others with dataset.fields",
                                key, lit->index.leaves[leaf].format);
        if (sort == LITDATA_PIXELS && lit->fields.images &&
            lit->fields.image.transform != TRANSFORM_NONE)
            return dl_error_set(err, EINVAL, lit->root,
                                "its %s has images that are not compressed, which cannot be "
                                "resized; write them as jpeg, or leave dataset.size out",
                                key);
    }
    return 0;
}

static int litdata_choose(struct litdata *lit, struct dl_error *err)
{
    int r = 0;

    if (lit->fields.choice.n == 0)
        return litdata_check_node(lit, 0, err);
    lit->chosen = calloc(lit->fields.choice.n, sizeof *lit->chosen);
    if (!lit->chosen)
        return dl_error_set(err, ENOMEM, lit->root, "out of memory");
    for (uint32_t i = 0; r == 0 && i < lit->fields.choice.n; i++) {
        r = litdata_find_key(lit, lit->fields.choice.fields[i].source, &lit->chosen[i], err);
        if (r == 0)
            r = litdata_check_node(lit, lit->chosen[i], err);
    }
    return r;
}

/* dataset.images: which bytes are pictures. */
static int litdata_mark_images(struct litdata *lit, const struct spec_dataset *spec,
                               struct dl_error *err)
{
    for (uint32_t i = 0; i < spec->n_images; i++) {
        uint32_t node = 0;
        int r = litdata_find_key(lit, spec->images[i], &node, err);
        if (r < 0)
            return r;
        uint32_t leaf = lit->index.shape.nodes[node].leaf;
        if (leaf == LITDATA_NO_LEAF || lit->index.leaves[leaf].sort != LITDATA_BYTES)
            return dl_error_set(
                err, EINVAL, lit->root,
                "its %s is neither a file nor bytes, so it cannot be a picture; see dataset.images",
                spec->images[i]);
        lit->index.leaves[leaf].sort = LITDATA_IMAGE;
    }
    return 0;
}

/* ---- one shape --------------------------------------------------------------------- */

static int litdata_describe_node(struct litdata *lit, uint32_t i, const char *name)
{
    struct tree *schema = &lit->base.schema;
    const struct litdata_node *node = &lit->index.shape.nodes[i];
    int r;

    if (node->leaf != LITDATA_NO_LEAF) {
        lit->order[lit->base.n_leaves++] = node->leaf;
        return tree_add_tensor(schema, name, lit->index.leaves[node->leaf].dtype, 0, NULL);
    }
    r = tree_add(schema, node->kind, name, node->children);
    i++;
    for (uint32_t child = 0; r == 0 && child < node->children; child++) {
        r = litdata_describe_node(lit, i, lit->index.shape.nodes[i].key);
        i += lit->index.shape.nodes[i].span;
    }
    return r;
}

static bool litdata_is_fixed(const struct litdata *lit)
{
    const struct litdata_shape *shape = &lit->index.shape;

    for (uint32_t i = 0; i < litdata_fields(lit); i++) {
        const char *name;
        uint32_t first = litdata_field(lit, i, &name);
        for (uint32_t j = first; j < first + shape->nodes[first].span; j++) {
            uint32_t leaf = shape->nodes[j].leaf;
            if (leaf == LITDATA_NO_LEAF ? shape->nodes[j].children == 0
                                        : litdata_leaf_bytes(&lit->index.leaves[leaf]) == 0)
                return false;
        }
    }
    return true;
}

/* Where all values are numbers, they are copied straight to their batch. */
static int litdata_describe(struct litdata *lit, struct dl_error *err)
{
    int r = 0;

    if (!litdata_is_fixed(lit))
        return 0;
    lit->order = calloc(max_u64((uint64_t)lit->index.shape.leaves * litdata_fields(lit), 1),
                        sizeof *lit->order);
    if (!lit->order)
        return dl_error_set(err, ENOMEM, lit->root, "out of memory");
    if (lit->fields.choice.n > 0)
        r = tree_add(&lit->base.schema, TREE_DICT, NULL, lit->fields.choice.n);
    for (uint32_t i = 0; r == 0 && i < litdata_fields(lit); i++) {
        const char *name;
        uint32_t node = litdata_field(lit, i, &name);
        r = litdata_describe_node(lit, node, name);
    }
    if (r < 0)
        return dl_error_set(err, -r, lit->root, "its samples cannot be described: %s",
                            strerror(-r));
    lit->base.ops = &litdata_rows_ops;
    return 0;
}

static int litdata_describe_blocks(struct litdata *lit, uint64_t length, struct dl_error *err)
{
    uint32_t dtype = lit->index.leaves[0].dtype;
    int r = tree_add_tensor(&lit->base.schema, NULL, dtype, 1, &length);

    if (r < 0)
        return dl_error_set(err, -r, lit->root, "its samples cannot be described: %s",
                            strerror(-r));
    lit->base.n_leaves = 1;
    lit->base.ops = &litdata_rows_ops;
    lit->block_bytes = length * dtype_bytes(dtype);
    for (uint32_t i = 0; i < lit->index.chunks.n; i++)
        lit->index.chunks.files[i].count = lit->index.tokens[i] / length;
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int litdata_read_index(const char *root, const struct data_env *env,
                              struct litdata_index *ret, struct dl_error *err)
{
    char path[PATH_MAX];
    struct source source = {0};

    snprintf(path, sizeof path, "%s/index.json", root);
    int r = source_open(path, env, &source, err);
    if (r == 0)
        r = litdata_index_parse(source.data, source.bytes, path, ret, err);
    source_close(&source);
    return r;
}

/* Blocks of tokens, or items. */
static int litdata_shape_samples(struct litdata *lit, const struct spec_dataset *spec,
                                 struct dl_error *err)
{
    bool blocks = spec->sequence_length > 0;
    int r;

    if (blocks && !lit->index.tokens)
        return dl_error_set(err, EINVAL, lit->root,
                            "was not written for a TokensLoader, and has no blocks of tokens; "
                            "leave dataset.sequence_length out");
    if (blocks && lit->fields.choice.n == 0)
        return litdata_describe_blocks(lit, spec->sequence_length, err);
    if ((r = litdata_mark_images(lit, spec, err)) < 0 || (r = litdata_choose(lit, err)) < 0)
        return r;
    return litdata_describe(lit, err);
}

static int litdata_begin(struct litdata *lit, const struct spec_dataset *spec,
                         const struct data_env *env, struct dl_error *err)
{
    struct shard_files *chunks = &lit->index.chunks;
    int r;

    chunks->root = lit->root;
    chunks->env = env;
    chunks->unframe = litdata_chunk_unframe;
    chunks->most_unpacked = spec->cache;
    lit->values = calloc(max_u64(lit->index.shape.leaves, 1), sizeof *lit->values);
    if (!lit->values)
        return dl_error_set(err, ENOMEM, lit->root, "out of memory");
    r = litdata_shape_samples(lit, spec, err);
    return r < 0 ? r : shard_files_begin(chunks, &lit->base.length, err);
}

/* Its chunks as Arrow's files. */
static int litdata_open_arrow(const struct spec_dataset *spec, const char *place,
                              const struct data_env *env, const struct litdata_index *index,
                              struct dataset **ret, struct dl_error *err)
{
    struct file_list files = {0};
    char path[PATH_MAX];
    uint64_t rows = 0;
    int r = 0;

    if (spec->sequence_length > 0)
        return dl_error_set(err, EINVAL, spec->files[0].path,
                            "was not written for a TokensLoader, and has no blocks of tokens; "
                            "leave dataset.sequence_length out");
    for (uint32_t i = 0; r == 0 && i < index->chunks.n; i++) {
        snprintf(path, sizeof path, "%s/%s", spec->files[0].path, index->chunks.files[i].raw);
        rows += index->chunks.files[i].samples;
        r = file_list_add(&files, path, err);
    }
    if (r == 0)
        r = arrow_open_chunks(spec, place, env, &files, rows, ret, err);
    file_list_deinit(&files);
    return r;
}

/* Whether there are rows of Arrow's, by the first chunk. */
static int litdata_has_rows(const struct litdata_index *index, const char *root,
                            const struct data_env *env, bool *ret, struct dl_error *err)
{
    char path[PATH_MAX];
    struct source source = {0};

    *ret = false;
    if (index->chunks.n == 0 || shard_file_is_packed(&index->chunks.files[0], root, env, path))
        return 0;
    int r = source_open(path, env, &source, err);
    if (r == 0)
        *ret = arrow_table_in_chunk(source.data, source.bytes);
    source_close(&source);
    return r;
}

int litdata_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                 struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct litdata *lit;
    bool has_rows;
    int r;

    if (spec->n_files != 1)
        return dl_error_set(err, EINVAL, place, "is not one directory");
    lit = calloc(1, sizeof *lit);
    if (!lit)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &lit->base;
    ds->ops = &litdata_ops;
    lit->root = strdup(spec->files[0].path);
    if (!lit->root)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if ((r = litdata_read_index(lit->root, env, &lit->index, err)) < 0 ||
        (r = litdata_has_rows(&lit->index, lit->root, env, &has_rows, err)) < 0)
        return r;
    if (has_rows)
        return litdata_open_arrow(spec, place, env, &lit->index, ret, err);
    if ((r = fields_open(&lit->fields, spec, true, place, err)) < 0 ||
        (r = litdata_begin(lit, spec, env, err)) < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}

int litdata_list_files(const struct spec_dataset *spec, const struct data_env *env,
                       struct file_list *ret, struct dl_error *err)
{
    const char *root = spec->files[0].path;
    struct litdata_index index = {0};
    int r = litdata_read_index(root, env, &index, err);

    if (r < 0)
        return r;
    r = shard_files_list(&index.chunks, root, env, ret, err);
    litdata_index_deinit(&index);
    return r;
}
