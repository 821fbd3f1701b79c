/* LMDB: records of leaves, branches and pages of their own, prefixes, and what is refused. */
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/lmdb/lmdb_tree.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/taken.h"

#include <errno.h>

enum { PAGE = 512, PAGES = 8, BRANCH = 1, LEAF = 2, OVERFLOW_PAGE = 4, BIG = 1, DATABASE = 2 };

/* A file of pages, as it is made. */
struct pages {
    uint8_t data[PAGES * PAGE];
};

static const struct sample_key key;
static struct spec_file file;
static uint8_t big[700]; /* a value of two pages */

static void put(uint8_t *at, uint64_t number, size_t bytes)
{
    memcpy(at, &number, bytes);
}

static void begin_page(struct pages *pages, uint64_t number, unsigned sort)
{
    uint8_t *page = pages->data + number * PAGE;

    memset(page, 0, PAGE);
    put(page, number, 8);
    put(page + 10, sort, 2);
    put(page + 12, 16, 2);   /* offsets end here */
    put(page + 14, PAGE, 2); /* and nodes begin */
}

/* A node behind those of the page: its first 6 bytes, its key, and what is behind that. */
static void add_node(struct pages *pages, uint64_t number, uint64_t head, const char *name,
                     const void *value, size_t bytes)
{
    uint8_t *page = pages->data + number * PAGE;
    const size_t len = strlen(name);
    uint16_t lower, upper;

    memcpy(&lower, page + 12, 2);
    memcpy(&upper, page + 14, 2);
    size_t room = (8 + len + bytes + 1) & ~(size_t)1;
    assert_true(upper >= room + lower + 2);
    upper = (uint16_t)(upper - room);
    put(page + lower, upper, 2);
    put(page + upper, head, 6);
    put(page + upper + 6, len, 2);
    for (size_t i = 0; i < len; i++)
        page[upper + 8 + i] = (uint8_t)name[i];
    if (bytes > 0)
        memcpy(page + upper + 8 + len, value, bytes);
    put(page + 12, lower + 2U, 2);
    put(page + 14, upper, 2);
}

static void add_record(struct pages *pages, uint64_t page, const char *name, const char *value)
{
    add_node(pages, page, strlen(value), name, value, strlen(value));
}

static void put_meta(struct pages *pages, uint64_t number, uint64_t transaction, uint64_t root,
                     unsigned depth, uint64_t records)
{
    uint8_t *page = pages->data + number * PAGE;

    memset(page, 0, PAGE);
    put(page, number, 8);
    put(page + 10, 8, 2);
    put(page + 16, 0xBEEFC0DE, 4);
    put(page + 20, 1, 4);
    put(page + 40, PAGE, 4);
    put(page + 94, depth, 2);
    put(page + 120, records, 8);
    put(page + 128, root, 8);
    put(page + 136, PAGES - 1, 8);
    put(page + 144, transaction, 8);
}

/* A branch of two leaves, with five records; and, an older transaction, one leaf alone. */
static struct pages whole(void)
{
    struct pages pages = {{0}};
    uint64_t at = 5;

    memset(big, 'b', sizeof big);
    put_meta(&pages, 0, 7, 2, 2, 5);
    put_meta(&pages, 1, 6, 3, 1, 3);
    begin_page(&pages, 2, BRANCH);
    add_node(&pages, 2, 3, "", NULL, 0);
    add_node(&pages, 2, 4, "image-2", NULL, 0);
    begin_page(&pages, 3, LEAF);
    add_record(&pages, 3, "__len__", "3");
    add_record(&pages, 3, "image-0", "zero");
    add_record(&pages, 3, "image-1", "");
    begin_page(&pages, 4, LEAF);
    add_node(&pages, 4, sizeof big | (uint64_t)BIG << 32, "image-2", &at, sizeof at);
    add_record(&pages, 4, "label-0", "seven");
    begin_page(&pages, 5, OVERFLOW_PAGE);
    put(pages.data + 5 * PAGE + 12, 2, 4);
    memcpy(pages.data + 5 * PAGE + 16, big, sizeof big);
    return pages;
}

static struct spec_dataset spec_of(const char *name, const struct pages *pages, size_t bytes)
{
    file.path = (char *)harness_file(name, pages->data, bytes);
    return (struct spec_dataset){.kind = DATASET_LMDB,
                                 .files = &file,
                                 .n_files = 1,
                                 .decode = true,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

static void expect_record(struct dataset *ds, uint64_t i, const char *name, const void *value,
                          size_t bytes)
{
    struct taken t;

    assert_int_equal(take(ds, &key, i, &t), 0);
    assert_int_equal(t.sample.tree.count, 3);
    assert_int_equal(t.sample.tree.nodes[1].nbytes, strlen(name));
    assert_memory_equal(t.sample.data[1], name, strlen(name));
    assert_int_equal(t.sample.tree.nodes[2].kind, TREE_BYTES);
    assert_int_equal(t.sample.tree.nodes[2].nbytes, bytes);
    if (bytes > 0)
        assert_memory_equal(t.sample.data[2], value, bytes);
    drop(&t);
}

TEST(test_records)
{
    struct pages pages = whole();
    struct spec_dataset spec = spec_of("records.mdb", &pages, sizeof pages);
    struct dataset *ds = must_open(&spec);
    struct taken t;

    assert_int_equal(ds->length, 5);
    expect_record(ds, 0, "__len__", "3", 1);
    expect_record(ds, 1, "image-0", "zero", 4);
    expect_record(ds, 2, "image-1", "", 0);
    expect_record(ds, 3, "image-2", big, sizeof big);
    expect_record(ds, 4, "label-0", "seven", 5);
    dataset_expect(ds, 4);
    assert_name(ds, 4, "/records.mdb: record 4");
    assert_int_equal(take(ds, &key, 5, &t), -ERANGE);
    drop(&t);
    dataset_close(ds);
    /* The later transaction counts, wherever it stands. */
    put_meta(&pages, 1, 8, 3, 1, 3);
    spec = spec_of("second.mdb", &pages, sizeof pages);
    ds = must_open(&spec);
    assert_int_equal(ds->length, 3);
    dataset_close(ds);
    /* Without the first one. */
    memset(pages.data, 0, PAGE);
    spec = spec_of("torn.mdb", &pages, sizeof pages);
    ds = must_open(&spec);
    assert_int_equal(ds->length, 3);
    dataset_close(ds);
    /* Nothing was put in. */
    put_meta(&pages, 0, 9, UINT64_MAX, 0, 0);
    spec = spec_of("empty.mdb", &pages, sizeof pages);
    ds = must_open(&spec);
    assert_int_equal(ds->length, 0);
    dataset_close(ds);
}

TEST(test_prefixes)
{
    static const struct {
        const char *prefix;
        uint64_t length;
        const char *first;
    } rows[] = {
        {"image-", 3, "image-0"}, {"image-2", 1, "image-2"},
        {"image-9", 0, NULL},     {"label-0", 1, "label-0"},
        {"label-01", 0, NULL},    {"_", 1, "__len__"},
        {"z", 0, NULL},           {"A", 0, NULL},
    };
    struct pages pages = whole();
    struct spec_dataset spec = spec_of("prefixes.mdb", &pages, sizeof pages);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct taken t;
        assert_int_equal(value_make_string(&spec.prefix, rows[i].prefix), 0);
        struct dataset *ds = must_open(&spec);
        assert_int_equal(ds->length, rows[i].length);
        if (rows[i].first) {
            assert_int_equal(take(ds, &key, 0, &t), 0);
            assert_memory_equal(t.sample.data[1], rows[i].first, strlen(rows[i].first));
            drop(&t);
        }
        dataset_close(ds);
    }
    value_deinit(&spec.prefix);
}

TEST(test_refusals)
{
    static const struct {
        size_t at; /* bytes in the file */
        uint64_t number;
        size_t bytes; /* so many are changed to the number */
        const char *why;
    } rows[] = {
        {20, 2, 4, "has 3 records"}, /* of another version: then page 1 counts */
        {92, 4, 2, "has several values for a key"},
        {94, 0, 2, "says that its tree is 0 levels deep"},
        {94, 33, 2, "says that its tree is 33 levels deep"},
        {94, 3, 2, "its page 3 is not the branch of its tree that it should be"},
        {94, 1, 2, "its page 2 is not the page of records that it should be"},
        {120, 6, 8, "has 5 records, but says 6"},
        {128, 99, 8, "its page 99 is not the branch"},
        {128, 5, 8, "its page 5 is not the branch"},
        {4 * PAGE + 503, PAGES, 8,
         "has 8 pages, and a value of 700 bytes at page 8; it is truncated"},
        {2 * PAGE + 12, 16, 2, "its page 2 is not the branch"},
        {2 * PAGE + 12, PAGE + 2, 2, "its page 2 is not the branch"},
        {2 * PAGE + 16, PAGE - 4, 2, "its page 2 has a node outside it"},
        {3 * PAGE, 4, 8, "its page 3 is not the page of records"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pages pages = whole();
        struct dataset *ds = NULL;
        struct dl_error err = {0};
        put(pages.data + rows[i].at, rows[i].number, rows[i].bytes);
        struct spec_dataset spec = spec_of("refused.mdb", &pages, sizeof pages);
        int r = dataset_open(&spec, &anywhere, &ds, &err);
        if (i == 0) {
            assert_int_equal(r, 0);
            assert_int_equal(ds->length, 3);
        } else {
            assert_int_equal(r, -EINVAL);
            assert_string_equal(err.path, file.path);
            assert_error_has(&err, rows[i].why);
        }
        dataset_close(ds);
    }
}

/* Branches that lead to each other end, as there are only so many pages. */
TEST(test_loop)
{
    struct pages pages = whole();
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    put_meta(&pages, 0, 9, 2, 30, 5);
    begin_page(&pages, 2, BRANCH);
    for (int i = 0; i < 40; i++)
        add_node(&pages, 2, 2, "", NULL, 0);
    struct spec_dataset spec = spec_of("loop.mdb", &pages, sizeof pages);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_error_has(&err, "its page 2 is in its tree twice");
}

/* Cut anywhere, or a bit of it flipped, it is refused or read; nothing outside it is looked at. */
TEST(test_damaged)
{
    struct pages good = whole();

    for (size_t at = 0; at < sizeof good; at += at % PAGE < 160 || at % PAGE > 440 ? 1 : 16) {
        struct pages pages = good;
        struct lmdb_tree tree = {0};
        struct lmdb_record record;
        struct dl_error err = {0};
        _cleanup_free_ uint8_t *cut = calloc(1, at + 1);
        memcpy(cut, good.data, at);
        /* Behind the last value there is nothing that anybody needs. */
        int r = lmdb_tree_open(cut, at, "cut", &tree, &err);
        assert_int_equal(r, at < 5 * PAGE + 16 + sizeof big ? -EINVAL : 0);
        lmdb_tree_close(&tree);
        pages.data[at] ^= (uint8_t)(1U << at % 8);
        if (lmdb_tree_open(pages.data, sizeof pages, "flipped", &tree, &err) < 0)
            continue;
        for (uint64_t i = 0; i < tree.records; i++) {
            if (lmdb_tree_get(&tree, i, &record, &err) < 0)
                continue;
            assert_true(record.value >= pages.data &&
                        record.value + record.value_bytes <= pages.data + sizeof pages);
        }
        lmdb_tree_close(&tree);
    }
}

TEST(test_bad_records)
{
    static char *images[] = {(char *)"value"}, *none[] = {(char *)"picture"};
    struct pages pages = whole();
    struct dataset *ds;
    struct dl_error err = {0};
    struct taken t;

    begin_page(&pages, 4, LEAF);
    add_node(&pages, 4, 48 | (uint64_t)DATABASE << 32, "other", NULL, 0);
    add_node(&pages, 4, 400, "short", NULL, 0);
    struct spec_dataset spec = spec_of("bad.mdb", &pages, sizeof pages);
    ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 3, &t), -EINVAL);
    assert_error_has(&t.err, "its record 3 is a named database");
    drop(&t);
    assert_int_equal(take(ds, &key, 4, &t), -EINVAL);
    assert_error_has(&t.err, "its record 4 is damaged");
    drop(&t);
    dataset_close(ds);
    spec.images = images;
    spec.n_images = 1;
    ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 1, &t), -EINVAL);
    assert_error_has(&t.err, "record 1: its value is an image that cannot be read: it ");
    drop(&t);
    dataset_close(ds);
    spec.images = none;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_error(&err, EINVAL, "dataset.images",
                 "a record of LMDB has no picture; it has key and value");
    spec.n_images = 0;
    spec.prefix = (struct value){.type = VALUE_INT, .integer = 3};
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_error(&err, EINVAL, "dataset.prefix",
                 "is not a text, such as \"image-\"; put it in quotes");
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    static struct spec_field fields[] = {{(char *)"k", (char *)"key"},
                                         {(char *)"v", (char *)"value"}};
    struct pages pages = whole();
    struct spec_dataset spec = spec_of("memory.mdb", &pages, sizeof pages);

    spec.fields = fields;
    spec.n_fields = 2;
    expect_memory_failures(&spec, 3);
}
