/* Which leaves are padded, or packed: those that the spec names, or all that have a dimension. */
#include "daemon/data/collate/collate_batch.h"
#include "proto/common/bisect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum { PATHS_TOLD = 600 };

bool collate_find(const struct tree *tree, uint32_t node, const char *path, uint32_t *ret)
{
    const struct tree_node *parent = &tree->nodes[node];
    uint32_t child = node + 1;
    char number[16];

    if (collate_is_leaf(parent))
        return false;
    for (uint32_t i = 0; i < parent->children; i++, child = collate_skip(tree, child)) {
        const struct tree_node *child_node = &tree->nodes[child];
        const char *name = number;
        size_t len = child_node->key_len;
        if (parent->kind == TREE_DICT)
            name = len > 0 ? tree->keys + child_node->key_off : "";
        else
            len = collate_say(number, sizeof number, 0, "%u", i);
        if (strncmp(path, name, len) != 0 || (path[len] != '\0' && path[len] != '.'))
            continue;
        if (path[len] == '.' && collate_find(tree, child, path + len + 1, ret))
            return true;
        if (path[len] == '\0') {
            *ret = child;
            return true;
        }
    }
    return false;
}

/* What a user could have meant: the first sample's leaves that can be padded or packed. */
static void collate_fields_say_candidates(const struct collate *c, char *out, size_t room)
{
    const char *comma = "";
    char path[COLLATE_WORDS];
    size_t len = collate_say(out, room, 0, "%s", "");

    for (size_t l = 0; l < c->n_leaves && len < room - 1; l++) {
        const struct collate_leaf *leaf = &c->leaves[l];
        if (leaf->like->kind != TREE_TENSOR || leaf->like->ndim == 0)
            continue;
        collate_path(&c->samples[0].tree, leaf->node, path, sizeof path);
        if (path[0] == '\0')
            snprintf(path, sizeof path, "the sample itself: leave fields out");
        len = collate_say(out, room, len, "%s%s", comma, path);
        comma = ", ";
    }
    if (len == 0)
        collate_say(out, room, len, "none");
}

struct collate_leaf *collate_leaf_at(const struct collate *c, uint32_t node)
{
    return &c->leaves[BISECT(0, c->n_leaves, i, c->leaves[i].node < node)];
}

/* What collate does with the fields, for messages. */
static const char *collate_fields_doing(const struct collate *c)
{
    return c->kind == COLLATE_PACK ? "pack" : "pad";
}

static const char *collate_fields_done(const struct collate *c)
{
    return c->kind == COLLATE_PACK ? "packed" : "padded";
}

static int collate_fields_choose_field(struct collate *c, uint32_t i, struct dl_error *err)
{
    const struct tree *tree = &c->samples[0].tree;
    char there[PATHS_TOLD], what[COLLATE_WORDS], key[64];
    uint32_t node = 0;

    snprintf(key, sizeof key, "collate.fields.%u", i);
    if (!collate_find(tree, 0, c->fields[i], &node)) {
        collate_fields_say_candidates(c, there, sizeof there);
        return dl_error_set(err, EINVAL, key, "sample %" PRIu64 " has no %s; it can be %s at %s",
                            c->numbers[0], c->fields[i], collate_fields_done(c), there);
    }
    if (tree->nodes[node].kind != TREE_TENSOR || tree->nodes[node].ndim == 0) {
        collate_fields_say_candidates(c, there, sizeof there);
        return dl_error_set(err, EINVAL, key,
                            "%s is %s in sample %" PRIu64
                            ", and has no dimension to %s; the sample can be %s at %s",
                            c->fields[i], collate_say_node(&tree->nodes[node], what, sizeof what),
                            c->numbers[0], collate_fields_doing(c), collate_fields_done(c), there);
    }
    collate_leaf_at(c, node)->padded = true;
    return 0;
}

int collate_choose_padded(struct collate *c, struct dl_error *err)
{
    int r = 0;

    if (c->kind != COLLATE_PAD && c->kind != COLLATE_PACK)
        return 0;
    for (size_t l = 0; !c->fields && l < c->n_leaves; l++)
        c->leaves[l].padded = c->leaves[l].like->kind == TREE_TENSOR && c->leaves[l].like->ndim > 0;
    for (uint32_t i = 0; i < c->n_fields && r == 0; i++)
        r = collate_fields_choose_field(c, i, err);
    return r;
}
