/* What a report is made of: series out of batches, and text, tables and charts as HTML. */
#include "tests/lib/harness.h"

#include "client/dlctl/sheet/sheet.h"
#include "proto/yaml.h"

#include <errno.h>
#include <math.h>

static struct value parse(const char *yaml)
{
    struct value v = {0};
    struct dl_error err = {0};

    assert_int_equal(yaml_parse(yaml, strlen(yaml), "", &v, &err), 0);
    return v;
}

static struct sheet_batches read_batches(const char *yaml)
{
    struct value v = parse(yaml);
    struct sheet_batches b;

    assert_int_equal(sheet_batches_read(&v, "a", &b), 0);
    value_deinit(&v);
    return b;
}

/* epoch, rank, step, worker, planned, begun, fetched, made, ready, delivered, released */
static const char two_ranks[] = "[{loader: b, batches: [[1]]},"
                                " {loader: a, batches: ["
                                "[0, 1, 0, 0, 0, 0, 0, 0, 0, 3000, 6000],"
                                "[0, 0, 0, 0, 0, 100, 400, 500, 600, 1000, 2000],"
                                "[0, 0, 1, 1, 0, 100, 900, 1000, 1000, 4000, 7000]]}]";

static void test_batches(void **state)
{
    struct sheet_batches b = read_batches(two_ranks);
    const struct sheet_batch *slow[5];

    assert_int_equal(b.n, 3);
    assert_int_equal(b.ranks, 2);
    assert_int_equal(b.from, 1000);
    assert_int_equal(b.to, 7000);
    assert_int_equal(b.list[1].step, 1); /* by rank, then by delivery */
    assert_int_equal(sheet_slowest(&b, 5, slow), 3);
    assert_int_equal(slow[0]->step, 1);
    assert_int_equal(slow[1]->step, 0);
    assert_int_equal(slow[1]->rank, 0);
    assert_int_equal(slow[2]->rank, 1);
    assert_int_equal(sheet_slowest(&b, 1, slow), 1);
    assert_int_equal(slow[0]->step, 1);
    assert_int_equal(sheet_slowest(&b, 0, slow), 0);
    sheet_batches_deinit(&b);
}

static void test_over_time(void **state)
{
    struct sheet_batches b = read_batches(two_ranks);
    double values[SHEET_BINS], sum = 0;

    sheet_rate(&b, values);
    for (size_t i = 0; i < SHEET_BINS; i++)
        sum += values[i] * 6e-6 / SHEET_BINS;
    assert_true(fabs(sum - 3) < 1e-9); /* batches */
    /* Rank 0 has nothing from 2000 to 4000, rank 1 is there from 3000 on. */
    sheet_waiting(&b, values);
    for (size_t i = 0; i < SHEET_BINS; i++) {
        double at = 1000 + ((double)i + 0.5) * 100;
        double want = at < 2000 ? 0 : at < 3000 ? 1 : at < 4000 ? 0.5 : 0;
        assert_true(fabs(values[i] - want) < 1e-9);
    }
    assert_string_equal(sheet_stage(&b, 1, values), "fetch");
    assert_true(fabs(values[0] - 300e-9) < 1e-15);
    assert_true(isnan(values[1]));
    assert_string_equal(sheet_stage(&b, 5, values), "held");
    assert_null(sheet_stage(&b, 6, values));
    sheet_batches_deinit(&b);
}

static void test_wrong_views(void **state)
{
    static const struct {
        const char *yaml;
        int r;
        size_t n;
    } rows[] = {
        {"null", 0, 0},
        {"[]", 0, 0},
        {"[1, x]", 0, 0},
        {"[{loader: b, batches: [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]]}]", 0, 0},
        {"[{loader: a}]", 0, 0},
        {"[{loader: a, batches: []}]", 0, 0},
        {"[{loader: a, batches: {x: 1}}]", -EBADMSG, 0},
        {"[{loader: a, batches: [1]}]", -EBADMSG, 0},
        {"[{loader: a, batches: [[1, 2, 3]]}]", -EBADMSG, 0},
        {"[{loader: a, batches: [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, x]]}]", -EBADMSG, 0},
        {"[{loader: a, batches: [[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10]]}]", -EBADMSG, 0},
        {"[{loader: a, batches: [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]]}]", 0, 1},
        {"[{loader: a, batches: [[1, 2, 3, 4, 9, 8, 7, 6, 5, 4, 18446744073709551615]]}]", 0, 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct value v = parse(rows[i].yaml);
        struct sheet_batches b;
        double values[SHEET_BINS];

        assert_int_equal(sheet_batches_read(&v, "a", &b), rows[i].r);
        assert_int_equal(b.n, rows[i].n);
        sheet_rate(&b, values);
        sheet_waiting(&b, values);
        for (size_t k = 0; sheet_stage(&b, k, values); k++)
            assert_false(values[0] < 0);
        sheet_batches_deinit(&b);
        value_deinit(&v);
    }
}

/* All lists end at the same time, and have begun when something was known. */
static void test_lately(void **state)
{
    struct value v =
        parse("[{loader: b, uid: 0, rank: null, bin_s: 10, last_s: 2, age_s: 0, batches: [9], "
              "bytes: [9]},"
              " {loader: a, rank: null, bin_s: 10, last_s: 2, age_s: 7, batches: [30, 8], bytes: "
              "[100, 20]},"
              " {loader: a, rank: 0, waits: [50, null, 100]}, {loader: a, rank: 1, waits: [0]},"
              " {loader: a, rank: 2, waits: x}, [], 3]");
    struct sheet_lately lately;

    sheet_lately_read(&v, "a", &lately);
    assert_true(lately.known);
    assert_int_equal(lately.ranks, 3);
    assert_true(lately.seconds == 592 && lately.age == 7);
    assert_true(isnan(lately.rate[57]) && lately.rate[58] == 3 && lately.rate[59] == 4);
    assert_true(lately.bytes[58] == 10 && lately.bytes[59] == 10);
    assert_true(isnan(lately.waiting[56]) && lately.waiting[57] == 0.5);
    assert_true(isnan(lately.waiting[58]) && lately.waiting[59] == 0.5);
    sheet_lately_read(&v, "c", &lately);
    assert_false(lately.known);
    value_deinit(&v);
    /* More bins than a chart has points: the last ones. */
    v = parse(
        "[{loader: a, rank: 0, waits: [7,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
        "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,25]}]");
    sheet_lately_read(&v, "a", &lately);
    assert_true(lately.waiting[0] == 0 && lately.waiting[59] == 0.25);
    value_deinit(&v);
}

/* ---- HTML ----------------------------------------------------------------------------------- */

static char *html;
static size_t html_len;

static void expect_table(const char *yaml, const char *loader, const char *const *keys,
                         const char *want)
{
    struct value v = parse(yaml);
    FILE *file = open_memstream(&html, &html_len);

    assert_non_null(file);
    assert_int_equal(sheet_table(file, "c", &v, loader, keys), want != NULL);
    assert_int_equal(fclose(file), 0);
    if (want)
        assert_non_null(strstr(html, want));
    else
        assert_string_equal(html, "");
    free(html);
    value_deinit(&v);
}

static void test_tables(void **state)
{
    static const char *const keys[] = {"x", "size_bytes", "none", NULL};

    expect_table("[]", NULL, NULL, NULL);
    expect_table("{x: 1}", NULL, NULL, NULL);
    expect_table("[1, 2]", NULL, NULL, NULL);
    expect_table("[{loader: b, x: 1}]", "a", keys, NULL);
    expect_table("[{x: null}]", NULL, keys, NULL);
    expect_table("[{loader: a, x: 1, size_bytes: 2048}, {loader: b, x: 3}]", "a", keys,
                 "<th scope=\"col\">x</th><th scope=\"col\">size</th></tr></thead>\n<tbody>\n"
                 "<tr><td>1</td><td>2.0 KiB</td></tr>\n</tbody>");
    expect_table("[{x: 1}, {size_bytes: 1}]", NULL, keys,
                 "<tr><td>1</td><td>-</td></tr>\n<tr><td>-</td><td>1 B</td></tr>");
    expect_table("[{x: \"<b>&\\\"</td>\"}]", NULL, keys,
                 "<td>&lt;b&gt;&amp;&quot;&lt;/td&gt;</td>");
    expect_table("[{\"<k>\": 1}]", NULL, NULL, "<th scope=\"col\">&lt;k&gt;</th>");
}

static void test_charts(void **state)
{
    double values[SHEET_BINS];
    FILE *file = open_memstream(&html, &html_len);
    struct value rows = parse("[{upper: 8, members: 3}, {upper: 16, members: 6}, {x: 1}]");

    for (size_t i = 0; i < SHEET_BINS; i++)
        values[i] = NAN;
    assert_non_null(file);
    sheet_chart(file, "nothing is known", "x", values, 1);
    values[3] = 2;
    values[10] = 1;
    values[11] = 3;
    sheet_chart(file, "<c>", "mean_s", values, 5);
    sheet_bars(file, "b", &rows, "upper", "members");
    assert_int_equal(fclose(file), 0);
    assert_null(strstr(html, "nothing"));
    assert_null(strstr(html, "nan"));
    assert_non_null(strstr(html, "&lt;c&gt;: 2.0 s on average, from 1.0 s to 3.0 s</figcaption>"));
    assert_non_null(strstr(html, "<path d=\"M30.5 51.3h2M101.7 84.7L111.9 18.0\"/>"));
    assert_non_null(
        strstr(html, "8: 3</text><rect x=\"150\" y=\"0\" width=\"225.0\" height=\"14\"/>"));
    free(html);
    value_deinit(&rows);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_batches),     cmocka_unit_test(test_over_time),
    cmocka_unit_test(test_wrong_views), cmocka_unit_test(test_lately),
    cmocka_unit_test(test_tables),      cmocka_unit_test(test_charts),
};

TEST_MAIN(tests)
