/* Views as text and JSON, units, and the progress line. */
#include "client/dlctl/render.h"
#include "client/dlctl/run/progress.h"
#include "client/dlctl/shape.h"
#include "client/dlctl/text.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <math.h>

/* ---- building values ------------------------------------------------------------------------ */

static struct value *child(struct value *parent, const char *key)
{
    struct value *v = NULL;

    assert_int_equal(key ? value_set(parent, key, &v) : value_push(parent, &v), 0);
    return v;
}

static struct value *container(struct value *parent, const char *key, enum value_type type)
{
    struct value *v = child(parent, key);

    v->type = type;
    return v;
}

static void put_string(struct value *map, const char *key, const char *s)
{
    assert_int_equal(value_set_string(map, key, s), 0);
}

static void put_int(struct value *map, const char *key, int64_t i)
{
    assert_int_equal(value_set_int(map, key, i), 0);
}

static void put_float(struct value *map, const char *key, double d)
{
    assert_int_equal(value_set_float(map, key, d), 0);
}

/* Renders and frees `v`; compares. */
static void assert_styled(struct value *v, const char *name, const struct table_style *style,
                          const char *want)
{
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    assert_non_null(file);
    assert_int_equal(render_view(file, v, name, style), 0);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, want);
    free(text);
    value_deinit(v);
}

static void assert_rendered(struct value *v, const char *name, const char *want)
{
    assert_styled(v, name, NULL, want);
}

static void assert_json(struct value *v, const char *want)
{
    json_t *json = render_json(v);
    char *text;

    assert_non_null(json);
    text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
    json_decref(json);
    value_deinit(v);
}

/* ---- tables --------------------------------------------------------------------------------- */

TEST(test_table)
{
    struct value rows = {.type = VALUE_ARRAY};
    struct value *row = container(&rows, NULL, VALUE_MAP);

    put_string(row, "name", "fashion");
    put_int(row, "worker_count", 2);
    put_int(row, "used_bytes", 1536);
    put_float(row, "age_s", 12.34);
    put_string(row, "state", "open");
    row = container(&rows, NULL, VALUE_MAP);
    put_string(row, "name", "x");
    put_int(row, "worker_count", 128);
    child(row, "used_bytes");
    put_float(row, "age_s", 1234.5);
    put_string(row, "state", "closing");
    assert_rendered(&rows, "loaders",
                    "NAME     WORKER COUNT     USED          AGE  STATE\n"
                    "fashion             2  1.5 KiB         12 s  open\n"
                    "x                 128        -  20 min 35 s  closing\n");
}

TEST(test_table_unequal_keys)
{
    struct value rows = {.type = VALUE_ARRAY};

    put_int(container(&rows, NULL, VALUE_MAP), "a", 1);
    put_string(container(&rows, NULL, VALUE_MAP), "b", "two");
    assert_rendered(&rows, "things",
                    "A  B\n"
                    "1  -\n"
                    "-  two\n");
}

TEST(test_table_wide_text)
{
    struct value rows = {.type = VALUE_ARRAY};
    struct value *row = container(&rows, NULL, VALUE_MAP);

    put_string(row, "name", "h\xc3\xa9");
    put_int(row, "n", 1);
    row = container(&rows, NULL, VALUE_MAP);
    put_string(row, "name", "plain");
    put_int(row, "n", 22);
    assert_rendered(&rows, "things",
                    "NAME    N\n"
                    "h\xc3\xa9      1\n"
                    "plain  22\n");
}

TEST(test_table_nested_cells)
{
    struct value rows = {.type = VALUE_ARRAY};
    struct value *row = container(&rows, NULL, VALUE_MAP), *list, *map;

    list = container(row, "ranks", VALUE_ARRAY);
    for (int i = 0; i < 3; i++) {
        struct value *v = container(list, NULL, VALUE_INT);
        v->integer = i;
    }
    map = container(row, "slots", VALUE_MAP);
    put_int(map, "free", 3);
    put_int(map, "size_bytes", 4096);
    container(row, "none", VALUE_ARRAY);
    assert_rendered(&rows, "ring",
                    "RANKS    SLOTS\n"
                    "0, 1, 2  free=3, size=4.0 KiB\n");
}

/* What fits a screen: the columns that matter more, and text below its row. */
static struct value things(void)
{
    struct value rows = {.type = VALUE_ARRAY};

    for (int i = 0; i < 2; i++) {
        struct value *row = container(&rows, NULL, VALUE_MAP);

        put_string(row, "name", i ? "second" : "a");
        put_int(row, "n", 1000 * i);
        put_string(row, "state", "open");
        child(row, "job");
        put_float(row, "rate_bytes_per_s", 1024);
        put_string(row, "verdict", i ? "all is well here" : "-");
        put_string(row, "secret", "no");
    }
    return rows;
}

TEST(test_table_that_fits)
{
    struct table_style style = {
        .keys = "name state rate_bytes_per_s n job", .never = "secret", .below = "verdict"};
    struct value rows = things();

    style.width = 13;
    assert_styled(&rows, "things", &style,
                  "NAME    STATE\n"
                  "a       open\n"
                  "second  open\n"
                  "  all is well\n"
                  "  here\n");
    rows = things();
    style.width = 21; /* no room for the rate, but for what matters less */
    assert_styled(&rows, "things", &style,
                  "NAME       N  STATE\n"
                  "a          0  open\n"
                  "second  1000  open\n"
                  "  all is well here\n");
    rows = things();
    style.width = 1; /* the first one is there in any case */
    assert_styled(&rows, "things", &style,
                  "a\n"
                  "second\n"
                  "  all\n"
                  "  is\n"
                  "  well\n"
                  "  here\n");
    rows = things();
    style.width = 0;
    assert_styled(&rows, "things", &style,
                  "NAME       N  STATE   RATE/S  VERDICT\n"
                  "a          0  open   1.0 KiB  -\n"
                  "second  1000  open   1.0 KiB  all is well here\n");
}

/* Nothing to say is said, too. */
TEST(test_table_of_nothing)
{
    struct value rows = {.type = VALUE_ARRAY};

    child(container(&rows, NULL, VALUE_MAP), "job");
    assert_rendered(&rows, "things", "JOB\n  -\n");
}

TEST(test_empty)
{
    struct value array = {.type = VALUE_ARRAY}, map = {.type = VALUE_MAP};

    assert_rendered(&array, "sessions", "no sessions\n");
    assert_rendered(&map, "epochs", "no epochs\n");
}

/* What another process sent can't move the cursor or colour the terminal. */
TEST(test_control_characters)
{
    struct value rows = {.type = VALUE_ARRAY};
    struct value map = {.type = VALUE_MAP};

    put_string(container(&rows, NULL, VALUE_MAP), "na\x1bme", "a\x1b[31m\nb\x7f");
    assert_rendered(&rows, "x", "NA?ME\na?[31m?b?\n");
    put_string(&map, "k\n", "\r");
    assert_rendered(&map, "x", "k?: ?\n");
}

/* ---- maps and single values ----------------------------------------------------------------- */

TEST(test_map)
{
    struct value map = {.type = VALUE_MAP}, *inner, *rows;

    put_string(&map, "version", "0.1.0");
    put_int(&map, "pid", -1);
    put_float(&map, "uptime_s", 0.5);
    put_float(&map, "batches_per_s", 1234.5);
    put_float(&map, "read_bytes_per_s", 3 * 1048576.0);
    put_int(&map, "bytes", 10);
    put_float(&map, "ratio", 0.25);
    assert_int_equal(value_set_bool(&map, "private", false), 0);
    assert_int_equal(value_set_uint(&map, "seed", UINT64_MAX), 0);
    child(&map, "pin");
    inner = container(&map, "limits", VALUE_MAP);
    put_int(inner, "memory_bytes", 1 << 30);
    inner = container(inner, "deep", VALUE_MAP);
    put_int(inner, "x", 1);
    container(&map, "empty", VALUE_MAP);
    rows = container(&map, "uids", VALUE_ARRAY);
    put_int(container(rows, NULL, VALUE_MAP), "uid", 1000);
    assert_rendered(&map, "status",
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
                    "  1000\n");
}

TEST(test_other_views)
{
    struct value null = {.type = VALUE_NULL}, mixed = {.type = VALUE_ARRAY};

    assert_rendered(&null, "x", "-\n");
    container(&mixed, NULL, VALUE_BOOL)->boolean = true;
    put_int(container(&mixed, NULL, VALUE_MAP), "a", 1);
    assert_rendered(&mixed, "x", "yes, a=1\n");
}

/* ---- JSON ----------------------------------------------------------------------------------- */

TEST(test_json)
{
    struct value map = {.type = VALUE_MAP}, *list;

    put_string(&map, "s", "a\"b\n");
    put_int(&map, "i", INT64_MIN);
    assert_int_equal(value_set_uint(&map, "u", UINT64_MAX), 0);
    put_float(&map, "f", 0.1);
    put_float(&map, "inf", INFINITY);
    put_float(&map, "nan", NAN);
    assert_int_equal(value_set_bool(&map, "t", true), 0);
    child(&map, "n");
    list = container(&map, "l", VALUE_ARRAY);
    container(list, NULL, VALUE_MAP);
    container(list, NULL, VALUE_ARRAY);
    assert_json(&map, "{\"s\":\"a\\\"b\\n\",\"i\":-9223372036854775808,"
                      "\"u\":\"18446744073709551615\",\"f\":0.1,\"inf\":null,\"nan\":null,"
                      "\"t\":true,\"n\":null,\"l\":[{},[]]}");
}

TEST(test_json_bad_utf8)
{
    struct value map = {.type = VALUE_MAP};

    put_string(&map, "k\xff", "a\xc3");
    put_string(&map, "good", "h\xc3\xa9");
    assert_json(&map, "{\"k?\":\"a?\",\"good\":\"h\xc3\xa9\"}");
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

/* ---- epochs --------------------------------------------------------------------------------- */

/* A row of the view `epochs`; tokens < 0: it has no batches of tokens. */
static void add_epoch(struct value *view, const char *loader, int64_t tokens, int64_t padded)
{
    static const char *const keys[] = {"tokens",   "padded",  "overlong",
                                       "leftover", "carried", "repeated"};
    const int64_t values[] = {tokens, padded, 3, 7, 4, 0};
    struct value *row = container(view, NULL, VALUE_MAP), *bucket;

    put_string(row, "loader", loader);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (tokens < 0)
            child(row, keys[i]);
        else
            put_int(row, keys[i], values[i]);
    }
    if (tokens >= 0) {
        put_float(row, "tokens_per_s", (double)tokens / 2);
        bucket = container(container(row, "buckets", VALUE_ARRAY), NULL, VALUE_MAP);
        put_int(bucket, "upper", 8);
    } else {
        child(row, "tokens_per_s");
        child(row, "buckets");
    }
    put_int(row, "step", 5);
}

/* As people see it, with room enough. */
static void assert_shaped(struct value *view, const char *name, const char *want)
{
    struct table_style style;

    assert_int_equal(shape_view(name, view, &style), 0);
    style.width = 100;
    assert_styled(view, name, &style, want);
}

TEST(test_epochs_without_tokens)
{
    struct value view = {.type = VALUE_ARRAY};

    add_epoch(&view, "a", -1, -1);
    add_epoch(&view, "b", -1, -1);
    assert_shaped(&view, "epochs",
                  "LOADER  STEP\n"
                  "a          5\n"
                  "b          5\n");
}

TEST(test_epochs_with_tokens)
{
    struct value view = {.type = VALUE_ARRAY};

    add_epoch(&view, "a", -1, -1);
    add_epoch(&view, "b", 75, 100);
    add_epoch(&view, "c", 0, 0);
    assert_shaped(&view, "epochs",
                  "LOADER  LEFTOVER  TOKENS/S  STEP  PADDING\n"
                  "a              -         -     5        -\n"
                  "b              7      37.5     5     25 %\n"
                  "c              7         0     5        -\n");
}

static void add_before(struct value *row, int64_t world, int64_t steps)
{
    struct value *stretch = container(container(row, "before", VALUE_ARRAY), NULL, VALUE_MAP);

    put_int(stretch, "world", world);
    put_int(stretch, "steps", steps);
}

/* What goes on comes first, and of whom is said where there are several. */
TEST(test_epochs_in_order)
{
    static const char *const states[] = {"finished", "running", "expected", "starving"};
    struct value view = {.type = VALUE_ARRAY}, *row;

    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        row = container(&view, NULL, VALUE_MAP);
        put_string(row, "loader", "a");
        put_int(row, "uid", i < 3 ? 0 : 1000);
        put_string(row, "state", states[i]);
        if (i == 1)
            add_before(row, 2, 3);
    }
    assert_shaped(&view, "epochs",
                  "LOADER   UID  STATE     BEFORE\n"
                  "a          0  running   3 steps of 2 ranks\n"
                  "a       1000  starving  -\n"
                  "a          0  finished  -\n"
                  "a          0  expected  -\n");
}

TEST(test_loaders_in_order)
{
    static const char *const verdicts[] = {"idle: no trainer reads",
                                           "healthy: trainers hardly wait"};
    struct value status = {.type = VALUE_MAP}, *rows, *row;

    put_int(&status, "loaders", 2);
    rows = container(&status, "verdicts", VALUE_ARRAY);
    for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
        row = container(rows, NULL, VALUE_MAP);
        put_string(row, "loader", i ? "b" : "a");
        put_int(row, "uid", 0);
        put_string(row, "verdict", verdicts[i]);
    }
    assert_shaped(&status, "status",
                  "loaders: 2\n"
                  "verdicts:\n"
                  "  b\n"
                  "    healthy: trainers hardly wait\n"
                  "  a\n"
                  "    idle: no trainer reads\n");
}

static void add_lately(struct value *rows, const char *list, const double *numbers, size_t n)
{
    struct value *row = container(rows, NULL, VALUE_MAP), *line;

    put_string(row, "loader", "a");
    if (strcmp(list, "waits") == 0)
        put_int(row, "rank", 3);
    else
        child(row, "rank");
    line = container(row, list, VALUE_ARRAY);
    for (size_t i = 0; i < n; i++) {
        struct value *v = child(line, NULL);
        if (numbers[i] >= 0)
            value_make_uint(v, (uint64_t)numbers[i]);
    }
    put_float(row, "read_s", 200);
    put_float(row, "waited_s", 50);
}

TEST(test_lately)
{
    struct value view = {.type = VALUE_ARRAY};

    add_lately(&view, "batches", (const double[]){0, 5, 10, 1e9}, 3);
    add_lately(&view, "waits", (const double[]){0, -1, 50, 100}, 4);
    add_lately(&view, "waits", (const double[]){1e12, 0}, 2); /* nobody means that */
    assert_shaped(&view, "lately",
                  "LOADER  RANK        READ  WAITED  WAIT SHARE  TEN MINUTES\n"
                  "a          -  3 min 20 s    50 s           -  \u2581\u2584\u2588\n"
                  "a          3  3 min 20 s    50 s        25 %  \u2581 \u2584\u2588\n"
                  "a          3  3 min 20 s    50 s        25 %  \u2588\u2581\n");
}

static void add_time(struct value *view, const char *loader, int uid, int rank, int batches)
{
    struct value *row = container(view, NULL, VALUE_MAP);

    put_string(row, "loader", loader);
    if (uid >= 0) /* it is not in every view */
        put_int(row, "uid", uid);
    put_string(row, "stage", "fetch");
    if (rank >= 0)
        put_int(row, "rank", rank);
    else
        child(row, "rank");
    put_int(row, "batches", batches);
}

/* A loader's only rank says what all of it does; another user's loader of the name is another. */
TEST(test_times_of_one_rank)
{
    struct value view = {.type = VALUE_ARRAY};

    add_time(&view, "a", 7, -1, 5);
    add_time(&view, "a", 7, 3, 5);
    add_time(&view, "b", 7, -1, 6);
    add_time(&view, "b", 7, 0, 2);
    add_time(&view, "b", 7, 1, 4);
    add_time(&view, "a", 8, -1, 9);
    add_time(&view, "a", 8, 1, 9);
    assert_shaped(&view, "times",
                  "LOADER  UID  STAGE  RANK  BATCHES\n"
                  "a         7  fetch     -        5\n"
                  "b         7  fetch     -        6\n"
                  "b         7  fetch     0        2\n"
                  "b         7  fetch     1        4\n"
                  "a         8  fetch     -        9\n");
    view = (struct value){.type = VALUE_ARRAY};
    add_time(&view, "a", -1, -1, 5);
    add_time(&view, "a", -1, 0, 5);
    add_time(&view, "b", -1, -1, 7);
    add_time(&view, "b", -1, 0, 3);
    add_time(&view, "b", -1, 1, 4);
    assert_shaped(&view, "times",
                  "LOADER  STAGE  RANK  BATCHES\n"
                  "a       fetch     -        5\n"
                  "b       fetch     -        7\n"
                  "b       fetch     0        3\n"
                  "b       fetch     1        4\n");
}

/* What several samples have no name for is said once. */
TEST(test_slowest_say_it_once)
{
    static const char *const whys[] = {"it is a number", "it is a number", NULL, "no names"};
    struct value view = {.type = VALUE_ARRAY};

    for (int i = 0; i < 4; i++) {
        struct value *row = container(&view, NULL, VALUE_MAP);

        put_string(row, "loader", "a");
        put_int(row, "sample", i);
        if (whys[i])
            put_string(row, "why_not", whys[i]);
        else
            child(row, "why_not");
    }
    assert_shaped(&view, "slowest",
                  "LOADER  SAMPLE\n"
                  "a            0\n"
                  "a            1\n"
                  "  it is a number\n"
                  "a            2\n"
                  "a            3\n"
                  "  no names\n");
}

/* What an older daemon, or a hostile one, says: no such keys, no numbers, no rows. */
TEST(test_epochs_otherwise)
{
    struct value view = {.type = VALUE_ARRAY};
    struct value *row = container(&view, NULL, VALUE_MAP);
    struct table_style style;

    put_int(row, "step", 1);
    assert_shaped(&view, "epochs", "STEP\n   1\n");

    view = (struct value){.type = VALUE_ARRAY};
    row = container(&view, NULL, VALUE_MAP);
    put_int(row, "step", 1);
    put_int(row, "tokens", -4);
    put_string(row, "padded", "x");
    put_string(row, "before", "x");
    assert_shaped(&view, "epochs", "STEP  BEFORE\n   1  x\n");

    view = (struct value){.type = VALUE_ARRAY};
    child(&view, NULL);
    assert_int_equal(shape_view("epochs", &view, &style), 0);
    value_deinit(&view);
    assert_int_equal(shape_view("epochs", &view, &style), 0);
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
