/* Tar shards by index: found by a scan, or as Energon, DALI and wids have it; fields that are
 * chosen; compressed shards and members. */
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/tar/tar.h"
#include "daemon/data/kinds/tar/tar_index.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/make_tar.h"

enum { SAMPLES = 5 };

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

static void write_shard(const char *name)
{
    struct tar_file tar = make_shard();

    harness_file(name, tar.data, tar.len);
    tar_free(&tar);
}

#define SAMPLE(k, number) "{__key__:\"s" #k "\" cls:" #number " txt:\"" #number "\"}"
#define ALL               SAMPLE(0, 0) " " SAMPLE(1, 10) " " SAMPLE(2, 20) " " SAMPLE(3, 30) " " SAMPLE(4, 40)

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

    write_shard("energon.tar");
    harness_file("energon.tar.idx", bytes, energon(&index, tar.len, bytes));
    expect_dataset("{kind: tar, paths: energon.tar, index: .}", ALL);
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

    write_shard("dali.tar");
    harness_text("dali.idx", lines);
    expect_dataset("{kind: tar, paths: dali.tar, index: .}", ALL);
}

TEST(test_wids)
{
    static const char *const rows[][2] = {
        {"{\"shardlist\": [{\"url\": \"s3://b/other.tar\", \"nsamples\": 9},"
         "{\"url\": \"s3://b/wids.tar\", \"nsamples\": 5}]}",
         ALL},
        {"{\"shardlist\": [{\"url\": \"wids.tar\", \"nsamples\": 6}]}",
         "(wids.tar: ...has 5 samples, but its index says 6...) ..."},
        {"{}", "wids.json: ...shardlist..."},
        {"{\"shardlist\": []}", "ENOENT wids.json: has no shard named..."},
        {"{", "wids.json: is not JSON..."},
    };

    write_shard("wids.tar");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        harness_text("wids.json", rows[i][0]);
        expect_dataset("{kind: tar, paths: wids.tar, index: wids.json}", rows[i][1]);
    }
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

    tar_text(&tar, "a.cls", "1");
    tar_text(&tar, "b.cls", "2");
    tar_end(&tar);
    harness_file("stale.tar", tar.data, tar.len);
    harness_file("stale.tar.idx", offsets, sizeof offsets);
    expect_dataset("{kind: tar, paths: stale.tar, index: .}",
                   "{__key__:\"a\" cls:1} (stale.tar: ...byte 512...)");
    tar_free(&tar);
}

TEST(test_damaged_shard)
{
    struct tar_file tar = make_shard();

    harness_file("cut.tar", tar.data, 6145);
    expect_dataset("{kind: tar, paths: cut.tar, index: auto}", "cut.tar: ...it is truncated...");
    tar_free(&tar);
    harness_file("nothing.tar", "", 0);
    expect_dataset("{kind: tar, paths: nothing.tar, index: auto}", "nothing.tar: ...is empty...");
    write_shard("scanned.tar");
    expect_dataset("{kind: tar, paths: scanned.tar, index: /nowhere}",
                   "ENOENT /nowhere/scanned.idx: ...no such file...");
}

TEST(test_chosen)
{
    write_shard("chosen.tar");
    expect_dataset("{kind: tar, paths: chosen.tar, index: auto, fields: {label: index;cls, name: "
                   "__key__}}",
                   "{label:0 name:\"s0\"} {label:10 name:\"s1\"} {label:20 name:\"s2\"} "
                   "{label:30 name:\"s3\"} {label:40 name:\"s4\"}");
    expect_dataset("{kind: tar, paths: chosen.tar, index: auto, fields: {image: jpg;png}}",
                   "...(chosen.tar: its sample s3...has no field jpg;png...)...");
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

/* A stream takes a compressed shard; an index does not. */
TEST(test_compressed_shard)
{
    struct tar_file tar = make_shard();

    for (size_t way = 0; way < ARRAY_SIZE(ways); way++) {
        uint8_t packed[PACKED_ROOM];
        char want[128];
        size_t len = pack(way, tar.data, tar.len, packed);
        if (len == 0)
            continue;
        harness_file("packed.tar", packed, len);
        snprintf(want, sizeof want, "packed.tar: ...is compressed by %s...", ways[way]);
        expect_dataset("{kind: tar, paths: packed.tar, index: auto}", want);
        expect_dataset("{kind: tar, paths: packed.tar}", ALL);
        harness_file("packed.tar", packed, len / 2);
        snprintf(want, sizeof want,
                 "...(packed.tar: is compressed by %s, and corrupt: it ends too soon...)",
                 ways[way]);
        expect_dataset("{kind: tar, paths: packed.tar}", want);
    }
    tar_free(&tar);
}

TEST(test_compressed_member)
{
    for (size_t way = 0; way < ARRAY_SIZE(ways); way++) {
        struct tar_file tar = tar_new();
        uint8_t packed[PACKED_ROOM];
        char name[16], want[160];
        size_t len = pack(way, "123", 3, packed);
        if (len == 0)
            continue;
        for (size_t i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "%c.cls.%s", (char)('a' + i), endings[way]);
            tar_member(&tar, name, '0', packed, len - 3 * i);
        }
        tar_end(&tar);
        harness_file("members.tar", tar.data, tar.len);
        snprintf(want, sizeof want,
                 "{__key__:\"a\" cls.%s:123} (members.tar: its member %s at byte 1024 is "
                 "compressed by %s, and corrupt...)",
                 endings[way], name, ways[way]);
        expect_dataset("{kind: tar, paths: members.tar, index: auto}", want);
        tar_free(&tar);
    }
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    write_shard("memory.tar");
    expect_failures_of("{kind: tar, paths: memory.tar, index: auto, fields: {label: cls}}", 3);
}
