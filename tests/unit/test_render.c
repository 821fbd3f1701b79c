/* Views as text and JSON, units, and the progress line. */
#include "client/dlctl/render.h"
#include "client/dlctl/run/progress.h"
#include "client/dlctl/shape.h"
#include "client/dlctl/text.h"
#include "proto/yaml.h"
#include "tests/lib/harness.h"

#include <errno.h>

static struct value view_of(const char *yaml)
{
    struct value view = {0};
    struct dl_error err = {0};

    if (yaml_parse(yaml, strlen(yaml), "view", &view, &err) < 0)
        fail_msg("%s: %s", yaml, err.message);
    return view;
}

static void assert_styled(const char *yaml, const char *name, const struct table_style *style,
                          const char *want)
{
    _cleanup_(value_deinit) struct value view = view_of(yaml);
    _cleanup_free_ char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    assert_non_null(file);
    assert_int_equal(render_view(file, &view, name, style), 0);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, want);
}

/* As people see it, with room enough. */
static void assert_shaped(const char *yaml, const char *name, const char *want)
{
    _cleanup_(value_deinit) struct value view = view_of(yaml);
    _cleanup_free_ char *text = NULL;
    struct table_style style;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    assert_non_null(file);
    assert_int_equal(shape_view(name, &view, &style), 0);
    style.width = 100;
    assert_int_equal(render_view(file, &view, name, &style), 0);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, want);
}

static void assert_json(const struct value *v, const char *want)
{
    json_t *json = render_json(v);

    assert_non_null(json);
    _cleanup_free_ char *text =
        json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_decref(json);
    assert_non_null(text);
    assert_string_equal(text, want);
}

/* ---- tables, maps and single values --------------------------------------------------------- */

static const struct {
    const char *view, *name, *want;
} rendered[] = {
    {"[{name: fashion, worker_count: 2, used_bytes: 1536, age_s: 12.34, state: open},"
     " {name: x, worker_count: 128, used_bytes: null, age_s: 1234.5, state: closing}]",
     "loaders",
     "NAME     WORKER COUNT     USED          AGE  STATE\n"
     "fashion             2  1.5 KiB         12 s  open\n"
     "x                 128        -  20 min 35 s  closing\n"},
    /* Keys that not all have, wide text, and what is nested. */
    {"[{a: 1}, {b: two}]", "things", "A  B\n1  -\n-  two\n"},
    {"[{name: h\xc3\xa9, n: 1}, {name: plain, n: 22}]", "things",
     "NAME    N\nh\xc3\xa9      1\nplain  22\n"},
    {"[{ranks: [0, 1, 2], slots: {free: 3, size_bytes: 4096}, none: []}]", "ring",
     "RANKS    SLOTS\n0, 1, 2  free=3, size=4.0 KiB\n"},
    /* Nothing to say is said, too. */
    {"[{job: null}]", "things", "JOB\n  -\n"},
    {"[]", "sessions", "no sessions\n"},
    {"{}", "epochs", "no epochs\n"},
    {"null", "x", "-\n"},
    /* What another process sent can't move the cursor or colour the terminal. */
    {"[{\"na\\eme\": \"a\\e[31m\\nb\\x7f\"}]", "x", "NA?ME\na?[31m?b?\n"},
    {"{\"k\\n\": \"\\r\"}", "x", "k?: ?\n"},
    {"[true, {a: 1}]", "x", "yes, a=1\n"},
    {"{version: 0.1.0, pid: -1, uptime_s: 0.5, batches_per_s: 1234.5,"
     " read_bytes_per_s: 3145728.0, bytes: 10, ratio: 0.25, private: false,"
     " seed: 18446744073709551615, pin: null,"
     " limits: {memory_bytes: 1073741824, deep: {x: 1}}, empty: {}, uids: [{uid: 1000}]}",
     "status",
     "version: 0.1.0\n"
     "pid: -1\n"
     "uptime: 500 ms\n"
     "batches/s: 1234\n"
     "read/s: 3.0 MiB\n"
     "bytes: 10 B\n"
     "ratio: 0.25\n"
     "private: no\n"
     "seed: 18446744073709551615\n"
     "pin: -\n"
     "limits:\n"
     "  memory: 1.0 GiB\n"
     "  deep:\n"
     "    x: 1\n"
     "empty: -\n"
     "uids:\n"
     "   UID\n"
     "  1000\n"},
};

/* What a terminal would obey: C0, DEL, and C1, which in UTF-8 has two bytes. */
TEST(test_control_characters)
{
    assert_styled("{a: \"x\\u009bm\\x1b\\x7f\\u00e9\"}", "a", NULL, "a: x?m??é\n");
}

TEST(test_rendered)
{
    for (size_t i = 0; i < ARRAY_SIZE(rendered); i++)
        assert_styled(rendered[i].view, rendered[i].name, NULL, rendered[i].want);
}

/* What fits a screen: the columns that matter more, and text below its row. */
TEST(test_table_that_fits)
{
    static const char things[] =
        "[{name: a, n: 0, state: open, job: null, rate_bytes_per_s: 1024.0, verdict: '-',"
        "  secret: no},"
        " {name: second, n: 1000, state: open, job: null, rate_bytes_per_s: 1024.0,"
        "  verdict: all is well here, secret: no}]";
    static const struct {
        int width;
        const char *want;
    } fits[] = {
        {13, "NAME    STATE\n"
             "a       open\n"
             "second  open\n"
             "  all is well\n"
             "  here\n"},
        /* No room for the rate, but for what matters less. */
        {21, "NAME       N  STATE\n"
             "a          0  open\n"
             "second  1000  open\n"
             "  all is well here\n"},
        /* The first one is there in any case. */
        {1, "a\nsecond\n  all\n  is\n  well\n  here\n"},
        {0, "NAME       N  STATE   RATE/S  VERDICT\n"
            "a          0  open   1.0 KiB  -\n"
            "second  1000  open   1.0 KiB  all is well here\n"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(fits); i++) {
        const struct table_style style = {.keys = "name state rate_bytes_per_s n job",
                                          .never = "secret",
                                          .below = "verdict",
                                          .width = fits[i].width};
        assert_styled(things, "things", &style, fits[i].want);
    }
}

/* ---- JSON ----------------------------------------------------------------------------------- */

TEST(test_json)
{
    _cleanup_(value_deinit) struct value map =
        view_of("{s: \"a\\\"b\\n\", i: -9223372036854775808,"
                " u: 18446744073709551615, f: 0.1, inf: .inf, nan: .nan, t: true,"
                " n: null, l: [{}, []]}");
    _cleanup_(value_deinit) struct value bad = {.type = VALUE_MAP};

    assert_json(&map, "{\"s\":\"a\\\"b\\n\",\"i\":-9223372036854775808,"
                      "\"u\":\"18446744073709551615\",\"f\":0.1,\"inf\":null,\"nan\":null,"
                      "\"t\":true,\"n\":null,\"l\":[{},[]]}");
    /* What is not UTF-8. */
    assert_int_equal(value_set_string(&bad, "k\xff", "a\xc3"), 0);
    assert_int_equal(value_set_string(&bad, "good", "h\xc3\xa9"), 0);
    assert_json(&bad, "{\"k?\":\"a?\",\"good\":\"h\xc3\xa9\"}");
}

TEST(test_json_u64)
{
    json_t *below = render_json_u64(INT64_MAX), *above = render_json_u64(1ull << 63);

    assert_true(json_is_integer(below) && json_integer_value(below) == INT64_MAX);
    assert_string_equal(json_string_value(above), "9223372036854775808");
    json_decref(below);
    json_decref(above);
}

/* ---- quoted text ------------------------------------------------------------------------------
 */

TEST(test_quoted)
{
    static const struct {
        const char *text;
        size_t len, size;
        const char *want;
    } rows[] = {
        {"", 0, 16, "\"\""},
        {"hello", 5, 16, "\"hello\""},
        {"a\0b", 3, 16, "\"a\\x00b\""},
        {"\x1b[31m", 5, 16, "\"\\x1b[31m\""},
        {"\n\t\r\"\\", 5, 32, "\"\\n\\t\\r\\\"\\\\\""},
        {"\x7f\xc2\x9b\xff", 4, 32, "\"\\x7f\\xc2\\x9b\\xff\""},
        {"\xc3\xa9\xe2\x82\xac", 5, 16, "\"\xc3\xa9\xe2\x82\xac\""},
        {"\xe2\x82", 2, 16, "\"\\xe2\\x82\""}, /* cut off in a character */
        {"0123456789", 10, 16, "\"0123456789\""},
        {"0123456789a", 11, 16, "\"0123456789\"..."},
        {"012345678\xc3\xa9", 11, 16, "\"012345678\"..."}, /* not half of it */
        {"0123456\x01"
         "9",
         9, 16, "\"0123456\"..."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char *buf = malloc(rows[i].size);

        assert_non_null(buf);
        render_quoted(rows[i].text, rows[i].len, buf, rows[i].size);
        assert_string_equal(buf, rows[i].want);
        free(buf);
    }
}

/* ---- progress ------------------------------------------------------------------------------- */

TEST(test_progress_line)
{
    const struct tally tally = {
        .batches = 50, .samples = 12800, .bytes = 40000000, .wait_ns = 500000000};
    char line[256];

    progress_line(&tally, 100, 2.0, 200, line, sizeof line);
    assert_string_equal(line, " 50 % [####################....................] 50/100  "
                              "25 batches/s  6400 samples/s  19.1 MiB/s  wait 25 %  left 2.0 s");
    progress_line(&tally, 50, 2.0, 200, line, sizeof line);
    assert_non_null(strstr(line, "100 % [########################################] 50/50 "));
    progress_line(&tally, PROGRESS_UNKNOWN, 2.0, 200, line, sizeof line);
    assert_string_equal(line, "50  25 batches/s  6400 samples/s  19.1 MiB/s  wait 25 %");
}

/* Any width: never wider, never out of the buffer. */
TEST(test_count_line)
{
    char line[256];

    progress_count_line("lengths", 500, 2000, 0.5, 80, line, sizeof line);
    assert_string_equal(line,
                        " 25 % [########...........................] 500/2000 lengths  1000/s  "
                        "left 1.5 s");
    progress_count_line("images found", 700, PROGRESS_UNKNOWN, 2, 80, line, sizeof line);
    assert_string_equal(line, "700 images found  350/s");
    progress_fetched_line(50, 200, 3 << 20, 12, 2, 80, line, sizeof line);
    assert_string_equal(
        line, " 25 % [####..............] 3.0 MiB fetched by 12 requests  1.5 MiB/s  left 6.0 s");
    progress_fetched_line(7, PROGRESS_UNKNOWN, 0, 0, 0, 80, line, sizeof line);
    assert_string_equal(line, "0 B fetched by 0 requests  0 B/s");
    progress_count_line("lengths", 0, 0, 0, 80, line, sizeof line);
    assert_non_null(strstr(line, "100 % [####"));
    for (int columns = 0; columns < 80; columns++) {
        progress_count_line("lengths", 2000, 2000, 1e-9, columns, line, sizeof line);
        assert_true(strlen(line) <= (size_t)columns);
    }
}

/* Standard error is no terminal here: nothing of what is over soon, then whole lines. */
TEST(test_progress_in_a_log)
{
    struct progress p;
    char line[256] = "";
    int saved = dup(STDERR_FILENO);
    FILE *log = tmpfile();

    assert_non_null(log);
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    progress_begin(&p, 10, true);
    p.next_ns = 0;
    bool quiet = progress_due(&p);
    progress_begin(&p, 10, false);
    bool soon = progress_due(&p);
    p.next_ns = 0;
    bool later = progress_due(&p), again = progress_due(&p);
    progress_draw_count(&p, "lengths", 10);
    progress_wipe(&p);
    progress_end(&p);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    assert_false(quiet || soon || again);
    assert_true(later);
    rewind(log);
    assert_non_null(fgets(line, sizeof line, log));
    assert_memory_equal(line, "dlctl: 100 % [####", 18);
    assert_non_null(strstr(line, "10/10 lengths  "));
    assert_int_equal(line[strlen(line) - 1], '\n');
    assert_null(fgets(line, sizeof line, log));
    (void)fclose(log);
}

/* ---- views as people see them --------------------------------------------------------------- */

#define WITHOUT                                                                                  \
    "tokens: null, padded: null, overlong: null, leftover: null, carried: null, repeated: null," \
    " tokens_per_s: null, buckets: null, step: 5"
#define WITH(tokens, padded, per_s)                                                              \
    "tokens: " tokens ", padded: " padded ", overlong: 3, leftover: 7, carried: 4, repeated: 0," \
    " tokens_per_s: " per_s ", buckets: [{upper: 8}], step: 5"
#define LATELY(rank, list, numbers) \
    "{loader: a, rank: " rank ", " list ": " numbers ", read_s: 200.0, waited_s: 50.0}"

static const struct {
    const char *name, *view, *want;
} shaped[] = {
    {"epochs", "[{loader: a, " WITHOUT "}, {loader: b, " WITHOUT "}]",
     "LOADER  STEP\n"
     "a          5\n"
     "b          5\n"},
    {"epochs",
     "[{loader: a, " WITHOUT
     "}, {loader: b, " WITH("75", "100", "37.5") "},"
                                                 " {loader: c, " WITH("0", "0", "0.0") "}]",
     "LOADER  LEFTOVER  TOKENS/S  STEP  PADDING\n"
     "a              -         -     5        -\n"
     "b              7      37.5     5     25 %\n"
     "c              7         0     5        -\n"},
    /* What goes on comes first, and of whom is said where there are several. */
    {"epochs",
     "[{loader: a, uid: 0, state: finished},"
     " {loader: a, uid: 0, state: running, before: [{world: 2, steps: 3}]},"
     " {loader: a, uid: 0, state: expected}, {loader: a, uid: 1000, state: starving}]",
     "LOADER   UID  STATE     BEFORE\n"
     "a          0  running   3 steps of 2 ranks\n"
     "a       1000  starving  -\n"
     "a          0  finished  -\n"
     "a          0  expected  -\n"},
    /* What an older daemon, or a hostile one, says: no such keys, no numbers. */
    {"epochs", "[{step: 1}]", "STEP\n   1\n"},
    {"epochs", "[{step: 1, tokens: -4, padded: x, before: x}]", "STEP  BEFORE\n   1  x\n"},
    {"status",
     "{loaders: 2, verdicts: [{loader: a, uid: 0, verdict: 'idle: no trainer reads'},"
     " {loader: b, uid: 0, verdict: 'healthy: trainers hardly wait'}]}",
     "loaders: 2\n"
     "verdicts:\n"
     "  b\n"
     "    healthy: trainers hardly wait\n"
     "  a\n"
     "    idle: no trainer reads\n"},
    /* Of the last, nobody means the number. */
    {"lately",
     "[" LATELY("null", "batches", "[0, 5, 10]") ", " LATELY(
         "3", "waits", "[0, null, 50, 100]") ","
                                             " " LATELY("3", "waits", "[1000000000000, 0]") "]",
     "LOADER  RANK        READ  WAITED  WAIT SHARE  TEN MINUTES\n"
     "a          -  3 min 20 s    50 s           -  \u2581\u2584\u2588\n"
     "a          3  3 min 20 s    50 s        25 %  \u2581 \u2584\u2588\n"
     "a          3  3 min 20 s    50 s        25 %  \u2588\u2581\n"},
    /* A loader's only rank says what all of it does; another user's loader of the name is
     * another. */
    {"times",
     "[{loader: a, uid: 7, stage: fetch, rank: null, batches: 5},"
     " {loader: a, uid: 7, stage: fetch, rank: 3, batches: 5},"
     " {loader: b, uid: 7, stage: fetch, rank: null, batches: 6},"
     " {loader: b, uid: 7, stage: fetch, rank: 0, batches: 2},"
     " {loader: b, uid: 7, stage: fetch, rank: 1, batches: 4},"
     " {loader: a, uid: 8, stage: fetch, rank: null, batches: 9},"
     " {loader: a, uid: 8, stage: fetch, rank: 1, batches: 9}]",
     "LOADER  UID  STAGE  RANK  BATCHES\n"
     "a         7  fetch     -        5\n"
     "b         7  fetch     -        6\n"
     "b         7  fetch     0        2\n"
     "b         7  fetch     1        4\n"
     "a         8  fetch     -        9\n"},
    {"times",
     "[{loader: a, stage: fetch, rank: null, batches: 5},"
     " {loader: a, stage: fetch, rank: 0, batches: 5},"
     " {loader: b, stage: fetch, rank: null, batches: 7},"
     " {loader: b, stage: fetch, rank: 0, batches: 3},"
     " {loader: b, stage: fetch, rank: 1, batches: 4}]",
     "LOADER  STAGE  RANK  BATCHES\n"
     "a       fetch     -        5\n"
     "b       fetch     -        7\n"
     "b       fetch     0        3\n"
     "b       fetch     1        4\n"},
    /* What several samples have no name for is said once. */
    {"slowest",
     "[{loader: a, sample: 0, why_not: it is a number}, {loader: a, sample: 1, why_not: it is a "
     "number}, {loader: a, sample: 2, why_not: null}, {loader: a, sample: 3, why_not: no names}]",
     "LOADER  SAMPLE\n"
     "a            0\n"
     "a            1\n"
     "  it is a number\n"
     "a            2\n"
     "a            3\n"
     "  no names\n"},
};

TEST(test_shaped)
{
    for (size_t i = 0; i < ARRAY_SIZE(shaped); i++)
        assert_shaped(shaped[i].view, shaped[i].name, shaped[i].want);
}

/* No rows at all. */
TEST(test_no_rows)
{
    static const char *const views[] = {"[null]", "null"};
    struct table_style style;

    for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
        _cleanup_(value_deinit) struct value view = view_of(views[i]);
        assert_int_equal(shape_view("epochs", &view, &style), 0);
    }
}

TEST(test_progress_widths)
{
    const struct tally tally = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    const struct tally none = {0};
    char line[256];

    for (int columns = -1; columns < 300; columns++) {
        progress_line(&tally, 1, 1e-9, columns, line, sizeof line);
        assert_true((int)strlen(line) <= (columns > 0 ? columns : 0));
        progress_line(&tally, PROGRESS_UNKNOWN, 1, columns, line, sizeof line);
        assert_true((int)strlen(line) <= (columns > 0 ? columns : 0));
        progress_line(&none, 0, 0, columns, line, sizeof line);
        assert_true((int)strlen(line) <= (columns > 0 ? columns : 0));
    }
}
