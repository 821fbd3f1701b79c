/* Arrow IPC: files and streams, columns of each sort, what `datasets` writes, and what is refused.
 */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/arrow/flat.h"
#include "tests/unit/arrow_case.h"
#include "tests/unit/fail_open.h"

#include <sys/stat.h>

TEST(test_streams_and_files)
{
    struct spec_dataset spec = spec_of(write_built("stream", stream_of(false, 3)));

    expect_rows(&spec, 6);
    spec = spec_of(write_built("file", file_of(2)));
    expect_rows(&spec, 4);
    paths[1].path = (char *)write_built("more", stream_of(false, 1));
    spec.n_files = 2;
    expect_rows(&spec, 6);
    spec = spec_of(write_built("empty", stream_of(false, 0)));
    expect_rows(&spec, 0);
}

TEST(test_columns_are_chosen)
{
    struct spec_field fields[] = {{"a", "tokens"}, {"b", "id"}, {"c", "id"}};
    struct spec_dataset spec = spec_of(write_built("chosen", stream_of(false, 1)));

    spec.fields = fields;
    spec.n_fields = 3;
    assert_string_equal(opened_sample(&spec, 0),
                        "int32 2 0700000008000000; int64 0100000000000000; "
                        "int64 0100000000000000; ");
    fields[1].source = (char *)"idx";
    expect_refused(&spec, "has no column idx; see dataset.fields");
}

/* Numbers and fixed lists alone: their rows are copied. */
TEST(test_rows_of_one_shape)
{
    struct spec_field fields[] = {{"flag", "flag"}, {"id", "id"}, {"pair", "pair"}};
    struct spec_dataset spec = spec_of(write_built("fixed", stream_of(false, 2)));
    const uint64_t indices[] = {3, 0};
    struct dl_error err = {0};
    bool flags[2];
    int64_t ids[2];
    float pairs[4];
    size_t bad;

    spec.fields = fields;
    spec.n_fields = 3;
    struct dataset *ds = must_open(&spec);
    assert_true(dataset_is_fixed(ds));
    assert_name(ds, 3, ": row 3");
    void *dst[] = {flags, ids, pairs};
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 2, dst, &bad, &err), 0);
    assert_true(!flags[0] && flags[1]);
    assert_int_equal(ids[0], -2);
    assert_int_equal(ids[1], 1);
    assert_memory_equal(pairs, ((float[]){2, 4, 0.5F, 1}), sizeof pairs);
    assert_int_equal(ds->ops->read_rows(ds, &key, (uint64_t[]){0, 4}, 2, dst, &bad, &err), -ERANGE);
    assert_int_equal(bad, 1);
    dataset_close(ds);

    spec = spec_of(write_built("fixed", stream_of(true, 2)));
    spec.fields = fields;
    spec.n_fields = 3;
    ds = must_open(&spec);
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 2, dst, &bad, &err), -EINVAL);
    assert_int_equal(bad, 0);
    assert_error_has(&err, "row 3: its column flag is null");
    dataset_close(ds);
}

TEST(test_nulls)
{
    struct spec_dataset spec = spec_of(write_built("nulls", stream_of(true, 1)));

    assert_string_equal(opened_sample(&spec, 0), FIRST);
    assert_string_equal(opened_sample(&spec, 1),
                        "error: row 1: its column id is null, or has a null in it; fill nulls with "
                        "dataset.nulls, such as nulls: 0, or choose other columns with "
                        "dataset.fields");
    spec.nulls = (struct value){.type = VALUE_INT, .integer = 1};
    assert_string_equal(opened_sample(&spec, 1),
                        "int64 0100000000000000; string; int32 0; float32 2 0000803f0000803f; "
                        "bool 01; ");
    spec.nulls = (struct value){.type = VALUE_FLOAT, .number = 0.5};
    expect_refused(&spec, "0.5 is not a value of the column id, whose numbers are int64");
}

TEST(test_lengths)
{
    struct spec_dataset spec = spec_of(write_built("lengths", stream_of(true, 2)));
    struct dataset *ds = must_open(&spec);
    uint32_t lengths[4];
    uint64_t bad;
    struct dl_error err = {0};

    for (int named = 0; named < 2; named++) {
        assert_int_equal(ds->ops->lengths(ds, named ? "tokens" : NULL, 0, 4, lengths, &bad, &err),
                         0);
        assert_int_equal(lengths[0], 2);
        assert_int_equal(lengths[1], LENGTH_UNKNOWN);
        assert_int_equal(lengths[2], 2);
    }
    assert_int_equal(ds->ops->lengths(ds, "pair", 2, 1, lengths, &bad, &err), 0);
    assert_int_equal(lengths[0], 2);
    assert_int_equal(ds->ops->lengths(ds, "name", 0, 1, lengths, &bad, &err), -ENOTSUP);
    dataset_close(ds);
}

/* ---- dictionaries --------------------------------------------------------------------------- */

static const struct build_type word_types[] = {{"word", 5, 0, 0, 0, 1}};

static void add_words(struct build *b, const char *text, bool delta)
{
    static struct build_batch batch;

    batch = (struct build_batch){0};
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 1, 3}, 12);
    build_buffer(&batch, text, 3);
    build_add_dictionary(b, &batch, 2, 0, delta);
}

static void add_indices(struct build *b, int32_t first, int32_t second)
{
    static struct build_batch batch;

    batch = (struct build_batch){0};
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (int32_t[]){first, second}, 8);
    build_add_batch(b, &batch, 2);
}

TEST(test_dictionaries)
{
    static struct build b;
    struct spec_dataset spec;

    b.len = 0;
    build_add_schema(&b, word_types, 1, NULL);
    add_words(&b, "xab", false);
    add_indices(&b, 1, 0);
    add_words(&b, "ycd", false); /* instead, for what follows */
    add_indices(&b, 0, -1);
    spec = spec_of(write_built("words", &b));
    assert_string_equal(opened_sample(&spec, 0), "string 6162; ");
    assert_string_equal(opened_sample(&spec, 1), "string 78; ");
    assert_string_equal(opened_sample(&spec, 2), "string 79; ");
    assert_string_equal(opened_sample(&spec, 3),
                        "error: row 3: its column word has a number that is not in its dictionary; "
                        "the file is damaged");
    add_words(&b, "zef", true);
    spec = spec_of(write_built("words", &b));
    expect_refused(&spec, "adds to an earlier one");
    b.len = 0;
    build_add_schema(&b, word_types, 1, NULL);
    add_indices(&b, 0, 0);
    spec = spec_of(write_built("words", &b));
    expect_refused(&spec, "comes before the dictionary");
}

/* ---- what Hugging Face writes --------------------------------------------------------------- */

static const struct build_type media_types[] = {
    {"picture", 13, 0, 0, 2, 0}, {"bytes", 4, 0, 0, 0, 0}, {"path", 5, 0, 0, 0, 0},
    {"grid", 12, 0, 0, 1, 0},    {"item", 12, 0, 0, 1, 0}, {"item", 2, 8, 0, 0, 0},
};
static const char features[] =
    "{\"info\": {\"features\": {\"picture\": {\"_type\": \"Image\"}, \"grid\": {\"shape\": [null, "
    "2], \"dtype\": \"uint8\", \"_type\": \"Array2D\"}}}}";

/* One row: bytes "abc" of no path, and a grid of two lists whose offsets are given. */
static const char *media_file(const uint32_t inner[static 3], const char *says)
{
    static struct build b;
    static struct build_batch batch;

    b.len = 0;
    batch = (struct build_batch){0};
    build_node(&batch, 1, 0);
    build_buffer(&batch, NULL, 0);
    build_node(&batch, 1, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 3}, 8);
    build_buffer(&batch, "abc", 3);
    build_node(&batch, 1, 1);
    build_buffer(&batch, "\0", 1);
    build_buffer(&batch, (uint32_t[]){0, 0}, 8);
    build_buffer(&batch, NULL, 0);
    build_node(&batch, 1, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 2}, 8);
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, inner, 12);
    build_node(&batch, 4, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, "\1\2\3\4", 4);
    build_add_schema(&b, media_types, 2, says);
    build_add_batch(&b, &batch, 1);
    return write_built("media", &b);
}

TEST(test_features)
{
    struct spec_dataset spec = spec_of(media_file((uint32_t[]){0, 2, 4}, features));

    assert_non_null(strstr(opened_sample(&spec, 0), "picture is an image that cannot be read"));
    spec.decode = false;
    assert_string_equal(opened_sample(&spec, 0), "bytes 616263; uint8 2,2 01020304; ");
    spec = spec_of(media_file((uint32_t[]){0, 1, 4}, features));
    spec.decode = false;
    assert_string_equal(
        opened_sample(&spec, 0),
        "error: row 0: its column grid is not an array: its inner lists have 1 and 3 "
        "elements");
    /* Without features: what the types say. */
    spec = spec_of(media_file((uint32_t[]){0, 1, 4}, "{\"info\": 3}"));
    spec.nulls = (struct value){.type = VALUE_INT};
    assert_string_equal(opened_sample(&spec, 0),
                        "dict 2; bytes 616263; string; list 2; uint8 1 01; "
                        "uint8 3 020304; ");
    spec.images = (char *[]){(char *)"grid"};
    spec.n_images = 1;
    expect_refused(&spec, "its column grid is of type list, not bytes");
}

static void folder(const char *name)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void write_text(const char *name, const char *text)
{
    harness_file(name, text, strlen(text));
}

static const char *full_path(const char *name)
{
    static char path[4200];

    snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    return path;
}

static const struct build_type index_types[] = {{"indices", 2, 64, 0, 0, 0}};

static void write_indices(const char *name, uint64_t first, uint64_t second)
{
    static struct build b;
    static struct build_batch batch;

    b.len = 0;
    batch = (struct build_batch){0};
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint64_t[]){first, second}, 16);
    build_add_schema(&b, index_types, 1, NULL);
    build_add_batch(&b, &batch, 2);
    harness_file(name, b.data, b.len);
}

TEST(test_saved_to_disk)
{
    struct spec_dataset spec;
    const struct build *b = stream_of(false, 1);

    folder("saved");
    harness_file("saved/a.arrow", b->data, b->len);
    harness_file("saved/b.arrow", b->data, b->len);
    spec = spec_of(full_path("saved"));
    expect_refused(&spec, "is a directory without state.json");
    write_text("saved/state.json",
               "{\"_data_files\": [{\"filename\": \"a.arrow\"}, {\"filename\": \"b.arrow\"}]}");
    expect_rows(&spec, 4);
    write_text("saved/state.json", "{\"_data_files\": [{\"filename\": \"b.arrow\"}], "
                                   "\"_indices_data_files\": [{\"filename\": \"i.arrow\"}]}");
    write_indices("saved/i.arrow", 1, 0);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, 2);
    assert_string_equal(sample_of(ds, 0), SECOND);
    assert_string_equal(sample_of(ds, 1), FIRST);
    dataset_close(ds);
    write_indices("saved/i.arrow", 0, 2);
    assert_string_equal(opened_sample(&spec, 1), "error: index 1 is row 2, but there are 2 rows");
    harness_file("saved/i.arrow", b->data, b->len);
    expect_refused(&spec, "is not a list of indices");
    write_text("saved/state.json", "{\"_data_files\": [{\"filename\": \"../a.arrow\"}]}");
    expect_refused(&spec, "names a file that is not in the directory");
    write_text("saved/state.json", "{\"_data_files\": []}");
    expect_refused(&spec, "has no _data_files");
    write_text("saved/state.json", "{");
    expect_refused(&spec, "is not JSON");
}

TEST(test_cached)
{
    struct spec_dataset spec;
    const struct build *b = stream_of(false, 1);

    folder("cached");
    harness_file("cached/d-train.arrow", b->data, b->len);
    spec = spec_of(full_path("cached"));
    write_text("cached/dataset_info.json",
               "{\"splits\": {\"train\": {\"dataset_name\": \"d\", \"num_examples\": 2}}}");
    expect_rows(&spec, 2);
    harness_file("cached/d-train-00000-of-00002.arrow", b->data, b->len);
    harness_file("cached/d-train-00001-of-00002.arrow", b->data, b->len);
    write_text("cached/dataset_info.json", "{\"splits\": {\"train\": {\"dataset_name\": \"d\", "
                                           "\"shard_lengths\": [2, 2]}}}");
    expect_rows(&spec, 4);
    write_text("cached/dataset_info.json", "{\"splits\": {\"train\": {}, \"test\": {}}}");
    expect_refused(&spec, "is a cache of the splits train, test; name the files of one");
    assert_int_equal(unlink(full_path("cached/dataset_info.json")), 0);
    write_text("cached/dataset_dict.json", "{\"splits\": [\"train\", \"test\"]}");
    spec = spec_of(full_path("cached"));
    expect_refused(&spec, "is a DatasetDict of train, test; name the directory of one");
    write_text("cached/dataset_dict.json", "{\"splits\": [1]}");
    expect_refused(&spec, "is a DatasetDict of ?; name the directory of one");
    expect_refused(&spec, "/cached/train");
    write_text("cached/dataset_dict.json", "{\"splits\": []}");
    expect_refused(&spec, "is a DatasetDict of (none); name the directory of one, such as ");
    write_text("cached/dataset_dict.json", "{\"splits\": [\"\\ud83d\\ude00\"]}");
    expect_refused(&spec, "is a DatasetDict of \xF0\x9F\x98\x80; name the directory of one");
}

/* ---- what is refused ------------------------------------------------------------------------ */

static const char *one_column(const struct build_type *type)
{
    static struct build b;

    b.len = 0;
    build_add_schema(&b, type, 1, NULL);
    return write_built("one", &b);
}

TEST(test_types_that_are_refused)
{
    static const struct {
        struct build_type type;
        const char *says;
    } rows[] = {
        {{"x", 7, 0, 0, 0, 0}, "its column x has decimal numbers, which no tensor has; say with"},
        {{"x", 14, 0, 0, 0, 0}, "its column x is of type union"},
        {{"x", 25, 0, 0, 0, 0}, "its column x is of type list_view"},
        {{"x", 2, 24, 0, 0, 0}, "its column x is of type a number"},
        {{"x", 12, 0, 0, 0, 0}, "its column x is of type list"},
        {{"x", 27, 0, 0, 0, 0}, "its schema is damaged"},
        {{"x", 16, -1, 0, 0, 0}, "its schema is damaged"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = spec_of(one_column(&rows[i].type));
        expect_refused(&spec, rows[i].says);
    }
}

TEST(test_other_columns)
{
    static const struct build_type other[] = {{"id", 2, 32, 1, 0, 0}};
    struct spec_field fields[] = {{"id", "id"}};
    struct spec_dataset spec = spec_of(write_built("first", stream_of(false, 1)));

    paths[1].path = (char *)one_column(other);
    spec.fields = fields;
    spec.n_fields = 1;
    spec.n_files = 2;
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_string_equal(err.path, paths[1].path);
    assert_error_has(&err, "its column id is of another type than in");
}

TEST(test_damaged)
{
    struct build good = *file_of(1);

    for (size_t at = 0; at < good.len; at += 3 * harness_stride()) {
        static struct build bad;
        bad = good;
        bad.data[at] ^= 0x81;
        struct spec_dataset spec = spec_of(write_built("flipped", &bad));
        read_all(&spec);
    }
    good = *stream_of(true, 2);
    for (size_t len = 0; len < good.len; len += 11 * harness_stride()) {
        static struct build cut;
        cut = good;
        cut.len = (uint32_t)len;
        struct spec_dataset spec = spec_of(write_built("cut", &cut));
        read_all(&spec);
    }
}

/* Offsets that go back, and ones that lead out of what they divide. */
TEST(test_offsets)
{
    static const uint32_t bad[][3] = {{0, 3, 2}, {0, 2, 99}, {UINT32_MAX, 0, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct spec_dataset spec = spec_of(media_file(bad[i], features));
        spec.decode = false;
        assert_string_equal(opened_sample(&spec, 0),
                            "error: row 0: its column grid has offsets that point outside its "
                            "data; the file is damaged");
    }
}

/* Each allocation of ours fails once, while batches are opened and read. */
TEST(test_out_of_memory)
{
    struct spec_dataset spec = spec_of(write_built("memory", stream_of(false, 9)));

    expect_memory_failures(&spec, 10);
}

/* ---- FlatBuffers ---------------------------------------------------------------------------- */

TEST(test_flat)
{
    static struct build b;
    struct flat flat = {.data = b.data};
    uint32_t len;

    uint32_t root = build_root(&b, 1, 77);
    build_text(&b, root, 4, "text");
    flat.bytes = b.len;
    struct flat_table table = flat_root(&flat);
    assert_int_equal(flat_int(&flat, &table, 1, 1, 0), 1);
    assert_int_equal(flat_int(&flat, &table, 3, 8, 0), 77);
    assert_int_equal(flat_int(&flat, &table, 2, 8, -5), -5);
    assert_int_equal(flat_int(&flat, &table, 200, 8, -5), -5);
    assert_memory_equal(flat_string(&flat, &table, 4, &len), "text", 4);
    assert_int_equal(len, 4);
    assert_true(!flat_string(&flat, &table, 5, &len) && !flat.bad);
    /* Each shorter buffer: absent, and bad. */
    for (uint32_t bytes = 0; bytes < b.len - 1; bytes++) {
        struct flat cut = {.data = b.data, .bytes = bytes};
        table = flat_root(&cut);
        (void)flat_string(&cut, &table, 4, &len);
        (void)flat_sub(&cut, &table, 4);
        assert_true(cut.bad);
    }
}
