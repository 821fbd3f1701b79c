/* The errors for samples that do not match. */
#include "daemon/data/collate/collate_batch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

size_t collate_say(char *out, size_t room, size_t len, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int more = vsnprintf(out + len, room - len, fmt, args);
    va_end(args);
    return more < 0 ? len : min_u64(len + (size_t)more, room - 1);
}

const char *collate_path(const struct tree *tree, uint32_t node, char *out, size_t room)
{
    uint32_t at = 0;
    size_t len = 0;

    out[0] = '\0';
    while (at != node) {
        const struct tree_node *parent = &tree->nodes[at++];
        uint32_t position = 0;
        for (uint32_t next; (next = collate_skip(tree, at)) <= node; at = next)
            position++;
        const struct tree_node *child = &tree->nodes[at];
        const char *dot = len > 0 ? "." : "";
        if (parent->kind == TREE_DICT)
            len = collate_say(out, room, len, "%s%.*s", dot, (int)child->key_len,
                              child->key_len > 0 ? tree->keys + child->key_off : "");
        else
            len = collate_say(out, room, len, "%s%u", dot, position);
    }
    return out;
}

static void collate_words_say_shape(const struct tree_node *node, char *out, size_t room)
{
    size_t len = collate_say(out, room, 0, "[");

    for (uint32_t i = 0; i < node->ndim; i++)
        len = collate_say(out, room, len, "%s%" PRIu64, i > 0 ? ", " : "", node->shape[i]);
    collate_say(out, room, len, "]");
}

const char *collate_say_node(const struct tree_node *node, char *out, size_t room)
{
    char shape[COLLATE_WORDS];

    switch (node->kind) {
    case TREE_DICT:
        collate_say(out, room, 0, "a dict");
        break;
    case TREE_LIST:
    case TREE_TUPLE:
        collate_say(out, room, 0, "a %s of %u", node->kind == TREE_LIST ? "list" : "tuple",
                    node->children);
        break;
    case TREE_STRING:
    case TREE_BYTES:
        collate_say(out, room, 0, "%s", node->kind == TREE_STRING ? "a string" : "bytes");
        break;
    default:
        collate_words_say_shape(node, shape, sizeof shape);
        collate_say(out, room, 0, "%s %s", dtype_name(node->dtype), shape);
    }
    return out;
}

int collate_refuse(const struct collate_difference *d, const char *has, const char *first,
                   struct dl_error *err)
{
    char path[COLLATE_WORDS];

    collate_path(&d->c->samples[0].tree, d->node, path, sizeof path);
    return dl_error_set(err, EINVAL, "collate",
                        "sample %" PRIu64 " has %s, sample %" PRIu64 " has %s%s%s; %s",
                        d->c->numbers[d->sample], has, d->c->numbers[0], first,
                        path[0] ? ", at " : "", path, d->remedy);
}

int collate_refuse_node(const struct collate_difference *d, const struct tree_node *has,
                        struct dl_error *err)
{
    const struct tree_node *first = &d->c->samples[0].tree.nodes[d->node];
    char a[COLLATE_WORDS], b[COLLATE_WORDS];

    if (has->kind == TREE_TENSOR && first->kind == TREE_TENSOR && has->dtype == first->dtype) {
        collate_words_say_shape(has, a, sizeof a);
        collate_words_say_shape(first, b, sizeof b);
    } else {
        collate_say_node(has, a, sizeof a);
        collate_say_node(first, b, sizeof b);
    }
    return collate_refuse(d, a, b, err);
}
