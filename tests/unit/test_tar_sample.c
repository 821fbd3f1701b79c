/* From members to samples: which belong together, and what each becomes. */
#include "daemon/data/kinds/tar/tar_sample.h"
#include "tests/unit/data_files.h"
#include "tests/unit/make_tar.h"
#include "tests/unit/make_zip.h"
#include "tests/unit/sample_words.h"

#include <errno.h>

#define NO_IMAGE                                          \
    {                                                     \
        .transform = TRANSFORM_NONE, .layout = LAYOUT_HWC \
    }
static struct fields decoded = {.decode = true, .image = NO_IMAGE};
static const struct fields raw = {.image = NO_IMAGE};
static const struct sample_key no_key;
static const struct decoding decoding_all = {.fields = &decoded, .key = &no_key};
static const struct decoding decoding_none = {.fields = &raw, .key = &no_key};

static struct tar_view view_of(const struct tar_file *tar)
{
    return (struct tar_view){.path = "shard", .data = tar->data, .bytes = tar->len};
}

/* Samples in words, one after another; or the error of the first bad one. */
static void read_all(const struct tar_file *tar, const struct decoding *decoding,
                     struct words *words, struct dl_error *err)
{
    struct tar_view view = view_of(tar);
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    uint64_t offset = 0, begin = 0;
    int r;

    words->len = 0;
    words->values = false;
    words->text[0] = '\0';
    *err = (struct dl_error){0};
    while ((r = tar_scan(&view, &offset, err)) == 0) {
        assert_true(offset > begin);
        r = tar_make(&view, begin, decoding, &sample, err);
        if (r < 0)
            break;
        assert_int_equal(r, 0);
        if (words->len > 0)
            say(words, " ");
        assert_int_equal(put_node(words, &sample, 0), sample.tree.count);
        sample_clear(&sample);
        begin = offset;
    }
    if (r < 0)
        assert_int_equal(err->code, -r);
    else
        assert_int_equal(tar_make(&view, begin, decoding, &sample, err), TAR_END);
    sample_deinit(&sample);
    arena_deinit(&arena);
}

static void expect(const struct tar_file *tar, const struct decoding *decoding, const char *want)
{
    struct words words;
    struct dl_error err;

    read_all(tar, decoding, &words, &err);
    if (err.code)
        fail_msg("%s: %s", err.path, err.message);
    assert_string_equal(words.text, want);
}

static void expect_refusal(const struct tar_file *tar, const char *says)
{
    struct words words;
    struct dl_error err;

    read_all(tar, &decoding_all, &words, &err);
    assert_string_equal(err.path, "shard");
    assert_error_has(&err, says);
}

enum { MOST = 8 };

TEST(test_groups)
{
    static const struct {
        const char *names[MOST];
        const char *want; /* without decoding; each member holds its own number */
    } rows[] = {
        {{NULL}, ""},
        {{"a.x"}, "{__key__:\"a\" x:<0>}"},
        {{"a.x", "a.y"}, "{__key__:\"a\" x:<0> y:<1>}"},
        {{"a.x", "b.x", "a.x"},
         "{__key__:\"a\" x:<0>} {__key__:\"b\" x:<1>} {__key__:\"a\" x:<2>}"},
        {{"a.left.PNG", "a.Right.png"}, "{__key__:\"a\" left.png:<0> right.png:<1>}"},
        {{"d/a.x", "d/a.y", "e/a.x"}, "{__key__:\"d/a\" x:<0> y:<1>} {__key__:\"e/a\" x:<2>}"},
        {{"d.e/a.x"}, "{__key__:\"d.e/a\" x:<0>}"},
        {{"./a.x"}, "{__key__:\"./a\" x:<0>}"},
        {{"/a.x"}, "{__key__:\"/a\" x:<0>}"},
        {{"a.x", "README", "a.y"}, "{__key__:\"a\" x:<0> y:<2>}"},
        {{"none", ".hidden", "d/.hidden", "a.", "d.e/none"}, ""},
        {{"__meta.x__", "d/__meta.x__", "__a.x"},
         "{__key__:\"d/__meta\" x__:<1>} {__key__:\"__a\" x:<2>}"},
        {{"a.x", "ab.x", "a b.x"},
         "{__key__:\"a\" x:<0>} {__key__:\"ab\" x:<1>} "
         "{__key__:\"a b\" x:<2>}"},
        {{"caf\xC3\xA9.x"}, "{__key__:\"caf\xC3\xA9\" x:<0>}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct tar_file tar = tar_new();
        tar_member(&tar, "d/", '5', "", 0);
        for (int k = 0; k < MOST && rows[i].names[k]; k++) {
            tar_text(&tar, rows[i].names[k], (char[]){(char)('0' + k), '\0'});
            tar_member(&tar, "link.x", '2', "", 0);
        }
        tar_end(&tar);
        expect(&tar, &decoding_none, rows[i].want);
        tar_free(&tar);
    }
}

static int make_decoder(void **state)
{
    return image_decoder_new(&decoded.images, NULL);
}

static int free_decoder(void **state)
{
    decoded.images = image_decoder_free(decoded.images);
    return 0;
}

TEST(test_fields, make_decoder, free_decoder)
{
    static const struct {
        const char *name;
        const char *content;
        const char *want; /* NULL: refused */
        const char *says;
    } rows[] = {
        {"a.cls", "7", "cls:7", NULL},
        {"a.cls", " -12\n", "cls:-12", NULL},
        {"a.cls2", "+3", "cls2:3", NULL},
        {"a.index", "9223372036854775807", "index:9223372036854775807", NULL},
        {"a.id", "0009", "id:9", NULL},
        {"a.big.cls", "1", "big.cls:1", NULL},
        {"a.cls", "", NULL,
         "its member a.cls at byte 0 is not an integer of 64 bits (\"\"), as the extension says"},
        {"a.cls", "cat", NULL, "(\"cat\")"},
        {"a.cls", "1.5", NULL, "not an integer"},
        {"a.cls", "1 2", NULL, "not an integer"},
        {"a.cls", "9223372036854775808", NULL, "not an integer of 64 bits"},
        {"a.txt", "caf\xC3\xA9\n", "txt:\"caf\xC3\xA9\n\"", NULL},
        {"a.text", "", "text:\"\"", NULL},
        {"a.txt", "\xFF", NULL, "its member a.txt at byte 0 is not UTF-8; convert it"},
        {"a.bin", "\xFF", "bin:<\xFF>", NULL},
        {"a.jpg", "x", NULL, "its member a.jpg at byte 0 is an image that cannot be read: it "},
        {"a.webp", "x", NULL, "its member a.webp at byte 0 is an image that cannot be read: it "},
        {"a.tif", "x", NULL, "its member a.tif at byte 0 is an image that cannot be read: it "},
        {"a.tiff", "x", NULL, "its member a.tiff at byte 0 is an image that cannot be read: it "},
        {"a.jpg.bin", "x", "jpg.bin:<x>", NULL},
        {"a.json", "3", "json:3", NULL},
        {"a.json", "-2.5e1", "json:-25f", NULL},
        {"a.json", "1.0", "json:1f", NULL},
        {"a.json", "\"x\"", "json:\"x\"", NULL},
        {"a.json", " {} ", "json:{}", NULL},
        {"a.json", "[]", "json:[]", NULL},
        {"a.json", "{\"b\": [1, 2.5, true, false, \"c\", {\"d\": []}], \"a\": {\"\\u00e9\": 1}}",
         "json:{b:[1 2.5f true false \"c\" {d:[]}] a:{\xC3\xA9:1}}", NULL},
        {"a.json", "{\"b\": [1, {\"c\": null}]}", NULL,
         "has null at \"json.b[1].c\", which a batch cannot hold; leave the key out"},
        {"a.json", "null", NULL, "has null at \"json\""},
        {"a.json", "", NULL, "is not JSON: "},
        {"a.json", "{\"a\": 1\n\n", NULL, "in its line 3"},
        {"a.json", "{} {}", NULL, "is not JSON: "},
        {"a.json", "18446744073709551616", NULL, "is not JSON: too big integer"},
        {"a.json", "1e999", NULL, "is not JSON: "},
        {"a.json", "\"\xFF\"", NULL, "is not JSON: "},
        {"a.npy", "x", NULL, "its member a.npy at byte 0 cannot be read: it does not start with"},
        {"a.npy", "", NULL, "cannot be read: it is empty"},
        {"a.__key__", "x", NULL, "is the second field \"__key__\" of its sample"},
        {"a.\xFF", "x", NULL, "cannot be part of its sample: the sample is not a tree"},
        {"\xFF.x", "x", NULL, "has a name that is not UTF-8"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct tar_file tar = tar_new();
        char want[1000];
        tar_text(&tar, rows[i].name, rows[i].content);
        tar_end(&tar);
        if (rows[i].want) {
            snprintf(want, sizeof want, "{__key__:\"a\" %s}", rows[i].want);
            expect(&tar, &decoding_all, want);
        } else {
            expect_refusal(&tar, rows[i].says);
        }
        tar_free(&tar);
    }
}

TEST(test_npy)
{
    struct tar_file tar = tar_new();
    uint8_t data[300];
    size_t len = make_npy(data, 1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }\n");

    memcpy(data + len, "abcdefghijkl", 12);
    tar_text(&tar, "a.cls", "1");
    tar_member(&tar, "a.npy", '0', data, len + 12);
    tar_end(&tar);
    expect(&tar, &decoding_all, "{__key__:\"a\" cls:1 npy:int16(2, 3)}");

    /* In place: what the tensor is made of lies in the file. */
    struct tar_view view = view_of(&tar);
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    assert_int_equal(tar_make(&view, 0, &decoding_all, &sample, NULL), 0);
    assert_ptr_equal(sample.data[3], tar.data + (size_t)3 * TAR_BLOCK + len);
    sample_deinit(&sample);
    arena_deinit(&arena);

    tar.len = 0;
    tar_member(&tar, "a.npy", '0', data, len + 11);
    expect_refusal(&tar, "its member a.npy at byte 0 cannot be read: it ");
    tar.len = 0;
    tar_member(&tar, "a.npy", '0', data, len + 13);
    expect_refusal(&tar, "its member a.npy at byte 0 cannot be read: it ");
    tar_free(&tar);
}

/* ---- several arrays -------------------------------------------------------------------------- */

static size_t an_npy(uint8_t *out, const char *dict, const char *data)
{
    size_t len = make_npy(out, 1, dict);

    memcpy(out + len, data, strlen(data));
    return len + strlen(data);
}

/* Of a matrix, a number and what is no array; the first is `dict` or a matrix. */
static struct zip_file *an_npz(bool deflated, const char *dict)
{
    static struct zip_file zip;
    uint8_t data[300];
    size_t len;

    memset(&zip, 0, sizeof zip);
    len = an_npy(data, dict ? dict : "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }",
                 "abcdefghijkl");
    zip_add(&zip, "x.npy", data, len, deflated, 20);
    len =
        an_npy(data, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", "\7\1\1\1\1\1\1\1");
    memset(data + len - 7, 0, 7);
    zip_add(&zip, "in/y.npy", data, len, deflated, 0);
    zip_add(&zip, "note", "hello", 5, deflated, 0);
    return &zip;
}

static void make_npz_shard(struct tar_file *tar, const void *data, size_t len)
{
    tar->len = 0;
    tar_text(tar, "a.cls", "1");
    tar_member(tar, "a.npz", '0', data, len);
    tar_end(tar);
}

TEST(test_npz)
{
    struct tar_file tar = tar_new();

    for (int way = 0; way < 4; way++) {
        struct zip_file *zip = an_npz(way % 2, NULL);
        zip_end(zip, way < 2 ? "" : "a comment with PK\5\6 and more than 22 bytes in it");
        make_npz_shard(&tar, zip->data, zip->len);
        expect(&tar, &decoding_all,
               "{__key__:\"a\" cls:1 npz:{x:int16(2, 3) in/y:7 note:<hello>}}");
    }
    struct zip_file nothing = {0};
    zip_end(&nothing, "");
    make_npz_shard(&tar, nothing.data, nothing.len);
    expect(&tar, &decoding_all, "{__key__:\"a\" cls:1 npz:{}}");
    tar_free(&tar);
}

/* One place of a whole archive, and what is said then. */
TEST(test_bad_npz)
{
    enum { DIRECTORY = 1 << 16, END = 1 << 17 }; /* from where a place counts */
    static const struct {
        size_t at;
        uint32_t value;
        int bytes;
        const char *says;
    } rows[] = {
        {END + 0, 'x', 1, "is not a zip archive"},
        {END + 20, 1, 2, "is not a zip archive"},
        {END + 4, 1, 2, "is only a part of a zip archive"},
        {END + 8, 2, 2, "is only a part of a zip archive"},
        {END + 16, UINT32_MAX, 4, "more than 65,534 members or 4 GiB"},
        {END + 16, 100000, 4, "its directory lies outside the file"},
        {END + 12, 100000, 4, "its directory lies outside the file"},
        {END + 12, 10, 4, "its directory ends too soon"},
        {DIRECTORY + 0, 'x', 1, "its directory ends too soon"},
        {DIRECTORY + 28, 60000, 2, "its directory ends too soon"},
        {DIRECTORY + 30, 60000, 2, "its directory ends too soon"},
        {DIRECTORY + 8, 1, 2, "has an encrypted member"},
        {DIRECTORY + 10, 12, 2, "has a member packed by method 12 of zip"},
        {DIRECTORY + 20, UINT32_MAX, 4, "has a member of 4 GiB or more"},
        {DIRECTORY + 24, UINT32_MAX, 4, "has a member of 4 GiB or more"},
        {DIRECTORY + 42, UINT32_MAX, 4, "has a member of 4 GiB or more"},
        {DIRECTORY + 42, 1, 4, "a member is not where its directory says"},
        {DIRECTORY + 42, 100000, 4, "a member is not where its directory says"},
        {DIRECTORY + 20, 100000, 4, "a member extends beyond the file"},
        {DIRECTORY + 24, 1 << 30, 4, "a member's size is not what its directory says"},
        {DIRECTORY + 24, 3, 4, NULL},
        {DIRECTORY + 16, 3, 4, "a member's CRC is wrong"},
        {DIRECTORY + 46, 0xff, 1, "whose name is not marked as UTF-8"},
        {DIRECTORY + 46, 0, 1, "whose name is not marked as UTF-8"},
    };
    struct tar_file tar = tar_new();

    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        struct zip_file *zip = an_npz(i % 2, NULL);
        size_t directory = zip->len, at = rows[i / 2].at;
        zip_end(zip, "");
        at = at >= END ? zip->len - ZIP_END + at - END : directory + at - DIRECTORY;
        zip_put(zip->data + at, rows[i / 2].value, rows[i / 2].bytes);
        make_npz_shard(&tar, zip->data, zip->len);
        expect_refusal(&tar, rows[i / 2].says ? rows[i / 2].says
                             : i % 2          ? "a member cannot be unpacked"
                                              : "a member's size is not what its directory says");
    }
    /* Cut, or with another byte somewhere, it is taken or refused, and nothing worse. */
    for (int deflated = 0; deflated < 2; deflated++) {
        struct zip_file *zip = an_npz(deflated, NULL);
        zip_end(zip, "");
        for (size_t n = 0; n < zip->len; n++) {
            struct words words;
            struct dl_error err;
            make_npz_shard(&tar, zip->data, n);
            expect_refusal(&tar, "is not a zip archive");
            zip->data[n] ^= 0xff;
            make_npz_shard(&tar, zip->data, zip->len);
            read_all(&tar, &decoding_all, &words, &err);
            zip->data[n] ^= 0xff;
        }
    }
    tar_free(&tar);
}

TEST(test_bad_arrays)
{
    static const struct {
        const char *dict;
        const char *says;
    } rows[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }",
         "its member a.npz at byte 1024 cannot be read: its array x its dtype '|O' is not"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 4), }",
         "cannot be read: its array x shape (2, 4) of int16 needs a file of"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (), }", "cannot be read: its array x"},
    };
    struct tar_file tar = tar_new();
    struct zip_file twice = {0};

    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        struct zip_file *zip = an_npz(i % 2, rows[i / 2].dict);
        zip_end(zip, "");
        make_npz_shard(&tar, zip->data, zip->len);
        expect_refusal(&tar, rows[i / 2].says);
    }
    for (int i = 0; i < 2; i++)
        zip_add(&twice, i ? "x" : "x.npy", "1", 1, false, 0);
    zip_end(&twice, "");
    make_npz_shard(&tar, twice.data, twice.len);
    expect_refusal(&tar, "has the array x twice");
    memset(&twice, 0, sizeof twice);
    zip_end(&twice, "");
    zip_put(twice.data + 8, 1025, 2);
    zip_put(twice.data + 10, 1025, 2);
    make_npz_shard(&tar, twice.data, twice.len);
    expect_refusal(&tar, "has 1025 arrays, and may have 1024");
    tar_free(&tar);
}

TEST(test_duplicates)
{
    struct tar_file tar = tar_new();

    tar_text(&tar, "d/a.txt", "1");
    tar_text(&tar, "d/a.json", "{\"x\": {\"cls\": 1}, \"txt\": 2}");
    tar_text(&tar, "d/a.cls", "3");
    expect(&tar, &decoding_all, "{__key__:\"d/a\" txt:\"1\" json:{x:{cls:1} txt:2} cls:3}");
    tar_text(&tar, "d/a.TXT", "4");
    tar_end(&tar);
    expect_refusal(&tar, "its member d/a.TXT at byte 3072 is the second field \"txt\" of its "
                         "sample; a field may occur once");
    tar_free(&tar);
}

TEST(test_limits)
{
    struct tar_file tar = tar_new();
    char name[400], text[2000];

    memset(name, 'f', sizeof name);
    memcpy(name, "a.", 2);
    name[2 + DL_BOUND_NAME_BYTES] = '\0';
    tar_pax(&tar, "path", name);
    tar_text(&tar, "short", "x");
    struct words words;
    struct dl_error err;
    read_all(&tar, &decoding_all, &words, &err);
    assert_int_equal(err.code, 0);
    tar.len = 0;
    name[2 + DL_BOUND_NAME_BYTES] = 'f';
    name[3 + DL_BOUND_NAME_BYTES] = '\0';
    tar_pax(&tar, "path", name);
    tar_text(&tar, "short", "x");
    expect_refusal(&tar, "cannot be part of its sample: a key of the sample has more than 128");

    for (int depth = DL_BOUND_TREE_DEPTH - 1; depth <= DL_BOUND_TREE_DEPTH; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        tar.len = 0;
        tar_text(&tar, "a.json", text);
        read_all(&tar, &decoding_all, &words, &err);
        assert_int_equal(err.code, depth < DL_BOUND_TREE_DEPTH ? 0 : E2BIG);
    }

    /* More fields than a tree has nodes. */
    tar.len = 0;
    for (int i = 0; i < DL_BOUND_TREE_NODES && tar.len < TAR_ROOM - 4096; i++) {
        snprintf(name, sizeof name, "a.%d", i);
        tar_text(&tar, name, "");
    }
    read_all(&tar, &decoding_all, &words, &err);
    assert_int_equal(err.code, 0);
    tar_free(&tar);
}

/* A damaged header: the sample it is behind may lack members, so it is lost with it. */
TEST(test_damage)
{
    struct tar_file tar = tar_new();

    tar_text(&tar, "a.cls", "1");
    tar_text(&tar, "b.cls", "2");
    size_t damage = tar.len;
    tar_text(&tar, "b.txt", "3");
    tar.data[damage] ^= 1;
    struct tar_view view = view_of(&tar);
    uint64_t offset = 0;
    struct dl_error err = {0};
    assert_int_equal(tar_scan(&view, &offset, &err), 0);
    assert_int_equal(offset, 1024);
    assert_int_equal(tar_scan(&view, &offset, &err), -EINVAL);
    assert_int_equal(offset, 1024);
    assert_error_has(&err, "its header at byte 2048 has a wrong checksum");
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    err = (struct dl_error){0};
    assert_int_equal(tar_make(&view, 1024, &decoding_none, &sample, &err), -EINVAL);
    assert_error_has(&err, "its header at byte 2048 has a wrong checksum");
    sample_deinit(&sample);
    arena_deinit(&arena);
    tar_free(&tar);
}
