/* MDS datasets: every encoding, shards plain and compressed, and what is refused. */
#include "daemon/data/kinds/mds/mds.h"
#include "daemon/data/kinds/mds/mds_index.h"
#include "tests/lib/lengths.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/shard_dir.h"

#include <errno.h>

static const struct sample_key key;

/* {"id": int, "name": str} */
static struct bytes sample_of(int64_t id, const char *name)
{
    struct bytes sample = {.len = 0};
    uint32_t len = (uint32_t)strlen(name);

    put(&sample, &len, 4);
    put(&sample, &id, 8);
    put(&sample, name, len);
    return sample;
}

#define COLUMNS                                                                        \
    "\"column_names\": [\"id\", \"name\"], \"column_encodings\": [\"int\", \"str\"], " \
    "\"column_sizes\": [8, null]"

#define SHARD(columns, name, bytes, samples)                                                  \
    "{" columns ", \"format\": \"mds\", \"version\": 2, \"raw_data\": {\"basename\": \"" name \
    "\", \"bytes\": " bytes "}, \"samples\": " samples "}"

static void write_text(const char *name, const char *dir, const char *text)
{
    write_in(name, dir, text, strlen(text));
}

/* An index of shards a (2 samples) and b (1), of the sizes that are given. */
static void write_index(const char *dir, size_t a, size_t b, const char *columns, const char *zip)
{
    char text[2048];

    snprintf(text, sizeof text,
             "{\"shards\": [{%s, \"compression\": null, \"format\": \"mds\", \"version\": 2, "
             "\"raw_data\": {\"basename\": \"a.mds\", \"bytes\": %zu, \"hashes\": {}}, "
             "\"samples\": 2, \"zip_data\": null}, {%s, \"format\": \"mds\", \"version\": 2, "
             "\"raw_data\": {\"basename\": \"b.mds\", \"bytes\": %zu}, \"samples\": 1, "
             "\"zip_data\": %s}], \"version\": 2}",
             COLUMNS, a, columns, b, zip);
    write_text("index.json", dir, text);
}

static struct bytes shard_a(void)
{
    return shard_of(2, (struct bytes[]){sample_of(-1, "first"), sample_of(5, "")});
}

static struct bytes shard_b(void)
{
    return shard_of(1, (struct bytes[]){sample_of(7, "third")});
}

/* A new directory with both shards, of which b may be another. */
static void write_two(const char *dir, const char *b_name, const struct bytes *b, const char *zip)
{
    struct bytes a = shard_a();

    write_index(dir, a.len, shard_b().len, COLUMNS, zip);
    write_in("a.mds", dir, a.data, a.len);
    write_in(b_name, dir, b->data, b->len);
}

#define FIRST  "{id:-1 name:\"first\"}"
#define SECOND "{id:5 name:\"\"}"
#define THIRD  "{id:7 name:\"third\"}"
#define ZIP    "{\"basename\": \"b.mds.gz\", \"bytes\": 1}"

TEST(test_plain)
{
    struct bytes b = shard_b();

    write_two("plain", "b.mds", &b, "null");
    expect_dataset("{kind: mds, paths: plain}", FIRST " " SECOND " " THIRD);
    expect_dataset("{kind: mds, paths: plain, fields: {text: name}}",
                   "{text:\"first\"} {text:\"\"} {text:\"third\"}");
    expect_dataset("{kind: mds, paths: plain, fields: {text: text}}", "...has no column text...");
}

TEST(test_compressed)
{
    struct bytes a = shard_a(), b = shard_b(), packed = {.len = 0};

    packed.len = make_gzip(b.data, b.len, packed.data, ROOM);
    write_two("packed", "b.mds.gz", &packed, ZIP);
    expect_dataset("{kind: mds, paths: packed}", FIRST " " SECOND " " THIRD);
    /* More than the index says, and none that is known. */
    write_index("packed", a.len, b.len - 1, COLUMNS, ZIP);
    expect_dataset("{kind: mds, paths: packed}", FIRST " " SECOND " (EFBIG packed/b.mds.gz: ...)");
    write_in("b.mds.gz", "packed", b.data, b.len);
    expect_dataset("{kind: mds, paths: packed}", FIRST
                   " " SECOND " (packed/b.mds.gz: ...a compression other than gzip and zstd...)");
}

/* One shard, of `n` samples. */
static void write_one(const char *dir, const char *columns, uint32_t n, const struct bytes *samples)
{
    struct bytes shard = shard_of(n, samples);
    char text[1024];

    snprintf(text, sizeof text, "{\"shards\": [" SHARD("%s", "a.mds", "%zu", "%u") "]}", columns,
             shard.len, n);
    write_text("index.json", dir, text);
    write_in("a.mds", dir, shard.data, shard.len);
}

/* {"id": int, "pair": ndarray:int16:2}: rows that are copied straight. */
TEST(test_rows)
{
    struct bytes rows[] = {{.len = 0}, {.len = 0}, {.len = 0}};

    for (uint16_t i = 0; i < 3; i++) {
        put(&rows[i], &(uint64_t){i}, 8);
        put(&rows[i], (uint16_t[]){i, (uint16_t)(i + 1)}, 4);
    }
    write_one("rows",
              "\"column_names\": [\"id\", \"pair\"], \"column_encodings\": [\"int\", "
              "\"ndarray:int16:2\"], \"column_sizes\": [8, 4]",
              3, rows);
    expect_dataset("{kind: mds, paths: rows}",
                   "fixed {id:0 pair:int16(2,)[0 1]} {id:1 pair:int16(2,)[1 2]} "
                   "{id:2 pair:int16(2,)[2 3]}");
    struct dataset *ds = open_dataset("{kind: mds, paths: rows}", &anywhere);
    struct taken t;
    assert_int_equal(take(ds, &key, 2, &t), 0);
    drop(&t);
    assert_name(ds, 2, "/a.mds: sample 2");
    dataset_close(ds);
}

/* Of arrays that vary, from what stands before them. */
TEST(test_lengths)
{
    struct bytes rows[] = {{.len = 0}, {.len = 0}};
    uint32_t lengths[2];
    uint64_t bad;

    put(&rows[0], "\5\0\0\0\0\0\0\0\0\0\0\0\4\3abc", 17);
    put(&rows[1], "\3\0\0\0\0\0\0\0\0\0\0\0\4\1a", 15);
    write_one("lengths",
              "\"column_names\": [\"id\", \"ids\"], \"column_encodings\": [\"int\", "
              "\"ndarray:uint8\"], \"column_sizes\": [8, null]",
              2, rows);
    struct dataset *ds = open_dataset("{kind: mds, paths: lengths}", &anywhere);
    assert_int_equal(LENGTHS(ds->ops->lengths, ds, NULL, 0, 2, lengths, &bad, NULL), 0);
    assert_memory_equal(lengths, ((uint32_t[]){3, 1}), sizeof lengths);
    assert_int_equal(LENGTHS(ds->ops->lengths, ds, "ids", 1, 1, lengths, &bad, NULL), 0);
    assert_int_equal(lengths[0], 1);
    assert_int_equal(LENGTHS(ds->ops->lengths, ds, "id", 0, 2, lengths, &bad, NULL), -ENOTSUP);
    assert_int_equal(LENGTHS(ds->ops->lengths, ds, "x", 0, 2, lengths, &bad, NULL), -ENOTSUP);
    dataset_close(ds);
}

/* A shard of one column, x. */
#define COLUMN(encoding, size) \
    "\"column_names\": [\"x\"], \"column_encodings\": [" encoding "], \"column_sizes\": [" size "]"
#define INDEX(shard) "{\"shards\": [" shard "]}"

TEST(test_bad_index)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"", "is not JSON"},
        {"{}", "has no list"},
        {INDEX("1"), "not of format mds"},
        {INDEX("{\"format\": \"jsonl\", \"version\": 2}"), "not of format mds"},
        {INDEX("{\"format\": \"mds\", \"version\": 2, \"samples\": 3, \"raw_data\": "
               "{\"bytes\": 8}}"),
         "has an impossible size or number"},
        {INDEX("{\"format\": \"mds\", \"version\": 2, \"samples\": 1, " COLUMNS
               ", \"raw_data\": {\"bytes\": 99}}"),
         "no raw_data.basename"},
        {INDEX(SHARD(COLUMNS, "x", "8589934592", "1")), "has an impossible size or number"},
        {INDEX(SHARD(COLUMN("\"blob\"", "null"), "x", "99", "1")),
         "\"blob\", which cannot be read"},
        {INDEX(SHARD(COLUMN("\"int\"", "4"), "x", "99", "1")), "another size"},
        {INDEX(SHARD(COLUMN("\"ndarray:int32:0\"", "null"), "x", "99", "1")),
         "not a type and shape"},
        {INDEX(SHARD(COLUMN("\"int\"", ""), "x", "99", "1")), "without a valid name"},
        {INDEX(SHARD(COLUMN("\"pkl\"", "null"), "x", "99", "1")), "no such file"},
        {INDEX(SHARD(COLUMNS, "a/../../x", "99", "1")), "not a file below the directory"},
        {INDEX(SHARD(COLUMNS, "/etc/passwd", "99", "1")), "not a file below the directory"},
    };
    char says[200];

    expect_dataset("{kind: mds, paths: bad}", "ENOENT bad/...no such file...");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        write_text("index.json", "bad", rows[i].text);
        snprintf(says, sizeof says, "...bad/...%s...", rows[i].says);
        expect_dataset("{kind: mds, paths: bad}", says);
    }
    struct bytes a = shard_a(), b = shard_b();
    write_two("wrong", "b.mds", &b, "null");
    write_index("wrong", a.len + 1, b.len, COLUMNS, "null");
    expect_dataset("{kind: mds, paths: wrong}", "wrong/...but index.json says...");
    write_index("wrong", a.len, b.len, COLUMN("\"str\"", "null"), "null");
    expect_dataset("{kind: mds, paths: wrong}", "wrong/...its shard 1 has other columns...");
    write_index("wrong", a.len, b.len,
                "\"column_names\": [\"id\"], \"column_encodings\": [\"int\"], "
                "\"column_sizes\": [8]",
                "null");
    expect_dataset("{kind: mds, paths: wrong}", "wrong/...its shard 1 has other columns...");
}

/* A byte of the shard changed: the sample is refused, or has another content; never more. */
TEST(test_damaged_shard)
{
    struct bytes b = shard_b();

    write_two("damaged", "b.mds", &b, "null");
    for (size_t at = 0; at < b.len; at++) {
        struct bytes changed = b;
        struct taken t;
        changed.data[at] ^= 0x81;
        write_in("b.mds", "damaged", changed.data, changed.len);
        struct dataset *ds = open_dataset("{kind: mds, paths: damaged}", &anywhere);
        int r = take(ds, &key, 2, &t);
        assert_true(at < 16 ? r == -EINVAL : r == 0 || r == -EILSEQ);
        if (r < 0)
            assert_non_null(strstr(t.err.path, "/b.mds"));
        drop(&t);
        dataset_close(ds);
    }
}

/* ---- encodings ------------------------------------------------------------------------------ */

/* What becomes of the value; text for a comparison. */
static const char *value_of(const char *encoding, uint32_t size, const void *data, uint64_t bytes)
{
    static struct words words;
    static struct fields fields = {.decode = true,
                                   .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_CHW}};
    struct mds_column column = {.name = (char *)"x", .encoding = (char *)encoding, .size = size};
    struct mds_value value = {.column = &column, .name = "x", .data = data, .size = bytes};
    struct decoding decoding = {.fields = &fields, .key = &key};
    struct taken t = {.sample.arena = &t.arena};

    words.len = 0;
    words.values = true;
    if (!fields.images)
        assert_int_equal(image_decoder_new(&fields.images, NULL), 0);
    if (mds_column_parse(&column, "index", &t.err) < 0)
        return "no such encoding";
    sample_begin(&t.sample, TREE_DICT, NULL);
    if (mds_value_add(&value, &decoding, &t.sample, &t.err) < 0)
        say(&words, "error: %s", t.err.message);
    else
        put_node(&words, &t.sample, 1);
    drop(&t);
    return words.text + (strncmp(words.text, "x:", 2) == 0 ? 2 : 0);
}

TEST(test_encodings)
{
    static const struct {
        const char *encoding;
        uint32_t size;
        const char *data;
        uint64_t bytes;
        const char *want;
    } rows[] = {
        {"bytes", 0, "ab\xFF", 3, "<ab\xFF>"},
        {"str", 0, "ab", 2, "\"ab\""},
        {"str", 0, "ab\xFF", 3, "error: is not UTF-8..."},
        {"int", 8, "\1\0\0\0\0\0\0\0", 8, "1"},
        {"uint8", 1, "\7", 1, "uint8 7"},
        {"int16", 2, "\7\1", 2, "int16 263"},
        {"float16", 2, "\0\x3C", 2, "float16 0x3c00"},
        {"float32", 4, "\0\0\x80\x3F", 4, "float32 1"},
        {"int16", 4, "", 0, "no such encoding"},
        {"str_int", 0, "-12", 3, "-12"},
        {"str_int", 0, "99999999999999999999", 20,
         "error: is not an integer of 64 bits (\"99999999999999999999\")..."},
        {"str_int", 0, "1.5", 3, "error: is not an integer of 64 bits (\"1.5\")..."},
        {"str_int", 0, "", 0, "error: is not an integer of 64 bits (\"\")..."},
        {"str_float", 0, "1.5", 3, "float64 1.5"},
        {"str_float", 0, "x", 1, "error: is not a number (\"x\")..."},
        {"str_decimal", 0, "0.1", 3, "\"0.1\""},
        {"ndarray:int16:2,1", 4, "\1\0\2\0", 4, "int16(2, 1)[1 2]"},
        {"ndarray:int16", 0, "\x08\2\1\1\0\2\0", 7, "int16(2, 1)[1 2]"},
        {"ndarray:int16", 0, "\x05\2\0\1\0\2\0", 7, "int16(2,)[1 2]"},
        {"ndarray", 0, "\x11\x04\2\1\0\2\0", 7, "int16(2,)[1 2]"},
        {"ndarray", 0, "\x12\x04\1\0\x3C", 5, "float16(1,)[0x3c00]"},
        {"ndarray", 0, "\x11\x04\3\1\0\2\0", 7,
         "error: has 7 bytes, which \"ndarray\" cannot have..."},
        {"ndarray", 0, "\x10", 1, "error: is an array whose type or shape is damaged..."},
        {"ndarray", 0, "\x63\x04\1\0", 4, "error: is an array whose type or shape is damaged..."},
        {"ndarray", 0, "", 0, "error: is an array whose type or shape is damaged..."},
        {"ndarray", 0, "\x08\x07\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 10,
         "error: has 10 bytes, which \"ndarray\" cannot have..."},
        {"ndarray:int99", 0, "", 0, "no such encoding"},
        {"ndarray:int16:2,x", 0, "", 0, "no such encoding"},
        {"json", 0, "{\"a\": 1}", 8, "{a:1}"},
        {"json", 0, "{", 1,
         "error: is not JSON: string or '}' expected near end of file, in its line 1..."},
        {"jpeg", 0, "x", 1, "error: is an image that cannot be read: it ..."},
        {"jpeg:90", 0, "x", 1, "error: is an image that cannot be read: it ..."},
        {"pil", 0, "\2\0\0\0\1\0\0\0\3\0\0\0RGB\1\2\3\4\5\6", 21, "uint8(3, 1, 2)[1 4 2 5 3 6]"},
        {"pil", 0, "\2\0\0\0\1\0\0\0\1\0\0\0L\1\2", 15, "uint8(3, 1, 2)[1 2 1 2 1 2]"},
        {"pil", 0, "\1\0\0\0\1\0\0\0\4\0\0\0RGBA\1\2\3\4", 20, "uint8(3, 1, 1)[1 2 3]"},
        {"pil", 0, "\1\0\0\0\1\0\0\0\4\0\0\0CMYK\1\2\3\4", 20,
         "error: is an image of mode CMYK..."},
        {"pil", 0, "\2\0\0\0\1\0\0\0\3\0\0\0RGB\1", 16, "error: has 16 bytes..."},
        {"pil", 0, "\2\0\0\0\1\0\0\0\xFF\xFF\xFF\xFFRGB", 15, "error: has 15 bytes..."},
        {"pil", 0, "\2", 1, "error: has 1 bytes..."},
        {"blob", 0, "", 0, "no such encoding"},
        {"", 0, "", 0, "no such encoding"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *have = value_of(rows[i].encoding, rows[i].size, rows[i].data, rows[i].bytes);
        if (!is_like(have, rows[i].want))
            fail_msg("row %zu, %s: \"%s\", not \"%s\"", i, rows[i].encoding, have, rows[i].want);
    }
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    struct bytes b = shard_b(), packed = {.len = 0};

    packed.len = make_gzip(b.data, b.len, packed.data, ROOM);
    write_two("memory", "b.mds.gz", &packed, ZIP);
    expect_failures_of("{kind: mds, paths: memory, fields: {text: name}}", 3);
}
