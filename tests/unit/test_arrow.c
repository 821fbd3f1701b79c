/* Arrow IPC: files and streams, columns of each sort, what `datasets` writes, and what is refused.
 */
#include "daemon/data/arrow/arrow.h"
#include "daemon/data/arrow/flat.h"
#include "daemon/data/lengths.h"
#include "tests/lib/arrow_build.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/taken.h"

#include <errno.h>
#include <sys/stat.h>

static const struct sample_key key;
static struct spec_file paths[2];

/* ---- what is read --------------------------------------------------------------------------- */

static struct spec_dataset spec_of(const char *path)
{
    paths[0].path = (char *)path;
    return (struct spec_dataset){.kind = DATASET_ARROW,
                                 .files = paths,
                                 .n_files = 1,
                                 .decode = true,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

static void expect_refused(const struct spec_dataset *spec, const char *says)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_true(dataset_open(spec, &anywhere, &ds, &err) < 0);
    assert_error_has(&err, says);
    assert_true(strstr(err.path, spec->files[0].path) || strncmp(err.path, "dataset.", 8) == 0);
}

static void say_leaf(const struct tree_node *node, const void *data, char **at)
{
    static const char *const kinds[] = {[TREE_STRING] = "string", [TREE_BYTES] = "bytes"};

    if (node->kind == TREE_DICT || node->kind == TREE_LIST) {
        *at += sprintf(*at, "%s %u; ", node->kind == TREE_DICT ? "dict" : "list", node->children);
        return;
    }
    *at +=
        sprintf(*at, "%s", node->kind == TREE_TENSOR ? dtype_name(node->dtype) : kinds[node->kind]);
    for (uint32_t i = 0; node->kind == TREE_TENSOR && i < node->ndim; i++)
        *at += sprintf(*at, "%c%d", i ? ',' : ' ', (int)node->shape[i]);
    for (uint64_t i = 0; i < node->nbytes; i++)
        *at += sprintf(*at, "%s%02x", i ? "" : " ", ((const uint8_t *)data)[i]);
    *at += sprintf(*at, "; ");
}

/* All nodes below the root, or the error. */
static const char *sample_of(struct dataset *ds, uint64_t i)
{
    static char text[16384];
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    char *at = text;

    text[0] = '\0';
    if (dataset_get(ds, &key, i, &sample, &err) < 0)
        snprintf(text, sizeof text, "error: %s", err.message);
    else
        for (uint32_t n = 1; n < sample.tree.count; n++)
            say_leaf(&sample.tree.nodes[n], sample.data[n], &at);
    sample_deinit(&sample);
    arena_deinit(&arena);
    return text;
}

static const char *opened_sample(const struct spec_dataset *spec, uint64_t i)
{
    struct dataset *ds = must_open(spec);
    const char *text = sample_of(ds, i);

    dataset_close(ds);
    return text;
}

static const char *write_built(const char *name, const struct build *b)
{
    static char path[2][4200];
    static unsigned turn;

    harness_file(name, b->data, b->len);
    snprintf(path[++turn % 2], sizeof path[0], "%s/%s", harness_tmpdir(), name);
    return path[turn % 2];
}

/* ---- a table -------------------------------------------------------------------------------- */

static const struct build_type types[] = {
    {"id", 2, 64, 1, 0, 0},   {"name", 5, 0, 0, 0, 0},  {"tokens", 12, 0, 0, 1, 0},
    {"item", 2, 32, 1, 0, 0}, {"pair", 16, 2, 0, 1, 0}, {"item", 3, 1, 0, 0, 0},
    {"flag", 6, 0, 0, 0, 0},
};
enum { COLUMNS = 5 };

/* Rows {1, "ab", [7, 8], [0.5, 1], true} and {-2, "", [], [2, 4], false}; `nulls`: the last is all
 * null. Offsets begin at `skip`, as those of slices do. */
static struct build_batch *rows_of(bool nulls, uint32_t skip)
{
    static struct build_batch batch;
    const int64_t ids[] = {1, -2};
    const uint32_t names[] = {skip, skip + 2, skip + 2};
    const int32_t tokens[] = {7, 8};
    const uint8_t valid[] = {1}, flags[] = {1};
    const float pairs[] = {0.5F, 1, 2, 4};
    char text[64] = {0};

    batch = (struct build_batch){0};
    memcpy(text + skip, "ab", 2);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, ids, sizeof ids);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, names, sizeof names);
    build_buffer(&batch, text, skip + 2);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, (uint32_t[]){0, 2, 2}, 12);
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, tokens, sizeof tokens);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_node(&batch, 4, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, pairs, sizeof pairs);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, flags, 1);
    return &batch;
}

#define FIRST                                                                                     \
    "int64 0100000000000000; string 6162; int32 2 0700000008000000; float32 2 0000003f0000803f; " \
    "bool 01; "
#define SECOND "int64 feffffffffffffff; string; int32 0; float32 2 0000004000008040; bool 00; "

static struct build *stream_of(bool nulls, uint32_t batches)
{
    static struct build b;

    b = (struct build){.len = 0};
    build_add_schema(&b, types, COLUMNS, NULL);
    for (uint32_t i = 0; i < batches; i++)
        build_add_batch(&b, rows_of(nulls, i), 2);
    return &b;
}

static struct build *file_of(uint32_t batches)
{
    static struct build b;
    uint32_t at[8];

    b = (struct build){.len = 0};
    build_put(&b, "ARROW1\0", 8);
    build_add_schema(&b, types, COLUMNS, NULL);
    for (uint32_t i = 0; i < batches; i++)
        at[i] = build_add_batch(&b, rows_of(false, 0), 2);
    build_put(&b, "\xff\xff\xff\xff\0\0\0", 8);
    build_add_footer(&b, types, COLUMNS, at, batches);
    return &b;
}

static void expect_rows(const struct spec_dataset *spec, uint64_t n)
{
    struct dataset *ds = must_open(spec);
    struct sample sample = {0};

    assert_int_equal(ds->length, n);
    for (uint64_t i = n; i-- > 0;) {
        assert_string_equal(sample_of(ds, i), i % 2 ? SECOND : FIRST);
        dataset_expect(ds, i);
    }
    assert_int_equal(ds->ops->get(ds, &key, n, &sample, NULL), -ERANGE);
    dataset_expect(ds, n);
    dataset_close(ds);
}

static void test_streams_and_files(void **state)
{
    struct spec_dataset spec = spec_of(write_built("stream", stream_of(false, 3)));

    (void)state;
    expect_rows(&spec, 6);
    spec = spec_of(write_built("file", file_of(2)));
    expect_rows(&spec, 4);
    paths[1].path = (char *)write_built("more", stream_of(false, 1));
    spec.n_files = 2;
    expect_rows(&spec, 6);
    spec = spec_of(write_built("empty", stream_of(false, 0)));
    expect_rows(&spec, 0);
}

static void test_columns_are_chosen(void **state)
{
    struct spec_field fields[] = {{"a", "tokens"}, {"b", "id"}, {"c", "id"}};
    struct spec_dataset spec = spec_of(write_built("chosen", stream_of(false, 1)));

    (void)state;
    spec.fields = fields;
    spec.n_fields = 3;
    assert_string_equal(opened_sample(&spec, 0),
                        "int32 2 0700000008000000; int64 0100000000000000; "
                        "int64 0100000000000000; ");
    fields[1].source = (char *)"idx";
    expect_refused(&spec, "has no column idx; see dataset.fields");
}

/* Numbers and fixed lists alone: their rows are copied. */
static void test_rows_of_one_shape(void **state)
{
    struct spec_field fields[] = {{"flag", "flag"}, {"id", "id"}, {"pair", "pair"}};
    struct spec_dataset spec = spec_of(write_built("fixed", stream_of(false, 2)));
    const uint64_t indices[] = {3, 0};
    struct dl_error err = {0};
    bool flags[2];
    int64_t ids[2];
    float pairs[4];
    size_t bad;

    (void)state;
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

static void test_nulls(void **state)
{
    struct spec_dataset spec = spec_of(write_built("nulls", stream_of(true, 1)));

    (void)state;
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

static void test_lengths(void **state)
{
    struct spec_dataset spec = spec_of(write_built("lengths", stream_of(true, 2)));
    struct dataset *ds = must_open(&spec);
    uint32_t lengths[4];
    uint64_t bad;
    struct dl_error err = {0};

    (void)state;
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

static void test_dictionaries(void **state)
{
    static struct build b;
    struct spec_dataset spec;

    (void)state;
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

static void test_features(void **state)
{
    struct spec_dataset spec = spec_of(media_file((uint32_t[]){0, 2, 4}, features));

    (void)state;
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

static void test_saved_to_disk(void **state)
{
    struct spec_dataset spec;
    const struct build *b = stream_of(false, 1);

    (void)state;
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

static void test_cached(void **state)
{
    struct spec_dataset spec;
    const struct build *b = stream_of(false, 1);

    (void)state;
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
}

/* ---- what is refused ------------------------------------------------------------------------ */

static const char *one_column(const struct build_type *type)
{
    static struct build b;

    b.len = 0;
    build_add_schema(&b, type, 1, NULL);
    return write_built("one", &b);
}

static void test_types_that_are_refused(void **state)
{
    static const struct {
        struct build_type type;
        const char *says;
    } rows[] = {
        {{"x", 7, 0, 0, 0, 0}, "its column x is of type decimal, which cannot be read"},
        {{"x", 1, 0, 0, 0, 0}, "its column x is of type null"},
        {{"x", 14, 0, 0, 0, 0}, "its column x is of type union"},
        {{"x", 25, 0, 0, 0, 0}, "its column x is of type list_view"},
        {{"x", 2, 24, 0, 0, 0}, "its column x is of type a number"},
        {{"x", 12, 0, 0, 0, 0}, "its column x is of type list"},
        {{"x", 27, 0, 0, 0, 0}, "its schema is damaged"},
        {{"x", 16, -1, 0, 0, 0}, "its schema is damaged"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = spec_of(one_column(&rows[i].type));
        expect_refused(&spec, rows[i].says);
    }
}

static void test_other_columns(void **state)
{
    static const struct build_type other[] = {{"id", 2, 32, 1, 0, 0}};
    struct spec_field fields[] = {{"id", "id"}};
    struct spec_dataset spec = spec_of(write_built("first", stream_of(false, 1)));

    (void)state;
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

/* As LZ4's frame of one block that is not compressed; the sum is of the head's two bytes. */
static size_t make_frame(const uint8_t *data, uint32_t len, uint8_t *out)
{
    uint32_t block = len | 0x80000000;

    memcpy(out, "\x04\x22\x4d\x18\x60\x40\x82", 7);
    memcpy(out + 7, &block, 4);
    memcpy(out + 11, data, len);
    memset(out + 11 + len, 0, 4);
    return 15 + len;
}

/* Every other buffer by a frame, the others as they are, each behind its length. */
static const struct build_batch *packed_of(const struct build_batch *plain)
{
    static struct build_batch batch;

    batch = (struct build_batch){.n_nodes = plain->n_nodes};
    memcpy(batch.nodes, plain->nodes, sizeof batch.nodes);
    for (uint32_t i = 0; i < plain->n_buffers; i++) {
        const uint8_t *data = plain->body.data + plain->buffers[2 * i];
        int64_t len = plain->buffers[2 * i + 1], head = i % 2 ? -1 : len;
        uint8_t out[256];
        memcpy(out, &head, 8);
        memcpy(out + 8, data, (size_t)len);
        if (len == 0)
            build_buffer(&batch, NULL, 0);
        else if (i % 2 == 0)
            build_buffer(&batch, out, 8 + make_frame(data, (uint32_t)len, out + 8));
        else
            build_buffer(&batch, out, 8 + (size_t)len);
    }
    return &batch;
}

/* Batches that say they are compressed by `codec`: 0 lz4, 1 zstd. */
static struct build *packed_stream(const struct build_batch *batch, int codec, int batches)
{
    static struct build b, m;

    b.len = 0;
    build_add_schema(&b, types, COLUMNS, NULL);
    for (int i = 0; i < batches; i++) {
        m.len = 0;
        uint32_t root = build_root(&m, 3, batch->body.len), records = build_records(&m, batch, 2);
        build_ref(&m, root, 2, records);
        uint32_t compression = build_table(&m);
        build_int(&m, compression, 0, codec);
        build_ref(&m, records, 3, compression);
        build_message(&b, &m, &batch->body);
    }
    return &b;
}

static void test_compressed(void **state)
{
    static struct spec_field field = {(char *)"x", (char *)"tokens"};
    struct spec_dataset spec =
        spec_of(write_built("packed", packed_stream(packed_of(rows_of(false, 0)), 0, 3)));

    (void)state;
    expect_rows(&spec, 6); /* one batch is kept at a time */
    spec.cache = 1 << 20;
    expect_rows(&spec, 6);
    spec.fields = &field;
    spec.n_fields = 1;
    assert_string_equal(opened_sample(&spec, 0), "int32 2 0700000008000000; ");
    spec = spec_of(write_built("raw", packed_stream(rows_of(false, 0), 0, 1)));
    assert_non_null(strstr(opened_sample(&spec, 0), "does not have the buffers of its schema's"));
    struct build_batch bad = *packed_of(rows_of(false, 0));
    uint8_t *text = bad.body.data + bad.buffers[2 * 4];
    text[8] ^= 1; /* of the frame's mark */
    spec = spec_of(write_built("mark", packed_stream(&bad, 0, 1)));
    assert_non_null(strstr(opened_sample(&spec, 0), "has a buffer that cannot be unpacked; it is"));
    text[5] = 1; /* of its length */
    spec = spec_of(write_built("large", packed_stream(&bad, 0, 1)));
    assert_non_null(
        strstr(opened_sample(&spec, 0), "claims to unpack to more than its compressed bytes can"));
    text[5] = 0;
    spec = spec_of(write_built("zstd", packed_stream(&bad, 1, 1)));
    assert_non_null(strstr(opened_sample(&spec, 0), "unpack"));
    spec = spec_of(write_built("other", packed_stream(rows_of(false, 0), 7, 1)));
    assert_non_null(strstr(opened_sample(&spec, 0), "has no metadata that can be read"));
}

/* The sample or an error; what is read of a damaged file is in it, or the sanitizers tell. */
static void read_all(const struct spec_dataset *spec)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    int r = dataset_open(spec, &anywhere, &ds, &err);

    if (r < 0) {
        assert_int_equal(r, -err.code);
        assert_non_null(strstr(err.path, spec->files[0].path));
        return;
    }
    for (uint64_t i = 0; i < min_u64(ds->length, 8); i++)
        (void)sample_of(ds, i);
    dataset_close(ds);
}

/* What is compressed as well: a length that is another one allocates nothing that cannot be. */
static void test_damaged_packed(void **state)
{
    struct build good = *packed_stream(packed_of(rows_of(true, 0)), 0, 1);

    (void)state;
    for (size_t at = 0; at < good.len; at += harness_stride()) {
        static struct build bad;
        bad = good;
        bad.data[at] ^= at % 2 ? 0x81 : 0x10;
        struct spec_dataset spec = spec_of(write_built("flipped", &bad));
        read_all(&spec);
    }
}

static void test_damaged(void **state)
{
    struct build good = *file_of(1);

    (void)state;
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
static void test_offsets(void **state)
{
    static const uint32_t bad[][3] = {{0, 3, 2}, {0, 2, 99}, {UINT32_MAX, 0, 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct spec_dataset spec = spec_of(media_file(bad[i], features));
        spec.decode = false;
        assert_string_equal(opened_sample(&spec, 0),
                            "error: row 0: its column grid has offsets that point outside its "
                            "data; the file is damaged");
    }
}

/* Each allocation of ours fails once, while plain and compressed batches are opened and read. */
static void test_out_of_memory(void **state)
{
    struct spec_dataset spec = spec_of(write_built("memory", stream_of(false, 9)));

    (void)state;
    expect_memory_failures(&spec, 10);
    spec = spec_of(write_built("memory", packed_stream(packed_of(rows_of(false, 0)), 0, 2)));
    expect_memory_failures(&spec, 10);
}

/* ---- FlatBuffers ---------------------------------------------------------------------------- */

static void test_flat(void **state)
{
    static struct build b;
    struct flat flat = {.data = b.data};
    uint32_t len;

    (void)state;
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_streams_and_files),
    cmocka_unit_test(test_columns_are_chosen),
    cmocka_unit_test(test_rows_of_one_shape),
    cmocka_unit_test(test_nulls),
    cmocka_unit_test(test_lengths),
    cmocka_unit_test(test_dictionaries),
    cmocka_unit_test(test_features),
    cmocka_unit_test(test_saved_to_disk),
    cmocka_unit_test(test_cached),
    cmocka_unit_test(test_types_that_are_refused),
    cmocka_unit_test(test_other_columns),
    cmocka_unit_test(test_compressed),
    cmocka_unit_test(test_damaged),
    cmocka_unit_test(test_damaged_packed),
    cmocka_unit_test(test_offsets),
    cmocka_unit_test(test_out_of_memory),
    cmocka_unit_test(test_flat),
};

TEST_MAIN(tests)
