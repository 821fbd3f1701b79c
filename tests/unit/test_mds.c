/* MDS datasets: every encoding, shards plain and compressed, and what is refused. */
#include "daemon/data/kinds/mds/mds.h"
#include "daemon/data/kinds/mds/mds_index.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/shard_dir.h"
#include "tests/unit/taken.h"

#include <errno.h>

static const struct sample_key key;
static struct spec_file root_file;

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

static const char *folder(const char *name)
{
    root_file.path = shard_dir(name);
    return root_file.path;
}

/* An index of shards a (2 samples) and b (1), of the sizes that are given; 0: leaves it out. */
static void write_index(const char *dir, size_t a, size_t b, const char *columns, const char *zip)
{
    char text[2048];

    int len = snprintf(
        text, sizeof text,
        "{\"shards\": [{%s, \"compression\": null, \"format\": \"mds\", \"version\": 2, "
        "\"raw_data\": {\"basename\": \"a.mds\", \"bytes\": %zu, \"hashes\": {}}, \"samples\": 2, "
        "\"zip_data\": null}, {%s, \"format\": \"mds\", \"version\": 2, \"raw_data\": "
        "{\"basename\": \"b.mds\", \"bytes\": %zu}, \"samples\": 1, \"zip_data\": %s}], "
        "\"version\": 2}",
        COLUMNS, a, columns, b, zip);
    write_in("index.json", dir, text, (size_t)len);
}

static struct spec_dataset spec_of(void)
{
    return (struct spec_dataset){.kind = DATASET_MDS,
                                 .files = &root_file,
                                 .n_files = 1,
                                 .decode = true,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

static void expect_refused(const char *says)
{
    struct spec_dataset spec = spec_of();
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_true(dataset_open(&spec, &anywhere, &ds, &err) < 0);
    assert_error_has(&err, says);
    assert_non_null(strstr(err.path, root_file.path));
}

static void expect_sample(struct dataset *ds, uint64_t i, int64_t id, const char *name)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    if (ds->ops->get(ds, &key, i, &sample, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(sample.tree.count, 3);
    assert_memory_equal(sample.data[1], &id, sizeof id);
    assert_int_equal(sample.tree.nodes[2].kind, TREE_STRING);
    assert_int_equal(sample.tree.nodes[2].nbytes, strlen(name));
    assert_memory_equal(sample.data[2], name, strlen(name));
    dataset_expect(ds, i);
    sample_deinit(&sample);
    arena_deinit(&arena);
}

static void expect_all(struct dataset *ds)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};

    assert_int_equal(ds->length, 3);
    expect_sample(ds, 2, 7, "third");
    expect_sample(ds, 0, -1, "first");
    expect_sample(ds, 1, 5, "");
    assert_int_equal(ds->ops->get(ds, &key, 3, &sample, NULL), -ERANGE);
    sample_deinit(&sample);
}

static struct bytes shard_a(void)
{
    return shard_of(2, (struct bytes[]){sample_of(-1, "first"), sample_of(5, "")});
}

static struct bytes shard_b(void)
{
    return shard_of(1, (struct bytes[]){sample_of(7, "third")});
}

TEST(test_plain)
{
    struct bytes a = shard_a(), b = shard_b();
    struct spec_dataset spec = spec_of();

    folder("plain");
    write_index("plain", a.len, b.len, COLUMNS, "null");
    write_in("a.mds", "plain", a.data, a.len);
    write_in("b.mds", "plain", b.data, b.len);
    struct dataset *ds = must_open(&spec);
    expect_all(ds);
    dataset_close(ds);
}

TEST(test_compressed)
{
    struct bytes a = shard_a(), b = shard_b(), packed = {.len = 0};
    struct spec_dataset spec = spec_of();
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    packed.len = make_gzip(b.data, b.len, packed.data, ROOM);
    folder("packed");
    write_index("packed", a.len, b.len, COLUMNS, "{\"basename\": \"b.mds.gz\", \"bytes\": 1}");
    write_in("a.mds", "packed", a.data, a.len);
    write_in("b.mds.gz", "packed", packed.data, packed.len);
    struct dataset *ds = must_open(&spec);
    expect_all(ds);
    dataset_close(ds);

    /* More than the index says, and none that is known. */
    write_index("packed", a.len, b.len - 1, COLUMNS, "{\"basename\": \"b.mds.gz\", \"bytes\": 1}");
    ds = must_open(&spec);
    assert_int_equal(ds->ops->get(ds, &key, 2, &sample, &err), -EFBIG);
    dataset_close(ds);
    write_in("b.mds.gz", "packed", b.data, b.len);
    ds = must_open(&spec);
    assert_int_equal(ds->ops->get(ds, &key, 2, &sample, &err), -EINVAL);
    assert_error_has(&err, "a compression other than gzip and zstd");
    dataset_close(ds);
    sample_deinit(&sample);
    arena_deinit(&arena);
}

TEST(test_chosen)
{
    static struct spec_field fields[] = {{(char *)"text", (char *)"name"}};
    static struct spec_field missing[] = {{(char *)"text", (char *)"text"}};
    struct bytes a = shard_a(), b = shard_b();
    struct spec_dataset spec = spec_of();
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dataset *none = NULL;
    struct dl_error err = {0};

    folder("chosen");
    write_index("chosen", a.len, b.len, COLUMNS, "null");
    write_in("a.mds", "chosen", a.data, a.len);
    write_in("b.mds", "chosen", b.data, b.len);
    spec.fields = fields;
    spec.n_fields = 1;
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->ops->get(ds, &key, 2, &sample, NULL), 0);
    assert_int_equal(sample.tree.count, 2);
    assert_memory_equal(sample.tree.keys, "text", 4);
    assert_memory_equal(sample.data[1], "third", 5);
    dataset_close(ds);
    spec.fields = missing;
    assert_int_equal(dataset_open(&spec, &anywhere, &none, &err), -EINVAL);
    assert_error_has(&err, "has no column text");
    sample_deinit(&sample);
    arena_deinit(&arena);
}

/* {"id": int, "pair": ndarray:int16:2}: rows that are copied straight. */
TEST(test_rows)
{
    static const char columns[] = "\"column_names\": [\"id\", \"pair\"], \"column_encodings\": "
                                  "[\"int\", \"ndarray:int16:2\"], \"column_sizes\": [8, 4]";
    struct bytes rows[] = {{.len = 0}, {.len = 0}, {.len = 0}}, shard;
    struct spec_dataset spec = spec_of();
    uint64_t indices[] = {2, 0, 3}, ids[2];
    int16_t pairs[4];
    void *dst[] = {ids, pairs};
    struct dl_error err = {0};
    char text[1024];
    size_t bad = 9;

    for (uint16_t i = 0; i < 3; i++) {
        put(&rows[i], &(uint64_t){i}, 8);
        put(&rows[i], (uint16_t[]){i, (uint16_t)(i + 1)}, 4);
    }
    shard = shard_of(3, rows);
    folder("rows");
    int len = snprintf(text, sizeof text,
                       "{\"shards\": [{%s, \"format\": \"mds\", \"version\": 2, \"raw_data\": "
                       "{\"basename\": \"a.mds\", \"bytes\": %zu}, \"samples\": 3}]}",
                       columns, shard.len);
    write_in("index.json", "rows", text, (size_t)len);
    write_in("a.mds", "rows", shard.data, shard.len);
    struct dataset *ds = must_open(&spec);
    assert_true(dataset_is_fixed(ds));
    assert_int_equal(ds->n_leaves, 2);
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 2, dst, &bad, NULL), 0);
    assert_memory_equal(ids, ((uint64_t[]){2, 0}), sizeof ids);
    assert_name(ds, 2, "/a.mds: sample 2");
    assert_memory_equal(pairs, ((int16_t[]){2, 3, 0, 1}), sizeof pairs);
    assert_int_equal(ds->ops->read_rows(ds, &key, indices + 2, 1, dst, &bad, &err), -ERANGE);
    assert_int_equal(bad, 0);
    dataset_close(ds);
}

/* Of arrays that vary, from what stands before them. */
TEST(test_lengths)
{
    static const char columns[] = "\"column_names\": [\"id\", \"ids\"], \"column_encodings\": "
                                  "[\"int\", \"ndarray:uint8\"], \"column_sizes\": [8, null]";
    struct bytes rows[] = {{.len = 0}, {.len = 0}}, shard;
    struct spec_dataset spec = spec_of();
    uint32_t lengths[2];
    uint64_t bad;
    char text[1024];

    put(&rows[0], "\5\0\0\0\0\0\0\0\0\0\0\0\4\3abc", 17);
    put(&rows[1], "\3\0\0\0\0\0\0\0\0\0\0\0\4\1a", 15);
    shard = shard_of(2, rows);
    folder("lengths");
    int len = snprintf(text, sizeof text,
                       "{\"shards\": [{%s, \"format\": \"mds\", \"version\": 2, \"raw_data\": "
                       "{\"basename\": \"a.mds\", \"bytes\": %zu}, \"samples\": 2}]}",
                       columns, shard.len);
    write_in("index.json", "lengths", text, (size_t)len);
    write_in("a.mds", "lengths", shard.data, shard.len);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->ops->lengths(ds, NULL, 0, 2, lengths, &bad, NULL), 0);
    assert_memory_equal(lengths, ((uint32_t[]){3, 1}), sizeof lengths);
    assert_int_equal(ds->ops->lengths(ds, "ids", 1, 1, lengths, &bad, NULL), 0);
    assert_int_equal(lengths[0], 1);
    assert_int_equal(ds->ops->lengths(ds, "id", 0, 2, lengths, &bad, NULL), -ENOTSUP);
    assert_int_equal(ds->ops->lengths(ds, "x", 0, 2, lengths, &bad, NULL), -ENOTSUP);
    dataset_close(ds);
}

TEST(test_bad_index)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"", "is not JSON"},
        {"{}", "has no list"},
        {"{\"shards\": [1]}", "not of format mds"},
        {"{\"shards\": [{\"format\": \"jsonl\", \"version\": 2}]}", "not of format mds"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 3, \"raw_data\": "
         "{\"bytes\": 8}}]}",
         "has an impossible size or number"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, " COLUMNS
         ", \"raw_data\": {\"bytes\": 99}}]}",
         "no raw_data.basename"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, " COLUMNS
         ", \"raw_data\": {\"bytes\": 8589934592, \"basename\": \"x\"}}]}",
         "has an impossible size or number"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, \"column_names\": "
         "[\"x\"], \"column_encodings\": [\"blob\"], \"column_sizes\": [null], \"raw_data\": "
         "{\"bytes\": 99, \"basename\": \"x\"}}]}",
         "\"blob\", which cannot be read"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, \"column_names\": "
         "[\"x\"], \"column_encodings\": [\"int\"], \"column_sizes\": [4], \"raw_data\": "
         "{\"bytes\": 99, \"basename\": \"x\"}}]}",
         "another size"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, \"column_names\": "
         "[\"x\"], \"column_encodings\": [\"ndarray:int32:0\"], \"column_sizes\": [null], "
         "\"raw_data\": {\"bytes\": 99, \"basename\": \"x\"}}]}",
         "not a type and shape"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, \"column_names\": "
         "[\"x\"], \"column_encodings\": [\"int\"], \"column_sizes\": [], \"raw_data\": "
         "{\"bytes\": 99, \"basename\": \"x\"}}]}",
         "without a valid name"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, \"column_names\": "
         "[\"x\"], \"column_encodings\": [\"pkl\"], \"column_sizes\": [null], \"raw_data\": "
         "{\"bytes\": 99, \"basename\": \"x\"}}]}",
         "no such file"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, " COLUMNS
         ", \"raw_data\": {\"bytes\": 99, \"basename\": \"a/../../x\"}}]}",
         "not a file below the directory"},
        {"{\"shards\": [{\"format\": \"mds\", \"version\": 2, \"samples\": 1, " COLUMNS
         ", \"raw_data\": {\"bytes\": 99, \"basename\": \"/etc/passwd\"}}]}",
         "not a file below the directory"},
    };

    folder("bad");
    expect_refused("no such file");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        write_in("index.json", "bad", rows[i].text, strlen(rows[i].text));
        expect_refused(rows[i].says);
    }
    struct bytes a = shard_a(), b = shard_b();
    write_in("a.mds", "bad", a.data, a.len);
    write_in("b.mds", "bad", b.data, b.len);
    write_index("bad", a.len, b.len, COLUMNS, "null");
    struct spec_dataset spec = spec_of();
    dataset_close(must_open(&spec));
    write_index("bad", a.len + 1, b.len, COLUMNS, "null");
    expect_refused("but index.json says");
    write_index("bad", a.len, b.len,
                "\"column_names\": [\"x\"], \"column_encodings\": [\"str\"], "
                "\"column_sizes\": [null]",
                "null");
    expect_refused("its shard 1 has other columns");
    write_index("bad", a.len, b.len,
                "\"column_names\": [\"id\"], \"column_encodings\": [\"int\"], "
                "\"column_sizes\": [8]",
                "null");
    expect_refused("its shard 1 has other columns");
}

/* A byte of the shard changed: the sample is refused, or has another content; never more. */
TEST(test_damaged_shard)
{
    struct spec_dataset spec = spec_of();
    struct bytes b = shard_b();

    folder("damaged");
    for (size_t at = 0; at < b.len; at++) {
        struct bytes a = shard_a(), changed = b;
        struct arena arena = {0};
        struct sample sample = {.arena = &arena};
        struct dl_error err = {0};
        changed.data[at] ^= 0x81;
        write_index("damaged", a.len, b.len, COLUMNS, "null");
        write_in("a.mds", "damaged", a.data, a.len);
        write_in("b.mds", "damaged", changed.data, changed.len);
        struct dataset *ds = must_open(&spec);
        int r = ds->ops->get(ds, &key, 2, &sample, &err);
        assert_true(r == -err.code);
        assert_true(at < 16 ? r == -EINVAL : r == 0 || r == -EILSEQ);
        if (r < 0)
            assert_non_null(strstr(err.path, "/b.mds"));
        dataset_close(ds);
        sample_deinit(&sample);
        arena_deinit(&arena);
    }
}

/* ---- encodings ------------------------------------------------------------------------------ */

/* What becomes of the value; text for a comparison. */
static const char *value_of(const char *encoding, uint32_t size, const void *data, uint64_t bytes)
{
    static char text[DL_ERROR_MESSAGE_MAX + 8];
    static struct fields fields = {.decode = true,
                                   .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_CHW}};
    struct mds_column column = {.name = (char *)"x", .encoding = (char *)encoding, .size = size};
    struct mds_value value = {.column = &column, .name = "x", .data = data, .size = bytes};
    struct decoding decoding = {.fields = &fields, .key = &key};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    size_t len = 0;

    if (!fields.images)
        assert_int_equal(image_decoder_new(&fields.images, NULL), 0);
    if (mds_column_parse(&column, "index", &err) < 0)
        return strcpy(text, "no such encoding");
    sample_begin(&sample, TREE_DICT, NULL);
    int r = mds_value_add(&value, &decoding, &sample, &err);
    if (r < 0) {
        assert_string_not_equal(err.message, "");
        snprintf(text, sizeof text, "error: %s", err.message);
    } else {
        const struct tree_node *node = &sample.tree.nodes[1];
        len += (size_t)snprintf(text, sizeof text, "%s",
                                node->kind == TREE_TENSOR   ? "tensor"
                                : node->kind == TREE_STRING ? "string"
                                : node->kind == TREE_DICT   ? "dict"
                                                            : "bytes");
        if (node->kind == TREE_TENSOR)
            len += (size_t)snprintf(text + len, sizeof text - len, " %s", dtype_name(node->dtype));
        for (uint32_t i = 0; node->kind == TREE_TENSOR && i < node->ndim; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", i ? "," : " ",
                                    (int)node->shape[i]);
        for (uint64_t i = 0; node->kind != TREE_DICT && i < node->nbytes; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%02x", i ? "" : " ",
                                    ((const uint8_t *)sample.data[1])[i]);
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
    return text;
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
        {"bytes", 0, "ab\xFF", 3, "bytes 6162ff"},
        {"str", 0, "ab", 2, "string 6162"},
        {"str", 0, "ab\xFF", 3, "error: is not UTF-8"},
        {"int", 8, "\1\0\0\0\0\0\0\0", 8, "tensor int64 0100000000000000"},
        {"uint8", 1, "\7", 1, "tensor uint8 07"},
        {"int16", 2, "\7\1", 2, "tensor int16 0701"},
        {"float16", 2, "\0\x3C", 2, "tensor float16 003c"},
        {"float32", 4, "\0\0\x80\x3F", 4, "tensor float32 0000803f"},
        {"int16", 4, "", 0, "no such encoding"},
        {"str_int", 0, "-12", 3, "tensor int64 f4ffffffffffffff"},
        {"str_int", 0, "99999999999999999999", 20,
         "error: is not an integer of 64 bits "
         "(\"99999999999999999999\")"},
        {"str_int", 0, "1.5", 3, "error: is not an integer of 64 bits (\"1.5\")"},
        {"str_int", 0, "", 0, "error: is not an integer of 64 bits (\"\")"},
        {"str_float", 0, "1.5", 3, "tensor float64 000000000000f83f"},
        {"str_float", 0, "x", 1, "error: is not a number (\"x\")"},
        {"str_decimal", 0, "0.1", 3, "string 302e31"},
        {"ndarray:int16:2,1", 4, "\1\0\2\0", 4, "tensor int16 2,1 01000200"},
        {"ndarray:int16", 0, "\x08\2\1\1\0\2\0", 7, "tensor int16 2,1 01000200"},
        {"ndarray:int16", 0, "\x05\2\0\1\0\2\0", 7, "tensor int16 2 01000200"},
        {"ndarray", 0, "\x11\x04\2\1\0\2\0", 7, "tensor int16 2 01000200"},
        {"ndarray", 0, "\x12\x04\1\0\x3C", 5, "tensor float16 1 003c"},
        {"ndarray", 0, "\x11\x04\3\1\0\2\0", 7,
         "error: has 7 bytes, which \"ndarray\" cannot have"},
        {"ndarray", 0, "\x10", 1, "error: is an array whose type or shape is damaged"},
        {"ndarray", 0, "\x63\x04\1\0", 4, "error: is an array whose type or shape is damaged"},
        {"ndarray", 0, "", 0, "error: is an array whose type or shape is damaged"},
        {"ndarray", 0, "\x08\x07\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 10,
         "error: has 10 bytes, which \"ndarray\" cannot have"},
        {"ndarray:int99", 0, "", 0, "no such encoding"},
        {"ndarray:int16:2,x", 0, "", 0, "no such encoding"},
        {"json", 0, "{\"a\": 1}", 8, "dict"},
        {"json", 0, "{", 1,
         "error: is not JSON: string or '}' expected near end of file, in its "
         "line 1"},
        {"jpeg", 0, "x", 1, "error: is an image that cannot be read: it "},
        {"jpeg:90", 0, "x", 1, "error: is an image that cannot be read: it "},
        {"pil", 0, "\2\0\0\0\1\0\0\0\3\0\0\0RGB\1\2\3\4\5\6", 21,
         "tensor uint8 3,1,2 010402050306"},
        {"pil", 0, "\2\0\0\0\1\0\0\0\1\0\0\0L\1\2", 15, "tensor uint8 3,1,2 010201020102"},
        {"pil", 0, "\1\0\0\0\1\0\0\0\4\0\0\0RGBA\1\2\3\4", 20, "tensor uint8 3,1,1 010203"},
        {"pil", 0, "\1\0\0\0\1\0\0\0\4\0\0\0CMYK\1\2\3\4", 20, "error: is an image of mode CMYK"},
        {"pil", 0, "\2\0\0\0\1\0\0\0\3\0\0\0RGB\1", 16, "error: has 16 bytes"},
        {"pil", 0, "\2\0\0\0\1\0\0\0\xFF\xFF\xFF\xFFRGB", 15, "error: has 15 bytes"},
        {"pil", 0, "\2", 1, "error: has 1 bytes"},
        {"blob", 0, "", 0, "no such encoding"},
        {"", 0, "", 0, "no such encoding"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *have = value_of(rows[i].encoding, rows[i].size, rows[i].data, rows[i].bytes);
        bool whole = strncmp(rows[i].want, "error", 5) != 0;
        if (whole ? strcmp(have, rows[i].want) != 0
                  : strncmp(have, rows[i].want, strlen(rows[i].want)) != 0)
            fail_msg("row %zu, %s: \"%s\", not \"%s\"", i, rows[i].encoding, have, rows[i].want);
    }
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    static struct spec_field fields[] = {{(char *)"text", (char *)"name"}};
    struct bytes a = shard_a(), b = shard_b(), packed = {.len = 0};
    struct spec_dataset spec = spec_of();

    packed.len = make_gzip(b.data, b.len, packed.data, ROOM);
    folder("memory");
    write_index("memory", a.len, b.len, COLUMNS, "{\"basename\": \"b.mds.gz\", \"bytes\": 1}");
    write_in("a.mds", "memory", a.data, a.len);
    write_in("b.mds.gz", "memory", packed.data, packed.len);
    spec.fields = fields;
    spec.n_fields = 1;
    expect_memory_failures(&spec, 3);
}
