/* Groups: the names of their members. */
#include "daemon/data/kinds/hdf5/hdf5_head.h"

#include <errno.h>

enum { SYMBOL_BYTES = 40, HEAP_BYTES = 32 };

struct hdf5_group {
    const struct hdf5_view *view;
    hdf5_link_fn fn;
    void *owner;
    uint64_t tree, heap; /* of its symbol table */
    bool has_table;
    uint64_t names, names_bytes; /* where the heap's names are */
    uint64_t left; /* of nodes and names that may still be looked at: no file has more */
};

/* ---- symbol tables: a tree of leaves, with names in a heap ------------------------------------
 */

static int hdf5_group_tell(const struct hdf5_group *group, uint64_t name, uint64_t at,
                           struct dl_error *err)
{
    const uint8_t *text =
        name < group->names_bytes ? hdf5_bytes(group->view, group->names + name, 1) : NULL;
    size_t len = text ? strnlen((const char *)text, group->names_bytes - name) : 0;

    if (!text || len == group->names_bytes - name)
        return hdf5_refuse(group->view, "a name of a group is not in it", err);
    return group->fn(group->owner, (const char *)text, len, at, err);
}

static int hdf5_group_walk_symbols(struct hdf5_group *group, uint64_t at, struct dl_error *err)
{
    const uint8_t *head = hdf5_bytes(group->view, at, 8);
    unsigned n = head ? (unsigned)hdf5_number(head + 6, 2) : 0;
    const uint8_t *symbols = hdf5_bytes(group->view, at + 8, (uint64_t)n * SYMBOL_BYTES);
    int r = 0;

    if (!head || memcmp(head, "SNOD", 4) != 0 || !symbols || group->left < n + 1)
        return hdf5_refuse(group->view, "a leaf of a group is not in it", err);
    group->left -= n + 1;
    for (unsigned i = 0; r == 0 && i < n; i++, symbols += SYMBOL_BYTES) {
        if (hdf5_number(symbols + 16, 4) != 2) /* a symbolic link */
            r = hdf5_group_tell(group, hdf5_number(symbols, 8), hdf5_number(symbols + 8, 8), err);
    }
    return r;
}

static int hdf5_group_walk_tree(struct hdf5_group *group, uint64_t at, unsigned depth,
                                struct dl_error *err)
{
    const uint8_t *head = hdf5_bytes(group->view, at, HDF5_NODE_BYTES);
    unsigned n = head ? (unsigned)hdf5_number(head + 6, 2) : 0;
    const uint8_t *entries = hdf5_bytes(group->view, at + HDF5_NODE_BYTES, 16 * (uint64_t)n + 8);
    int r = 0;

    if (!head || memcmp(head, "TREE\0", 5) != 0 || !entries || depth == HDF5_LEVELS_MAX ||
        group->left-- == 0)
        return hdf5_refuse(group->view, "the tree of a group is not in it", err);
    for (unsigned i = 0; r == 0 && i < n; i++) {
        uint64_t child = hdf5_number(entries + 8 + 16 * i, 8);
        r = head[5] > 0 ? hdf5_group_walk_tree(group, child, depth + 1, err)
                        : hdf5_group_walk_symbols(group, child, err);
    }
    return r;
}

static int hdf5_group_walk_table(struct hdf5_group *group, struct dl_error *err)
{
    const uint8_t *heap = hdf5_bytes(group->view, group->heap, HEAP_BYTES);

    if (!heap || memcmp(heap, "HEAP", 4) != 0)
        return hdf5_refuse(group->view, "the names of a group are not in it", err);
    group->names_bytes = hdf5_number(heap + 8, 8);
    group->names = hdf5_number(heap + 24, 8);
    if (!hdf5_bytes(group->view, group->names, group->names_bytes))
        return hdf5_refuse(group->view, "the names of a group are not in it", err);
    group->left = group->view->bytes / 8;
    return hdf5_group_walk_tree(group, group->tree, 0, err);
}

/* ---- links in the header -------------------------------------------------------------------- */

/* [1] [flags] [type: 1] [order: 8] [charset: 1] [length: 1, 2, 4 or 8] [name] [address] */
static int hdf5_group_take_link(struct hdf5_group *group, const struct hdf5_message *message,
                                struct dl_error *err)
{
    const uint8_t *at = message->data, *end = at + message->bytes;

    if (message->bytes < 2 || at[0] != 1)
        return hdf5_refuse(group->view, "a link is of an unknown version", err);
    uint8_t flags = at[1];
    unsigned length_bytes = 1U << (flags & 3);
    bool is_hard = !(flags & 8) || (message->bytes > 2 && at[2] == 0);
    uint64_t before = 2 + (flags & 8 ? 1 : 0) + (flags & 4 ? 8 : 0) + (flags & 16 ? 1 : 0);
    if (message->bytes < before + length_bytes)
        return hdf5_refuse(group->view, "a link is longer than its message", err);
    uint64_t len = hdf5_number(at + before, length_bytes);
    at += before + length_bytes;
    if (!is_hard)
        return 0;
    if (len > (uint64_t)(end - at) || (uint64_t)(end - at) - len < 8)
        return hdf5_refuse(group->view, "a link is longer than its message", err);
    return group->fn(group->owner, (const char *)at, len, hdf5_number(at + len, 8), err);
}

/* [0] [flags] [order: 8] [the heap of links that are not in the header] */
static int hdf5_group_check_info(const struct hdf5_group *group, const struct hdf5_message *message,
                                 struct dl_error *err)
{
    uint64_t at = message->bytes > 1 && message->data[1] & 1 ? 10 : 2;

    if (message->bytes < at + 8)
        return hdf5_refuse(group->view, "a group is incomplete", err);
    if (hdf5_number(message->data + at, 8) == HDF5_NONE)
        return 0;
    return dl_error_set(
        err, ENOTSUP, group->view->path,
        "has a group with its links in a heap, which is not supported; write it with "
        "libver=\"earliest\", or put fewer things into one group");
}

static int hdf5_group_take(void *owner, const struct hdf5_message *message, struct dl_error *err)
{
    struct hdf5_group *group = owner;

    if (message->type == HDF5_LINK)
        return hdf5_group_take_link(group, message, err);
    if (message->type == HDF5_LINK_INFO)
        return hdf5_group_check_info(group, message, err);
    if (message->type == HDF5_SYMBOLS && message->bytes >= 16) {
        group->tree = hdf5_number(message->data, 8);
        group->heap = hdf5_number(message->data + 8, 8);
        group->has_table = true;
    }
    return 0;
}

int hdf5_walk_links(const struct hdf5_view *view, uint64_t at, hdf5_link_fn fn, void *owner,
                    struct dl_error *err)
{
    struct hdf5_group group = {.view = view, .fn = fn, .owner = owner};
    int r = hdf5_walk_messages(view, at, hdf5_group_take, &group, err);

    return r == 0 && group.has_table ? hdf5_group_walk_table(&group, err) : r;
}

/* ---- paths ---------------------------------------------------------------------------------- */

enum { HDF5_FOUND = 1 };

struct hdf5_search {
    const char *name;
    size_t len;
    uint64_t at;
};

static int hdf5_search_link(void *owner, const char *name, size_t len, uint64_t at,
                            struct dl_error *err)
{
    struct hdf5_search *search = owner;

    (void)err;
    if (len != search->len || memcmp(name, search->name, len) != 0)
        return 0;
    search->at = at;
    return HDF5_FOUND;
}

int hdf5_find(const struct hdf5_view *view, const char *name, uint64_t *ret, struct dl_error *err)
{
    uint64_t at;
    int r = hdf5_find_root(view, &at, err);

    for (const char *rest = name; r == 0 && *rest;) {
        struct hdf5_search search = {.name = rest, .len = strcspn(rest, "/")};
        rest += search.len + (rest[search.len] == '/');
        if (search.len == 0)
            continue;
        r = hdf5_walk_links(view, at, hdf5_search_link, &search, err);
        if (r < 0)
            break;
        if (r != HDF5_FOUND)
            return dl_error_set(err, ENOENT, view->path, "has no dataset %s", name);
        at = search.at;
        r = 0;
    }
    if (r == 0)
        *ret = at;
    return r;
}
