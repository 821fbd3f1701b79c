/*
 * Files of LMDB that an input describes: what must agree in a file (numbers of pages, the magic,
 * how many records there are) does, so that the input decides what is in the tree. Any bytes are
 * such a description:
 *
 *   1, choices       bits 0-1 the size of a page, 2 keys in another order, 3 the second meta is the
 *                    later one, 4 there is no first one, 5 several values for a key
 *   depth, delta     1 + depth % 4 levels; delta, if it is not 0, is added to the records
 *   pages 2 ...      sort % 4, nodes % 13; for each node
 *                      of a leaf: bytes of its key, of its value, flags % 8, the key, and the
 * value, or, with the flag BIG, the page that it lies behind of a branch: the page below of others:
 * nothing
 *
 * The last page is the root.
 */
#ifndef DL_FUZZ_LMDB_MADE_H
#define DL_FUZZ_LMDB_MADE_H

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

enum {
    MADE_PAGES = 40,
    MADE_NODES = 13,
    MADE_HEAD = 16,
    MADE_BRANCH = 1,
    MADE_LEAF = 2,
    MADE_OVERFLOW = 4,
    MADE_META = 8,
    MADE_BIG = 1,
};

struct made_node {
    const uint8_t *key, *value; /* of the input */
    size_t key_bytes, value_bytes;
    unsigned flags;
    uint64_t below; /* page */
};

struct made_page {
    unsigned sort;
    uint32_t n;
    struct made_node nodes[MADE_NODES];
};

struct made {
    struct made_page pages[MADE_PAGES];
    uint64_t n_pages, page_bytes;
    unsigned choices, depth;
    uint64_t delta;
    /* What is to be found: */
    bool sound; /* it can be opened */
    const struct made_node *records[MADE_PAGES * MADE_NODES];
    uint64_t n_records, visited;
    uint8_t *data; /* owned */
};

/* ---- what the input says -------------------------------------------------------------------- */

static inline void made_take_node(struct made_node *node, unsigned sort, struct input *in)
{
    if (sort == MADE_BRANCH) {
        node->below = take(in);
        return;
    }
    size_t key = take(in), value = take(in);
    node->flags = take(in) % 8;
    node->key = take_bytes(in, key, &node->key_bytes);
    if (node->flags & MADE_BIG) {
        node->value_bytes = 16 * value;
        node->below = take(in);
    } else {
        node->value = take_bytes(in, value, &node->value_bytes);
    }
}

static inline void made_take(struct made *made, struct input *in)
{
    static const unsigned sorts[] = {MADE_LEAF, MADE_BRANCH, MADE_OVERFLOW, MADE_META};
    static const unsigned sizes[] = {512, 1024, 4096, 65536};

    made->choices = take(in);
    made->page_bytes = sizes[made->choices % 4];
    made->depth = 1 + take(in) % 4;
    made->delta = take_number(in);
    for (made->n_pages = 2; in->len > 0 && made->n_pages < MADE_PAGES; made->n_pages++) {
        struct made_page *page = &made->pages[made->n_pages];
        page->sort = sorts[take(in) % 4];
        page->n = page->sort <= MADE_LEAF ? take(in) % MADE_NODES : 0;
        for (uint32_t i = 0; i < page->n; i++)
            made_take_node(&page->nodes[i], page->sort, in);
    }
}

/* ---- as a file ------------------------------------------------------------------------------ */

static inline void made_put(uint8_t *at, uint64_t number, size_t bytes)
{
    memcpy(at, &number, bytes);
}

/* A node below those that are there; false: there is no room. */
static inline bool made_write_node(uint8_t *page, uint32_t i, uint64_t *upper,
                                   const struct made_node *node)
{
    bool big = node->flags & MADE_BIG;
    uint64_t lower = MADE_HEAD + 2 * ((uint64_t)i + 1);
    uint64_t behind = big ? 8 : node->value ? node->value_bytes : 0;
    uint64_t bytes = (8 + node->key_bytes + behind + 1) & ~UINT64_C(1);

    if (lower + bytes > *upper)
        return false;
    *upper -= bytes;
    uint8_t *at = page + *upper;
    made_put(page + lower - 2, *upper, 2);
    made_put(at, node->value_bytes, 4);
    made_put(at + 4, node->flags, 2);
    made_put(at + 6, node->key_bytes, 2);
    if (node->key_bytes > 0)
        memcpy(at + 8, node->key, node->key_bytes);
    if (big)
        made_put(at + 8 + node->key_bytes, node->below, 8);
    else if (behind > 0)
        memcpy(at + 8 + node->key_bytes, node->value, behind);
    return true;
}

static inline void made_write_page(struct made *made, uint64_t number)
{
    uint8_t *at = made->data + number * made->page_bytes;
    struct made_page *page = &made->pages[number];
    /* A page of 65536 bytes cannot say where it ends. */
    uint64_t upper = min_u64(made->page_bytes, UINT16_MAX - 1);
    uint32_t n = 0;

    made_put(at, number, 8);
    made_put(at + 10, page->sort, 2);
    for (; n < page->n; n++) {
        struct made_node node = page->nodes[n];
        if (page->sort == MADE_BRANCH)
            node = (struct made_node){.value_bytes = page->nodes[n].below};
        if (!made_write_node(at, n, &upper, &node))
            break;
    }
    page->n = n;
    made_put(at + 12, page->sort == MADE_OVERFLOW ? 1 : MADE_HEAD + 2 * (uint64_t)n, 2);
    made_put(at + 14, upper, 2);
}

static inline void made_write_meta(struct made *made, uint64_t number)
{
    uint8_t *at = made->data + number * made->page_bytes;
    bool later = (number == 1) == ((made->choices >> 3 & 1) != 0);

    made_put(at, number, 8);
    made_put(at + 10, MADE_META, 2);
    if (number == 0 && made->choices >> 4 & 1)
        return;
    made_put(at + 16, 0xBEEFC0DE, 4);
    made_put(at + 20, 1, 4);
    made_put(at + 40, made->page_bytes, 4);
    made_put(at + 92, (made->choices >> 2 & 1) * 2 | (made->choices >> 5 & 1) * 4, 2);
    made_put(at + 94, later ? made->depth : 1, 2);
    made_put(at + 120, made->n_records + made->delta, 8);
    made_put(at + 128, made->n_pages - 1, 8);
    made_put(at + 144, later ? 8 : 7, 8);
}

/* ---- what is in it -------------------------------------------------------------------------- */

static inline bool made_fits(const struct made *made, const struct made_node *node)
{
    return !(node->flags & MADE_BIG) ||
           (node->below < made->n_pages &&
            MADE_HEAD + node->value_bytes <= (made->n_pages - node->below) * made->page_bytes);
}

/* Finds the records below the page; false: a reader has to refuse it. */
static inline bool made_walk(struct made *made, uint64_t number, unsigned depth)
{
    if (number >= made->n_pages || ++made->visited > made->n_pages)
        return false;
    const struct made_page *page = &made->pages[number];
    if (page->n == 0 || page->sort != (depth == 1 ? MADE_LEAF : MADE_BRANCH))
        return false;
    for (uint32_t i = 0; i < page->n; i++) {
        const struct made_node *node = &page->nodes[i];
        if (depth > 1 ? !made_walk(made, node->below, depth - 1) : !made_fits(made, node))
            return false;
        if (depth == 1)
            made->records[made->n_records++] = node;
    }
    return true;
}

/* Its data are the caller's to free(). */
static inline void made_of(struct input in, struct made *made)
{
    made_take(made, &in);
    made->data = calloc(made->n_pages, made->page_bytes);
    FUZZ_ASSERT(made->data);
    for (uint64_t i = 2; i < made->n_pages; i++)
        made_write_page(made, i);
    bool whole = made->n_pages > 2 && made_walk(made, made->n_pages - 1, made->depth);
    made_write_meta(made, 0);
    made_write_meta(made, 1);
    /* Where the later meta is not there, the other one says a depth of its own. */
    made->sound = whole && made->delta == 0 && !(made->choices >> 5 & 1) &&
                  (made->depth == 1 || (made->choices >> 3 & 1) || !(made->choices >> 4 & 1));
}

#endif
