/* HDF5: files that h5py wrote, read row by row; damaged ones; memory. */
#include "daemon/data/kinds/hdf5/hdf5_array.h"
#include "daemon/data/kinds/hdf5/hdf5_library.h"
#include "daemon/data/kinds/kinds.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/taken.h"

#include <errno.h>
#include <fcntl.h>

enum { ROOM = 1 << 16, ROWS = 61 };

static const struct sample_key key;
static struct spec_file file;

/* A file of the corpus, in memory of exactly its size, so that ASan sees one byte too far. */
static uint8_t *corpus(const char *name, size_t *ret)
{
    static uint8_t room[ROOM];
    char path[512];

    snprintf(path, sizeof path, "%s/%s", HDF5_CORPUS, name);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, room, sizeof room);
    assert_in_range(n, 100, ROOM - 1);
    uint8_t *data = __real_malloc((size_t)n);
    memcpy(data, room, (size_t)n);
    *ret = (size_t)n;
    return data;
}

static struct spec_dataset spec_of(const char *name, uint64_t cache)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", HDF5_CORPUS, name);
    file.path = path;
    return (struct spec_dataset){
        .kind = DATASET_HDF5, .files = &file, .n_files = 1, .cache = cache};
}

/* Leaves of "rows", by name: image, label, late, seen, x. */
struct row {
    uint8_t image[5][4];
    int64_t label;
    double late[3];
    bool seen;
    float x;
};

static int read_row(struct dataset *ds, uint64_t i, struct row *ret, struct dl_error *err)
{
    void *dst[] = {ret->image, &ret->label, ret->late, &ret->seen, &ret->x};
    size_t bad;

    return dataset_read_rows(ds, &key, &i, 1, dst, &bad, err);
}

static void expect_row(const struct row *row, uint64_t i)
{
    for (unsigned j = 0; j < 5; j++)
        for (unsigned k = 0; k < 4; k++)
            assert_int_equal(row->image[j][k], (7 * i + 3 * j + k) % 251);
    assert_int_equal(row->label, i * i);
    for (unsigned j = 0; j < 3; j++)
        assert_true(row->late[j] == (i < 20 ? (double)(3 * i + j) : 1.5));
    assert_int_equal(row->seen, i % 3 == 0);
    assert_true(row->x == (float)i / 8);
}

TEST(test_rows)
{
    for (uint64_t cache = 0; cache <= 1000; cache += 100) {
        struct spec_dataset spec = spec_of("rows", cache);
        struct dataset *ds = must_open(&spec);
        struct dl_error err = {0};
        struct row row;
        assert_int_equal(ds->length, ROWS);
        assert_int_equal(ds->n_leaves, 5);
        assert_name(ds, 7, ": row 7");
        for (uint64_t i = 0; i < 2 * ROWS; i++) {
            memset(&row, 0xEE, sizeof row);
            assert_int_equal(read_row(ds, i * 17 % ROWS, &row, &err), 0);
            expect_row(&row, i * 17 % ROWS);
        }
        assert_int_equal(read_row(ds, ROWS, &row, &err), -ERANGE);
        dataset_close(ds);
    }
}

TEST(test_fields)
{
    static struct spec_field fields[] = {{(char *)"deep", (char *)"/g/x"},
                                         {(char *)"y", (char *)"label"}};
    struct spec_dataset spec = spec_of("rows", 0);
    struct dl_error err = {0};
    uint16_t deep;
    int64_t y;
    uint64_t i = 9;
    size_t bad;

    spec.fields = fields;
    spec.n_fields = 2;
    struct dataset *ds = must_open(&spec);
    assert_int_equal(dataset_read_rows(ds, &key, &i, 1, (void *[]){&deep, &y}, &bad, &err), 0);
    assert_int_equal(deep, 9);
    assert_int_equal(y, 81);
    dataset_close(ds);
}

TEST(test_other_files)
{
    struct spec_dataset spec = spec_of("latest", 0);
    struct dataset *ds = must_open(&spec);
    struct dl_error err = {0};
    int16_t a[4];
    uint64_t i = 2;
    size_t bad;

    assert_int_equal(ds->length, 3);
    assert_int_equal(dataset_read_rows(ds, &key, &i, 1, (void *[]){a}, &bad, &err), 0);
    assert_memory_equal(a, ((int16_t[]){8, 9, 10, 11}), sizeof a);
    dataset_close(ds);
    spec = spec_of("empty", 0);
    ds = must_open(&spec);
    assert_int_equal(ds->length, 0);
    dataset_close(ds);
    spec = spec_of("many", 0);
    ds = must_open(&spec);
    assert_int_equal(ds->n_leaves, 40);
    assert_int_equal(ds->length, 2);
    dataset_close(ds);
    spec = spec_of("user_block", 0);
    ds = must_open(&spec);
    i = 6;
    assert_int_equal(dataset_read_rows(ds, &key, &i, 1, (void *[]){a}, &bad, &err), 0);
    assert_int_equal(a[0], 6);
    dataset_close(ds);
}

static bool has_libhdf5(void)
{
    if (hdf5_library_missing())
        print_message("# skipped: %s\n", hdf5_library_missing());
    return !hdf5_library_missing();
}

/* What our own reader refuses, by libhdf5: a group in a heap, other indexes of chunks, big-endian
 * numbers, parts of compounds, soft links. */
TEST(test_foreign)
{
    static struct spec_field fields[] = {
        {(char *)"at", (char *)"g/table/at"}, {(char *)"big", (char *)"big"},
        {(char *)"ch", (char *)"/chunked"},   {(char *)"flag", (char *)"flag"},
        {(char *)"half", (char *)"half"},     {(char *)"id", (char *)"g/table/id"},
        {(char *)"soft", (char *)"soft"}};
    struct spec_dataset spec = spec_of("foreign", 100);
    struct dl_error err = {0};
    float at[2];
    int32_t big, soft;
    double chunked[2];
    bool flag;
    uint16_t half, id;
    static const uint16_t halves[] = {0, 0x3800, 0x3C00, 0x3E00, 0x4000, 0x4100, 0x4200};
    size_t bad;

    if (!has_libhdf5())
        return;
    spec.fields = fields;
    spec.n_fields = ARRAY_SIZE(fields);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, ROWS);
    for (uint64_t k = 0; k < 2 * ROWS; k++) {
        uint64_t i = k * 5 % ROWS;
        void *dst[] = {at, &big, chunked, &flag, &half, &id, &soft};
        assert_int_equal(dataset_read_rows(ds, &key, &i, 1, dst, &bad, &err), 0);
        assert_int_equal(big, 1000 * i);
        assert_int_equal(soft, 1000 * i);
        assert_true(chunked[0] == (double)(2 * i) / 4 && chunked[1] == (double)(2 * i + 1) / 4);
        assert_int_equal(flag, i % 2 == 0);
        if (i < ARRAY_SIZE(halves))
            assert_int_equal(half, halves[i]);
        assert_int_equal(id, i * i);
        assert_true(at[0] == (float)i / 8 && at[1] == -(float)i / 8);
    }
    dataset_close(ds);
    spec = spec_of("dense", 0);
    ds = must_open(&spec); /* all of the root */
    assert_true(ds->n_leaves > 8);
    dataset_close(ds);
}

static void expect_foreign_refusal(const char *name, const char *source, int code, const char *says)
{
    struct spec_field field = {(char *)"x", (char *)source};
    struct spec_dataset spec = spec_of(name, 0);
    struct dataset *ds;
    struct dl_error err = {0};

    spec.fields = &field;
    spec.n_fields = 1;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -code);
    assert_error_has(&err, says);
}

/* No other file is opened, and no filter loaded. */
TEST(test_foreign_refusals)
{
    if (!has_libhdf5())
        return;
    expect_foreign_refusal("foreign", "outside", ENOENT, "has no dataset outside");
    expect_foreign_refusal("foreign", "lzf", ENOENT, "has no dataset lzf that libhdf5 can open");
    expect_foreign_refusal("foreign", "texts", ENOTSUP, "holds neither numbers nor one text a row");
    expect_foreign_refusal("foreign", "lists", ENOTSUP, "holds neither numbers nor one text a row");
    expect_foreign_refusal("foreign", "g/table/none", ENOTSUP, "holds neither numbers");
    expect_foreign_refusal("foreign", "g/table", ENOTSUP, "is of compounds; name parts of it");
    expect_foreign_refusal("foreign", "g", ENOENT, "has no dataset g");
    expect_foreign_refusal("virtual", "v", ENOTSUP, "is virtual, or stored in other files");
    expect_foreign_refusal("virtual", "out", ENOTSUP, "is virtual, or stored in other files");
    expect_foreign_refusal("virtual", "packed", ENOTSUP, "is packed by filter 32000, which");
}

/* All of what is in the root; 0 or the error. */
static int play(const struct hdf5_view *view, struct dl_error *err)
{
    static const char *const names[] = {"image", "label", "late", "seen", "x", "g/x"};
    uint64_t at;
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct hdf5_array array = {0};
        struct hdf5_cache cache = {.most = 100};
        int one = hdf5_find(view, names[i], &at, err);
        if (one == 0)
            one = hdf5_array_open(view, at, names[i], &array, err);
        uint8_t *out =
            one == 0 && array.row_bytes < 4096 ? __real_malloc(array.row_bytes + 1) : NULL;
        for (uint64_t row = 0; out && one == 0 && row < ROWS && row < array.dims[0]; row++)
            one = hdf5_array_read(&array, &cache, row, out, err);
        free(out);
        hdf5_array_close(&array, &cache);
        assert_int_equal(cache.bytes, 0);
        assert_true(one == 0 || (one == -err->code && err->message[0]));
        r = one < 0 ? one : r;
    }
    return r;
}

/* Cut at each byte, a bit flipped at each byte: refused or read, and nothing outside is looked at.
 */
TEST(test_damaged)
{
    size_t n, flips = 0, refused = 0;
    _cleanup_free_ uint8_t *data = corpus("rows", &n);
    struct hdf5_view view = {.data = data, .bytes = n, .path = "rows"};
    struct dl_error err = {0};

    assert_int_equal(play(&view, &err), 0);
    for (size_t at = 0; at < n; at += harness_stride() * (at < 4000 ? 3 : 5), flips++) {
        data[at] ^= (uint8_t)(1U << at % 8);
        refused += play(&view, &err) < 0;
        data[at] ^= (uint8_t)(1U << at % 8);
        _cleanup_free_ uint8_t *cut = __real_malloc(at + 1);
        memcpy(cut, data, at);
        struct hdf5_view part = {.data = cut, .bytes = at, .path = "cut"};
        assert_true(play(&part, &err) < 0);
    }
    assert_true(flips > 1000 / harness_stride() && refused > flips / 8);
}

/* Packed bytes have a sum of their own. */
TEST(test_sums)
{
    size_t n;
    _cleanup_free_ uint8_t *data = corpus("rows", &n);
    struct hdf5_view view = {.data = data, .bytes = n, .path = "rows"};
    struct hdf5_cache cache = {0};
    struct hdf5_array array;
    struct dl_error err = {0};
    uint8_t row[20];
    uint64_t at;

    assert_int_equal(hdf5_find(&view, "image", &at, &err), 0);
    assert_int_equal(hdf5_array_open(&view, at, "image", &array, &err), 0);
    assert_int_equal(array.n_filters, 3);
    data[array.chunks[0].at + array.chunks[0].bytes - 1] ^= 1;
    assert_int_equal(hdf5_array_read(&array, &cache, 0, row, &err), -EINVAL);
    assert_error(&err, EINVAL, "rows", "its dataset image has a chunk that is damaged");
    assert_int_equal(hdf5_array_read(&array, &cache, 8, row, &err), 0);
    hdf5_array_close(&array, &cache);
}

/* Each allocation of ours fails once, while it is opened and all rows are read. */
TEST(test_memory)
{
    struct spec_dataset spec = spec_of("rows", 100);

    expect_memory_failures(&spec, 20);
}
