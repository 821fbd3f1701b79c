/* Text: where lines begin and end, fields of JSON lines, bytes as tokens, and what is refused. */
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/text/text_lines.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/taken.h"

#include <errno.h>
#include <stdio.h>

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
        files[0].path = (char *)harness_file("lines.txt", rows[i].text, strlen(rows[i].text));
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
        files[0].path = (char *)harness_file(names[k], text, strlen(text));
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

TEST(test_format_and_field)
{
    const char *line = "{\"text\": \"a\", \"body\": \"b\"}";

    files[0].path = (char *)harness_file("f.jsonl", line, strlen(line));
    struct spec_dataset spec = text_of(1, TEXT_JSON, TOKENIZER_NONE);
    spec.field = (char *)"body";
    struct dataset *ds = must_open(&spec);
    expect_text(ds, 0, "b");
    dataset_close(ds);

    spec.format = TEXT_LINES;
    ds = must_open(&spec);
    expect_text(ds, 0, line);
    dataset_close(ds);

    files[0].path = (char *)harness_file("f.txt", line, strlen(line));
    spec.format = TEXT_JSON;
    ds = must_open(&spec);
    expect_text(ds, 0, "b");
    dataset_close(ds);
}

/* NUL is a character like others; and a string lives until its arena is cleared. */
/* Each leaf of a sample of JSON's fields, as "name=what", in the order of names. */
static void write_leaves(const struct sample *sample, char *ret, size_t room)
{
    size_t len = 0;

    for (uint32_t i = 1; i < sample->tree.count; i++) {
        const struct tree_node *node = &sample->tree.nodes[i];
        const char *name = sample->tree.keys + node->key_off;
        int64_t number = 0;

        if (node->kind == TREE_TENSOR && node->nbytes == sizeof number)
            memcpy(&number, sample->data[i], sizeof number);
        if (node->kind == TREE_STRING)
            len += (size_t)snprintf(ret + len, room - len, "%.*s=%.*s ", (int)node->key_len, name,
                                    (int)node->nbytes, (const char *)sample->data[i]);
        else
            len += (size_t)snprintf(ret + len, room - len, "%.*s=%u:%llu:%lld ", (int)node->key_len,
                                    name, node->kind, (unsigned long long)node->nbytes,
                                    (long long)number);
    }
    ret[len > 0 ? len - 1 : 0] = '\0';
}

static void expect_fields(const char *line, struct spec_field *fields, uint32_t n,
                          enum tokenizer tokenizer, const char *want, const char *says)
{
    struct spec_dataset spec = text_of(1, TEXT_AUTO, tokenizer);
    struct taken t = {.sample.arena = &t.arena};
    char got[512];

    files[0].path = (char *)harness_file("fields.jsonl", line, strlen(line));
    spec.fields = fields;
    spec.n_fields = n;
    struct dataset *ds = must_open(&spec);
    int r = ds->ops->get(ds, &key, 0, &t.sample, &t.err);
    if (says) {
        assert_true(r < 0);
        assert_error_has(&t.err, says);
        assert_string_equal(t.err.path, files[0].path);
    } else {
        assert_int_equal(r, 0);
        write_leaves(&t.sample, got, sizeof got);
        assert_string_equal(got, want);
    }
    drop(&t);
    dataset_close(ds);
}

/* A text with a label, a second text, numbers: each under its name, and tokens in the text's
 * place. */
TEST(test_fields)
{
    static struct spec_field two[] = {{"label", "y"}, {"text", "body"}};
    static struct spec_field one[] = {{"text", "text"}};
    static const char line[] = "{\"y\": 7, \"body\": \"abc\", \"more\": null}\n";

    expect_fields(line, two, 2, TOKENIZER_NONE, "label=1:8:7 text=abc", NULL);
    expect_fields(line, two, 2, TOKENIZER_BYTES, "label=1:8:7 tokens=1:24:0", NULL);
    expect_fields("{\"text\": \"\"}", one, 1, TOKENIZER_NONE, "text=", NULL);
    expect_fields("{\"text\": 3}", one, 1, TOKENIZER_NONE, "text=1:8:3", NULL);
    expect_fields("{\"y\": \"z\", \"body\": \"\"}", two, 2, TOKENIZER_NONE, "label=z text=", NULL);
    expect_fields("{\"body\": \"abc\"}", two, 2, TOKENIZER_NONE, NULL,
                  "line 1 has no field \"y\", which dataset.fields lists");
    expect_fields("{\"y\": null, \"body\": \"\"}", two, 2, TOKENIZER_NONE, NULL,
                  "line 1 has null at \"label\", which a batch cannot hold; leave the field out of "
                  "dataset.fields");
    expect_fields("{\"y\": {\"a\": [1, null]}, \"body\": \"\"}", two, 2, TOKENIZER_NONE, NULL,
                  "line 1 has null at \"label.a[1]\"");
    expect_fields("{\"y\": 1, \"body\": 2}", two, 2, TOKENIZER_BYTES, NULL,
                  "line 1: its field \"body\" is not a string");
}

TEST(test_fields_refused)
{
    static struct spec_field other[] = {{"label", "y"}};
    static struct spec_field taken[] = {{"text", "body"}, {"tokens", "n"}};
    const struct {
        struct spec_field *fields;
        uint32_t n;
        const char *file, *path, *says;
    } rows[] = {
        {other, 1, "r.jsonl", "dataset.field", "text is not one of dataset.fields; add it to them"},
        {taken, 2, "r.jsonl", "dataset.fields", "tokens is already made from the field text"},
        {other, 1, "r.txt", NULL, "is read as plain lines, which have no fields"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_BYTES);
        struct dl_error err = {0};
        struct dataset *ds;

        if (!rows[i].path)
            spec.tokenizer = TOKENIZER_NONE;
        files[0].path = (char *)harness_file(rows[i].file, "{}\n", 3);
        spec.fields = rows[i].fields;
        spec.n_fields = rows[i].n;
        assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
        assert_string_equal(err.path, rows[i].path ? rows[i].path : files[0].path);
        assert_error_has(&err, rows[i].says);
    }
}

TEST(test_json_strings_stay)
{
    const char *line = "{\"text\": \"a\\u0000b\"}\n{\"text\": \"second\"}\n";
    struct arena arena = {0};
    struct sample a = {.arena = &arena}, b = {.arena = &arena};
    struct dl_error err = {0};

    files[0].path = (char *)harness_file("n.jsonl", line, strlen(line));
    struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->ops->get(ds, &key, 0, &a, &err), 0);
    assert_int_equal(ds->ops->get(ds, &key, 1, &b, &err), 0);
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

    for (uint32_t i = 0; i < ARRAY_SIZE(contents); i++) {
        char name[16];
        snprintf(name, sizeof name, "o-%u", i);
        files[i].path = (char *)harness_file(name, contents[i], strlen(contents[i]));
    }
    struct spec_dataset spec = text_of(ARRAY_SIZE(contents), TEXT_AUTO, TOKENIZER_NONE);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, 6);
    for (uint64_t i = 0; i < 6; i++)
        expect_text(ds, i, (char[]){(char)('a' + i), '\0'});
    dataset_close(ds);

    /* The same by a pattern. */
    char pattern[4200];
    snprintf(pattern, sizeof pattern, "%s/o-?", harness_tmpdir());
    files[0].path = pattern;
    spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);
    ds = must_open(&spec);
    assert_int_equal(ds->length, 6);
    expect_text(ds, 5, "f");
    dataset_close(ds);
}

TEST(test_tokens)
{
    static const struct {
        uint64_t max_length;
        uint64_t n[3];
    } rows[] = {{0, {4, 0, 2}}, {3, {3, 0, 2}}, {1, {1, 0, 1}}, {1000, {4, 0, 2}}};
    static const int64_t want[] = {'a', 0xFF, 0, 'b'};

    files[0].path = (char *)harness_file("t.txt", "a\xFF\0b\n\ncd", 8);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_BYTES);
        spec.max_length = rows[i].max_length;
        struct dataset *ds = must_open(&spec);
        assert_int_equal(ds->length, 3);
        for (uint64_t k = 0; k < 3; k++) {
            struct taken t = {.sample.arena = &t.arena};
            assert_int_equal(ds->ops->get(ds, &key, k, &t.sample, &t.err), 0);
            const struct tree_node *node = &t.sample.tree.nodes[1];
            assert_int_equal(node->kind, TREE_TENSOR);
            assert_int_equal(node->dtype, DL_DTYPE_INT64);
            assert_int_equal(node->ndim, 1);
            assert_int_equal(node->shape[0], rows[i].n[k]);
            assert_memory_equal(t.sample.tree.keys, "tokens", 6);
            if (k == 0)
                assert_memory_equal(t.sample.data[1], want, rows[i].n[k] * sizeof *want);
            drop(&t);
        }
        dataset_close(ds);
    }
}

TEST(test_refusals)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    uint8_t packed[100];
    struct spec_dataset spec = text_of(1, TEXT_AUTO, TOKENIZER_NONE);

    files[0].path = (char *)harness_file("u.txt", "a\nb\n\xC3\n", 6);
    ds = must_open(&spec);
    expect_text(ds, 1, "b");
    expect_refusal(ds, 2, files[0].path, "line 3 is not UTF-8; convert the file with iconv");
    dataset_close(ds);

    ds = NULL;
    files[0].path = (char *)harness_file("g.txt", packed, make_gzip("a\n", 2, packed, 100));
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_error(&err, EINVAL, files[0].path,
                 "is compressed by gzip; unpack it with gunzip, so that its lines can be read in "
                 "place");
    files[0].path = (char *)"/nonexistent/x";
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -ENOENT);
    files[0].path = (char *)harness_tmpdir();
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EISDIR);
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
