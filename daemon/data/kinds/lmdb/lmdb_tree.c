#include "daemon/data/kinds/lmdb/lmdb_tree.h"

#include "proto/common/array.h"
#include "proto/common/bisect.h"
#include "proto/common/load.h"

#include <errno.h>

enum {
    PAGE_HEAD = 16,
    META_END = 152, /* of what a page 0 or 1 says */
    NODE_HEAD = 8,
    SMALLEST_PAGE = 512,
    LARGEST_PAGE = 65536,
    DEEPEST = 32,

    PAGE_BRANCH = 0x01,
    PAGE_LEAF = 0x02,
    PAGE_OVERFLOW = 0x04,
    PAGE_SORTS = 0x7F, /* the bits that say what a page is; one that was written is not dirty */
    PAGE_DIRTY = 0x10,

    DB_REVERSE_KEY = 0x02,
    DB_SORTED_DUPLICATES = 0x04,
    DB_INTEGER_KEY = 0x08,

    NODE_BIG = 0x01,
    NODE_DATABASE = 0x02,
    NODE_DUPLICATES = 0x04,
};

static const uint32_t MAGIC = 0xBEEFC0DE;

/* ---- pages ---------------------------------------------------------------------------------- */

static int lmdb_damaged(const struct lmdb_tree *tree, uint64_t page, const char *what,
                        struct dl_error *err)
{
    return dl_error_set(
        err, EINVAL, tree->path,
        "its page %llu %s; the file is damaged, or another program is writing to it", (ull)page,
        what);
}

/* A page of the tree, of that sort; NULL if it is not one. */
static const uint8_t *lmdb_page(const struct lmdb_tree *tree, uint64_t page, unsigned sort)
{
    if (page >= tree->bytes / tree->page_bytes)
        return NULL;
    const uint8_t *at = tree->data + page * tree->page_bytes;
    unsigned flags = load_le16(at + 10) & PAGE_SORTS & ~(unsigned)PAGE_DIRTY;
    return load_le64(at) == page && flags == sort ? at : NULL;
}

/* How many nodes a branch or a leaf has; 0: not even one, or more than the page could have. */
static uint32_t lmdb_page_nodes(const struct lmdb_tree *tree, const uint8_t *page)
{
    uint32_t end = load_le16(page + 12);

    return end >= PAGE_HEAD && end <= tree->page_bytes ? (end - PAGE_HEAD) / 2 : 0;
}

/* Node `i`; NULL unless its head and key lie in the page. */
static const uint8_t *lmdb_node(const struct lmdb_tree *tree, const uint8_t *page, uint32_t i)
{
    uint64_t at = load_le16(page + PAGE_HEAD + 2 * (size_t)i);

    if (at < PAGE_HEAD || at + NODE_HEAD > tree->page_bytes)
        return NULL;
    return at + NODE_HEAD + load_le16(page + at + 6) <= tree->page_bytes ? page + at : NULL;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* What page 0 or 1 says; NULL: nothing. */
static const uint8_t *lmdb_meta(const uint8_t *data, uint64_t bytes, uint64_t at)
{
    if (at > bytes || bytes - at < META_END || load_le32(data + at + 16) != MAGIC)
        return NULL;
    uint32_t size = load_le32(data + at + 40);
    bool good = size >= SMALLEST_PAGE && size <= LARGEST_PAGE && (size & (size - 1)) == 0;
    return good && load_le32(data + at + 20) == 1 ? data + at : NULL;
}

/* The later one of the two that a file has. */
static const uint8_t *lmdb_latest(const uint8_t *data, uint64_t bytes)
{
    const uint8_t *first = lmdb_meta(data, bytes, 0);
    const uint8_t *second = first ? lmdb_meta(data, bytes, load_le32(first + 40)) : NULL;

    /* Where the first one was damaged, the second is at the size that it says itself. */
    for (uint64_t at = SMALLEST_PAGE; !first && !second && at <= LARGEST_PAGE; at *= 2) {
        second = lmdb_meta(data, bytes, at);
        if (second && load_le32(second + 40) != at)
            second = NULL;
    }
    if (!first || !second)
        return first ? first : second;
    return load_le64(second + 144) > load_le64(first + 144) ? second : first;
}

static int lmdb_read_meta(struct lmdb_tree *tree, uint64_t *ret_root, uint16_t *ret_depth,
                          struct dl_error *err)
{
    const uint8_t *meta = lmdb_latest(tree->data, tree->bytes);

    if (!meta)
        return dl_error_set(
            err, EINVAL, tree->path,
            "is not an LMDB file, such as data.mdb, of version 1 from a 64-bit machine");
    tree->page_bytes = load_le32(meta + 40);
    uint16_t flags = load_le16(meta + 92);
    if (flags & DB_SORTED_DUPLICATES)
        return dl_error_set(err, EINVAL, tree->path,
                            "has several values for a key (MDB_DUPSORT), which is not supported");
    tree->plain_order = !(flags & (DB_REVERSE_KEY | DB_INTEGER_KEY));
    tree->records = load_le64(meta + 120);
    *ret_depth = load_le16(meta + 94);
    *ret_root = load_le64(meta + 128);
    return 0;
}

static int lmdb_add_leaf(struct lmdb_tree *tree, uint64_t page, uint64_t first,
                         struct dl_error *err)
{
    if (!array_reserve(tree->leaves, tree->room, tree->n_leaves + 1))
        return dl_error_set(err, ENOMEM, tree->path, "out of memory for its pages");
    tree->leaves[tree->n_leaves++] = (struct lmdb_leaf){.page = page, .first = first};
    return 0;
}

/* Where the walk is: in each level a branch, and which of its nodes comes next. */
struct lmdb_walk {
    struct {
        const uint8_t *page;
        uint64_t number;
        uint32_t next, nodes;
    } levels[DEEPEST];
    unsigned depth;   /* of the leaves */
    uint64_t visited; /* pages visited: no more than the file has, so that cycles end */
    uint64_t records;
};

/* Whether all pages that values have of their own are in the file, which may be cut. The last page
 * that a file says it has need not be there: pages that a transaction took and released. */
static int lmdb_check_values(const struct lmdb_tree *tree, const uint8_t *page, uint32_t nodes,
                             struct dl_error *err)
{
    for (uint32_t i = 0; i < nodes; i++) {
        const uint8_t *node = lmdb_node(tree, page, i);
        if (!node || !(load_le16(node + 4) & NODE_BIG))
            continue; /* damaged: an error of its record */
        uint64_t at = (uint64_t)(node - page) + NODE_HEAD + load_le16(node + 6);
        uint64_t number = at + 8 <= tree->page_bytes ? load_le64(page + at) : 0;
        if (number >= tree->bytes / tree->page_bytes ||
            tree->bytes - number * tree->page_bytes < PAGE_HEAD + (uint64_t)load_le32(node))
            return dl_error_set(err, EINVAL, tree->path,
                                "has %llu pages, and a value of %u bytes at page %llu; it is "
                                "truncated, or still being copied",
                                (ull)(tree->bytes / tree->page_bytes), load_le32(node),
                                (ull)number);
    }
    return 0;
}

static int lmdb_enter_leaf(struct lmdb_tree *tree, struct lmdb_walk *walk, uint64_t page,
                           struct dl_error *err)
{
    const uint8_t *at = lmdb_page(tree, page, PAGE_LEAF);
    uint32_t nodes = at ? lmdb_page_nodes(tree, at) : 0;

    if (nodes == 0)
        return lmdb_damaged(tree, page, "is not the page of records that it should be", err);
    int r = lmdb_check_values(tree, at, nodes, err);
    if (r == 0)
        r = lmdb_add_leaf(tree, page, walk->records, err);
    walk->records += nodes;
    return r;
}

static int lmdb_enter_branch(const struct lmdb_tree *tree, struct lmdb_walk *walk, unsigned level,
                             uint64_t page, struct dl_error *err)
{
    const uint8_t *at = lmdb_page(tree, page, PAGE_BRANCH);
    uint32_t nodes = at ? lmdb_page_nodes(tree, at) : 0;

    if (nodes == 0)
        return lmdb_damaged(tree, page, "is not the branch of its tree that it should be", err);
    walk->levels[level].page = at;
    walk->levels[level].number = page;
    walk->levels[level].next = 0;
    walk->levels[level].nodes = nodes;
    return 0;
}

/* Enters the page, which is at the level. */
static int lmdb_enter(struct lmdb_tree *tree, struct lmdb_walk *walk, unsigned level, uint64_t page,
                      struct dl_error *err)
{
    if (++walk->visited > tree->bytes / tree->page_bytes)
        return lmdb_damaged(tree, page, "is in its tree twice", err);
    return level + 1 == walk->depth ? lmdb_enter_leaf(tree, walk, page, err)
                                    : lmdb_enter_branch(tree, walk, level, page, err);
}

/* All leaves below the root, in their order. */
static int lmdb_walk(struct lmdb_tree *tree, struct lmdb_walk *walk, uint64_t root,
                     struct dl_error *err)
{
    unsigned level = 0;
    int r = lmdb_enter(tree, walk, 0, root, err);

    if (walk->depth == 1)
        return r;
    for (;;) {
        if (r < 0)
            return r;
        if (walk->levels[level].next == walk->levels[level].nodes) {
            if (level-- == 0)
                return 0;
            continue;
        }
        const uint8_t *node = lmdb_node(tree, walk->levels[level].page, walk->levels[level].next++);
        if (!node)
            return lmdb_damaged(tree, walk->levels[level].number, "has a node outside it", err);
        uint64_t page = load_le32(node) | (uint64_t)load_le16(node + 4) << 32;
        r = lmdb_enter(tree, walk, level + 1, page, err);
        level += level + 2 < walk->depth;
    }
}

int lmdb_tree_open(const uint8_t *data, uint64_t bytes, const char *path, struct lmdb_tree *ret,
                   struct dl_error *err)
{
    struct lmdb_tree tree = {.data = data, .bytes = bytes, .path = path};
    struct lmdb_walk walk = {.depth = 0};
    uint64_t root = 0;
    uint16_t depth = 0;
    int r = lmdb_read_meta(&tree, &root, &depth, err);

    if (r < 0)
        return r;
    walk.depth = depth;
    if (root == UINT64_MAX && tree.records == 0) { /* nothing was put in */
        *ret = tree;
        return 0;
    }
    if (depth == 0 || depth > DEEPEST)
        r = dl_error_set(err, EINVAL, path, "says that its tree is %u levels deep; it is damaged",
                         depth);
    if (r == 0)
        r = lmdb_walk(&tree, &walk, root, err);
    if (r == 0 && walk.records != tree.records)
        r = dl_error_set(
            err, EINVAL, path,
            "has %llu records, but says %llu; it is damaged, or another program is writing to it",
            (ull)walk.records, (ull)tree.records);
    if (r < 0)
        lmdb_tree_close(&tree);
    else
        *ret = tree;
    return r;
}

void lmdb_tree_close(struct lmdb_tree *tree)
{
    free(tree->leaves);
    *tree = (struct lmdb_tree){0};
}

/* ---- records -------------------------------------------------------------------------------- */

static const struct lmdb_leaf *lmdb_leaf_of(const struct lmdb_tree *tree, uint64_t i)
{
    return &tree->leaves[bisect_firsts(&tree->leaves[0].first, sizeof *tree->leaves, tree->n_leaves,
                                       i)];
}

/* A value in pages of its own, whose number is at `at`; NULL if it exceeds the file. */
static const uint8_t *lmdb_big_value(const struct lmdb_tree *tree, const uint8_t *at,
                                     uint64_t bytes)
{
    uint64_t number = load_le64(at);
    const uint8_t *page = lmdb_page(tree, number, PAGE_OVERFLOW);

    if (!page)
        return NULL;
    page += PAGE_HEAD;
    return bytes <= (uint64_t)(tree->data + tree->bytes - page) ? page : NULL;
}

static int lmdb_refuse_record(const struct lmdb_tree *tree, uint64_t i, const char *why,
                              struct dl_error *err)
{
    return dl_error_set(err, EINVAL, tree->path, "its record %llu %s", (ull)i, why);
}

int lmdb_tree_get(const struct lmdb_tree *tree, uint64_t i, struct lmdb_record *ret,
                  struct dl_error *err)
{
    static const char damaged[] = "is damaged, or another program is writing to the file";
    const struct lmdb_leaf *leaf = lmdb_leaf_of(tree, i);
    const uint8_t *page = lmdb_page(tree, leaf->page, PAGE_LEAF);
    uint64_t number = i - leaf->first;

    if (!page || number >= lmdb_page_nodes(tree, page))
        return lmdb_refuse_record(tree, i, damaged, err);
    const uint8_t *node = lmdb_node(tree, page, (uint32_t)number);
    if (!node)
        return lmdb_refuse_record(tree, i, damaged, err);
    uint16_t flags = load_le16(node + 4);
    if (flags & (NODE_DATABASE | NODE_DUPLICATES))
        return lmdb_refuse_record(tree, i,
                                  "is a named database, which is not supported; copy its records "
                                  "to the main database of another file",
                                  err);
    *ret = (struct lmdb_record){.key = node + NODE_HEAD, .key_bytes = load_le16(node + 6)};
    ret->value_bytes = load_le32(node);
    ret->value = ret->key + ret->key_bytes;
    uint64_t left = (uint64_t)(page + tree->page_bytes - ret->value);
    if (flags & NODE_BIG)
        ret->value = left >= 8 ? lmdb_big_value(tree, ret->value, ret->value_bytes) : NULL;
    else if (ret->value_bytes > left)
        ret->value = NULL;
    return ret->value ? 0 : lmdb_refuse_record(tree, i, damaged, err);
}

void lmdb_tree_expect(const struct lmdb_tree *tree, uint64_t i)
{
    const struct lmdb_leaf *leaf = lmdb_leaf_of(tree, i);
    uint64_t at = leaf->page * tree->page_bytes + PAGE_HEAD + 2 * (i - leaf->first);

    if (at < tree->bytes)
        __builtin_prefetch(tree->data + at);
}

/* The first record whose key is not below the prefix, or, with `behind`, the first behind all keys
 * with that prefix. */
static int lmdb_bound(const struct lmdb_tree *tree, const void *prefix, size_t prefix_bytes,
                      bool behind, uint64_t *ret, struct dl_error *err)
{
    uint64_t low = 0, high = tree->records;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct lmdb_record record = {0};
        int r = lmdb_tree_get(tree, middle, &record, err);
        if (r < 0)
            return r;
        int order = memcmp(record.key, prefix, min_u64(record.key_bytes, prefix_bytes));
        bool shorter = order == 0 && record.key_bytes < prefix_bytes;
        if (order < 0 || shorter || (behind && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    *ret = low;
    return 0;
}

int lmdb_tree_find(const struct lmdb_tree *tree, const void *prefix, size_t prefix_bytes,
                   uint64_t *ret_first, uint64_t *ret_end, struct dl_error *err)
{
    int r = lmdb_bound(tree, prefix, prefix_bytes, false, ret_first, err);

    if (r == 0)
        r = lmdb_bound(tree, prefix, prefix_bytes, true, ret_end, err);
    if (r == 0 && *ret_end < *ret_first) /* keys are not sorted: only in a damaged file */
        *ret_end = *ret_first;
    return r;
}
