/*
 * Files of LMDB: of any bytes, if the first one is 0, as in all that LMDB writes, or as the input
 * describes them (lmdb_made.h), of which it is known what is in them. What is found lies in the
 * file; each record is there or is refused, and a prefix is a range of them.
 */
#include "daemon/data/kinds/lmdb/lmdb_tree.h"
#include "tests/fuzz/lmdb_made.h"

#include <errno.h>

enum { LARGEST = 1 << 18, RECORDS = 1000 };

static void check_records(const struct lmdb_tree *tree)
{
    struct lmdb_record record;
    struct dl_error err = {0};

    for (uint64_t i = 0; i < tree->records && i < RECORDS; i++) {
        int r = lmdb_tree_get(tree, i, &record, &err);
        FUZZ_ASSERT(r == 0 || (r == -EINVAL && err.message[0]));
        lmdb_tree_expect(tree, i);
        if (r < 0)
            continue;
        const uint8_t *end = tree->data + tree->bytes;
        FUZZ_ASSERT(record.key >= tree->data && record.key + record.key_bytes <= end);
        FUZZ_ASSERT(record.value >= tree->data && record.value + record.value_bytes <= end);
    }
}

/* A value behind a page that is no page of a value is refused; so is a database. */
static void check_record(const struct lmdb_tree *tree, uint64_t i, const struct made *made)
{
    const struct made_node *want = made->records[i];
    struct lmdb_record got = {0};
    struct dl_error err = {0};
    bool big = want->flags & MADE_BIG;
    bool good = want->flags <= MADE_BIG && (!big || made->pages[want->below].sort == MADE_OVERFLOW);
    int r = lmdb_tree_get(tree, i, &got, &err);

    FUZZ_ASSERT((r == 0) == good);
    if (!good)
        return;
    FUZZ_ASSERT(got.key_bytes == want->key_bytes && got.value_bytes == want->value_bytes);
    FUZZ_ASSERT(got.key_bytes == 0 || memcmp(got.key, want->key, want->key_bytes) == 0);
    if (big)
        FUZZ_ASSERT(got.value == made->data + want->below * made->page_bytes + MADE_HEAD);
    else
        FUZZ_ASSERT(got.value_bytes == 0 || memcmp(got.value, want->value, got.value_bytes) == 0);
}

static void check_made(const struct lmdb_tree *tree, const struct made *made)
{
    FUZZ_ASSERT(tree->records == made->n_records);
    FUZZ_ASSERT(tree->plain_order == !(made->choices >> 2 & 1));
    for (uint64_t i = 0; i < made->n_records; i++)
        check_record(tree, i, made);
}

static void check_file(const uint8_t *data, size_t size, const struct made *made)
{
    struct lmdb_tree tree = {0};
    struct dl_error err = {0};
    uint64_t first, end;
    int r = lmdb_tree_open(data, size, "fuzz", &tree, &err);

    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    FUZZ_ASSERT(!made || !made->sound || r == 0);
    if (r < 0)
        return;
    FUZZ_ASSERT(tree.n_leaves <= size / 512);
    check_records(&tree);
    if (made && made->sound)
        check_made(&tree, made);
    if (tree.plain_order && lmdb_tree_find(&tree, "b", 1, &first, &end, &err) == 0)
        FUZZ_ASSERT(first <= end && end <= tree.records);
    lmdb_tree_close(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct made made; /* too large for a stack */

    if (size > LARGEST)
        return 0;
    if (size == 0 || *data == 0) {
        check_file(data, size, NULL);
        return 0;
    }
    memset(&made, 0, sizeof made);
    made_of((struct input){data + 1, size - 1}, &made);
    check_file(made.data, made.n_pages * made.page_bytes, &made);
    free(made.data);
    return 0;
}
