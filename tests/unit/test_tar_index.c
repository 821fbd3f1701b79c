/* Tar shards by index: found by a scan, or as Energon, DALI and wids have it; fields that are
 * chosen; compressed shards and members. */
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/tar/tar.h"
#include "daemon/data/kinds/tar/tar_index.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/make_tar.h"

#include <errno.h>

enum { SAMPLES = 5 };

static const struct sample_key key;
static struct spec_file shard_file;

static struct spec_dataset spec_of(const char *path)
{
    shard_file.path = (char *)path;
    return (struct spec_dataset){.kind = DATASET_TAR,
                                 .files = &shard_file,
                                 .n_files = 1,
                                 .decode = true,
                                 .index = INDEX_AUTO,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

/* SAMPLES samples "s<k>" of a number and a text, the third with a long name in pax records; a
 * folder before the second. */
static struct tar_file make_shard(void)
{
    struct tar_file tar = tar_new();
    char name[32], text[32];

    for (int k = 0; k < SAMPLES; k++) {
        if (k == 1)
            tar_header(&tar, "ustar", "folder/", '5', 0);
        snprintf(name, sizeof name, "s%d.cls", k);
        snprintf(text, sizeof text, "%d", 10 * k);
        if (k == 2)
            tar_member(&tar, "pax", 'x', "15 path=s2.cls\n", 15);
        tar_text(&tar, name, text);
        snprintf(name, sizeof name, "s%d.txt", k);
        tar_text(&tar, name, text);
    }
    tar_end(&tar);
    return tar;
}

static const char *shard_in(const char *name)
{
    struct tar_file tar = make_shard();
    const char *path = harness_file(name, tar.data, tar.len);

    tar_free(&tar);
    return path;
}

static struct dataset *must_open(const struct spec_dataset *spec)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (dataset_open(spec, &anywhere, &ds, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return ds;
}

static void expect_refused(const struct spec_dataset *spec, const char *path, const char *says)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_true(dataset_open(spec, &anywhere, &ds, &err) < 0);
    assert_error_has(&err, says);
    assert_string_equal(err.path, path);
}

/* The first number of sample i, and its count of nodes; or the error. */
static int take(struct dataset *ds, uint64_t i, int64_t *ret, uint32_t *ret_nodes,
                struct dl_error *err)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    int r = ds->ops->get(ds, &key, i, &sample, err);

    assert_true(r == 0 || r == -err->code);
    for (uint32_t n = 0; r == 0 && n < sample.tree.count; n++)
        if (sample.tree.nodes[n].kind == TREE_TENSOR)
            memcpy(ret, sample.data[n], sizeof *ret);
    *ret_nodes = sample.tree.count;
    sample_deinit(&sample);
    arena_deinit(&arena);
    return r;
}

static void expect_all(struct dataset *ds)
{
    uint32_t nodes;

    assert_int_equal(ds->length, SAMPLES);
    assert_false(dataset_is_iterable(ds));
    for (int i = SAMPLES; i-- > 0;) {
        struct dl_error err = {0};
        int64_t number = -1;
        if (take(ds, (uint64_t)i, &number, &nodes, &err) < 0)
            fail_msg("%s: %s", err.path, err.message);
        assert_int_equal(number, 10 * i);
        assert_int_equal(nodes, 4);
        dataset_expect(ds, (uint64_t)i);
    }
    struct dl_error err = {0};
    int64_t number;
    assert_int_equal(take(ds, SAMPLES, &number, &nodes, &err), -ERANGE);
}

static struct tar_index scan(const struct tar_file *tar)
{
    struct tar_view view = {.path = "shard", .data = tar->data, .bytes = tar->len};
    struct tar_index index = {0};

    assert_int_equal(tar_index_scan(&view, &index, NULL), 0);
    return index;
}

/* Energon's, of the shard that `index` is of. */
static size_t energon(const struct tar_index *index, uint64_t end, uint8_t *out)
{
    for (uint64_t i = 0; i <= index->n; i++) {
        uint64_t offset = i < index->n ? tar_index_offset(index, i) : end;
        memcpy(out + 8 * i, &offset, 8);
    }
    return 8 * (index->n + 1);
}

TEST(test_energon)
{
    uint8_t bytes[128];
    struct tar_file tar = make_shard();
    struct tar_index index = scan(&tar);
    size_t len = energon(&index, tar.len, bytes);
    struct spec_dataset spec = spec_of(shard_in("energon.tar"));

    harness_file("energon.tar.idx", bytes, len);
    spec.index = INDEX_FILE;
    spec.index_path = (char *)harness_tmpdir();
    struct dataset *ds = must_open(&spec);
    expect_all(ds);
    dataset_close(ds);
    tar_index_deinit(&index);
    tar_free(&tar);
}

TEST(test_dali)
{
    /* Data of s0 begin behind one header, of s2 behind three blocks; see make_shard(). */
    static const char lines[] = "v1.2 5\n"
                                "cls 512 1 s0.cls txt 1536 1 s0.txt\n"
                                "cls 3072 2 s1.cls txt 4096 2 s1.txt\n"
                                "cls 6144 2 s2.cls txt 7168 2 s2.txt\n"
                                "cls 8192 2 s3.cls txt 9216 2 s3.txt\n"
                                "cls 10240 2 s4.cls txt 11264 2 s4.txt\n";
    struct spec_dataset spec = spec_of(shard_in("dali.tar"));

    harness_file("dali.idx", lines, sizeof lines - 1);
    spec.index = INDEX_FILE;
    spec.index_path = (char *)harness_tmpdir();
    struct dataset *ds = must_open(&spec);
    expect_all(ds);
    dataset_close(ds);
}

TEST(test_wids)
{
    static const char good[] = "{\"shardlist\": [{\"url\": \"s3://b/other.tar\", \"nsamples\": 9},"
                               "{\"url\": \"s3://b/wids.tar\", \"nsamples\": 5}]}";
    static const char wrong[] = "{\"shardlist\": [{\"url\": \"wids.tar\", \"nsamples\": 6}]}";
    struct spec_dataset spec = spec_of(shard_in("wids.tar"));
    struct dl_error err = {0};
    uint32_t nodes;
    int64_t number;

    spec.index = INDEX_FILE;
    spec.index_path = (char *)harness_file("wids.json", good, sizeof good - 1);
    struct dataset *ds = must_open(&spec);
    expect_all(ds);
    dataset_close(ds);

    spec.index_path = (char *)harness_file("wrong.json", wrong, sizeof wrong - 1);
    ds = must_open(&spec);
    assert_int_equal(ds->length, 6);
    assert_int_equal(take(ds, 0, &number, &nodes, &err), -EINVAL);
    assert_error_has(&err, "has 5 samples, but its index says 6");
    dataset_close(ds);

    spec.index_path = (char *)harness_file("none.json", "{}", 2);
    expect_refused(&spec, spec.index_path, "shardlist");
    spec.index_path = (char *)harness_file("other.json", "{\"shardlist\": []}", 17);
    expect_refused(&spec, spec.index_path, "no shard named");
    spec.index_path = (char *)harness_file("no.json", "{", 1);
    expect_refused(&spec, spec.index_path, "is not JSON");
}

/* Index files that are wrong in one place. */
TEST(test_bad_index)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"v1.2 1\ncls 512\n", "without components"},
        {"v1.2 1\ncls x 1 s0.cls\n", "without components"},
        {"v1.2 2\ncls 512 1 s0.cls\n", "has 1 samples, not 2"},
        {"v1.2 1\ncls 512 1 s0.cls\ncls 1536 1 s0.txt\n", "more samples than it says"},
        {"v1.2 3\ncls 512 1 a.b\ncls 512 1 a.b\ncls 512 1 a.b\n", "begins where none"},
        {"v1.2 2\ncls 512 9000000 a.b\ncls 512 1 a.b\n", "begins where none"},
        {"v1.3 1\ncls 512 1 s0.cls\n", "neither v1.1 nor v1.2"},
        {"v1.2 99999999999999999999\n", "neither v1.1 nor v1.2"},
        {"v1.2 1152921504606846976\n", "has 0 samples"},
        {"abcdefg", "are not numbers of 64 bits"},
        {"", "are not numbers of 64 bits"},
        {"12345678ABCDEFGH", "begins where none"},
        {"\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\1", "ends beyond"},
        {"\0\2\0\0\0\0\0\0\0\4\0\0\0\0\0\0", "no header"},
    };
    static const size_t lens[ARRAY_SIZE(rows)] = {[12] = 16, [13] = 16};
    struct tar_file tar = make_shard();
    struct tar_view view = {.path = "shard", .data = tar.data, .bytes = tar.len};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t len = lens[i] ? lens[i] : strlen(rows[i].text);
        struct tar_index index = {0};
        struct dl_error err = {0};
        assert_int_equal(
            tar_index_parse((const uint8_t *)rows[i].text, len, "file", &view, &index, &err),
            -EINVAL);
        assert_error_has(&err, rows[i].says);
        assert_string_equal(err.path, "file");
        assert_null(index.blocks);
    }
    tar_free(&tar);
}

/* An index of another shard is found out when a sample is made. */
TEST(test_stale_index)
{
    struct tar_file tar = tar_new();
    uint64_t offsets[] = {0, 512, 2048};
    struct spec_dataset spec;
    struct dl_error err = {0};
    uint32_t nodes;
    int64_t number;

    tar_text(&tar, "a.cls", "1");
    tar_text(&tar, "b.cls", "2");
    tar_end(&tar);
    spec = spec_of(harness_file("stale.tar", tar.data, tar.len));
    harness_file("stale.tar.idx", offsets, sizeof offsets);
    spec.index = INDEX_FILE;
    spec.index_path = (char *)harness_tmpdir();
    struct dataset *ds = must_open(&spec);
    assert_int_equal(take(ds, 0, &number, &nodes, &err), 0);
    assert_int_equal(take(ds, 1, &number, &nodes, &err), -EINVAL);
    assert_error_has(&err, "byte 512");
    dataset_close(ds);
    tar_free(&tar);
}

TEST(test_damaged_shard)
{
    struct tar_file tar = make_shard();
    struct spec_dataset spec = spec_of(harness_file("cut.tar", tar.data, 6145));

    expect_refused(&spec, shard_file.path, "it is truncated");
    tar_free(&tar);
    spec = spec_of(harness_file("nothing.tar", "", 0));
    expect_refused(&spec, shard_file.path, "is empty");
    spec.index = INDEX_FILE;
    spec.index_path = (char *)"/nowhere";
    spec.files[0].path = (char *)shard_in("scanned2.tar");
    expect_refused(&spec, "/nowhere/scanned2.idx", "no such file");
}

TEST(test_chosen)
{
    static struct spec_field fields[] = {{(char *)"label", (char *)"index;cls"},
                                         {(char *)"name", (char *)"__key__"}};
    static struct spec_field missing[] = {{(char *)"image", (char *)"jpg;png"}};
    struct spec_dataset spec = spec_of(shard_in("chosen.tar"));
    struct dl_error err = {0};
    uint32_t nodes = 0;
    int64_t number = -1;

    spec.fields = fields;
    spec.n_fields = ARRAY_SIZE(fields);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(take(ds, 3, &number, &nodes, &err), 0);
    assert_int_equal(number, 30);
    assert_int_equal(nodes, 3);
    dataset_close(ds);

    spec.fields = missing;
    spec.n_fields = ARRAY_SIZE(missing);
    ds = must_open(&spec);
    assert_int_equal(take(ds, 3, &number, &nodes, &err), -EINVAL);
    assert_error_has(&err, "its sample s3");
    assert_error_has(&err, "has no field jpg;png");
    dataset_close(ds);
}

/* ---- compressed ----------------------------------------------------------------------------- */

enum { PACKED_ROOM = 1 << 15 };

static const char *const ways[] = {"gzip", "zstd"};
static const char *const endings[] = {"gz", "zst"};

/* In one of these ways; 0: this build cannot read it. */
static size_t pack(size_t way, const void *data, size_t len, uint8_t *out)
{
    if (way == 0)
        return make_gzip(data, len, out, PACKED_ROOM);
    if (compression_is_built_in(COMPRESSION_ZSTD))
        return make_zstd(data, len, out);
    print_message("# skipped: built without zstd (Debian: libzstd-dev)\n");
    return 0;
}

/* Samples of a stream until its end, or until the error. */
static int count_streamed(const struct spec_dataset *spec, struct dl_error *err)
{
    struct replica_params params = {.world = 1, .workers = 1};
    struct dataset *ds = must_open(spec);
    struct dataset_iter *it = NULL;
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    int n = 0, r;

    assert_int_equal(ds->ops->iterate(ds, &params, &it, NULL), 0);
    for (; (r = it->ops->next(it, &sample, err)) == 0; n++)
        sample_clear(&sample);
    it->ops->close(it);
    dataset_close(ds);
    sample_deinit(&sample);
    arena_deinit(&arena);
    return r == DATASET_END ? n : r;
}

/* A stream takes a compressed shard; an index does not. */
TEST(test_compressed_shard)
{
    struct tar_file tar = make_shard();

    for (size_t way = 0; way < ARRAY_SIZE(ways); way++) {
        uint8_t packed[PACKED_ROOM];
        char says[64];
        struct dl_error err = {0};
        size_t len = pack(way, tar.data, tar.len, packed);
        if (len == 0)
            continue;
        struct spec_dataset spec = spec_of(harness_file("packed.tar", packed, len));
        snprintf(says, sizeof says, "is compressed by %s", ways[way]);
        expect_refused(&spec, shard_file.path, says);
        spec.index = INDEX_OFF;
        assert_int_equal(count_streamed(&spec, &err), SAMPLES);
        spec.files[0].path = (char *)harness_file("cut.tar", packed, len / 2);
        assert_int_equal(count_streamed(&spec, &err), -EINVAL);
        snprintf(says, sizeof says, "is compressed by %s, and corrupt: it ends too soon",
                 ways[way]);
        assert_error_has(&err, says);
    }
    tar_free(&tar);
}

TEST(test_compressed_member)
{
    for (size_t way = 0; way < ARRAY_SIZE(ways); way++) {
        struct tar_file tar = tar_new();
        uint8_t packed[PACKED_ROOM];
        char name[2][16], says[128];
        size_t len = pack(way, "123", 3, packed);
        struct dl_error err = {0};
        uint32_t nodes;
        int64_t number = 0;
        for (int i = 0; i < 2; i++) {
            snprintf(name[i], sizeof name[i], "%c.cls.%s", 'a' + i, endings[way]);
            tar_member(&tar, name[i], '0', packed, len < 3 ? 0 : len - 3 * (size_t)i);
        }
        tar_end(&tar);
        struct spec_dataset spec = spec_of(harness_file("members.tar", tar.data, tar.len));
        struct dataset *ds = must_open(&spec);
        snprintf(says, sizeof says, "its member %s at byte 1024 is compressed by %s, and corrupt",
                 name[1], ways[way]);
        if (len > 0) {
            assert_int_equal(take(ds, 0, &number, &nodes, &err), 0);
            assert_int_equal(number, 123);
            assert_int_equal(take(ds, 1, &number, &nodes, &err), -EINVAL);
            assert_error_has(&err, says);
        }
        dataset_close(ds);
        tar_free(&tar);
    }
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    static struct spec_field fields[] = {{(char *)"label", (char *)"cls"}};
    struct spec_dataset spec = spec_of(shard_in("memory.tar"));

    spec.fields = fields;
    spec.n_fields = 1;
    expect_memory_failures(&spec, 3);
}
