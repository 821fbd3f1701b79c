/* What dlctl top knows: rates, shares and the time left by table, the order of rows, and views of
 * any shape. */
#include "tests/unit/top_case.h"

#include "client/dlctl/render.h"
#include <errno.h>
#include <math.h>

#define STATUS "{version: 1.2.3, state: running, pid: 7, uptime_s: 60, sessions: 2}"

/* Equal, or both not known. */
static void assert_real(double got, double want)
{
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) < 1e-9))
        fail_msg("%g, not %g", got, want);
}

/* ---- ranks ---------------------------------------------------------------------------------- */

#define RANK "loader: a, job: '', session: 1, rank: 0, world: 2, epoch: 3, "

static const struct {
    const char *then, *now; /* two seconds apart; NULL: it is new */
    double wait, steps_per_s, samples_per_s, left_s;
} rank_rows[] = {
    /* Since the look before. */
    {"step: 10, steps: 100, samples: 40, waited_s: 1, age_s: 5, state: running",
     "step: 30, steps: 100, samples: 120, waited_s: 2, age_s: 7, state: running", 0.5, 10, 40, 7},
    /* One that nobody has seen before: since it began. */
    {NULL, "step: 30, steps: 100, samples: 120, waited_s: 1, age_s: 4, state: running", 0.25, NAN,
     30, NAN},
    /* A long wait, told when it is over, is not more than all the time. */
    {"step: 10, waited_s: 1, age_s: 5, state: running",
     "step: 11, waited_s: 9, age_s: 14, state: running", 1, 0.5, 0, NAN},
    /* It has nothing and gets nothing: it waits, whatever it says. */
    {"step: 10, steps: 20, waited_s: 1, age_s: 5, state: running",
     "step: 10, steps: 20, waited_s: 1, age_s: 7, state: starving", 1, 0, 0, NAN},
    {"step: 10, steps: 20, waited_s: 1, age_s: 5, state: running",
     "step: 10, steps: 20, running: 2, waited_s: 1, age_s: 7, state: running", 1, 0, 0, NAN},
    {"step: 10, steps: 20, waited_s: 1, age_s: 5, state: running",
     "step: 10, steps: 20, waits_for: 1, waits_why: behind, waited_s: 1, age_s: 7, state: running",
     1, 0, 0, NAN},
    /* Nothing is due: its trainer is the sampler, and has said nothing. */
    {"step: 10, steps: 20, waited_s: 1, age_s: 5, state: running",
     "step: 10, steps: 20, running: 0, waits_why: null, waited_s: 1, age_s: 7, state: running", 0,
     0, 0, NAN},
    /* It is at a batch, or has one to take: it works. */
    {"step: 10, steps: 20, leased: 1, waited_s: 1, age_s: 5, state: running",
     "step: 10, steps: 20, leased: 1, waited_s: 1, age_s: 7, state: running", 0, 0, 0, NAN},
    {"step: 10, steps: 20, ready: 1, waited_s: 1, age_s: 5, state: running",
     "step: 10, steps: 20, ready: 1, waited_s: 1, age_s: 7, state: running", 0, 0, 0, NAN},
    /* Who does not read waits for nothing. */
    {NULL, "step: 0, steps: 20, age_s: null, waited_s: 0, state: expected", NAN, NAN, NAN, NAN},
    {"step: 20, steps: 20, waited_s: 1, age_s: 5, state: running",
     "step: 20, steps: 20, waited_s: 1, age_s: 7, state: finished", NAN, 0, 0, 0},
    {NULL, "step: 4, steps: 20, age_s: null, waited_s: 0, state: parked", NAN, NAN, NAN, NAN},
    /* A dataset without a length. */
    {"step: 10, steps: null, waited_s: 0, age_s: 5, state: running",
     "step: 14, steps: null, waited_s: 0, age_s: 7, state: running", 0, 2, 0, NAN},
    /* It has begun anew. */
    {"step: 90, steps: 100, samples: 9, waited_s: 4, age_s: 5, state: running",
     "step: 2, steps: 100, samples: 1, waited_s: 0, age_s: 1, state: running", 0, NAN, NAN, NAN},
    /* No number at all. */
    {"step: x, steps: x, samples: [], waited_s: x, age_s: {}, state: running",
     "step: x, steps: x, samples: -4, waited_s: x, age_s: {}, state: running", NAN, 0, 0, NAN},
};

static char *rows_of(const char *fixed, const char *rest)
{
    char *text = NULL;

    assert_true(asprintf(&text, rest ? "[{%s%s}]" : "[]", fixed, rest) > 0);
    return text;
}

TEST(test_ranks)
{
    for (size_t i = 0; i < ARRAY_SIZE(rank_rows); i++) {
        _cleanup_free_ char *then = rows_of(RANK, rank_rows[i].then);
        _cleanup_free_ char *now = rows_of(RANK, rank_rows[i].now);
        struct top_model *before =
            top_case_model(&(struct top_texts){.status = STATUS, .epochs = then}, 100, NULL);
        struct top_model *model =
            top_case_model(&(struct top_texts){.status = STATUS, .epochs = now}, 102, before);

        print_message("# %s\n", rank_rows[i].now);
        assert_int_equal(model->rows[TOP_RANKS].n, 1);
        assert_int_equal(model->rows[TOP_EPOCHS].n, 1);
        assert_real(ROW(model, RANKS, 0)->figure[TOP_WAIT], rank_rows[i].wait);
        assert_real(ROW(model, RANKS, 0)->figure[TOP_STEPS_PER_S], rank_rows[i].steps_per_s);
        assert_real(ROW(model, RANKS, 0)->figure[TOP_SAMPLES_PER_S], rank_rows[i].samples_per_s);
        assert_real(ROW(model, RANKS, 0)->figure[TOP_LEFT_S], rank_rows[i].left_s);
        top_model_free(model);
        top_model_free(before);
    }
}

/* The time left goes by more than the last look: one without a step does not make it endless. */
TEST(test_left)
{
    struct top_model *before = NULL, *model = NULL;

    for (int look = 0; look < 30; look++) {
        _cleanup_free_ char *rows = NULL;

        assert_true(asprintf(&rows,
                             "[{" RANK "step: %d, steps: 1000, waited_s: 0, age_s: 1, state: "
                             "running}]",
                             look < 29 ? look * 20 : 560) > 0);
        model = top_case_model(&(struct top_texts){.status = STATUS, .epochs = rows}, look, before);
        top_model_free(before);
        before = model;
    }
    assert_real(ROW(model, RANKS, 0)->figure[TOP_STEPS_PER_S], 0);
    assert_true(ROW(model, RANKS, 0)->figure[TOP_LEFT_S] > 22 &&
                ROW(model, RANKS, 0)->figure[TOP_LEFT_S] < 30);
    assert_true(ROW(model, EPOCHS, 0)->figure[TOP_LEFT_S] ==
                ROW(model, RANKS, 0)->figure[TOP_LEFT_S]);
    top_model_free(model);
}

TEST(test_epochs)
{
    static const char before_rows[] =
        "[{loader: a, rank: 0, world: 4, epoch: 1, step: 10, steps: 100, state: running},"
        " {loader: a, rank: 1, world: 4, epoch: 1, step: 10, steps: 100, state: running}]";
    static const char rows[] =
        "[{loader: a, rank: 0, world: 4, epoch: 1, step: 20, steps: 100, state: running},"
        " {loader: a, rank: 1, world: 4, epoch: 1, step: 15, steps: 100, state: running},"
        " {loader: a, rank: 0, world: 4, epoch: 2, step: 0, steps: 100, state: expected},"
        " {loader: a, job: j, rank: 0, world: 1, epoch: 1, step: 1, steps: null, state: running},"
        " {loader: b, rank: 0, world: 4, epoch: 1, step: 2, steps: 3, state: running}]";
    struct top_model *before =
        top_case_model(&(struct top_texts){.status = STATUS, .epochs = before_rows}, 100, NULL);
    struct top_model *m =
        top_case_model(&(struct top_texts){.status = STATUS, .epochs = rows}, 101, before);

    assert_int_equal(m->rows[TOP_EPOCHS].n, 4);
    assert_int_equal(ROW(m, EPOCHS, 0)->figure[TOP_RANKS_HERE], 2);
    assert_real(ROW(m, EPOCHS, 0)->figure[TOP_DONE], 35);
    assert_real(ROW(m, EPOCHS, 0)->figure[TOP_STEPS], 200);
    assert_real(ROW(m, EPOCHS, 0)->figure[TOP_STEPS_PER_S], 15);
    assert_real(ROW(m, EPOCHS, 0)->figure[TOP_LEFT_S], 17); /* of rank 1, with 5 a second */
    assert_string_equal(ROW(m, EPOCHS, 1)->job, "j");
    assert_real(ROW(m, EPOCHS, 1)->figure[TOP_STEPS], NAN);
    assert_string_equal(ROW(m, EPOCHS, 2)->loader, "b");
    assert_int_equal(ROW(m, EPOCHS, 3)->epoch, 2); /* nobody has begun it */
    top_model_free(m);
    top_model_free(before);
}

/* ---- workers -------------------------------------------------------------------------------- */

static const struct {
    const char *then, *now;
    double cpu, memory, tasks_per_s;
} worker_rows[] = {
    {"pid: 5, cpu_s: 1, memory_bytes: 10, tasks: 4",
     "pid: 5, cpu_s: 2.5, memory_bytes: 20, tasks: 8", 0.75, 20, 2},
    {NULL, "pid: 5, cpu_s: 2.5, memory_bytes: 20, tasks: 8", NAN, 20, NAN},
    /* Another process: it has not used 3 s in 2 s. */
    {"pid: 5, cpu_s: 1, tasks: 4", "pid: 6, cpu_s: 4, memory_bytes: 1, tasks: 4", NAN, 1, 0},
    {"pid: 5, cpu_s: 1, tasks: 4", "pid: null, cpu_s: null, memory_bytes: null, tasks: 4", NAN, NAN,
     0},
    /* A daemon that does not tell. */
    {"pid: 5, tasks: 4", "pid: 5, tasks: 5", NAN, NAN, 0.5},
};

TEST(test_workers)
{
    for (size_t i = 0; i < ARRAY_SIZE(worker_rows); i++) {
        static const char fixed[] = "loader: a, worker: 1, state: ready, ";
        _cleanup_free_ char *then = rows_of(fixed, worker_rows[i].then);
        _cleanup_free_ char *now = rows_of(fixed, worker_rows[i].now);
        struct top_model *before =
            top_case_model(&(struct top_texts){.status = STATUS, .workers = then}, 100, NULL);
        struct top_model *model =
            top_case_model(&(struct top_texts){.status = STATUS, .workers = now}, 102, before);

        print_message("# %s\n", worker_rows[i].now);
        assert_int_equal(model->rows[TOP_WORKERS].n, 1);
        assert_real(ROW(model, WORKERS, 0)->figure[TOP_CPU], worker_rows[i].cpu);
        assert_real(ROW(model, WORKERS, 0)->figure[TOP_MEMORY], worker_rows[i].memory);
        assert_real(ROW(model, WORKERS, 0)->figure[TOP_TASKS_PER_S], worker_rows[i].tasks_per_s);
        top_model_free(model);
        top_model_free(before);
    }
}

/* ---- loaders -------------------------------------------------------------------------------- */

static const struct top_texts LOADERS_THEN = {
    STATUS,
    "[{name: a, uid: 1, batches: 10, samples: 100, delivered_bytes: 1000},"
    " {name: b, uid: 1, batches: 10, samples: 100, delivered_bytes: 1000}]",
    "[{loader: a, uid: 1, rank: 0, step: 1, waited_s: 0, state: running},"
    " {loader: a, uid: 1, rank: 1, step: 1, waited_s: 0, state: running}]",
    "[{loader: a, uid: 1, worker: 0, pid: 1, cpu_s: 0}, {loader: a, uid: 1, worker: 1, pid: 2, "
    "cpu_s: 0}]",
    NULL,
};
static const struct top_texts LOADERS_NOW = {
    STATUS,
    "[{name: b, uid: 1, batches: 14, samples: 140, delivered_bytes: 1400, faults: 1},"
    " {name: a, uid: 1, batches: 12, samples: 120, delivered_bytes: 1200, memory_bytes: 5},"
    " {name: c, uid: 1, batches: 900, memory_bytes: 3}]",
    "[{loader: a, uid: 1, rank: 0, step: 2, waited_s: 0.5, tokens: 60, padded: 80, state: running},"
    " {loader: a, uid: 1, rank: 1, step: 2, waited_s: 1.5, tokens: 15, padded: 20, state: running},"
    " {loader: a, uid: 1, rank: 2, step: 2, state: parked}]",
    "[{loader: a, uid: 1, worker: 0, pid: 1, cpu_s: 1}, {loader: a, uid: 1, worker: 1, pid: 2, "
    "cpu_s: 0.5},"
    " {loader: a, uid: 1, worker: 2, pid: null, cpu_s: null}, {loader: b, uid: 1, worker: 0, pid: "
    "9}]",
    "[{loader: a, uid: 1, leased: 1, ready: 2, filling: 3, free: 4},"
    " {loader: a, uid: 1, leased: 10}, {loader: b, uid: 1, free: 1}, 7, [x]]",
};

TEST(test_loaders)
{
    struct top_model *before = top_case_model(&LOADERS_THEN, 100, NULL);
    struct top_model *m = top_case_model(&LOADERS_NOW, 102, before);
    const struct top_row *a = ROW(m, LOADERS, 0);

    assert_int_equal(m->rows[TOP_LOADERS].n, 3);
    assert_string_equal(a->loader, "a");
    assert_real(a->figure[TOP_BATCHES_PER_S], 1);
    assert_real(a->figure[TOP_SAMPLES_PER_S], 10);
    assert_real(a->figure[TOP_BYTES_PER_S], 100);
    assert_real(a->figure[TOP_WAIT], 0.5); /* of two ranks */
    assert_real(a->figure[TOP_CPU], 0.75);
    assert_real(a->figure[TOP_PADDING], 0.25);
    assert_int_equal(a->figure[TOP_LEASED], 11);
    assert_int_equal(a->figure[TOP_READY], 2);
    assert_int_equal(a->figure[TOP_FILLING], 3);
    assert_int_equal(a->figure[TOP_FREE], 4);
    assert_real(ROW(m, LOADERS, 1)->figure[TOP_CPU], NAN);
    assert_real(ROW(m, LOADERS, 1)->figure[TOP_WAIT], NAN);
    assert_real(ROW(m, LOADERS, 2)->figure[TOP_BATCHES_PER_S], NAN); /* new */
    top_model_free(m);
    top_model_free(before);
}

/* Two users may have loaders of one name. */
TEST(test_users)
{
    static const struct top_texts then = {
        STATUS, "[{name: a, uid: 1}, {name: a, uid: 2}]", NULL,
        "[{loader: a, uid: 1, worker: 0, pid: 1, cpu_s: 0, tasks: 0},"
        " {loader: a, uid: 2, worker: 0, pid: 2, cpu_s: 0, tasks: 0}]",
        NULL};
    static const struct top_texts now = {
        STATUS, "[{name: a, uid: 2}, {name: a, uid: 1}]",
        "[{loader: a, uid: 2, rank: 0, step: 1, steps: 4, waited_s: 1, age_s: 4, state: running},"
        " {loader: a, uid: 1, rank: 0, step: 2, steps: 4, waited_s: 1, age_s: 2, state: running}]",
        "[{loader: a, uid: 1, worker: 0, pid: 1, cpu_s: 1, tasks: 2},"
        " {loader: a, uid: 2, worker: 0, pid: 2, cpu_s: 2, tasks: 4}]",
        "[{loader: a, uid: 1, leased: 1}, {loader: a, uid: 2, leased: 2}]"};
    struct top_model *before = top_case_model(&then, 100, NULL);
    struct top_model *m = top_case_model(&now, 102, before);

    assert_int_equal(m->rows[TOP_LOADERS].n, 2);
    assert_int_equal(m->rows[TOP_EPOCHS].n, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ROW(m, LOADERS, i)->uid, i + 1);
        assert_real(ROW(m, LOADERS, i)->figure[TOP_WAIT], i == 0 ? 0.5 : 0.25);
        assert_real(ROW(m, LOADERS, i)->figure[TOP_CPU], i == 0 ? 0.5 : 1);
        assert_int_equal(ROW(m, LOADERS, i)->figure[TOP_LEASED], i + 1);
        assert_int_equal(ROW(m, WORKERS, i)->uid, i + 1);
        assert_real(ROW(m, WORKERS, i)->figure[TOP_TASKS_PER_S], i == 0 ? 1 : 2);
        assert_int_equal(ROW(m, EPOCHS, i)->figure[TOP_RANKS_HERE], 1);
    }
    top_model_free(m);
    top_model_free(before);
}

/* Another process behind the same socket. */
TEST(test_another_daemon)
{
    static const char other[] = "{version: 1, state: running, pid: 8}";
    struct top_texts now = LOADERS_NOW;
    struct top_model *before = top_case_model(&LOADERS_THEN, 100, NULL);

    now.status = other;
    struct top_model *m = top_case_model(&now, 102, before);
    assert_real(ROW(m, LOADERS, 0)->figure[TOP_BATCHES_PER_S], NAN);
    assert_real(ROW(m, WORKERS, 0)->figure[TOP_CPU], NAN);
    top_model_free(m);
    top_model_free(before);
}

static const struct {
    enum top_sort sort;
    bool reverse;
    const char *order;
} sort_rows[] = {
    {TOP_BY_NAME, false, "abc"},   {TOP_BY_NAME, true, "cba"},   {TOP_BY_RATE, false, "bac"},
    {TOP_BY_RATE, true, "abc"},    {TOP_BY_WAIT, false, "abc"},  {TOP_BY_CPU, false, "abc"},
    {TOP_BY_MEMORY, false, "acb"}, {TOP_BY_MEMORY, true, "bca"}, {TOP_BY_ERRORS, false, "bac"},
};

TEST(test_sort)
{
    struct top_model *before = top_case_model(&LOADERS_THEN, 100, NULL);
    struct top_model *m = top_case_model(&LOADERS_NOW, 102, before);

    for (size_t i = 0; i < ARRAY_SIZE(sort_rows); i++) {
        char order[8] = "";

        top_model_sort(m, sort_rows[i].sort, sort_rows[i].reverse);
        for (uint32_t j = 0; j < m->rows[TOP_LOADERS].n; j++)
            strcat(order, ROW(m, LOADERS, j)->loader);
        print_message("# %s\n", top_sort_name(sort_rows[i].sort));
        assert_string_equal(order, sort_rows[i].order);
    }
    top_model_sort(m, TOP_BY_WAIT, false);
    assert_int_equal(ROW(m, RANKS, 0)->number, 1);
    assert_int_equal(ROW(m, RANKS, 2)->number, 2); /* nobody knows how long it waits */
    top_model_sort(m, TOP_BY_WAIT, true);
    assert_int_equal(ROW(m, RANKS, 0)->number, 0);
    assert_int_equal(ROW(m, RANKS, 2)->number, 2);
    top_model_free(m);
    top_model_free(before);
}

/* ---- any shape ------------------------------------------------------------------------------ */

static const char *const shapes[] = {
    NULL,        "7",
    "text",      "[]",
    "{}",        "[7, text, [], {}, null]",
    "{a: [{}]}", "[{name: 7, loader: [], state: {}, samples: 1, verdict: null, job: 3}]",
};

TEST(test_shapes)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        const struct top_texts texts = {shapes[i], shapes[i], shapes[i], shapes[i], shapes[i]};
        struct top_model *before = top_case_model(&texts, 1, NULL);
        struct top_model *m = top_case_model(&texts, 1, before);
        struct value v = {0};

        for (int sort = 0; sort < TOP_SORTS; sort++)
            top_model_sort(m, (enum top_sort)sort, sort & 1);
        assert_int_equal(top_model_value(m, NULL, &v), 0);
        assert_int_equal(v.type, VALUE_MAP);
        value_deinit(&v);
        top_model_free(m);
        top_model_free(before);
    }
}

/* For programs: only what is picked, and null where nothing is known. */
TEST(test_value)
{
    struct top_model *m = top_case_model(&LOADERS_NOW, 102, NULL);
    struct value v = {0};

    assert_int_equal(top_model_value(m, "b", &v), 0);
    json_t *json = render_json(&v);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_string_equal(
        text,
        "{\"daemon\":{\"version\":\"1.2.3\",\"state\":\"running\",\"pid\":7,\"uptime_s\":60,"
        "\"sessions\":2},"
        "\"loaders\":[{\"name\":\"b\",\"uid\":1,\"batches\":14,\"samples\":140,"
        "\"delivered_bytes\":1400,\"faults\":1,\"batches_per_s\":null,\"samples_per_s\":null,"
        "\"delivered_bytes_per_s\":null,\"wait\":null,\"cpu\":null,\"padding\":null,\"mix_off\":"
        "null,"
        "\"ring\":{\"leased\":0,\"ready\":0,\"filling\":0,\"free\":1}}],"
        "\"epochs\":[],\"ranks\":[],"
        "\"workers\":[{\"loader\":\"b\",\"uid\":1,\"worker\":0,\"pid\":9,\"tasks_per_s\":null,"
        "\"cpu\":null}]}");
    free(text);
    json_decref(json);
    value_deinit(&v);
    top_model_free(m);
}
