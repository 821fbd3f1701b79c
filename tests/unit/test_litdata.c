/* litData's chunks: every format of a leaf, chunks plain, compressed and in frames, blocks of
 * tokens, and what is refused. */
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/litdata/litdata_chunk.h"
#include "tests/lib/arrow_build.h"
#include "tests/lib/lengths.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/shard_dir.h"

#include <errno.h>

static const struct sample_key key;

/* {"id": int, "text": str} */
static struct bytes item_of(int64_t id, const char *text)
{
    struct bytes item = {.len = 0};

    put32(&item, 8);
    put32(&item, (uint32_t)strlen(text));
    put(&item, &id, 8);
    put(&item, text, strlen(text));
    return item;
}

/* Compressed by zstd. */
static struct bytes packed_of(const void *data, size_t len)
{
    struct bytes frame;

    assert_true(len < sizeof frame.data - 16);
    frame.len = make_zstd(data, len, frame.data);
    return frame;
}

/* In frames of `most` items. */
static struct bytes framed_of(uint32_t n, const struct bytes *items, uint32_t most)
{
    uint32_t frames = (n + most - 1) / most, at = 0;
    struct bytes chunk = {.len = 0}, body = {.len = 0};
    uint64_t place = 24 + 4 * (n + 1) + 24 * frames;

    put(&chunk, "LDFZ01\0\0\1\0\0\0", 12);
    put32(&chunk, n);
    put32(&chunk, most);
    put32(&chunk, frames);
    for (uint32_t i = 0; i <= n; i++) {
        put32(&chunk, at);
        at += i < n ? (uint32_t)items[i].len : 0;
    }
    for (uint32_t first = 0; first < n; first += most) {
        struct bytes raw = {.len = 0};
        uint32_t own = n - first < most ? n - first : most;
        for (uint32_t i = first; i < first + own; i++)
            put(&raw, items[i].data, items[i].len);
        struct bytes frame = packed_of(raw.data, raw.len);
        put32(&chunk, first);
        put32(&chunk, own);
        put(&chunk, &place, 8);
        put32(&chunk, (uint32_t)frame.len);
        put32(&chunk, (uint32_t)raw.len);
        put(&body, frame.data, frame.len);
        place += frame.len;
    }
    put(&chunk, body.data, body.len);
    return chunk;
}

#define LEAF "{\\\"type\\\": null, \\\"context\\\": null, \\\"children_spec\\\": []}"
#define DICT(keys, children)                                                        \
    "[1, {\\\"type\\\": \\\"builtins.dict\\\", \\\"context\\\": \\\"" keys "\\\", " \
    "\\\"children_spec\\\": [" children "]}]"
#define KEYS   "[\\\\\\\"id\\\\\\\", \\\\\\\"text\\\\\\\"]"
#define SHAPE  DICT(KEYS, LEAF ", " LEAF)
#define CONFIG "\"data_format\": [\"int\", \"str\"], \"data_spec\": \"" SHAPE "\""

/* "{\"chunk_bytes\": 9, ...}, ..." and what config has. */
static void write_index(const char *dir, const char *config, const char *chunks)
{
    char text[4096];
    int len = snprintf(text, sizeof text, "{\"chunks\": [%s], \"config\": {%s}}", chunks, config);

    write_in("index.json", dir, text, (size_t)len);
}

static const char *entry(const char *name, size_t bytes, int items, int tokens)
{
    static char text[4][160];
    static int next;
    char *out = text[next = (next + 1) % 4];

    snprintf(out, sizeof text[0],
             "{\"chunk_bytes\": %zu, \"chunk_size\": %d, \"dim\": %d, \"filename\": \"%s\"}", bytes,
             items, tokens, name);
    return out;
}

static struct dataset *open_in(const char *dir, const char *keys)
{
    char text[512];

    snprintf(text, sizeof text, "{kind: litdata, paths: %s%s}", dir, keys);
    return open_dataset(text, &anywhere);
}

static void expect_in(const char *dir, const char *keys, const char *want)
{
    char text[512];

    snprintf(text, sizeof text, "{kind: litdata, paths: %s%s}", dir, keys);
    expect_dataset(text, want);
}

#define FIRST  "{id:-1 text:\"first\"}"
#define SECOND "{id:5 text:\"\"}"
#define ALL    FIRST " " SECOND " {id:7 text:\"third\"}"

static struct bytes chunk_a(void)
{
    return shard_of(2, (struct bytes[]){item_of(-1, "first"), item_of(5, "")});
}

static struct bytes chunk_b(void)
{
    return shard_of(1, (struct bytes[]){item_of(7, "third")});
}

/* Chunks a.bin and b.bin, or as b is called. */
static void write_two(const char *dir, const char *config, const struct bytes *a, const char *name,
                      const struct bytes *b, size_t b_bytes)
{
    char chunks[512];

    snprintf(chunks, sizeof chunks, "%s, %s", entry("a.bin", a->len, 2, 0),
             entry(name, b_bytes, 1, 0));
    write_index(dir, config, chunks);
    write_in("a.bin", dir, a->data, a->len);
    write_in(name, dir, b->data, b->len);
}

TEST(test_plain)
{
    struct bytes a = chunk_a(), b = chunk_b();

    write_two("plain", CONFIG, &a, "b.bin", &b, b.len);
    expect_in("plain", "", ALL);
    expect_in("plain", ", fields: {y: text}", "{y:\"first\"} {y:\"\"} {y:\"third\"}");
    expect_in("plain", ", fields: [x]", "...has no samples with a key x...");
    expect_in("plain", ", sequence_length: 2", "...was not written for a TokensLoader...");
    expect_in("plain", ", images: [id]", "...its id is neither a file nor bytes...");
    struct dataset *ds = open_in("plain", "");
    struct taken t;
    assert_int_equal(take(ds, &(struct sample_key){0}, 2, &t), 0);
    drop(&t);
    assert_name(ds, 2, "/b.bin: sample 0");
    dataset_close(ds);
}

static bool lacks_zstd(void)
{
    if (compression_is_built_in(COMPRESSION_ZSTD))
        return false;
    print_message("# skipped: built without zstd (Debian: libzstd-dev)\n");
    return true;
}

/* As a whole, before which it had another name; and a cache of 0 keeps the one in hand. */
TEST(test_compressed)
{
    struct bytes a = chunk_a(), b = chunk_b(), packed = packed_of(b.data, b.len);

    if (lacks_zstd())
        return;
    write_two("packed", CONFIG ", \"compression\": \"zstd:3\"", &a, "b.zstd:3.bin", &packed, b.len);
    expect_in("packed", ", cache: 0", ALL);
    write_in("b.bin", "packed", b.data, b.len); /* what litData's cache unpacked */
    write_in("b.zstd:3.bin", "packed", "", 0);
    expect_in("packed", "", ALL);
    write_two("packed", CONFIG ", \"compression\": \"zstd\"", &a, "c.zstd.bin", &packed, b.len - 1);
    expect_in("packed", "", FIRST " " SECOND " (EFBIG packed/c.zstd.bin: ...)");
}

/* One chunk, a.bin. */
static void write_one(const char *dir, const char *config, const struct bytes *chunk, int items,
                      int tokens)
{
    write_index(dir, config, entry("a.bin", chunk->len, items, tokens));
    write_in("a.bin", dir, chunk->data, chunk->len);
}

TEST(test_frames)
{
    struct bytes items[] = {item_of(-1, "first"), item_of(5, ""), item_of(7, "third")};
    struct bytes whole = framed_of(3, items, 2);

    if (lacks_zstd())
        return;
    write_one("frames", CONFIG ", \"compression\": \"zstd\", \"compression_level\": \"batch\"",
              &whole, 3, 0);
    expect_in("frames", "", ALL);
    for (size_t at = 0; at < whole.len; at++) {
        struct bytes changed = whole;
        changed.data[at] ^= 0x81;
        write_in("a.bin", "frames", changed.data, changed.len);
        struct dataset *ds = open_in("frames", "");
        for (uint64_t i = 0; i < 3; i++) {
            struct taken t;
            int r = take(ds, &key, i, &t);
            if (r < 0 && !strstr(t.err.path, "/a.bin"))
                fail_msg("byte %zu: %s: %s", at, t.err.path, t.err.message);
            drop(&t);
        }
        dataset_close(ds);
    }
}

TEST(test_packed_items)
{
    static const char config[] =
        CONFIG ", \"compression\": \"zstd\", \"compression_level\": \"sample\"";
    struct bytes items[] = {item_of(-1, "first"), item_of(5, ""), item_of(7, "third")}, whole;

    if (lacks_zstd())
        return;
    for (size_t i = 0; i < 3; i++)
        items[i] = packed_of(items[i].data, items[i].len);
    whole = shard_of(3, items);
    write_one("items", config, &whole, 3, 0);
    expect_in("items", "", ALL);
    items[0] = item_of(1, "x");
    whole = shard_of(3, items);
    write_one("items", config, &whole, 3, 0);
    expect_in("items", "", "(items/a.bin: ...sample 0 is not compressed by zstd...");
}

/* Numbers alone, nested, are of one shape. */
TEST(test_rows)
{
    static const char config[] =
        "\"data_format\": [\"int\", \"float\", \"bool\"], \"data_spec\": \"[1, {\\\"type\\\": "
        "\\\"builtins.tuple\\\", \\\"context\\\": null, \\\"children_spec\\\": [" LEAF
        ", {\\\"type\\\": \\\"builtins.list\\\", \\\"context\\\": null, "
        "\\\"children_spec\\\": [" LEAF ", " LEAF "]}]}]\"";
    struct bytes items[3];

    for (uint64_t i = 0; i < 3; i++) {
        items[i] = (struct bytes){.len = 0};
        put(&items[i], (uint32_t[]){8, 8, 1}, 12);
        put(&items[i], &i, 8);
        put(&items[i], &(double){(double)i / 2}, 8);
        put(&items[i], (uint8_t[]){(uint8_t)(2 * (i % 2))}, 1); /* 2 is true, too */
    }
    struct bytes chunk = shard_of(3, items);
    write_one("rows", config, &chunk, 3, 0);
    expect_in("rows", "",
              "fixed (0 [float64 0 false]) (1 [float64 0.5 true]) (2 [float64 1 false])");
    expect_in("rows", ", fields: [x]", "...has no samples with a key x...");
    items[1].data[0] = 4;
    items[1].data[4] = 12;
    chunk = shard_of(3, items);
    write_one("rows", config, &chunk, 3, 0);
    expect_in("rows", "", "...sample 1: one of its numbers has 4 bytes, not 8...");
}

/* What is written for a TokensLoader, as blocks and as items. */
TEST(test_tokens)
{
    static const uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 7};
    static const char config[] = "\"data_format\": [\"no_header_tensor:20\"], \"item_loader\": "
                                 "\"TokensLoader\", \"data_spec\": \"[1, " LEAF "]\"";
    struct bytes items[] = {{.len = 0}, {.len = 0}}, a, b;
    uint32_t lengths[3];
    char chunks[512];
    uint64_t bad;

    put(&items[0], tokens, 6);
    put(&items[1], tokens + 3, 8);
    a = shard_of(2, items);
    b = shard_of(1, items + 1);
    snprintf(chunks, sizeof chunks, "%s, %s", entry("a.bin", a.len, 2, 7),
             entry("b.bin", b.len, 1, 4));
    write_index("tokens", config, chunks);
    write_in("a.bin", "tokens", a.data, a.len);
    write_in("b.bin", "tokens", b.data, b.len);
    /* The seventh token of a is none of a block. */
    expect_in("tokens", ", sequence_length: 2",
              "fixed uint16(2,)[1 2] uint16(2,)[3 4] uint16(2,)[5 6] uint16(2,)[4 5] "
              "uint16(2,)[6 7]");
    struct dataset *ds = open_in("tokens", "");
    assert_int_equal(ds->length, 3);
    assert_int_equal(LENGTHS(ds->ops->lengths, ds, NULL, 0, 3, lengths, &bad, NULL), 0);
    assert_memory_equal(lengths, ((uint32_t[]){3, 4, 4}), sizeof lengths);
    dataset_close(ds);
    expect_in("tokens", ", fields: [x]", "...has no samples with a key x...");
    write_one("tokens", config, &a, 2, 8);
    expect_in("tokens", ", sequence_length: 2", "...an impossible number of tokens...");
    a.len -= 2;
    write_one("tokens", config, &a, 2, 6);
    expect_in("tokens", ", sequence_length: 2", "fixed (...is not a shard of 2 samples...");
}

/* A table of `n` items that are nowhere, and rows of Arrow's: a column of numbers from `first` on.
 */
static struct bytes rows_chunk(uint32_t n, int64_t first)
{
    static const struct build_type column = {.name = "id", .type = 2, .a = 64, .b = 1};
    static struct build stream;
    static struct build_batch batch;
    struct bytes chunk = {.len = 0};
    int64_t ids[4];

    stream.len = 0;
    batch = (struct build_batch){0};
    for (uint32_t i = 0; i < n; i++)
        ids[i] = first + i;
    build_column(&batch, n, ids, n * sizeof ids[0]);
    build_add_schema(&stream, &column, 1, NULL);
    build_add_batch(&stream, &batch, n);
    put32(&chunk, n);
    for (uint32_t i = 0; i <= n; i++)
        put32(&chunk, 4 * (n + 2));
    put(&chunk, stream.data, stream.len);
    put32(&chunk, stream.len);
    put(&chunk, "LDARW01", 8);
    return chunk;
}

TEST(test_rows_of_arrow)
{
    static const char config[] =
        "\"data_format\": [\"int\"], \"data_spec\": \"" DICT("[\\\\\\\"id\\\\\\\"]", LEAF) "\"";
    struct bytes a = rows_chunk(3, 10), b = rows_chunk(2, 20);
    char chunks[512];

    snprintf(chunks, sizeof chunks, "%s, %s", entry("a.bin", a.len, 3, 0),
             entry("b.bin", b.len, 2, 0));
    write_index("arrow", config, chunks);
    write_in("a.bin", "arrow", a.data, a.len);
    write_in("b.bin", "arrow", b.data, b.len);
    expect_in("arrow", "", "fixed {id:10} {id:11} {id:12} {id:20} {id:21}");
    struct dataset *ds = open_in("arrow", "");
    assert_name(ds, 4, "/b.bin: row 1");
    dataset_close(ds);
    expect_in("arrow", ", sequence_length: 2", "...was not written for a TokensLoader...");
    expect_in("arrow", ", fields: [x]", "...has no column x...");
    write_in("b.bin", "arrow", b.data, b.len - 1);
    expect_in("arrow", "", "...has no Arrow rows at its end...");
    memset(b.data + b.len - 12, 0xFF, 4);
    write_in("b.bin", "arrow", b.data, b.len);
    expect_in("arrow", "", "...has no Arrow rows at its end...");
    write_in("b.bin", "arrow", a.data, a.len);
    expect_in("arrow", "", "...has 6 rows in its chunks, but index.json says 5...");
}

/* ---- formats -------------------------------------------------------------------------------- */

/* What becomes of the value; text for a comparison. */
static const char *value_of(const char *format, const void *data, uint64_t bytes)
{
    static struct words words;
    static struct fields fields = {.decode = true,
                                   .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
    struct litdata_leaf leaf = {.format = (char *)format};
    struct litdata_value value = {.leaf = &leaf, .data = data, .size = bytes};
    struct decoding decoding = {.fields = &fields, .key = &key};
    struct taken t = {.sample.arena = &t.arena};

    words.len = 0;
    words.values = true;
    if (!fields.images)
        assert_int_equal(image_decoder_new(&fields.images, NULL), 0);
    litdata_leaf_parse(&leaf);
    if (leaf.sort == LITDATA_UNKNOWN)
        return "no such format";
    sample_begin(&t.sample, TREE_DICT, NULL);
    if (litdata_value_add(&value, "x", &decoding, &t.sample, &t.err) < 0)
        say(&words, "error: %s", t.err.message);
    else
        put_node(&words, &t.sample, 1);
    drop(&t);
    return words.text + (strncmp(words.text, "x:", 2) == 0 ? 2 : 0);
}

TEST(test_formats)
{
    static const struct {
        const char *format, *data;
        uint64_t bytes;
        const char *want;
    } rows[] = {
        {"str", "ab", 2, "\"ab\""},
        {"text", "ab\xFF", 3, "error: is not UTF-8..."},
        {"bytes", "ab\xFF", 3, "<ab\xFF>"},
        {"file:txt", "ab", 2, "<ab>"},
        {"int", "\1\0\0\0\0\0\0\0", 8, "1"},
        {"int", "\1", 1, "error: has 1 bytes, which \"int\" cannot have..."},
        {"float", "\0\0\0\0\0\0\xF8\x3F", 8, "float64 1.5"},
        {"bool", "\2", 1, "true"},
        {"bool", "", 0, "error: has 0 bytes, which \"bool\" cannot have..."},
        {"no_header_numpy:1", "\1\0\2\0", 4, "int16(2,)[1 2]"},
        {"no_header_numpy:1", "\1\0\2", 3, "error: has 3 bytes..."},
        {"no_header_numpy:1", "", 0, "int16(0,)"},
        {"no_header_numpy:14", "", 0, "no such format"},
        {"no_header_numpy", "", 0, "no such format"},
        {"no_header_numpy:1x", "", 0, "no such format"},
        {"no_header_tensor:10", "\x80\x3F", 2, "bfloat16(1,)[0x3f80]"},
        {"no_header_tensor:18", "\1\0\0\0\0\0\0\0", 8, "int64(1,)[1]"},
        {"no_header_tensor:21", "", 0, "no such format"},
        {"numpy", "\1\0\0\0\2\0\0\0\2\0\0\0\1\0\0\0\1\0\2\0", 20, "int16(2, 1)[1 2]"},
        {"numpy", "\1\0\0\0\2\0\0\0\2\0\0\0\1\0\0\0\1\0\2", 19, "error: has 19 bytes..."},
        {"numpy", "\4\0\0\0\0\0\0\0\7", 9, "uint8 7"},
        {"numpy", "\x0E\0\0\0\0\0\0\0\7", 9, "error: is an array whose type or shape..."},
        {"numpy", "\1\0\0\0\x09\0\0\0", 8, "error: is an array whose type or shape..."},
        {"numpy", "\1\0\0\0\2\0\0\0\2\0\0\0", 12, "error: is an array whose type or shape..."},
        {"numpy", "\1\0\0", 3, "error: is an array whose type or shape..."},
        {"numpy", "\7\0\0\0\3\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 20,
         "error: has 20 bytes..."},
        {"tensor", "\0\0\0\x0E\0\0\0\1\0\0\0\2\1\0\2\0", 16, "int16(2,)[1 2]"},
        {"tensor", "\0\0\0\x0E\0\0\0\1\0\0\0\0", 12, "int16(0,)"},
        {"json", "{\"a\": 1}", 8, "{...}"},
        {"json", "\x81", 1, "error: is not JSON..."},
        {"json", "", 0, "error: is not JSON..."},
        {"json",
         "\0\2\0\0\0"
         "17",
         7, "17"},
        {"json",
         "\0\3\0\0\0"
         "17",
         7, "error: is nested in a way that is damaged..."},
        {"json", "\7\2\0\0\0ab", 7, "\"ab\""},
        {"json", "\7\2\0\0\0a\xFF", 7, "error: has a text that is not UTF-8..."},
        {"json", "\7\2\0\0\0abc", 8, "error: is nested in a way that is damaged..."},
        {"json", "\x08\2\0\0\0\0\0\0\0", 9, "2"},
        {"json", "\x09\0\0\0\0\0\0\xF8\x7F", 9, "float64 nan"}, /* no number */
        {"json", "\x0A\1", 2, "true"},
        {"json", "\x0B", 1, "error: has a null..."},
        {"json", "\x0C", 1, "error: is nested in a way that is damaged..."},
        {"json", "\2\2\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 21, "[...]"},
        {"json", "\2\2\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0", 20, "error: is nested..."},
        {"json", "\1\xFF\xFF\xFF\xFF\0\0\0\0", 9, "error: is nested..."},
        {"json", "\4\2\0\0\0\1\0", 7, "[...]"},
        {"json", "\5\1\0\0\0\1\0\0\0k\x0A\0", 12, "{...}"},
        {"json", "\5\2\0\0\0\1\0\0\0k\x0A\0", 12, "error: is nested..."},
        {"json", "\5\1\0\0\0\1\0\0\0\0\x0A\0", 12, "error: is nested..."},
        {"json", "\6\2\0\0\0\1\0\0\0\1\0\0\0k\x14\1\x14\0", 18, "[...]"},
        {"json", "\6\2\0\0\0\1\0\0\0\1\0\0\0k\x14\1\x10", 17, "error: has a null..."},
        {"json", "\6\1\0\0\0\1\0\0\0\1\0\0\0k\x0F\1", 16, "error: is nested..."},
        {"json", "\6\1\0\0\0\1\0\0\0\1\0\0\0k\x15\1", 16, "error: is nested..."},
        {"json", "\6\1\0\0\0\xFF\xFF\xFF\xFF", 9, "error: is nested..."},
        {"jpeg", "x", 1, "error: is an image that cannot be read: it ..."},
        {"image:png", "x", 1, "error: is an image that cannot be read: it ..."},
        {"jpeg_array", "\1\0\0\0\1\0\0\0x", 9, "error: is an image that cannot be read: it ..."},
        {"jpeg_array", "\1\0\0\0\2\0\0\0x", 9, "error: has 9 bytes..."},
        {"jpeg_array", "\xFF\xFF\xFF\xFF", 4, "error: has 4 bytes..."},
        {"jpeg_array", "\0\0\0\0", 4, "error: has 4 bytes..."},
        {"jpeg_array", "\1", 1, "error: has 1 bytes..."},
        {"pil", "\2\0\0\0\1\0\0\0\1\0\0\0L\1\2", 15, "uint8(1, 2, 3)[1 1 1 2 2 2]"},
        {"pil", "\2", 1, "error: has 1 bytes..."},
        {"blob", "", 0, "no such format"},
        {"", "", 0, "no such format"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *have = value_of(rows[i].format, rows[i].data, rows[i].bytes);
        if (!is_like(have, rows[i].want))
            fail_msg("row %zu, %s: \"%s\", not \"%s\"", i, rows[i].format, have, rows[i].want);
    }
}

/* ---- what is refused ------------------------------------------------------------------------ */

TEST(test_bad_index)
{
    static const struct {
        const char *config, *chunks, *says;
    } rows[] = {
        {"", "", "config has no data_format"},
        {"\"data_format\": [\"int\"]", "", "config has no data_spec"},
        {"\"data_format\": [\"int\"], \"data_spec\": \"x\"", "", "is not of version 1"},
        {"\"data_format\": [\"int\"], \"data_spec\": \"[2, " LEAF "]\"", "", "is not of version 1"},
        {"\"data_format\": [\"int\"], \"data_spec\": \"[1, {}]\"", "", "is damaged"},
        {"\"data_format\": [\"int\"], \"data_spec\": \"" SHAPE "\"", "", "not as many formats"},
        {"\"data_format\": [1], \"data_spec\": \"[1, " LEAF "]\"", "", "a format that is not text"},
        {"\"data_format\": [\"int\"], \"data_spec\": \"" DICT(KEYS, LEAF) "\"", "",
         "unequal numbers of keys and values"},
        {"\"data_format\": [\"int\"], \"data_spec\": \"" DICT("[1]", LEAF) "\"", "",
         "keys that are not text"},
        {"\"data_format\": [\"int\"], \"data_spec\": \"[1, {\\\"type\\\": \\\"a.Point\\\", "
         "\\\"context\\\": null, \\\"children_spec\\\": []}]\"",
         "", "has a a.Point; dicts, lists and tuples can be read"},
        {CONFIG ", \"encryption\": {\"level\": \"chunk\"}", "", "encrypted"},
        {CONFIG ", \"item_loader\": \"ParquetLoader\"", "", "by kind: parquet"},
        {CONFIG ", \"item_loader\": \"MyLoader\"", "", "written for a MyLoader"},
        {CONFIG ", \"item_loader\": \"TokensLoader\"", "", "not tensors of one dimension"},
        {CONFIG, "1", "chunk 0 has a filename"},
        {CONFIG, "{\"filename\": \"../x\"}", "not a file below the directory"},
        {CONFIG, "{\"filename\": \"/etc/passwd\"}", "not a file below the directory"},
        {CONFIG, "{\"filename\": \"x\"}", "has an impossible size or number"},
        {CONFIG, "{\"filename\": \"x\", \"chunk_bytes\": 15, \"chunk_size\": 2}",
         "has an impossible size or number"},
        {CONFIG, "{\"filename\": \"x\", \"chunk_bytes\": 8589934592, \"chunk_size\": 2}",
         "has an impossible size or number"},
        {CONFIG, "{\"filename\": \"x\", \"chunk_bytes\": 16, \"chunk_size\": 2}", "no such file"},
        {"\"data_format\": [\"pickle\"], \"data_spec\": \"[1, " LEAF "]\"", "", "is pickled"},
        {"\"data_format\": [\"blob\"], \"data_spec\": \"[1, " LEAF "]\"", "",
         "has the format \"blob\", which cannot be read"},
    };
    struct bytes b = chunk_b();
    char says[200];

    expect_in("bad", "", "ENOENT ...no such file...");
    write_in("index.json", "bad", "{", 1);
    expect_in("bad", "", "...is not JSON...");
    write_in("index.json", "bad", "{}", 2);
    expect_in("bad", "", "...has no list \"chunks\"...");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        write_index("bad", rows[i].config, rows[i].chunks);
        snprintf(says, sizeof says, "...bad...%s...", rows[i].says);
        expect_in("bad", "", says);
    }
    write_index("bad", CONFIG, entry("b.bin", b.len + 1, 1, 0));
    write_in("b.bin", "bad", b.data, b.len);
    expect_in("bad", "", "...but index.json says...");
    write_index("bad", CONFIG, "");
    expect_in("bad", "", "");
}

/* A byte of the chunk changed: the sample is refused, or has another content; never more. */
TEST(test_damaged_chunk)
{
    struct bytes a = chunk_a(), b = chunk_b();

    for (size_t at = 0; at < b.len; at++) {
        struct bytes changed = b;
        struct taken t;
        changed.data[at] ^= 0x81;
        write_two("damaged", CONFIG, &a, "b.bin", &changed, b.len);
        struct dataset *ds = open_in("damaged", "");
        int r = take(ds, &key, 2, &t);
        assert_true(at < 16 ? r == -EINVAL : r == 0 || r == -EILSEQ || r == -EINVAL);
        if (r < 0)
            assert_non_null(strstr(t.err.path, "/b.bin"));
        drop(&t);
        dataset_close(ds);
    }
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    struct bytes items[] = {item_of(-1, "first"), item_of(5, ""), item_of(7, "third")};
    struct bytes whole = framed_of(3, items, 2);

    if (lacks_zstd())
        return;
    write_one("memory", CONFIG, &whole, 3, 0);
    expect_failures_of("{kind: litdata, paths: memory, fields: {y: text}}", 3);
}
