/*
 * Parquet files with an index of their pages, of which only those in need are read; and row groups
 * that several datasets share.
 */
#include "tests/unit/parquet_corpus.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- pages ---------------------------------------------------------------------------------- */

/* 24 rows, 16 in the first group, in pages of 4: i, f, s by a dictionary, l. */
enum { INDEXED_ROWS = 24, INDEXED_PAGE = 4 };

/* All of a sample's leaves, one behind another. */
struct leaves {
    uint8_t data[256];
    size_t n;
};

static struct leaves leaves_of(struct dataset *ds, uint64_t index)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct leaves leaves = {.n = 0};
    struct dl_error err = {0};

    if (dataset_get(ds, &key, index, &sample, &err) < 0)
        fail_msg("sample %llu: %s", (unsigned long long)index, err.message);
    for (uint32_t i = 1; i < sample.tree.count; i++) {
        size_t bytes = sample.tree.nodes[i].nbytes;
        assert_in_range(leaves.n + bytes, 0, sizeof leaves.data);
        if (bytes > 0)
            memcpy(leaves.data + leaves.n, sample.data[i], bytes);
        leaves.n += bytes;
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
    return leaves;
}

/* As the numbers i of given rows are: the first error. */
static int read_numbers(struct dataset *ds, const uint64_t *rows, size_t n, int64_t *got,
                        struct dl_error *err)
{
    size_t bad;

    return dataset_read_rows(ds, &key, rows, n, (void *[]){got}, &bad, err);
}

/* The head of the one page of plain_v2, of four numbers. */
enum { PLAIN_PACKED = 9, PLAIN_MARK = 23, PLAIN_BODY = 28 };

/* Whether a page is compressed: as it says, unless its sizes or its writer tell better. */
TEST(test_marks_of_pages)
{
    static const uint8_t equal[] = {32, 27 << 2, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0,
                                    0,  0,       9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 8};
    static const uint8_t shorter[] = {32, 7 << 2, 7, 0, 0, 0, 0, 0, 0, 0, 23 << 2 | 2, 8, 0};
    static const struct {
        bool old, says_packed;
        const uint8_t *body; /* NULL: as it is in the file */
        uint8_t bytes;
        int64_t last; /* 0: it cannot be unpacked */
    } rows[] = {
        {false, false, NULL, 32, -1}, {false, true, NULL, 32, 0},     {true, false, NULL, 32, 0},
        {false, true, equal, 32, 5},  {false, false, shorter, 13, 7}, {false, true, shorter, 13, 7},
        {true, false, equal, 32, 5},  {true, false, shorter, 13, 7},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bytes b = corpus("plain_v2");
        uint8_t *writer = memmem(b.data, b.len, "parquet-cpp-arrow version", 25);
        struct dl_error err = {0};
        struct dataset *ds = NULL;
        int64_t got[4], last;
        assert_non_null(writer);
        assert_int_equal(b.data[PLAIN_MARK], 0x12);
        memcpy(&last, b.data + PLAIN_BODY + 24, sizeof last);
        b.data[PLAIN_MARK] = rows[i].says_packed ? 0x11 : 0x12;
        b.data[PLAIN_PACKED] = (uint8_t)(2 * rows[i].bytes);
        if (rows[i].body)
            memcpy(b.data + PLAIN_BODY, rows[i].body, rows[i].bytes);
        if (rows[i].old)
            memcpy(writer, "parquet-cpp version 1.5.1", 25);
        struct spec_dataset spec = spec_of(&b, "marks");
        assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
        int r = read_numbers(ds, (const uint64_t[]){0, 1, 2, 3}, 4, got, &err);
        assert_int_equal(r, rows[i].last ? 0 : -EINVAL);
        if (r < 0)
            assert_error_has(&err, "page 0: it cannot be unpacked");
        else
            assert_int_equal(got[3], rows[i].last < 0 ? last : rows[i].last);
        dataset_close(ds);
    }
}

/* With no room for all of them, samples in any order are those that whole groups give. */
TEST(test_pages_are_equal)
{
    struct bytes b = corpus("indexed");
    struct spec_dataset spec = spec_of(&b, "pages");
    struct leaves wanted[INDEXED_ROWS];
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    spec.nulls = number(1);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    assert_int_equal(ds->length, INDEXED_ROWS);
    for (uint64_t i = 0; i < INDEXED_ROWS; i++)
        wanted[i] = leaves_of(ds, i);
    dataset_close(ds);
    for (uint64_t step = 1; step < INDEXED_ROWS; step += 2) {
        spec.cache = step;
        assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
        for (uint64_t k = 0; k < 60UL; k++) {
            uint64_t i = (7 + step * k) % INDEXED_ROWS;
            struct leaves got = leaves_of(ds, i);
            if (got.n != wanted[i].n || memcmp(got.data, wanted[i].data, got.n) != 0)
                fail_msg("sample %llu, step %llu", (unsigned long long)i, (unsigned long long)step);
        }
        dataset_close(ds);
    }
}

/* Only the page in need is read: a byte of another one may be wrong. A group whose rows are asked
 * for a third time in a row is decoded whole, and then the byte is found. */
TEST(test_pages_in_need)
{
    static struct spec_field field = {(char *)"i", (char *)"i"};
    static const uint64_t rows[] = {5, 6, 9};
    struct bytes b = corpus("indexed");
    struct spec_dataset spec;
    struct dl_error err = {0};
    struct dataset *ds = NULL;
    int64_t got[3];

    b.data[40] ^= 1; /* in the first page of i */
    spec = spec_of(&b, "need");
    spec.nulls = number(1);
    spec.fields = &field;
    spec.n_fields = 1;
    spec.cache = 1;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    assert_int_equal(read_numbers(ds, rows, 2, got, &err), 0);
    assert_memory_equal(got, ((int64_t[]){5, 6}), 2 * sizeof *got);
    assert_int_equal(read_numbers(ds, rows + 2, 1, got, &err), -EINVAL);
    assert_error_has(&err, "the checksum (CRC-32)");
    dataset_close(ds);

    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    assert_int_equal(read_numbers(ds, (uint64_t[]){1}, 1, got, &err), -EINVAL);
    assert_error_has(&err, "page 0: its bytes do not have the checksum (CRC-32)");
    assert_int_equal(read_numbers(ds, (uint64_t[]){21}, 1, got, &err), 0);
    assert_int_equal(got[0], 1); /* null */
    dataset_close(ds);

    spec.cache = 1 << 20; /* there is room for all: whole at once */
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    assert_int_equal(read_numbers(ds, rows, 1, got, &err), -EINVAL);
    dataset_close(ds);
}

/* An index of any bytes: an error of a page, or values that the file has; and with little memory,
 * where all of it is by pages. */
TEST(test_pages_damaged)
{
    struct bytes b = corpus("indexed");
    unsigned errors = 0;

    for (size_t at = 4; at < b.len; at += harness_stride()) {
        struct dl_error err = {0};
        uint64_t n;
        b.data[at] ^= (uint8_t)(1 << (at % 8));
        struct spec_dataset spec = spec_of(&b, "damaged");
        spec.nulls = number(1);
        spec.cache = 1;
        int r = read_all(&spec, &n, &err);
        assert_true(r == 0 || (r == -err.code && err.message[0]));
        errors += r < 0;
        b.data[at] ^= (uint8_t)(1 << (at % 8));
    }
    assert_true(errors > 100 / harness_stride());
}

/* ---- groups that are shared ------------------------------------------------------------------ */

enum { ARENA = 1 << 20 };

/* What a worker has of the daemon's: memory for the files of the spec. */
static void share(struct data_pictures *pictures, char *root)
{
    int fd = memfd_create("arena", MFD_CLOEXEC);

    assert_return_code(fd, errno);
    assert_int_equal(ftruncate(fd, ARENA), 0);
    void *base = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    pictures_arena_init(base, ARENA, 1);
    munmap(base, ARENA);
    pictures->root = root;
    assert_int_equal(pictures_cache_open(&pictures->cache, fd, ARENA), 0);
}

/* How many groups were found, and were not, of all that are asked for. */
static void expect_counts(const struct data_pictures *pictures, uint64_t hits, uint64_t misses)
{
    struct pictures_counts counts;

    pictures_arena_counts(pictures->cache.arena, ARENA, &counts);
    assert_int_equal(counts.hits, hits);
    assert_int_equal(counts.misses, misses);
}

/* The first group that is not null, by a dataset of its own. */
static int read_shared(const struct spec_dataset *spec, const struct data_env *env, int64_t *got)
{
    static const uint64_t rows[] = {17, 16, 20};
    struct dl_error err = {0};
    struct dataset *ds = NULL;
    int r = dataset_open(spec, env, &ds, &err);

    if (r == 0)
        r = read_numbers(ds, rows, 3, got, &err);
    dataset_close(ds);
    return r;
}

/* One dataset decodes a group, others find it. Other nulls are other rows, and so is another file.
 */
TEST(test_shared)
{
    static struct spec_field field = {(char *)"i", (char *)"i"};
    struct bytes b = corpus("indexed");
    struct spec_dataset spec = spec_of(&b, "shared");
    struct data_pictures pictures = {0};
    struct data_env env = {.pictures = &pictures, .n_pictures = 1};
    int64_t got[3];

    share(&pictures, one_file.path);
    spec.nulls = number(1);
    spec.fields = &field;
    spec.n_fields = 1;
    spec.shared = ARENA;
    usleep(200 * 1000); /* what was written just now is not kept */
    assert_int_equal(read_shared(&spec, &env, got), 0);
    assert_memory_equal(got, ((int64_t[]){17, 16, 20}), sizeof got);
    expect_counts(&pictures, 0, 1);
    assert_int_equal(read_shared(&spec, &env, got), 0);
    assert_memory_equal(got, ((int64_t[]){17, 16, 20}), sizeof got);
    expect_counts(&pictures, 1, 1);

    spec.nulls = number(2);
    assert_int_equal(read_shared(&spec, &env, got), 0);
    expect_counts(&pictures, 1, 2);
    spec.shared = 0;
    assert_int_equal(read_shared(&spec, &env, got), 0);
    expect_counts(&pictures, 1, 2);

    spec.shared = ARENA;
    (void)spec_of(&b, "shared"); /* written anew */
    assert_int_equal(read_shared(&spec, &env, got), 0);
    assert_memory_equal(got, ((int64_t[]){17, 16, 20}), sizeof got);
    expect_counts(&pictures, 1, 3);
    pictures_cache_close(&pictures.cache);
}
