/*
 * Files of LMDB, of any bytes. What is found lies in the file; each record is there or is refused,
 * and a prefix is a range of them.
 */
#include "daemon/data/lmdb/lmdb_tree.h"
#include "tests/fuzz/fuzz.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lmdb_tree tree = {0};
    struct dl_error err = {0};
    uint64_t first, end;

    if (size > LARGEST)
        return 0;
    int r = lmdb_tree_open(data, size, "fuzz", &tree, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    if (r < 0)
        return 0;
    FUZZ_ASSERT(tree.n_leaves <= size / 512);
    check_records(&tree);
    if (tree.plain_order && lmdb_tree_find(&tree, "b", 1, &first, &end, &err) == 0)
        FUZZ_ASSERT(first <= end && end <= tree.records);
    lmdb_tree_close(&tree);
    return 0;
}
