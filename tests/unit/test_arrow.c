/* Arrow IPC: files and streams, columns of each sort, what `datasets` writes, and what is refused.
 */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/arrow/flat.h"
#include "tests/lib/lengths.h"
#include "tests/unit/arrow_case.h"
#include "tests/unit/fail_open.h"

TEST(test_streams_and_files)
{
    expect_built(stream_of(false, 3), "", BOTH " " BOTH " " BOTH);
    expect_built(stream_of(false, 0), "", "");
    write_built("file", file_of(2));
    expect_dataset("{kind: arrow, paths: file}", BOTH " " BOTH);
    write_built("more", stream_of(false, 1));
    expect_dataset("{kind: arrow, paths: [file, more]}", BOTH " " BOTH " " BOTH);
}

/* Columns that are chosen; of numbers and fixed lists alone rows are copied. */
TEST(test_columns)
{
    expect_built(stream_of(false, 1), ", fields: {a: tokens, b: id, c: id}",
                 "{a:int32(2,)[7 8] b:1 c:1} {a:int32(0,) b:-2 c:-2}");
    expect_built(stream_of(false, 1), ", fields: {a: tokens, b: idx}",
                 "...has no column idx; see dataset.fields...");
    expect_built(stream_of(false, 2), ", fields: [flag, id, pair]",
                 "fixed {flag:true id:1 pair:float32(2,)[0.5 1]} "
                 "{flag:false id:-2 pair:float32(2,)[2 4]} "
                 "{flag:true id:1 pair:float32(2,)[0.5 1]} "
                 "{flag:false id:-2 pair:float32(2,)[2 4]}");
    struct dataset *ds = open_dataset("{kind: arrow, paths: t.arrow}", &anywhere);
    assert_name(ds, 3, ": row 3");
    dataset_close(ds);
    expect_built(stream_of(true, 1), ", fields: [flag, id, pair]",
                 "fixed {flag:true id:1 pair:float32(2,)[0.5 1]} "
                 "(t.arrow: row 1: its column flag is null...)");
}

TEST(test_nulls)
{
    expect_built(stream_of(true, 1), "",
                 FIRST " (t.arrow: row 1: its column id is null, or has a null in it; fill nulls "
                       "with dataset.nulls, such as nulls: 0, or choose other columns with "
                       "dataset.fields)");
    expect_built(stream_of(true, 1), ", nulls: 1",
                 FIRST " {id:1 name:\"\" tokens:int32(0,) pair:float32(2,)[1 1] flag:true}");
    expect_built(stream_of(true, 1), ", nulls: 0.5",
                 "dataset.nulls: 0.5 is not a value of the column id, whose numbers are int64...");
}

TEST(test_lengths)
{
    write_built("lengths", stream_of(true, 2));
    struct dataset *ds = open_dataset("{kind: arrow, paths: lengths}", &anywhere);
    uint32_t lengths[4];
    uint64_t bad;
    struct dl_error err = {0};

    for (int named = 0; named < 2; named++) {
        assert_int_equal(
            LENGTHS(ds->ops->lengths, ds, named ? "tokens" : NULL, 0, 4, lengths, &bad, &err), 0);
        assert_int_equal(lengths[0], 2);
        assert_int_equal(lengths[1], LENGTH_UNKNOWN);
        assert_int_equal(lengths[2], 2);
    }
    assert_int_equal(LENGTHS(ds->ops->lengths, ds, "pair", 2, 1, lengths, &bad, &err), 0);
    assert_int_equal(lengths[0], 2);
    assert_int_equal(LENGTHS(ds->ops->lengths, ds, "name", 0, 1, lengths, &bad, &err), -ENOTSUP);
    dataset_close(ds);
}

/* ---- dictionaries --------------------------------------------------------------------------- */

static const struct build_type word_types[] = {{"word", 5, 0, 0, 0, 1}};

static void add_words(struct build *b, const char *text, bool delta)
{
    static struct build_batch batch;

    batch = (struct build_batch){0};
    build_column(&batch, 2, (uint32_t[]){0, 1, 3}, 12);
    build_buffer(&batch, text, 3);
    build_add_dictionary(b, &batch, 2, 0, delta);
}

static void add_indices(struct build *b, int32_t first, int32_t second)
{
    static struct build_batch batch;

    batch = (struct build_batch){0};
    build_column(&batch, 2, (int32_t[]){first, second}, 8);
    build_add_batch(b, &batch, 2);
}

TEST(test_dictionaries)
{
    static struct build b;

    b.len = 0;
    build_add_schema(&b, word_types, 1, NULL);
    add_words(&b, "xab", false);
    add_indices(&b, 1, 0);
    add_words(&b, "ycd", false); /* instead, for what follows */
    add_indices(&b, 0, -1);
    expect_built(&b, "",
                 "{word:\"ab\"} {word:\"x\"} {word:\"y\"} (t.arrow: row 3: its column word has a "
                 "number that is not in its dictionary; the file is damaged)");
    add_words(&b, "zef", true);
    expect_built(&b, "", "...adds to an earlier one...");
    b.len = 0;
    build_add_schema(&b, word_types, 1, NULL);
    add_indices(&b, 0, 0);
    expect_built(&b, "", "...comes before the dictionary...");
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
static const struct build *media_file(const uint32_t inner[static 3], const char *says)
{
    static struct build b;
    static struct build_batch batch;

    b.len = 0;
    batch = (struct build_batch){0};
    build_bare(&batch, 1);
    build_column(&batch, 1, (uint32_t[]){0, 3}, 8);
    build_buffer(&batch, "abc", 3);
    build_node(&batch, 1, 1);
    build_buffer(&batch, "\0", 1);
    build_buffer(&batch, (uint32_t[]){0, 0}, 8);
    build_buffer(&batch, NULL, 0);
    build_column(&batch, 1, (uint32_t[]){0, 2}, 8);
    build_column(&batch, 2, inner, 12);
    build_column(&batch, 4, "\1\2\3\4", 4);
    build_add_schema(&b, media_types, 2, says);
    build_add_batch(&b, &batch, 1);
    return &b;
}

TEST(test_features)
{
    static const uint32_t even[] = {0, 2, 4}, odd[] = {0, 1, 4};

    expect_built(media_file(even, features), "", "...picture is an image that cannot be read...");
    expect_built(media_file(even, features), ", decode: false",
                 "{picture:<abc> grid:uint8(2, 2)[1 2 3 4]}");
    expect_built(media_file(odd, features), ", decode: false",
                 "(t.arrow: row 0: its column grid is not an array: its inner lists have 1 and 3 "
                 "elements...)");
    /* Without features: what the types say. */
    expect_built(media_file(odd, "{\"info\": 3}"), ", nulls: 0",
                 "{picture:{bytes:<abc> path:\"\"} grid:[uint8(1,)[1] uint8(3,)[2 3 4]]}");
    expect_built(media_file(odd, "{\"info\": 3}"), ", nulls: 0, images: [grid]",
                 "...its column grid is of type list, not bytes...");
}

static const struct build_type index_types[] = {{"indices", 2, 64, 0, 0, 0}};

static void write_indices(const char *name, uint64_t first, uint64_t second)
{
    static struct build b;
    static struct build_batch batch;

    b.len = 0;
    batch = (struct build_batch){0};
    build_column(&batch, 2, (uint64_t[]){first, second}, 16);
    build_add_schema(&b, index_types, 1, NULL);
    build_add_batch(&b, &batch, 2);
    harness_file(name, b.data, b.len);
}

/* A directory with what `datasets` writes, step by step: a file, what it holds, and what the
 * directory is then. */
struct step {
    const char *name, *text, *want;
};

static void expect_steps(const char *dataset, const struct step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        harness_text(steps[i].name, steps[i].text);
        expect_dataset(dataset, steps[i].want);
    }
}

TEST(test_saved_to_disk)
{
    static const char saved[] = "{kind: arrow, paths: saved}";
    static const struct step steps[] = {
        {"saved/none", "", "...is a directory without state.json..."},
        {"saved/state.json",
         "{\"_data_files\": [{\"filename\": \"a.arrow\"}, {\"filename\": \"b.arrow\"}]}",
         BOTH " " BOTH},
        {"saved/state.json", "{\"_data_files\": [{\"filename\": \"../a.arrow\"}]}",
         "...names a file that is not in the directory..."},
        {"saved/state.json", "{\"_data_files\": []}", "...has no _data_files..."},
        {"saved/state.json", "{", "...is not JSON..."},
        {"saved/state.json",
         "{\"_data_files\": [{\"filename\": \"b.arrow\"}], \"_indices_data_files\": "
         "[{\"filename\": "
         "\"i.arrow\"}]}",
         SECOND " " FIRST},
    };

    write_built("saved/a.arrow", stream_of(false, 1));
    write_built("saved/b.arrow", stream_of(false, 1));
    write_indices("saved/i.arrow", 1, 0);
    expect_steps(saved, steps, ARRAY_SIZE(steps));
    write_indices("saved/i.arrow", 0, 2);
    expect_dataset(saved, FIRST " (...: index 1 is row 2, but there are 2 rows...)");
    write_built("saved/i.arrow", stream_of(false, 1));
    expect_dataset(saved, "...is not a list of indices...");
}

TEST(test_cached)
{
    static const struct step steps[] = {
        {"cached/dataset_info.json",
         "{\"splits\": {\"train\": {\"dataset_name\": \"d\", \"num_examples\": 2}}}", BOTH},
        {"cached/dataset_info.json",
         "{\"splits\": {\"train\": {\"dataset_name\": \"d\", \"shard_lengths\": [2, 2]}}}",
         BOTH " " BOTH},
        {"cached/dataset_info.json", "{\"splits\": {\"train\": {}, \"test\": {}}}",
         "...is a cache of the splits train, test; name the files of one..."},
    };
    static const struct step dicts[] = {
        {"dict/dataset_dict.json", "{\"splits\": [\"train\", \"test\"]}",
         "dict: is a DatasetDict of train, test; name the directory of one...dict/train..."},
        {"dict/dataset_dict.json", "{\"splits\": [1]}",
         "dict: is a DatasetDict of ?; name the directory of one.../dict/train..."},
        {"dict/dataset_dict.json", "{\"splits\": []}",
         "dict: is a DatasetDict of (none); name the directory of one, such as ..."},
        {"dict/dataset_dict.json", "{\"splits\": [\"\\ud83d\\ude00\"]}",
         "dict: is a DatasetDict of \xF0\x9F\x98\x80; name the directory of one..."},
    };

    write_built("cached/d-train.arrow", stream_of(false, 1));
    write_built("cached/d-train-00000-of-00002.arrow", stream_of(false, 1));
    write_built("cached/d-train-00001-of-00002.arrow", stream_of(false, 1));
    expect_steps("{kind: arrow, paths: cached}", steps, ARRAY_SIZE(steps));
    expect_steps("{kind: arrow, paths: dict}", dicts, ARRAY_SIZE(dicts));
}

/* ---- what is refused ------------------------------------------------------------------------ */

static const struct build *one_column(const struct build_type *type)
{
    static struct build b;

    b.len = 0;
    build_add_schema(&b, type, 1, NULL);
    return &b;
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
        char want[128];
        snprintf(want, sizeof want, "...t.arrow: %s...", rows[i].says);
        expect_built(one_column(&rows[i].type), "", want);
    }
}

TEST(test_other_columns)
{
    static const struct build_type other[] = {{"id", 2, 32, 1, 0, 0}};

    write_built("first", stream_of(false, 1));
    write_built("second", one_column(other));
    expect_dataset("{kind: arrow, paths: [first, second], fields: [id]}",
                   "second: ...its column id is of another type than in...");
}

TEST(test_damaged)
{
    static struct build good, bad;

    good = *file_of(1);
    for (size_t at = 0; at < good.len; at += 3 * harness_stride()) {
        bad = good;
        bad.data[at] ^= 0x81;
        read_damaged(&bad);
    }
    good = *stream_of(true, 2);
    for (size_t len = 0; len < good.len; len += 11 * harness_stride()) {
        bad = good;
        bad.len = (uint32_t)len;
        read_damaged(&bad);
    }
}

/* Offsets that go back, and ones that lead out of what they divide. */
TEST(test_offsets)
{
    static const uint32_t bad[][3] = {{0, 3, 2}, {0, 2, 99}, {UINT32_MAX, 0, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        expect_built(media_file(bad[i], features), ", decode: false",
                     "(t.arrow: row 0: its column grid has offsets that point outside its data; "
                     "the file is damaged)");
}

/* Each allocation of ours fails once, while batches are opened and read. */
TEST(test_out_of_memory)
{
    write_built("memory", stream_of(false, 9));
    expect_failures_of("{kind: arrow, paths: memory}", 10);
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
