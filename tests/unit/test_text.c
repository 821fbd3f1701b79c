/* Text: where lines begin and end, fields of JSON lines, bytes as tokens, and what is refused. */
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/text/text_lines.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_alloc.h"

static const struct sample_key key;
static struct spec_file files[8];

static struct spec_dataset text_of(uint32_t n, enum text_format format, enum tokenizer tokenizer)
{
    return (struct spec_dataset){.kind = DATASET_TEXT,
                                 .files = files,
                                 .n_files = n,
                                 .format = format,
                                 .tokenizer = tokenizer};
}

/* 0 or the error; the sample's one leaf as text, owned. */
static int take_text(struct dataset *ds, uint64_t index, struct taken *t, char **ret)
{
    int r = take(ds, &key, index, t);

    *ret = NULL;
    if (r == 0) {
        assert_int_equal(t->sample.tree.count, 2);
        assert_int_equal(t->sample.tree.nodes[0].kind, TREE_DICT);
        assert_int_equal(t->sample.tree.nodes[1].kind, TREE_STRING);
        assert_memory_equal(t->sample.tree.keys, "text", 4);
        *ret = strndup(t->sample.data[1], t->sample.tree.nodes[1].nbytes);
    }
    return r;
}

static void expect_text(struct dataset *ds, uint64_t index, const char *want)
{
    _cleanup_free_ char *got = NULL;
    struct taken t;

    if (take_text(ds, index, &t, &got) < 0)
        fail_msg("%s: %s", t.err.path, t.err.message);
    assert_string_equal(got, want);
    drop(&t);
}

static void expect_refusal(struct dataset *ds, uint64_t index, const char *path, const char *says)
{
    _cleanup_free_ char *got = NULL;
    struct taken t;

    assert_true(take_text(ds, index, &t, &got) < 0);
    assert_error_has(&t.err, says);
    assert_string_equal(t.err.path, path);
    drop(&t);
}

enum { MOST = 6 };

/* As Python's open() has them, by its universal newlines. */
TEST(test_lines)
{
    static const struct {
        const char *text;
        const char *want[MOST];
    } rows[] = {
        {"", {NULL}},
        {"a", {"a"}},
        {"a\n", {"a"}},
        {"\n", {""}},
        {"\r\n", {""}},
        {"\n\n\n", {"", "", ""}},
        {"a\nb", {"a", "b"}},
        {"a\r\nb\r\n", {"a", "b"}},
        {"a\r\n\nb\n\r\n", {"a", "", "b", ""}},
        {"a\rb\rc", {"a", "b", "c"}},
        {"a\rb\nc\r", {"a", "b", "c"}},
        {"\r", {""}},
        {"\r\r", {"", ""}},
        {"a\r\r\n", {"a", ""}},
        {"\n\r", {"", ""}},
        {"\r\n\r", {"", ""}},
        {"a\rb\r\nc\nd", {"a", "b", "c", "d"}},
        {"\xEF\xBB\xBF\r\na", {"", "a"}},
        {" a \n\t\n", {" a ", "\t"}},
        {"\xEF\xBB\xBF", {NULL}},
        {"\xEF\xBB\xBF"
         "a\n\xEF\xBB\xBF"
         "b",
         {"a", "\xEF\xBB\xBF"
               "b"}},
        {"caf\xC3\xA9\n\xF0\x9F\x98\x80", {"caf\xC3\xA9", "\xF0\x9F\x98\x80"}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t n = 0;
        files[0].path = (char *)harness_text("lines.txt", rows[i].text);
        struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);
        struct dataset *ds = must_open(&spec);
        for (; n < MOST && rows[i].want[n]; n++) {
            assert_true(n < ds->length);
            expect_text(ds, n, rows[i].want[n]);
            dataset_expect(ds, n);
        }
        assert_int_equal(ds->length, n);
        expect_refusal(ds, n, "", "is beyond the dataset's");
        dataset_close(ds);
    }
}

TEST(test_json)
{
    static const struct {
        const char *line;
        const char *want; /* NULL: refused */
        const char *says;
    } rows[] = {
        {"{\"text\": \"a\"}", "a", NULL},
        {"{\"text\":\r\"b\"}\r\r", "b", NULL}, /* where CR is space */
        {"\t {\"n\": 1, \"text\": \"\", \"m\": {\"text\": \"b\"}} \r", "", NULL},
        {"{\"text\": \"\\u00e9\\n\\\\\"}", "\xC3\xA9\n\\", NULL},
        {"{\"text\": \"a\", \"text\": \"b\"}", "b", NULL},
        {"{\"text\": 3}", NULL, "its field \"text\" is not a string; set dataset.field"},
        {"{\"text\": null}", NULL, "its field \"text\" is not a string"},
        {"{\"Text\": \"a\"}", NULL, "has no field \"text\"; set dataset.field"},
        {"{}", NULL, "has no field \"text\""},
        {"[\"a\"]", NULL, "is JSON, but not an object; each line must be one"},
        {"{\"text\": \"a\"", NULL, "is not JSON ("},
        {"{\"text\": \"a\"} {}", NULL, "each line must be one object"},
        {"text", NULL, "is not JSON ("},
        {"{\"text\": \"\xFF\"}", NULL, "is not JSON ("},
        {"{\"text\": \"\\ud800\"}", NULL, "is not JSON ("},
    };
    char text[4096] = "\xEF\xBB\xBF \n\n", where[32];
    static const char *const names[] = {"a.jsonl", "a.NDJSON", "a.json"};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        strcat(text, rows[i].line);
        strcat(text, "\n\r\n \t\n");
    }
    for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
        files[0].path = (char *)harness_text(names[k], text);
        struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);
        struct dataset *ds = must_open(&spec);
        assert_int_equal(ds->length, ARRAY_SIZE(rows));
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
            snprintf(where, sizeof where, "line %zu", 3 + 3 * i);
            if (rows[i].want) {
                expect_text(ds, i, rows[i].want);
            } else {
                expect_refusal(ds, i, files[0].path, where);
                expect_refusal(ds, i, files[0].path, rows[i].says);
            }
        }
        dataset_close(ds);
    }
}

#define BODY "{\"text\": \"a\", \"body\": \"b\"}"

/* Formats; then a text with a label, numbers: each under its name, and tokens in the text's place;
 * then what is refused. */
static const struct {
    const char *file, *line, *keys, *want;
} fields[] = {
    {"f.jsonl", BODY, "field: body", "{text:\"b\"}"},
    {"f.jsonl", BODY, "format: lines", "{text:\"" BODY "\"}"},
    {"f.txt", BODY, "format: json, field: body", "{text:\"b\"}"},

    {"f.jsonl", "{\"y\": 7, \"body\": \"abc\", \"more\": null}\n", "fields: {label: y, text: body}",
     "{label:7 text:\"abc\"}"},
    {"f.jsonl", "{\"y\": 7, \"body\": \"abc\", \"more\": null}\n",
     "fields: {label: y, text: body}, tokenizer: bytes", "{label:7 tokens:int64(3,)[97 98 99]}"},
    {"f.jsonl", "{\"text\": \"\"}", "fields: [text]", "{text:\"\"}"},
    {"f.jsonl", "{\"text\": 3}", "fields: [text]", "{text:3}"},
    {"f.jsonl", "{\"y\": \"z\", \"body\": \"\"}", "fields: {label: y, text: body}",
     "{label:\"z\" text:\"\"}"},
    {"f.jsonl", "{\"body\": \"abc\"}", "fields: {label: y, text: body}",
     "(f.jsonl: line 1 has no field \"y\", which dataset.fields lists...)"},
    {"f.jsonl", "{\"y\": null, \"body\": \"\"}", "fields: {label: y, text: body}",
     "(f.jsonl: line 1 has null at \"label\", which a batch cannot hold; leave the field out of "
     "dataset.fields...)"},
    {"f.jsonl", "{\"y\": {\"a\": [1, null]}, \"body\": \"\"}", "fields: {label: y, text: body}",
     "(f.jsonl: line 1 has null at \"label.a[1]\"...)"},
    {"f.jsonl", "{\"y\": 1, \"body\": 2}", "fields: {label: y, text: body}, tokenizer: bytes",
     "(f.jsonl: line 1: its field \"body\" is not a string...)"},

    {"f.jsonl", "{}\n", "tokenizer: bytes, fields: {label: y}",
     "dataset.field: text is not one of dataset.fields; add it to them..."},
    {"f.jsonl", "{}\n", "tokenizer: bytes, fields: {text: body, tokens: n}",
     "dataset.fields: tokens is already made from the field text..."},
    {"f.txt", "{}\n", "fields: {label: y}",
     "f.txt: is read as plain lines, which have no fields..."},

    {"f.txt", "a\nb\n\xC3\n", "format: auto",
     "{text:\"a\"} {text:\"b\"} (EILSEQ f.txt: line 3 is not UTF-8; convert the file with "
     "iconv...)"},
    {"f.txt", "a\xFFz\n\ncd", "tokenizer: bytes",
     "{tokens:int64(3,)[97 255 122]} {tokens:int64(0,)} {tokens:int64(2,)[99 100]}"},
    {"f.txt", "a\xFFz\n\ncd", "tokenizer: bytes, max_length: 1",
     "{tokens:int64(1,)[97]} {tokens:int64(0,)} {tokens:int64(1,)[99]}"},
    {"f.txt", "a\xFFz\n\ncd", "tokenizer: bytes, max_length: 2",
     "{tokens:int64(2,)[97 255]} {tokens:int64(0,)} {tokens:int64(2,)[99 100]}"},
};

TEST(test_fields)
{
    char text[512];

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        harness_text(fields[i].file, fields[i].line);
        snprintf(text, sizeof text, "{kind: text, paths: %s, %s}", fields[i].file, fields[i].keys);
        expect_dataset(text, fields[i].want);
    }
    harness_file("nul.txt", "a\0b\n", 4);
    expect_dataset("{kind: text, paths: nul.txt, tokenizer: bytes}", "{tokens:int64(3,)[97 0 98]}");
}

/* NUL is a character like others; and a string lives until its arena is cleared. */
TEST(test_json_strings_stay)
{
    const char *line = "{\"text\": \"a\\u0000b\"}\n{\"text\": \"second\"}\n";
    struct arena arena = {0};
    struct sample a = {.arena = &arena}, b = {.arena = &arena};
    struct dl_error err = {0};

    files[0].path = (char *)harness_text("n.jsonl", line);
    struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(dataset_get(ds, &key, 0, &a, &err), 0);
    assert_int_equal(dataset_get(ds, &key, 1, &b, &err), 0);
    assert_int_equal(a.tree.nodes[1].nbytes, 3);
    assert_memory_equal(a.data[1], "a\0b", 3);
    assert_memory_equal(b.data[1], "second", 6);
    sample_deinit(&a);
    sample_deinit(&b);
    arena_deinit(&arena);
    dataset_close(ds);
}

TEST(test_files_in_order)
{
    static const char *const contents[] = {"", "a\nb", "", "", "c\n", "d\ne\nf\n", ""};
    static const char want[] =
        "{text:\"a\"} {text:\"b\"} {text:\"c\"} {text:\"d\"} {text:\"e\"} {text:\"f\"}";

    for (uint32_t i = 0; i < ARRAY_SIZE(contents); i++) {
        char name[16];
        snprintf(name, sizeof name, "o-%u", i);
        harness_text(name, contents[i]);
    }
    expect_dataset("{kind: text, paths: [o-0, o-1, o-2, o-3, o-4, o-5, o-6]}", want);
    expect_dataset("{kind: text, paths: 'o-?'}", want);
}

TEST(test_refusals)
{
    uint8_t packed[100];

    harness_file("g.txt", packed, make_gzip("a\n", 2, packed, 100));
    expect_dataset("{kind: text, paths: g.txt}",
                   "g.txt: is compressed by gzip; unpack it with gunzip, so that its lines can be "
                   "read in place");
    expect_dataset("{kind: text, paths: /nonexistent/x}", "ENOENT /nonexistent/x: ...");
    expect_dataset("{kind: text, paths: .}", "EISDIR ...");

    struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    files[0].path = NULL;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    spec.n_files = 0;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_null(ds);
}

/* A string of a plain file is used where it is mapped: nothing is taken from the arena. */
TEST(test_no_copy)
{
    struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);
    _cleanup_free_ char *got = NULL;
    struct taken t;

    files[0].path = (char *)harness_file("c.txt", "abc\n", 4);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(take_text(ds, 0, &t, &got), 0);
    assert_null(t.arena.chunks);
    drop(&t);
    dataset_close(ds);
}

/* What text_lines.h says of memory; and distances of every width come back. */
TEST(test_table)
{
    static const struct {
        uint64_t line; /* bytes of each, with LF */
        uint64_t lines;
        double bytes_each;
    } rows[] = {{1, 1000, 1.3},     {4, 64000, 1.26}, {80, 64000, 2.26},
                {1000, 6400, 2.26}, {5000, 640, 3.3}, {300000, 128, 4.3}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t bytes = rows[i].line * rows[i].lines;
        _cleanup_free_ uint8_t *text = malloc(bytes);
        struct line_table table;

        memset(text, 'x', bytes);
        for (uint64_t k = 0; k < rows[i].lines; k++)
            text[(k + 1) * rows[i].line - 1] = '\n';
        assert_int_equal(line_table_make(text, bytes, false, &table), 0);
        assert_int_equal(table.n, rows[i].lines);
        for (uint64_t k = 0; k < table.n; k++) {
            struct line line = line_at(&table, k);
            assert_ptr_equal(line.text, text + k * rows[i].line);
            assert_int_equal(line.bytes, rows[i].line - 1);
        }
        double each = (double)(table.packed_bytes + 16 * table.n_groups) / (double)table.n;
        assert_true(each <= rows[i].bytes_each);
        line_table_deinit(&table);
    }
}

/* All lines of a real file, against getline(). */
static void compare_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    uint64_t n = 0;
    ssize_t len;

    assert_non_null(file);
    files[0].path = (char *)path;
    struct spec_dataset spec = text_of(1, TEXT_LINES, TOKENIZER_NONE);
    struct dataset *ds = must_open(&spec);
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    while ((len = getline(&line, &room, file)) >= 0) {
        struct dl_error err = {0};
        if (len > 0 && line[len - 1] == '\n')
            len--;
        if (dataset_get(ds, &key, n++, &sample, &err) < 0)
            fail_msg("%s: %s", err.path, err.message);
        assert_int_equal(sample.tree.nodes[1].nbytes, len);
        assert_memory_equal(sample.data[1], line, len);
        sample_clear(&sample);
    }
    assert_int_equal(ds->length, n);
    assert_true(n > 100);
    print_message("# %s: %llu lines\n", path, (unsigned long long)n);
    free(line);
    fclose(file);
    sample_deinit(&sample);
    arena_deinit(&arena);
    dataset_close(ds);
}

TEST(test_real_dictionary)
{
    const char *path = "/usr/share/dictd/gcide.index";

    if (access(path, R_OK) != 0) {
        print_message("# skipped: no %s (Debian: dict-gcide)\n", path);
        return;
    }
    compare_file(path);
}

TEST(test_real_documents)
{
    static const char *const packed[] = {"/usr/share/doc/linux-doc/CREDITS.gz",
                                         "/usr/share/doc/linux-doc/MAINTAINERS.gz"};
    const size_t room = 8 << 20;

    for (size_t i = 0; i < ARRAY_SIZE(packed); i++) {
        if (access(packed[i], R_OK) != 0) {
            print_message("# skipped: no %s (Debian: linux-doc)\n", packed[i]);
            continue;
        }
        _cleanup_free_ char *text = malloc(room);
        gzFile gz = gzopen(packed[i], "rb");
        int len = gzread(gz, text, (unsigned)room);
        gzclose(gz);
        assert_in_range(len, 1, room - 1);
        compare_file(harness_file("doc.txt", text, (size_t)len));
    }
}

/* Each allocation fails once; nothing leaks, and every failure is told. */
TEST(test_memory)
{
    _cleanup_free_ char *text = malloc(40000);
    int r = -ENOMEM, k = 0;

    memset(text, '\n', 40000);
    memcpy(text + 20000, "{\"text\": \"a\"}", 13);
    files[0].path = (char *)harness_file("m.txt", text, 40000);
    files[1].path = (char *)harness_file("m.jsonl", text, 40000);
    struct spec_dataset spec = text_of(2, TEXT_AUTO, TOKENIZER_NONE);
    for (; r < 0; k++) {
        struct taken t = {.sample.arena = &t.arena};
        struct dataset *ds = NULL;
        fail_in = k;
        r = dataset_open(&spec, &anywhere, &ds, &t.err);
        if (r == 0)
            r = dataset_get(ds, &key, ds->length - 1, &t.sample, &t.err);
        fail_in = -1;
        if (r < 0) {
            /* Some are no harm: memory that would only have been made smaller. */
            assert_int_equal(r, -ENOMEM);
            assert_int_equal(t.err.code, ENOMEM);
        }
        dataset_close(ds);
        drop(&t);
    }
    assert_true(k > 8);
}
