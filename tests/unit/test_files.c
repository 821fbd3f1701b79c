/* A file for each sample: what becomes of each, which files there are, and what is refused. */
#include "daemon/data/kinds/files/files_list.h"
#include "daemon/data/kinds/kinds.h"
#include "proto/common/sealed.h"
#include "tests/lib/read_file.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/make_zip.h"

#include <errno.h>
#include <sys/stat.h>

static const struct sample_key key;

static struct spec_dataset spec_of(struct spec_file *files, uint32_t n)
{
    return (struct spec_dataset){.kind = DATASET_FILES,
                                 .files = files,
                                 .n_files = n,
                                 .decode = true,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

/* Of a file that is there: its sample in words, or the reason. */
static const char *sample_of(const struct spec_dataset *spec, struct taken *t)
{
    static struct words words;
    struct dataset *ds = must_open(spec);

    words.len = 0;
    assert_int_equal(ds->length, 1);
    if (take(ds, &key, 0, t) == 0)
        assert_int_equal(put_node(&words, &t->sample, 0), t->sample.tree.count);
    else
        say(&words, "%s", t->err.message);
    drop(t);
    dataset_close(ds);
    return words.text;
}

static size_t a_npy(uint8_t *out, const char *descr, const char *shape, const char *data, size_t n)
{
    char dict[200];

    snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr,
             shape);
    size_t len = make_npy(out, 1, dict);
    memcpy(out + len, data, n);
    return len + n;
}

static struct zip_file *an_npz(bool deflated)
{
    static struct zip_file zip;
    uint8_t data[300];

    memset(&zip, 0, sizeof zip);
    size_t len = a_npy(data, "<i2", "(2, 3)", "abcdefghijkl", 12);
    zip_add(&zip, "x.npy", data, len, deflated, 20);
    len = a_npy(data, "<i8", "()", "\7\0\0\0\0\0\0\0", 8);
    zip_add(&zip, "y.npy", data, len, deflated, 0);
    zip_end(&zip, "");
    return &zip;
}

static struct spec_field chosen[] = {{.name = "image", .source = "x"},
                                     {.name = "label", .source = "y"}};
static struct spec_field missing[] = {{.name = "z", .source = "z"}};

TEST(test_samples)
{
    uint8_t matrix[300], number[300], object[300];
    size_t rows = 0;
    _cleanup_free_ uint8_t *hdf5 = read_file(HDF5_CORPUS "/rows", &rows);
    const size_t of_matrix = a_npy(matrix, "<f4", "(1, 3)", "abcdefghijkl", 12);
    const size_t of_number = a_npy(number, "<i8", "()", "\7\0\0\0\0\0\0\0", 8);
    const size_t of_object = a_npy(object, "|O", "(1,)", "abcdefgh", 8);
    const struct {
        const char *name;
        const void *data;
        size_t len;
        bool bytes; /* decode: false */
        uint32_t raw;
        struct spec_field *fields;
        uint32_t n_fields;
        const char *want;
    } cases[] = {
        {"a.npy", matrix, of_matrix, .want = "float32(1, 3)"},
        {"a.tar.NPY", matrix, of_matrix, .want = "float32(1, 3)"},
        {"n.npy", number, of_number, .want = "7"},
        {"o.npy", object, of_object, .want = "cannot be read: it its dtype '|O' is not a number"},
        {"t.npy", matrix, of_matrix - 1, .want = "cannot be read: it "},
        {"a.npz", an_npz(false)->data, an_npz(false)->len, .want = "{x:int16(2, 3) y:7}"},
        {"f.npz", an_npz(false)->data, an_npz(false)->len, .fields = chosen, .n_fields = 2,
         .want = "{image:int16(2, 3) label:7}"},
        {"m.npz", an_npz(false)->data, an_npz(false)->len, .fields = missing, .n_fields = 1,
         .want = "has no array z; see dataset.fields"},
        {"t.npz", an_npz(false)->data, 70, .want = "is not a zip archive, as .npz says"},
        {"f.npy", matrix, of_matrix, .fields = chosen, .n_fields = 2,
         .want = "has one value, and no fields as .npz and HDF5 files have; leave dataset.fields"},
        {"a.h5", hdf5, rows,
         .want = "{image:uint8(61, 5, 4) label:int64(61,) late:float64(61, 3) seen:bool(61,) "
                 "x:float32(61,)}"},
        {"f.hdf5", hdf5, rows, .fields = (struct spec_field[]){{.name = "a", .source = "label"}},
         .n_fields = 1, .want = "{a:int64(61,)}"},
        {"m.h5", hdf5, rows, .fields = missing, .n_fields = 1, .want = "z"},
        {"t.h5", hdf5, 600, .want = "is "},
        {"a.txt", "caf\xC3\xA9", 5, .want = "\"caf\xC3\xA9\""},
        {"b.txt", "caf\xC3", 4,
         .want = "is not UTF-8; convert it, or take its bytes with decode: "
                 "false"},
        {"a.cls", "12\n", 3, .want = "12"},
        {"a.json", "{\"a\": [1, true]}", 16, .want = "{a:[1 true]}"},
        {"a.json.gz", "no", 2, .want = "is compressed by gzip, and corrupt"},
        {"a.bin", "ab", 2, .want = "<ab>"},
        {"none", "", 0, .want = "<>"},
        {"b.npy", "ab", 2, .bytes = true, .want = "<ab>"},
        {"c.npy", "abcd", 4, .bytes = true, .raw = DL_DTYPE_INT16, .want = "int16(2,)"},
        {"d.npy", "abc", 3, .bytes = true, .raw = DL_DTYPE_INT16,
         .want = "has 3 bytes, which are no whole number of int16"},
        {"a.png", "ab", 2, .want = "is an image that cannot be read: it has 2 bytes, and is not"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct spec_file file = {
            .path = (char *)harness_file(cases[i].name, cases[i].data, cases[i].len)};
        struct spec_dataset spec = spec_of(&file, 1);
        spec.decode = !cases[i].bytes;
        spec.raw = cases[i].raw;
        spec.fields = cases[i].fields;
        spec.n_fields = cases[i].n_fields;
        struct taken t;
        const char *said = sample_of(&spec, &t);
        if (!strstr(said, cases[i].want))
            fail_msg("%s: \"%s\" is not \"%s\"", cases[i].name, said, cases[i].want);
    }
}

/* Deflated arrays have the bytes of stored ones, and those of HDF5 are those of its rows. */
TEST(test_values)
{
    for (int deflated = 0; deflated < 2; deflated++) {
        struct zip_file *zip = an_npz(deflated);
        struct spec_file file = {.path = (char *)harness_file("v.npz", zip->data, zip->len)};
        struct spec_dataset spec = spec_of(&file, 1);
        struct dataset *ds = must_open(&spec);
        struct taken t;
        assert_int_equal(take(ds, &key, 0, &t), 0);
        assert_memory_equal(t.sample.data[1], "abcdefghijkl", 12);
        drop(&t);
        dataset_close(ds);
    }
    size_t len = 0;
    _cleanup_free_ uint8_t *hdf5 = read_file(HDF5_CORPUS "/rows", &len);
    struct spec_file file = {.path = (char *)harness_file("v.h5", hdf5, len)};
    struct spec_dataset spec = spec_of(&file, 1);
    struct dataset *ds = must_open(&spec);
    struct taken t;
    assert_int_equal(take(ds, &key, 0, &t), 0);
    const uint8_t *image = t.sample.data[1];
    const uint8_t *label = t.sample.data[2]; /* not aligned in the file */
    const bool *seen = t.sample.data[4];
    for (size_t i = 0; i < 61; i++) {
        assert_int_equal(image[i * 20 + 7], (7 * i + 3 * 1 + 3) % 251);
        int64_t number;
        memcpy(&number, label + 8 * i, sizeof number);
        assert_int_equal(number, i * i);
        assert_int_equal(seen[i], i % 3 == 0);
    }
    drop(&t);
    dataset_close(ds);
}

/* ---- which files ---------------------------------------------------------------------------- */

static void expect_names(const struct spec_dataset *spec, const char *want)
{
    struct dataset *ds = must_open(spec);
    char all[512] = "";

    for (uint64_t i = 0; i < ds->length; i++) {
        char name[4096];
        assert_true(dataset_name(ds, i, name, sizeof name) < sizeof name);
        const char *slash = strrchr(name, '/');
        strcat(strcat(all, i ? " " : ""), slash + 1);
    }
    assert_string_equal(all, want);
    dataset_close(ds);
}

TEST(test_lists)
{
    static const char *const names[] = {"l/b.txt", "l/a.txt", "l/c[1].txt", "l/B.txt"};
    static const struct {
        const char *paths[2];
        const char *list; /* NULL: not listed */
        const char *want;
    } cases[] = {
        {{"l"}, NULL, "B.txt a.txt b.txt c[1].txt"},
        {{"l/*.txt"}, NULL, "B.txt a.txt b.txt c[1].txt"},
        {{"l/b.txt", "l/[a-z].txt"}, NULL, "b.txt a.txt b.txt"},
        {{"odd[1]"}, NULL, "x.txt"},
        {{"l/none.txt"}, NULL, "none.txt"},
        {{"list"}, "l/b.txt\n\nl/none.txt\r\n", "b.txt none.txt"},
        {{"list"}, "l/b.txt\nl/c[1].txt", "b.txt c[1].txt"},
        {{"list", "list"}, "/d/e.npy\ns3://bucket/f.npy\n", "e.npy f.npy e.npy f.npy"},
    };

    (void)harness_file("odd[1]/x.txt", "x", 1);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)harness_file(names[i], "x", 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct spec_file files[2];
        uint32_t n = 0;
        for (; n < 2 && cases[i].paths[n]; n++)
            files[n] = (struct spec_file){.path = strdup(harness_below(cases[i].paths[n]))};
        struct spec_dataset spec = spec_of(files, n);
        spec.listed = cases[i].list != NULL;
        if (spec.listed)
            (void)harness_text("list", cases[i].list);
        expect_names(&spec, cases[i].want);
        while (n > 0)
            free(files[--n].path);
    }
}

/* An HDF5 file of one sample, named in the middle of a million that are not there. */
TEST(test_a_million)
{
    enum { FILES = 1000000, AT = 777777, LINE = 16 };
    size_t len = 0, n = 0;
    _cleanup_free_ uint8_t *hdf5 = read_file(HDF5_CORPUS "/rows", &len);
    _cleanup_free_ char *text = malloc(FILES * LINE);
    struct taken t;

    assert_non_null(text);
    (void)harness_file("777777.h5", hdf5, len);
    for (unsigned i = 0; i < FILES; i++)
        n += (size_t)snprintf(text + n, LINE, "%06u.h5\n", i);
    struct spec_file file = {.path = (char *)harness_file("many", text, n)};
    struct spec_dataset spec = spec_of(&file, 1);
    spec.listed = true;
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, FILES);
    assert_int_equal(take(ds, &key, AT, &t), 0);
    drop(&t);
    assert_int_equal(take(ds, &key, FILES - 1, &t), -ENOENT);
    assert_true(strstr(t.err.path, "/999999.h5"));
    drop(&t);
    dataset_close(ds);
}

TEST(test_refused_lists)
{
    static const struct {
        const char *spec, *text;
        size_t len;
        const char *want;
    } cases[] = {
        {"{kind: files, paths: 'none/*.npy'}", "", 0, "none/*.npy: matches no file..."},
        {"{kind: files, paths: list, listed: true}", "", 0,
         "list: names no file; name at least one..."},
        {"{kind: files, paths: list, listed: true}", "\n\r\n", 3,
         "list: names no file; name at least one..."},
        {"{kind: files, paths: list, listed: true}", "a\0b\n", 4, "list: its path 1 has a NUL..."},
        {"{kind: files, paths: missing, listed: true}", "", 0, "ENOENT missing: ..."},
    };
    char lines[5000];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        harness_file("list", cases[i].text, cases[i].len);
        expect_dataset(cases[i].spec, cases[i].want);
    }
    memset(lines, 'a', sizeof lines);
    harness_file("list", lines, sizeof lines);
    expect_dataset("{kind: files, paths: list, listed: true}",
                   "list: its path 1 has a NUL, or more than 4096 bytes...");
}

/* A file that is missing is its sample's fault; the others are read. */
TEST(test_missing)
{
    harness_file("here.txt", "x", 1);
    expect_dataset("{kind: files, paths: [gone.txt, here.txt]}", "(ENOENT gone.txt: ...) \"x\"");
}

/* ---- a worker and another one --------------------------------------------------------------- */

static int kept = -1;

static int keep(void *owner, const char *place, uint32_t form, uint64_t on_disk, int fd)
{
    (void)owner;
    assert_string_equal(place, "dataset");
    assert_int_equal(form, SHARED_INDEX_FILES);
    assert_int_equal(on_disk, 0);
    kept = dup(fd);
    return 0;
}

/* The second has the first one's list, also of files that are gone since. */
TEST(test_shared)
{
    struct shared_indexes first = {.offer = keep}, second = {.offer = keep};
    struct data_env env = {.indexes = &first};
    const char *a = strdup(harness_file("s/a.txt", "x", 1));
    (void)harness_file("s/b.txt", "x", 1);
    struct spec_file file = {.path = strdup(harness_below("s"))};
    struct spec_dataset spec = spec_of(&file, 1);
    struct files_list list;
    struct dl_error err = {0};

    assert_int_equal(files_list_open(&spec, "dataset", &env, &list, &err), 0);
    uint64_t fingerprint = list.fingerprint;
    assert_int_equal(list.n, 2);
    files_list_deinit(&list);
    assert_true(kept >= 0);
    unlink(a);
    assert_int_equal(shared_indexes_add(&second, span_str("dataset"), SHARED_INDEX_FILES, kept), 0);
    env.indexes = &second;
    assert_int_equal(files_list_open(&spec, "dataset", &env, &list, &err), 0);
    assert_int_equal(list.n, 2);
    assert_true(list.fingerprint == fingerprint);
    assert_string_equal(files_list_path(&list, 0), a);
    files_list_deinit(&list);
    env.indexes = NULL;
    assert_int_equal(files_list_open(&spec, "dataset", &env, &list, &err), 0);
    assert_int_equal(list.n, 1);
    assert_true(list.fingerprint != fingerprint);
    files_list_deinit(&list);
    shared_indexes_deinit(&first);
    shared_indexes_deinit(&second);
    free((char *)a);
    free(file.path);
}

/* Whatever is not a list is taken for none. */
TEST(test_unsound)
{
    static const struct {
        struct files_list_head head;
        uint32_t begins[3];
        char text[8];
    } good = {.head = {.files = 2, .fingerprint = 5}, .begins = {0, 3, 6}, .text = "/a\0/b"};
    enum { BYTES = sizeof good.head + sizeof good.begins + 6 };
    _Alignas(8) uint8_t bytes[sizeof good];

    assert_true(files_list_is_sound((const uint8_t *)&good, BYTES));
    for (size_t n = 0; n < BYTES; n++)
        assert_false(files_list_is_sound((const uint8_t *)&good, n));
    assert_false(files_list_is_sound((const uint8_t *)&good, BYTES + 1));
    for (size_t i = 0; i < BYTES; i++) {
        bool counts = i < 8 || (i >= sizeof good.head && i < BYTES - 6) || i == BYTES - 4;
        memcpy(bytes, &good, sizeof good);
        bytes[i] ^= 0x80;
        assert_true(files_list_is_sound(bytes, BYTES) == !(counts || i == BYTES - 1));
    }
    memcpy(bytes, &good, sizeof good);
    memset(bytes + 8, 0, 8);
    assert_false(files_list_is_sound(bytes, BYTES)); /* no fingerprint */
}

TEST(test_no_memory)
{
    struct zip_file *zip = an_npz(true);
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    int all, refused;

    harness_file("n.npz", zip->data, zip->len);
    spec = read_dataset("{kind: files, paths: n.npz}");
    all = fail_open_each(&spec.dataset, &refused);
    assert_in_range(refused, 6, all);
}
