/* The rows of dlctl top: figures out of two looks by table, their order, how a table shows them,
 * and views of any shape. */
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include "client/dlctl/render.h"
#include "client/dlctl/shape.h"
#include "client/dlctl/top/top.h"
#include "proto/yaml.h"

#include <errno.h>
#include <math.h>

#define STATUS "{version: 1.2.3, state: running, pid: 7}"

/* Views in YAML, in their order; NULL is null. */
struct texts {
    const char *views[TOP_VIEWS];
};

static struct top_look look_of(const struct texts *texts, double at_s)
{
    struct top_look look = {.at_s = at_s};
    struct dl_error err = {0};

    for (size_t i = 0; i < TOP_VIEWS; i++) {
        const char *text = texts->views[i];

        if (text && yaml_parse(text, strlen(text), "", &look.views[i], &err) < 0)
            fail_msg("view %zu: %s", i, err.message);
    }
    return look;
}

/* Two seconds lie between the looks; `then` NULL: there was none. */
static struct value rows_of(const struct texts *then, const struct texts *now)
{
    struct top_look before = then ? look_of(then, 100) : (struct top_look){0};
    struct top_look look = look_of(now, 102);
    struct value rows = {0};

    assert_int_equal(top_rows_make(&look, &before, &rows), 0);
    top_look_deinit(&before);
    top_look_deinit(&look);
    return rows;
}

static void assert_figure(const struct value *rows, uint32_t i, const char *key, double want)
{
    double got = value_real(value_get(&rows->items[i], key));

    assert_true(i < rows->count && value_get(&rows->items[i], key));
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) < 1e-9))
        fail_msg("row %u: %s is %g, not %g", i, key, got, want);
}

/* ---- figures -------------------------------------------------------------------------------- */

static const struct {
    const char *then, *now; /* NULL: it is new */
    double samples_per_s, bytes_per_s;
} rate_rows[] = {
    {"samples: 100, delivered_bytes: 1000", "samples: 120, delivered_bytes: 1000", 10, 0},
    {NULL, "samples: 120, delivered_bytes: 1000", NAN, NAN},
    /* It was opened anew. */
    {"samples: 100, delivered_bytes: 1000", "samples: 3, delivered_bytes: 2000", NAN, 500},
    {"samples: x, delivered_bytes: null", "samples: 3, delivered_bytes: []", NAN, NAN},
};

static char *row_text(const char *fixed, const char *rest)
{
    char *text = NULL;

    assert_true(asprintf(&text, rest ? "[{%s%s}]" : "[]", fixed, rest) > 0);
    return text;
}

TEST(test_rates)
{
    for (size_t i = 0; i < ARRAY_SIZE(rate_rows); i++) {
        _cleanup_free_ char *then = row_text("name: a, uid: 1, ", rate_rows[i].then);
        _cleanup_free_ char *now = row_text("name: a, uid: 1, ", rate_rows[i].now);
        _cleanup_(value_deinit) struct value rows =
            rows_of(&(struct texts){{STATUS, then}}, &(struct texts){{STATUS, now}});

        print_message("# %s\n", rate_rows[i].now);
        assert_figure(&rows, 0, "samples_per_s", rate_rows[i].samples_per_s);
        assert_figure(&rows, 0, "delivered_bytes_per_s", rate_rows[i].bytes_per_s);
        assert_figure(&rows, 0, "batches_per_s", NAN);
    }
}

/* Of all workers; one that was started anew has used less than the one before it. */
static const struct {
    const char *then, *now;
    double cpu;
} cpu_rows[] = {
    {"[{loader: a, uid: 1, cpu_s: 1}, {loader: a, uid: 1, cpu_s: 5}]",
     "[{loader: a, uid: 1, cpu_s: 2}, {loader: a, uid: 1, cpu_s: 7}, {loader: b, uid: 1, cpu_s: "
     "9}]",
     1.5},
    {"[{loader: a, uid: 1, cpu_s: 9}]", "[{loader: a, uid: 1, cpu_s: 1}]", NAN},
    {"[{loader: a, uid: 1, cpu_s: 9}]", "[{loader: a, uid: 1, cpu_s: null}]", NAN},
    {"[{loader: a, uid: 1, cpu_s: 9}]", "[{loader: a, uid: 2, cpu_s: 99}]", NAN},
    {"[]", "[{loader: a, uid: 1, cpu_s: 3}]", NAN},
};

TEST(test_cpu)
{
    static const char loaders[] = "[{name: a, uid: 1}]";

    for (size_t i = 0; i < ARRAY_SIZE(cpu_rows); i++) {
        const struct texts then = {{STATUS, loaders, NULL, cpu_rows[i].then}};
        const struct texts now = {{STATUS, loaders, NULL, cpu_rows[i].now}};
        _cleanup_(value_deinit) struct value rows = rows_of(&then, &now);

        print_message("# %s\n", cpu_rows[i].now);
        assert_figure(&rows, 0, "cpu", cpu_rows[i].cpu);
    }
}

/* The last two bins of ten seconds of each rank. */
static const struct {
    const char *lately;
    double wait;
} wait_rows[] = {
    {"[{loader: a, waits: [90, 20, 40], age_s: 0, bin_s: 10}]", 0.3},
    {"[{loader: a, waits: [40], age_s: 0, bin_s: 10}]", 0.4},
    {"[{loader: a, waits: [0, 0], age_s: 0, bin_s: 10},"
     " {loader: a, waits: [100, 100], age_s: 0, bin_s: 10},"
     " {loader: b, waits: [70], age_s: 0, bin_s: 10}]",
     0.5},
    {"[{loader: a, waits: [100, null], age_s: 0, bin_s: 10}]", 1},
    /* Ranks that are gone. */
    {"[{loader: a, waits: [100, null, null], age_s: 0, bin_s: 10}]", NAN},
    {"[{loader: a, waits: [100], age_s: 11, bin_s: 10}]", NAN},
    {"[{loader: a, waits: [], age_s: 0, bin_s: 10}, {loader: a, waits: null, batches: [1, 2]}]",
     NAN},
};

TEST(test_wait)
{
    for (size_t i = 0; i < ARRAY_SIZE(wait_rows); i++) {
        const struct texts now = {{STATUS, "[{name: a}]", NULL, NULL, wait_rows[i].lately}};
        _cleanup_(value_deinit) struct value rows = rows_of(NULL, &now);

        print_message("# %s\n", wait_rows[i].lately);
        assert_figure(&rows, 0, "wait", wait_rows[i].wait);
    }
}

/* Of the slowest rank that reads. */
static const struct {
    const char *epochs;
    double progress, left_s;
} left_rows[] = {
    {"[{loader: a, state: running, progress: 0.5, left_s: 7},"
     " {loader: a, state: starving, progress: 0.25, left_s: 30},"
     " {loader: a, state: finished, progress: 1, left_s: 0},"
     " {loader: a, state: parked, progress: 0.1, left_s: 99},"
     " {loader: b, state: running, progress: 0.1, left_s: 99}]",
     0.25, 30},
    {"[{loader: a, state: running, progress: null, left_s: null}]", NAN, NAN},
    {"[{loader: a, state: expected, progress: 0, left_s: null}]", NAN, NAN},
    {"[]", NAN, NAN},
};

TEST(test_left)
{
    for (size_t i = 0; i < ARRAY_SIZE(left_rows); i++) {
        const struct texts now = {{STATUS, "[{name: a}]", left_rows[i].epochs}};
        _cleanup_(value_deinit) struct value rows = rows_of(NULL, &now);

        print_message("# %s\n", left_rows[i].epochs);
        assert_figure(&rows, 0, "progress", left_rows[i].progress);
        assert_figure(&rows, 0, "left_s", left_rows[i].left_s);
    }
}

/* Another process behind the same socket. */
TEST(test_another_daemon)
{
    const struct texts then = {{STATUS, "[{name: a, batches: 10}]"}};
    const struct texts now = {{"{pid: 8}", "[{name: a, batches: 12}]"}};
    _cleanup_(value_deinit) struct value same =
        rows_of(&then, &(struct texts){{STATUS, now.views[1]}});
    _cleanup_(value_deinit) struct value other = rows_of(&then, &now);

    assert_figure(&same, 0, "batches_per_s", 1);
    assert_figure(&other, 0, "batches_per_s", NAN);
}

/* ---- order and table ------------------------------------------------------------------------ */

static const struct texts THEN = {{STATUS, "[{name: a, samples: 0}, {name: b, samples: 0}]"}};
static const struct texts NOW = {
    {STATUS,
     "[{name: b, samples: 40, memory_bytes: 1, faults: 1, bad: 2, retries: 3, verdict: 'healthy: "
     "trainers hardly wait'}, {name: a, samples: 20, memory_bytes: 5, verdict: 'loader-bound: the "
     "trainer waited'}, {name: c, samples: 900, memory_bytes: 3, verdict: 'idle: no trainer'}]",
     "[{loader: a, state: running, progress: 0.5, left_s: 30}]", "[]",
     "[{loader: a, batches: [0, 4, 8, 3]}]"}};

static const struct {
    char key;
    bool reverse;
    const char *order;
} sort_rows[] = {
    {'n', false, "abc"}, {'n', true, "cba"},  {'s', false, "bac"},
    {'s', true, "abc"},  {'w', false, "abc"}, {'c', true, "cba"},
    {'m', false, "acb"}, {'m', true, "bca"},  {'e', false, "bac"},
};

static const struct top_sort *sort_by(char key)
{
    for (size_t i = 0; i < TOP_SORTS; i++)
        if (top_sorts[i].key == key)
            return &top_sorts[i];
    fail_msg("no sort %c", key);
    return NULL;
}

TEST(test_sort)
{
    _cleanup_(value_deinit) struct value rows = rows_of(&THEN, &NOW);

    for (size_t i = 0; i < ARRAY_SIZE(sort_rows); i++) {
        char order[8] = "";

        top_rows_sort(&rows, sort_by(sort_rows[i].key), sort_rows[i].reverse);
        for (uint32_t j = 0; j < rows.count; j++)
            strcat(order, value_get(&rows.items[j], "name")->string);
        print_message("# %c\n", sort_rows[i].key);
        assert_string_equal(order, sort_rows[i].order);
    }
}

/* What nobody reads comes last and has no verdict; the line has no block for what is not over. */
TEST(test_table)
{
    _cleanup_(value_deinit) struct value rows = rows_of(&THEN, &NOW);
    _cleanup_free_ char *text = NULL;
    struct table_style style;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    top_rows_sort(&rows, sort_by('n'), true);
    assert_int_equal(shape_view("top", &rows, &style), 0);
    style.width = 80;
    assert_int_equal(render_view(file, &rows, "loaders", &style), 0);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "NAME  MEMORY  SAMPLES/S  LATELY  PROGRESS  LEFT  ERRORS\n"
                              "b        1 B         20                 -     -       6\n"
                              "  healthy: trainers hardly wait\n"
                              "a        5 B         10  ▁▄█         50 %  30 s       0\n"
                              "  loader-bound: the trainer waited\n"
                              "c        3 B          -                 -     -       0\n");
}

/* ---- any shape, and no memory --------------------------------------------------------------- */

static const char *const shapes[] = {
    NULL,
    "7",
    "text",
    "[]",
    "{}",
    "[7, text, [], {}, null]",
    "{a: [{}]}",
    "[{name: 7, loader: [], state: {}, waits: 1, batches: {}, verdict: 2}]",
    "[{name: a, loader: a, waits: [x, []], batches: [x, {}], left_s: x, progress: []}, {name: a}]",
};

TEST(test_shapes)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        const struct texts texts = {{shapes[i], shapes[i], shapes[i], shapes[i], shapes[i]}};
        _cleanup_(value_deinit) struct value rows = rows_of(&texts, &texts);
        struct table_style style;

        assert_int_equal(rows.type, VALUE_ARRAY);
        for (size_t sort = 0; sort < TOP_SORTS; sort++)
            top_rows_sort(&rows, &top_sorts[sort], sort & 1);
        assert_int_equal(shape_view("top", &rows, &style), 0);
    }
}

TEST(test_memory)
{
    struct top_look before = look_of(&THEN, 100), look = look_of(&NOW, 102);
    struct value rows = {0};
    int failed = 0;

    for (;; failed++) {
        int r;

        fail_in = failed;
        r = top_rows_make(&look, &before, &rows);
        if (fail_in >= 0) /* all that it asked for, it got */
            break;
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(rows.type, VALUE_NULL);
    }
    fail_in = -1;
    assert_int_equal(rows.count, 3);
    assert_true(failed >= 4);
    value_deinit(&rows);
    top_look_deinit(&before);
    top_look_deinit(&look);
}
