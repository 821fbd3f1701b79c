/* YAML and JSON texts: what they mean, and where and why they are refused. */
#include "proto/yaml.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>

/* A value in a form that a table can hold: {a=i1,b=[s"x",n,t]}. */
static void describe(const struct value *v, FILE *out)
{
    switch (v->type) {
    case VALUE_NULL:
        fputs("null", out);
        return;
    case VALUE_BOOL:
        fputs(v->boolean ? "true" : "false", out);
        return;
    case VALUE_INT:
        fprintf(out, "%" PRId64, v->integer);
        return;
    case VALUE_UINT:
        fprintf(out, "u%" PRIu64, v->uinteger);
        return;
    case VALUE_FLOAT:
        fprintf(out, "f%g", v->number);
        return;
    case VALUE_STRING:
        fprintf(out, "'%s'", v->string);
        return;
    case VALUE_ARRAY:
    case VALUE_MAP:
        fputc(v->type == VALUE_MAP ? '{' : '[', out);
        for (uint32_t i = 0; i < v->count; i++) {
            if (i)
                fputc(' ', out);
            if (v->items[i].key)
                fprintf(out, "%s=", v->items[i].key);
            describe(&v->items[i], out);
        }
        fputc(v->type == VALUE_MAP ? '}' : ']', out);
    }
}

static int parse(const char *text, size_t len, struct value *v, struct dl_error *err)
{
    /* On the heap without a NUL, so that a read past the end is seen. */
    _cleanup_free_ char *exact = malloc(len ? len : 1);
    assert_non_null(exact);
    memcpy(exact, text, len);
    return yaml_parse(exact, len, "t.yaml", v, err);
}

#define SMILE "\xF0\x9F\x98\x80" /* U+1F600 */
#define FIRST "\xF0\x90\x80\x80" /* of those that are written as pairs, */
#define LAST  "\xF4\x8F\xBF\xBF" /* and the last one */

static const struct {
    const char *text;
    const char *want;
} values[] = {
    {"a: 1", "{a=1}"},
    {"a: 1\nb:\n  - x\n  - 2\n  - null\n", "{a=1 b=['x' 2 null]}"},
    {"- - 1\n  - 2\n-\n  a: b\n", "[[1 2] {a='b'}]"},
    {"a: {b: [1, 2,], c: }", "{a={b=[1 2] c=null}}"},
    {"{\"a\": [1, -2.5e3, true, false, null, \"x\"]}", "{a=[1 f-2500 true false null 'x']}"},
    {"{\"a\":1,\"b\":{\"c\":[]}}", "{a=1 b={c=[]}}"},
    {"{\n\t\"a\": 1,\n\t\"b\": 2\n}\n", "{a=1 b=2}"},
    {"{\"a\": \"\\u00e9\\n\\t\\\"\\/\\\\\"}", "{a='\xC3\xA9\n\t\"/\\'}"},
    {"\xEF\xBB\xBF"
     "a: 1",
     "{a=1}"},
    {"a: 1\r\nb: 2\r\n", "{a=1 b=2}"},
    {"# only\na: 1 # words\n", "{a=1}"},
    {"---\na: 1\n...\n", "{a=1}"},
    {"%YAML 1.1\n---\na: 1\n", "{a=1}"},
    {"---\n", "null"},
    {"~", "null"},
    {"null", "null"},
    {"''", "''"},
    {"word", "'word'"},
    {"[]", "[]"},
    {"{}", "{}"},
    {"a: |\n  two\n  lines\n", "{a='two\nlines\n'}"},
    {"a: >-\n  one\n  line\n", "{a='one line'}"},
    {"a: 'it''s'", "{a='it's'}"},
    {"1: a\ntrue: b\nnull: c\n", "{1='a' true='b' null='c'}"},
    {"'': a", "{='a'}"},
    {"<<: a", "{<<='a'}"},
    /* nulls, booleans */
    {"[~, null, Null, NULL, nULL, 'null', \"~\"]", "[null null null null 'nULL' 'null' '~']"},
    {"[true, True, TRUE, tRUE, false, False, FALSE, 'true']",
     "[true true true 'tRUE' false false false 'true']"},
    {"[yes, no, on, off, y, n, Yes]", "['yes' 'no' 'on' 'off' 'y' 'n' 'Yes']"},
    /* integers */
    {"[0, 1, -1, +1, 007, -0, 1_000]", "[0 1 -1 1 7 0 '1_000']"},
    {"[0x1F, 0xff, 0o17, 0x, 0o, 0o8, 0xG, -0x1, 0b1]",
     "[31 255 15 '0x' '0o' '0o8' '0xG' '-0x1' '0b1']"},
    {"[9223372036854775807, 9223372036854775808, 18446744073709551615]",
     "[9223372036854775807 u9223372036854775808 u18446744073709551615]"},
    {"[-9223372036854775808, 0xFFFFFFFFFFFFFFFF]", "[-9223372036854775808 u18446744073709551615]"},
    {"['1', \"2\", 1 2]", "['1' '2' '1 2']"},
    {"[1a, a1, '-', +, --1, 12:30:45, 2020-01-01]",
     "['1a' 'a1' '-' '+' '--1' '12:30:45' '2020-01-01']"},
    /* floats */
    {"[1.0, .5, 5., -1.5, +2.5, 1e3, 1E+3, 1.5e-3]", "[f1 f0.5 f5 f-1.5 f2.5 f1000 f1000 f0.0015]"},
    {"[.inf, -.Inf, +.INF, .nan, .NaN, inf, nan, infinity, NAN]",
     "[finf f-inf finf fnan fnan 'inf' 'nan' 'infinity' 'NAN']"},
    {"[., .e1, 1e, 1e+, e1, 1.2.3, 0x1p3, 1.5f]",
     "['.' '.e1' '1e' '1e+' 'e1' '1.2.3' '0x1p3' '1.5f']"},
    {"[1e-400, -.nan, 1d]", "[f0 '-.nan' '1d']"},
    /* characters above U+FFFF, as json.dumps() writes them, and what only looks like them */
    {"{\"\\ud83d\\ude00\": \"a\\uD83D\\uDE00b\\udbff\\udfff\"}",
     "{" SMILE "='a" SMILE "b" LAST "'}"},
    {" [\"\\ud800\\udc00\", true, -1.5, null, {\"a\":[\"\\u00e9\"]}]",
     "['" FIRST "' true f-1.5 null {a=['\xC3\xA9']}]"},
    {"\"\\ud83d\\ude00\"", "'" SMILE "'"},
    {"[\"\\\\ud83d\\\\ude00\", \"\\\"\\ud83d\\ude00\\\\\"]", "['\\ud83d\\ude00' '\"" SMILE "\\']"},
    {"[\"\\U0001F600\"]", "['" SMILE "']"},
    {"[\\ud83d\\ude00, '\\ud83d\\ude00', it\"s, \"\"]",
     "['\\ud83d\\ude00' '\\ud83d\\ude00' 'it\"s' '']"},
    {"a: \\ud83d\\ude00", "{a='\\ud83d\\ude00'}"},
};

TEST(test_values)
{
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        _cleanup_(value_deinit) struct value v = {0};
        struct dl_error err = {0};
        _cleanup_free_ char *got = NULL;
        size_t len;

        int r = parse(values[i].text, strlen(values[i].text), &v, &err);
        if (r < 0)
            fail_msg("%s: %s: %s", values[i].text, err.path, err.message);
        FILE *out = open_memstream(&got, &len);
        assert_non_null(out);
        describe(&v, out);
        fclose(out);
        assert_string_equal(got, values[i].want);
    }
}

#define TEXT(s)      s, sizeof(s) - 1
#define NO_CHARACTER "found invalid Unicode character escape code, while parsing a quoted scalar"

static const struct {
    const char *text;
    size_t len;
    const char *path;
    const char *message;
} refused[] = {
    {TEXT(""), "t.yaml", "the text is empty"},
    {TEXT(" \n\n# nothing\n"), "t.yaml", "the text is empty"},
    {TEXT("\xEF\xBB\xBF"), "t.yaml", "the text is empty"},
    {TEXT("a: 1\nb: [1, 2\nc: 3\n"), "t.yaml:3",
     "did not find expected ',' or ']', while parsing a flow sequence"},
    {TEXT("{\"a\": 1"), "t.yaml:1",
     "did not find expected ',' or '}', while parsing a flow mapping"},
    {TEXT("a: 'x"), "t.yaml:1", "found unexpected end of stream, while scanning a quoted scalar"},
    {TEXT("a: 1\n b: 2\n"), "t.yaml:2", "mapping values are not allowed in this context"},
    {TEXT("a:\n\t- 1\n"), "t.yaml:2",
     "found character that cannot start any token, while scanning for the next token"},
    {TEXT("x: &here 1\n"), "t.yaml:1", "anchors (&here) are not accepted; leave it out"},
    {TEXT("x:\n  &m\n  a: 1\n"), "t.yaml:2", "anchors (&m) are not accepted; leave it out"},
    {TEXT("- &l [1]\n- 2\n"), "t.yaml:1", "anchors (&l) are not accepted; leave it out"},
    {TEXT("a: 1\nb: *x\n"), "t.yaml:2", "aliases (*x) are not accepted; write the value out"},
    {TEXT("*k : 1\n"), "t.yaml:1", "aliases (*k) are not accepted; write the value out"},
    {TEXT("&k a: 1\n"), "t.yaml:1", "anchors (&k) are not accepted; leave it out"},
    {TEXT("a: !!str 1\n"), "t.yaml:1",
     "tags (tag:yaml.org,2002:str) are not accepted; leave it out"},
    {TEXT("a: !mine {b: 1}\n"), "t.yaml:1", "tags (!mine) are not accepted; leave it out"},
    {TEXT("\n!mine [1]\n"), "t.yaml:2", "tags (!mine) are not accepted; leave it out"},
    {TEXT("!x a: 1\n"), "t.yaml:1", "tags (!x) are not accepted; leave it out"},
    {TEXT("a: ! 1\n"), "t.yaml:1", "tags (!) are not accepted; leave it out"},
    {TEXT("a: 1\n---\nb: 2\n"), "t.yaml:2", "a second document begins here; only one is accepted"},
    {TEXT("--- a\n--- b\n"), "t.yaml:2", "a second document begins here; only one is accepted"},
    {TEXT("a: 1\nb: 2\na: 3\n"), "t.yaml:3", "the key \"a\" occurs twice"},
    {TEXT("{\"x\": {\"a\": 1,\n\"a\": 2}}"), "t.yaml:2", "the key \"a\" occurs twice"},
    {TEXT("1: a\n'1': b\n"), "t.yaml:2", "the key \"1\" occurs twice"},
    {TEXT("? [1, 2]\n: x\n"), "t.yaml:1", "a key is a list or a mapping; keys must be strings"},
    {TEXT("{a: 1}: x\n"), "t.yaml:1", "a key is a list or a mapping; keys must be strings"},
    {TEXT("a: 1\nb: x\0y\n"), "t.yaml:2", "the text holds a NUL character; it is not YAML or JSON"},
    {TEXT("{\"a\": \"x\\u0000y\"}"), "t.yaml:1", "a string holds a NUL character; leave it out"},
    {TEXT("\"x\\0\": 1"), "t.yaml:1", "a string holds a NUL character; leave it out"},
    {TEXT("a: 1\nb: \xFF\n"), "t.yaml:2", "invalid leading UTF-8 octet"},
    {TEXT("a: \xC3("), "t.yaml:1", "invalid trailing UTF-8 octet"},
    {TEXT("a: \xE2\x82"), "t.yaml:1", "incomplete UTF-8 octet sequence"},
    {TEXT("\n\na: \x01\n"), "t.yaml:3", "control characters are not allowed"},
    {TEXT("a: 1\nb: 18446744073709551616\n"), "t.yaml:2",
     "18446744073709551616 does not fit a 64-bit number; put text in quotes"},
    {TEXT("-9223372036854775809"), "t.yaml:1",
     "-9223372036854775809 does not fit a 64-bit number; put text in quotes"},
    {TEXT("0x10000000000000000"), "t.yaml:1",
     "0x10000000000000000 does not fit a 64-bit number; put text in quotes"},
    {TEXT("[\"\\ud83d\\ude00\",\n\"\\ud83d\"]"), "t.yaml:2", NO_CHARACTER},
    {TEXT("[\"\\ude00\\ud83d\"]"), "t.yaml:1", NO_CHARACTER},
    {TEXT("[\"\\ud83d\\u0041\"]"), "t.yaml:1", NO_CHARACTER},
    {TEXT("[\"\\ud83d\\ude0\"]"), "t.yaml:1", NO_CHARACTER},
    {TEXT("a: \"\\ud83d\\ude00\""), "t.yaml:1", NO_CHARACTER}, /* not JSON */
    {TEXT("[a\"b, \"\\ud83d\\ude00\"]"), "t.yaml:1", NO_CHARACTER},
    {TEXT("[\"\\ud83d\\ude00\",\n\n1e400]"), "t.yaml:3",
     "1e400 does not fit a 64-bit number; put text in quotes"},
    {TEXT("1e400"), "t.yaml:1", "1e400 does not fit a 64-bit number; put text in quotes"},
};

TEST(test_refused)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct value v = {.type = VALUE_BOOL, .line = 77};
        struct dl_error err = {0};

        int r = parse(refused[i].text, refused[i].len, &v, &err);
        if (r != -EINVAL || strcmp(err.path, refused[i].path) != 0 ||
            strcmp(err.message, refused[i].message) != 0)
            fail_msg("%s: %d, %s: %s", refused[i].text, r, err.path, err.message);
        assert_int_equal(err.code, EINVAL);
        assert_true(v.type == VALUE_BOOL && v.line == 77);
        assert_int_equal(parse(refused[i].text, refused[i].len, &v, NULL), -EINVAL);
    }
}

TEST(test_lines)
{
    static const char text[] =
        "# c\na: 1\n\nb:\n  - x\n  -\n    c: 2\n    d: {e: 3,\n      f: 4}\n";
    _cleanup_(value_deinit) struct value v = {0};

    assert_int_equal(yaml_parse(text, strlen(text), "t", &v, NULL), 0);
    const struct value *b = value_get(&v, "b");
    assert_int_equal(v.line, 2);
    assert_int_equal(value_get(&v, "a")->line, 2);
    assert_int_equal(b->line, 4);
    assert_int_equal(b->items[0].line, 5);
    assert_int_equal(value_get(&b->items[1], "c")->line, 7);
    assert_int_equal(value_get(value_get(&b->items[1], "d"), "f")->line, 9);
}

/* `n` times `unit` between `head` and `tail`. */
static char *repeat(const char *head, const char *unit, size_t n, const char *tail)
{
    size_t len = strlen(head) + strlen(unit) * n + strlen(tail) + 1;
    char *text = malloc(len);
    assert_non_null(text);
    char *end = stpcpy(text, head);
    for (size_t i = 0; i < n; i++)
        end = stpcpy(end, unit);
    stpcpy(end, tail);
    return text;
}

static void expect_size_error(const char *text, const char *path, const char *message)
{
    struct value v = {0};
    struct dl_error err = {0};

    int r = parse(text, strlen(text), &v, &err);
    if (r != -EMSGSIZE || strcmp(err.path, path) != 0 || strcmp(err.message, message) != 0)
        fail_msg("%d, %s: %s", r, err.path, err.message);
}

TEST(test_nesting)
{
    static const char too_deep[] = "nested more than 16 levels deep";
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_free_ char *deepest = repeat("", "[", 16, "]]]]]]]]]]]]]]]]");
    _cleanup_free_ char *deeper = repeat("", "[", 17, "]]]]]]]]]]]]]]]]]");
    _cleanup_free_ char *endless = repeat("", "[", 100000, "");
    _cleanup_free_ char *block = repeat("", "- ", 100000, "x");
    _cleanup_free_ char *maps = repeat("", "{a: ", 50000, "");
    _cleanup_free_ char *keys = repeat("", "? ", 100000, "x");

    assert_int_equal(parse(deepest, strlen(deepest), &v, NULL), 0);
    expect_size_error(deeper, "t.yaml:1", too_deep);
    expect_size_error(endless, "t.yaml:1", too_deep);
    expect_size_error(block, "t.yaml:1", too_deep);
    expect_size_error(maps, "t.yaml:1", too_deep);
    struct dl_error err = {0};
    struct value none;
    assert_int_equal(parse(keys, strlen(keys), &none, &err), -EINVAL);
    assert_string_equal(err.message, "a key is a list or a mapping; keys must be strings");
}

/* What the parser accepts must be accepted as msgpack by the other side, to the last node. */
TEST(test_node_limit)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_(buffer_deinit) struct dl_buffer buf = {0};
    _cleanup_free_ char *most = repeat("[", "1,", 65535, "]");
    _cleanup_free_ char *more = repeat("[", "1,", 65536, "]");
    _cleanup_free_ char *maps = repeat("[", "{a: 1},", 21846, "]");

    assert_int_equal(parse(most, strlen(most), &v, NULL), 0);
    assert_int_equal(v.count, 65535);
    assert_int_equal(value_pack(&v, &buf), 0);
    expect_size_error(more, "t.yaml:1", "more than 65536 elements in all");
    expect_size_error(maps, "t.yaml:1", "more than 65536 elements in all");
}

TEST(test_huge)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_free_ char *largest = repeat("a: ", "x", DL_MAX_SPEC_TEXT - 3, "");
    _cleanup_free_ char *larger = repeat("a: ", "x", DL_MAX_SPEC_TEXT - 2, "");

    assert_int_equal(parse(largest, strlen(largest), &v, NULL), 0);
    assert_int_equal(strlen(value_get(&v, "a")->string), DL_MAX_SPEC_TEXT - 3);
    expect_size_error(larger, "t.yaml", "262145 bytes of text are above the maximum of 262144");
}

TEST(test_truncated_everywhere)
{
    static const char text[] = "name: \"\xC3\xA9\"\nfiles: {image: a.gz, label: 'b'}\n"
                               "list:\n  - 0x1F\n  - 1.5\n  - |\n    t\n  - [1, {\"k\": null}]\n";
    for (size_t len = 0; len < sizeof text - 1; len++) {
        _cleanup_(value_deinit) struct value v = {0};
        struct dl_error err = {0};
        int r = parse(text, len, &v, &err);
        assert_true(r == 0 ? err.code == 0 : r == -EINVAL && err.message[0]);
    }
}

TEST(test_source_names)
{
    struct value v;
    struct dl_error err = {0};
    char source[600];

    memset(source, 's', sizeof source - 1);
    source[sizeof source - 1] = '\0';
    assert_int_equal(yaml_parse("\n\n*a", 4, source, &v, &err), -EINVAL);
    assert_string_equal(err.path + strlen(err.path) - 3, "s:3");
    assert_int_equal(yaml_parse(NULL, 0, "x", &v, &err), -EINVAL);
    assert_string_equal(err.message, "the text is empty");
}

/* A program that follows its user's locale must still read 1.5 as 1.5: in each that is installed.
 */
TEST(test_locale)
{
    static const char *const names[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "nl_NL.UTF-8", "de_DE"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct value v = {0};
        if (!setlocale(LC_NUMERIC, names[i]))
            continue;
        int r = yaml_parse("1.5", 3, "t", &v, NULL);
        setlocale(LC_NUMERIC, "C");
        assert_int_equal(r, 0);
        assert_true(v.type == VALUE_FLOAT && v.number == 1.5);
    }
}
