/* LMDB: records of leaves, branches and pages of their own, prefixes, and what is refused. */
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/lmdb/lmdb_tree.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"

#include <errno.h>

enum { PAGE = 512, PAGES = 8, BRANCH = 1, LEAF = 2, OVERFLOW_PAGE = 4, BIG = 1, DATABASE = 2 };

/* A file of pages, as it is made. */
struct pages {
    uint8_t data[PAGES * PAGE];
};

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

/* Written to a file, the pages are, as written in the spec, what is wanted. */
static void expect_pages(const struct pages *pages, const char *keys, const char *want)
{
    char text[256];

    harness_file("t.mdb", pages->data, sizeof pages->data);
    snprintf(text, sizeof text, "{kind: lmdb, paths: t.mdb%s}", keys);
    expect_dataset(text, want);
}

#define LEN   "{key:<__len__> value:<3>}"
#define ZERO  "{key:<image-0> value:<zero>}"
#define ONE   "{key:<image-1> value:<>}"
#define TWO   "{key:<image-2> value:<bbbb...bbbb>}"
#define LABEL "{key:<label-0> value:<seven>}"

TEST(test_records)
{
    struct pages pages = whole();

    expect_pages(&pages, "", LEN " " ZERO " " ONE " " TWO " " LABEL);
    struct dataset *ds = open_dataset("{kind: lmdb, paths: t.mdb}", &anywhere);
    struct taken t;
    assert_name(ds, 4, "/t.mdb: record 4");
    assert_int_equal(take(ds, &(struct sample_key){0}, 3, &t), 0);
    assert_int_equal(t.sample.tree.nodes[2].nbytes, sizeof big);
    assert_memory_equal(t.sample.data[2], big, sizeof big);
    drop(&t);
    dataset_close(ds);
    /* The later transaction counts, wherever it stands. */
    put_meta(&pages, 1, 8, 3, 1, 3);
    expect_pages(&pages, "", LEN " " ZERO " " ONE);
    /* Without the first one. */
    memset(pages.data, 0, PAGE);
    expect_pages(&pages, "", LEN " " ZERO " " ONE);
    /* Nothing was put in. */
    put_meta(&pages, 0, 9, UINT64_MAX, 0, 0);
    expect_pages(&pages, "", "");
}

TEST(test_prefixes)
{
    static const char *const rows[][2] = {
        {", prefix: image-", ZERO " " ONE " " TWO},
        {", prefix: image-2", TWO},
        {", prefix: image-9", ""},
        {", prefix: label-0", LABEL},
        {", prefix: label-01", ""},
        {", prefix: _", LEN},
        {", prefix: z", ""},
        {", prefix: A", ""},
    };
    struct pages pages = whole();

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_pages(&pages, rows[i][0], rows[i][1]);
}

TEST(test_refusals)
{
    static const struct {
        size_t at; /* bytes in the file */
        uint64_t number;
        size_t bytes; /* so many are changed to the number */
        const char *want;
    } rows[] = {
        {20, 2, 4, LEN " " ZERO " " ONE}, /* of another version: then page 1 counts */
        {92, 4, 2, "t.mdb: has several values for a key..."},
        {94, 0, 2, "t.mdb: says that its tree is 0 levels deep..."},
        {94, 33, 2, "t.mdb: says that its tree is 33 levels deep..."},
        {94, 3, 2, "t.mdb: its page 3 is not the branch of its tree that it should be..."},
        {94, 1, 2, "t.mdb: its page 2 is not the page of records that it should be..."},
        {120, 6, 8, "t.mdb: has 5 records, but says 6..."},
        {128, 99, 8, "t.mdb: its page 99 is not the branch..."},
        {128, 5, 8, "t.mdb: its page 5 is not the branch..."},
        {4 * PAGE + 503, PAGES, 8,
         "t.mdb: has 8 pages, and a value of 700 bytes at page 8; it is truncated..."},
        {2 * PAGE + 12, 16, 2, "t.mdb: its page 2 is not the branch..."},
        {2 * PAGE + 12, PAGE + 2, 2, "t.mdb: its page 2 is not the branch..."},
        {2 * PAGE + 16, PAGE - 4, 2, "t.mdb: its page 2 has a node outside it..."},
        {3 * PAGE, 4, 8, "t.mdb: its page 3 is not the page of records..."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pages pages = whole();
        put(pages.data + rows[i].at, rows[i].number, rows[i].bytes);
        expect_pages(&pages, "", rows[i].want);
    }
}

/* Branches that lead to each other end, as there are only so many pages. */
TEST(test_loop)
{
    struct pages pages = whole();

    put_meta(&pages, 0, 9, 2, 30, 5);
    begin_page(&pages, 2, BRANCH);
    for (int i = 0; i < 40; i++)
        add_node(&pages, 2, 2, "", NULL, 0);
    expect_pages(&pages, "", "t.mdb: its page 2 is in its tree twice...");
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
    struct pages pages = whole();

    begin_page(&pages, 4, LEAF);
    add_node(&pages, 4, 48 | (uint64_t)DATABASE << 32, "other", NULL, 0);
    add_node(&pages, 4, 400, "short", NULL, 0);
    expect_pages(&pages, "",
                 LEN " " ZERO " " ONE " (t.mdb: its record 3 is a named database...) (t.mdb: its "
                     "record 4 is damaged...)");
    expect_pages(&pages, ", images: [value]",
                 "...(t.mdb: record 1: its value is an image that cannot be read: it ...");
    expect_pages(&pages, ", prefix: 3",
                 "dataset.prefix: is not a text, such as \"image-\"; put it in quotes");
    expect_pages(&pages, ", images: [picture]",
                 "dataset.images: a record of LMDB has no picture; it has key and value");
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    struct pages pages = whole();

    harness_file("memory.mdb", pages.data, sizeof pages.data);
    expect_failures_of("{kind: lmdb, paths: memory.mdb, fields: {k: key, v: value}}", 3);
}
