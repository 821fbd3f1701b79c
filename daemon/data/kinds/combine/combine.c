/* What the datasets made of datasets share: their schema, and the walk along its leaves. */
#include "daemon/data/kinds/combine/combine.h"

#include <assert.h>
#include <errno.h>

static int combine_copy_schema(const struct tree *from, struct tree *to)
{
    struct tree copy = {.count = from->count, .keys_len = from->keys_len};

    copy.nodes = calloc(from->count, sizeof *copy.nodes);
    copy.keys = calloc(max_u64(from->keys_len, 1), 1);
    if (!copy.nodes || !copy.keys) {
        free(copy.nodes);
        free(copy.keys);
        return -ENOMEM;
    }
    memcpy(copy.nodes, from->nodes, from->count * sizeof *copy.nodes);
    if (from->keys_len > 0)
        memcpy(copy.keys, from->keys, from->keys_len);
    *to = copy;
    return 0;
}

int combine_check(const struct dataset *inner, const char *place, struct dl_error *err)
{
    if (!dataset_is_iterable(inner))
        return 0;
    return dl_error_set(err, EINVAL, place,
                        "is an iterable dataset, which has no indices; only map-style ones can "
                        "be combined in this way (chain joins iterable ones)");
}

int combine_schema(const struct dataset *inner, struct dataset *outer, struct leaf_cursor *cursor)
{
    uint32_t leaf = 0;

    int r = combine_copy_schema(&inner->schema, &outer->schema);
    if (r < 0)
        return r;
    outer->n_leaves = inner->n_leaves;
    cursor->n = inner->n_leaves;
    cursor->row_bytes = calloc(max_u64(cursor->n, 1), sizeof *cursor->row_bytes);
    cursor->dst = calloc(max_u64(cursor->n, 1), sizeof *cursor->dst);
    if (!cursor->row_bytes || !cursor->dst)
        return -ENOMEM;
    for (uint32_t i = 0; i < inner->schema.count; i++) {
        if (inner->schema.nodes[i].kind != TREE_TENSOR)
            continue;
        assert(leaf < cursor->n);
        cursor->row_bytes[leaf++] = inner->schema.nodes[i].nbytes;
    }
    assert(leaf == cursor->n);
    return 0;
}

void leaf_cursor_deinit(struct leaf_cursor *cursor)
{
    free(cursor->row_bytes);
    free(cursor->dst);
    *cursor = (struct leaf_cursor){0};
}

void leaf_cursor_begin(struct leaf_cursor *cursor, void *const *dst)
{
    for (uint32_t i = 0; i < cursor->n; i++)
        cursor->dst[i] = dst[i];
}

void leaf_cursor_advance(struct leaf_cursor *cursor, uint64_t n)
{
    for (uint32_t i = 0; i < cursor->n; i++)
        cursor->dst[i] = (char *)cursor->dst[i] + n * cursor->row_bytes[i];
}
