/*
 * Weights of single samples that are changed while it is read: the tables and their files, the list
 * that names them, and the order, over thousands of random samplers: what comes before a change is
 * as if it were not there, to the bit; what comes after is what is written down here anew.
 */
#include "tests/unit/fail_alloc.h"
#include "tests/unit/plan_case.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/plan/sampler.h"
#include "proto/common/fd_io.h"
#include "proto/shared/weight_files.h"

static struct weight_table *table_of(const double *weights, uint64_t n)
{
    struct weight_table *table = NULL;
    double *copy = malloc(n * sizeof *copy);

    assert_non_null(copy);
    memcpy(copy, weights, n * sizeof *copy);
    assert_int_equal(weight_table_of(copy, n, &table), 0);
    return table;
}

static void add(struct mix_changes **list, uint64_t position, const double *weights, uint64_t n,
                uint64_t count)
{
    struct mix_changes *made = NULL;
    const struct mix_change change = {.position = position, .table = table_of(weights, n)};

    assert_int_equal(mix_changes_with_table(*list, &change, count, &made), 0);
    weight_table_unref(change.table);
    mix_changes_unref(*list);
    *list = made;
}

/* ---- tables ---------------------------------------------------------------------------------- */

TEST(test_weights)
{
    static const struct {
        double weights[3];
        const char *path;
        const char *message;
    } rows[] = {
        {{0, 0.25, 3}, NULL, NULL},
        {{0, 0, 0}, "weights", "all weights are 0; at least one must be positive"},
        {{1, -0.5, 1}, "weights.1", "-0.5 is not a finite, non-negative number"},
        {{1, 1, -0.0}, "weights.2", "-0 is not a finite, non-negative number"},
        {{NAN, 1, 1}, "weights.0", "nan is not a finite, non-negative number"},
        {{1, INFINITY, 1}, "weights.1", "inf is not a finite, non-negative number"},
        {{1e308, 1e308, 1}, "weights", "their sum exceeds the largest float64; scale them down"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct weight_table *table = NULL;
        struct dl_error err = {0}, again = {0};
        int fd = weight_table_memfd(rows[i].weights, 3);
        uint64_t sum = weight_table_sum(rows[i].weights, 3);

        assert_true(fd >= 0);
        int r = weight_table_check(rows[i].weights, 3, &err);
        assert_int_equal(r, rows[i].path ? -EINVAL : 0);
        assert_int_equal(weight_table_map(fd, 3, sum, &table, &again), r);
        close(fd);
        if (rows[i].path) {
            assert_string_equal(err.path, rows[i].path);
            assert_ptr_not_equal(strstr(err.message, rows[i].message), NULL);
            assert_string_equal(again.message, err.message);
            continue;
        }
        assert_memory_equal(table->weights, rows[i].weights, sizeof rows[i].weights);
        weight_table_unref(table);
    }
}

TEST(test_memfds)
{
    const double weights[] = {1, 2, 3};
    uint64_t sum = weight_table_sum(weights, 3);
    struct weight_table *table = NULL;
    int sealed = weight_table_memfd(weights, 3), open_one = memfd_create("t", MFD_ALLOW_SEALING);
    int pipes[2];

    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(fd_write_all(open_one, weights, sizeof weights), 0);
    const struct {
        int fd;
        uint64_t n, sum;
        const char *message;
    } rows[] = {
        {sealed, 4, sum, "are 24 bytes, not 4 numbers of 8 bytes each"},
        {sealed, 0, sum, "are 24 bytes, not 0 numbers of 8 bytes each"},
        {sealed, UINT64_C(1) << 61, sum, "are 24 bytes, not 2305843009213693952 numbers"},
        {sealed, 3, sum + 1, "are not those that were named"},
        {open_one, 3, sum, "are not in a memfd that is sealed"},
        {pipes[0], 3, sum, "are not in a memfd that is sealed"},
        {-1, 3, sum, "are not in a memfd that is sealed"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};

        assert_int_equal(weight_table_map(rows[i].fd, rows[i].n, rows[i].sum, &table, &err),
                         -EINVAL);
        assert_ptr_not_equal(strstr(err.message, rows[i].message), NULL);
    }
    fail_in = 0;
    assert_int_equal(weight_table_map(sealed, 3, sum, &table, NULL), -ENOMEM);
    fail_in = -1;
    assert_true(write(sealed, weights, 8) < 0 && ftruncate(sealed, 0) < 0);
    close(sealed);
    close(open_one);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(test_files)
{
    const double weights[] = {1, 0, 0.5};
    uint64_t sum = weight_table_sum(weights, 3);
    char top[] = "/tmp/weights-XXXXXX", dir[64], path[PATH_MAX];
    struct weight_table *table = NULL;
    struct dl_error err = {0};

    assert_non_null(mkdtemp(top));
    (void)snprintf(dir, sizeof dir, "%s/a/b", top);
    (void)snprintf(path, sizeof path, "%s/%016llx.f64", dir, (unsigned long long)sum);
    assert_int_equal(weight_files_load(dir, sum, 3, &table, &err), -ENOENT);
    assert_string_equal(err.path, path);
    assert_ptr_not_equal(strstr(err.message, "the state needs these weights"), NULL);
    for (int twice = 0; twice < 2; twice++)
        assert_int_equal(weight_files_store(dir, weights, 3, &err), 0);
    assert_int_equal(weight_files_load(dir, sum, 3, &table, &err), 0);
    assert_memory_equal(table->weights, weights, sizeof weights);
    assert_int_equal(table->sum, sum);
    weight_table_unref(table);
    assert_int_equal(weight_files_load(dir, sum, 4, &table, &err), -EINVAL);
    assert_ptr_not_equal(strstr(err.message, "is not a file of 4 weights"), NULL);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 3), 1);
    close(fd);
    assert_int_equal(weight_files_load(dir, sum, 3, &table, &err), -EINVAL);
    assert_ptr_not_equal(strstr(err.message, "is damaged"), NULL);
    assert_int_equal(weight_files_store("", weights, 3, &err), -ENOENT);
    assert_int_equal(weight_files_store("/proc/none", weights, 3, &err), -ENOENT);
    unlink(path);
    rmdir(dir);
    (void)snprintf(dir, sizeof dir, "%s/a", top);
    rmdir(dir);
    rmdir(top);
}

TEST(test_where_files_are)
{
    static const struct {
        const char *named, *state, *home, *dir;
    } rows[] = {
        {"/w", "/s", "/h", "/w"},
        {"", "/s", "/h", "/s/dloader/weights"},
        {NULL, "s", "/h", "/h/.local/state/dloader/weights"},
        {NULL, NULL, NULL, ""},
    };
    char dir[PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *const names[] = {"DLOADER_WEIGHTS", "XDG_STATE_HOME", "HOME"};
        const char *const values[] = {rows[i].named, rows[i].state, rows[i].home};

        for (size_t k = 0; k < 3; k++) {
            if (values[k])
                setenv(names[k], values[k], 1);
            else
                unsetenv(names[k]);
        }
        weight_files_dir(dir);
        assert_string_equal(dir, rows[i].dir);
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

TEST(test_list)
{
    const double one[] = {1, 2, 3}, two[] = {3, 2, 1};
    struct mix_changes *list = NULL, *again = NULL, *other = NULL;
    struct dl_buffer bytes = {0};

    add(&list, 40, one, 3, 10);
    add(&list, 15, two, 3, 10);
    add(&other, 15, two, 3, 10);
    assert_int_equal(list->n_changes, 2);
    assert_int_equal(mix_changes_differ_at(list, other), 40);
    assert_true(mix_changes_within(other, list) && !mix_changes_within(list, other));
    assert_int_equal(mix_changes_write(list, &bytes), 0);
    assert_int_equal(bytes.len, 8 * (3 + 2 * 2));
    assert_int_equal(mix_changes_read((struct dl_span){bytes.data, bytes.len}, &again), 0);
    assert_true(mix_changes_equal(list, again));
    assert_null(again->items[0].table);
    mix_changes_share_tables(again, other);
    assert_ptr_equal(again->items[0].table, other->items[0].table);
    assert_null(again->items[1].table);
    mix_changes_share_tables(again, NULL);
    assert_null(again->items[0].table);
    for (size_t len = 1; len < bytes.len; len++) {
        struct mix_changes *none = NULL;
        bool whole = len == 8 * 5;

        assert_int_equal(mix_changes_read((struct dl_span){bytes.data, len}, &none),
                         whole ? 0 : -EINVAL);
        mix_changes_unref(none);
    }
    static const struct {
        size_t word;
        uint64_t value;
    } bad[] = {{1, 0}, {1, UINT64_C(1) << 32}, {2, 0}, {3, MIX_POSITIONS}, {3, 40}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct mix_changes *none = NULL;
        uint64_t words[7];

        memcpy(words, bytes.data, sizeof words);
        words[bad[i].word] = bad[i].value;
        assert_int_equal(mix_changes_read((struct dl_span){(uint8_t *)words, sizeof words}, &none),
                         -EINVAL);
    }
    /* Of another number of samples, or another epoch, they are others. */
    mix_changes_unref(other);
    other = NULL;
    add(&other, 15, two, 3, 11);
    assert_int_equal(mix_changes_differ_at(list, other), 15);
    mix_changes_unref(list);
    mix_changes_unref(again);
    mix_changes_unref(other);
    buffer_deinit(&bytes);
}

TEST(test_of_epoch)
{
    const double weights[] = {1, 1};
    static const struct {
        uint64_t epoch;
        uint32_t first, end;
    } rows[] = {{0, 0, 1}, {1, 0, 3}, {2, 3, 4},         {3, 3, 4},
                {4, 3, 5}, {5, 4, 5}, {UINT64_MAX, 4, 5}};
    struct mix_changes *list = NULL;
    uint32_t first;

    assert_int_equal(mix_changes_of_epoch(NULL, 3, &first), 0);
    for (size_t i = 0; i < 5; i++)
        add(&list, (uint64_t[]){5, 12, 18, 20, 49}[i], weights, 2, 10);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(mix_changes_of_epoch(list, rows[i].epoch, &first), rows[i].end);
        assert_int_equal(first, rows[i].first);
    }
    mix_changes_unref(list);
}

/* ---- orders ---------------------------------------------------------------------------------- */

enum { CASES = 3000, SAMPLES = 40, CHANGES = 4, DRAWS = 100 };

struct drawn {
    struct plan_params params;
    double weights[SAMPLES];
    double changed[CHANGES][SAMPLES];
    struct mix_changes *list;
};

static void draw_weights(uint64_t *g, double *weights, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        weights[i] = below(g, 4) ? 0.5 + below(g, 20) : 0;
    weights[below(g, (uint32_t)n)] = 1;
}

static void draw_case(uint64_t *g, struct drawn *d)
{
    struct plan_params *p = &d->params;
    uint64_t position = 0;

    *p = (struct plan_params){.length = 2 + below(g, SAMPLES - 1),
                              .sampler = PLAN_WEIGHTS,
                              .weights = below(g, 4) ? d->weights : NULL,
                              .order = below(g, 2) ? PLAN_NATIVE : PLAN_TORCH,
                              .replacement = true,
                              .seed = below(g, 100),
                              .epoch = below(g, 4),
                              .world = 1,
                              .batch_size = 1 + below(g, 5),
                              .shard = (enum plan_shard)(below(g, 2) ? PLAN_STRIDED : PLAN_BATCH)};
    p->replacement = p->order == PLAN_TORCH || below(g, 2);
    p->num_samples =
        below(g, 2) ? 0 : 2 + below(g, p->replacement ? DRAWS - 2 : (uint32_t)p->length - 1);
    draw_weights(g, d->weights, p->length);
    d->list = NULL;
    for (uint32_t i = 0; i < CHANGES; i++) {
        position += 1 + below(g, (uint32_t)plan_drawn(p));
        draw_weights(g, d->changed[i], p->length);
        add(&d->list, position, d->changed[i], p->length, plan_drawn(p));
    }
}

/* All of the epoch's samples; how many. */
static uint64_t order_of(struct plan_params params, uint64_t *ret)
{
    params.batch_size = 1;
    params.world = 1;
    _cleanup_plan_ struct plan *plan = prepared(params);
    uint64_t n = plan_steps(plan, 0);

    for (uint64_t i = n; i > 0; i--) /* any step may be asked for first */
        plan_step(plan, 0, i - 1, &ret[i - 1]);
    return n;
}

/* How many of the epoch's first positions come before the change. */
static uint64_t begin_of(const struct drawn *d, uint32_t change)
{
    uint64_t begin = d->params.epoch * plan_drawn(&d->params);
    uint64_t position = d->list->items[change].position;

    return position > begin ? min_u64(position - begin, plan_drawn(&d->params)) : 0;
}

/* With replacement: the draws are those of an epoch that has the weights from its beginning. */
static void check_drawn(const struct drawn *d, const uint64_t *order)
{
    for (uint32_t i = 0; i < CHANGES; i++) {
        struct plan_params whole = d->params;
        uint64_t want[DRAWS], begin = begin_of(d, i);
        uint64_t end = i + 1 < CHANGES ? begin_of(d, i + 1) : plan_drawn(&d->params);

        whole.weights = d->changed[i];
        order_of(whole, want);
        if (end > begin)
            assert_memory_equal(&order[begin], &want[begin], (end - begin) * sizeof *want);
    }
}

/* Without: drawn from what is left, by waiting times that are written down here anew. */
static void check_left(const struct drawn *d, uint64_t *order, uint64_t n)
{
    bool had[SAMPLES] = {false};

    for (uint64_t position = 0; position < n; position++) {
        uint32_t i = CHANGES;
        double first = INFINITY;
        uint64_t want = UINT64_MAX;

        while (i > 0 && (begin_of(d, i - 1) > position))
            i--;
        const double *weights = i > 0 ? d->changed[i - 1] : d->params.weights;
        struct sampler_key key = {.seed = d->params.seed,
                                  .epoch = d->params.epoch,
                                  .length = d->params.length,
                                  .leg = i > 0 ? begin_of(d, i - 1) : 0,
                                  .stream = UINT64_C(0x7765696768746564)};
        for (uint64_t k = 0; k < d->params.length; k++) {
            double weight = weights ? weights[k] : 1;
            double unit = (double)(sampler_native_bits(&key, k).high & ((UINT64_C(1) << 53) - 1));
            double wait = weight > 0 ? -log1p(-unit * 0x1p-53) / weight : (double)INFINITY;

            if (!had[k] && (wait < first || want == UINT64_MAX)) {
                first = wait;
                want = k;
            }
        }
        assert_int_equal(order[position], want);
        had[want] = true;
    }
}

/* Four ranks, then three, then eight: together what one has, each sample as often. */
static void check_worlds(const struct drawn *d, const uint64_t *order, uint64_t n)
{
    static const uint64_t worlds[] = {4, 3, 8};
    struct plan_params params = d->params;
    int64_t counts[SAMPLES] = {0};

    for (uint64_t i = 0; i < n; i++)
        counts[order[i]]++;
    for (size_t w = 0; w < ARRAY_SIZE(worlds); w++) {
        params.world = worlds[w];
        _cleanup_plan_ struct plan *plan = prepared(params);
        uint64_t steps = w < 2 ? min_u64(1 + w, plan_steps(plan, 0)) : UINT64_MAX, got[8];

        for (uint64_t rank = 0; rank < worlds[w]; rank++)
            for (uint64_t step = 0; step < min_u64(steps, plan_steps(plan, rank)); step++)
                for (size_t k = plan_step(plan, rank, step, got); k > 0; k--)
                    counts[got[k - 1]]--;
        params.before.stretches[params.before.n++] =
            (struct history_stretch){.world = worlds[w], .steps = steps};
        if (steps == plan_steps(plan, 0)) /* all of it was theirs, what fills no step included */
            break;
    }
    for (uint64_t i = 0; i < SAMPLES; i++)
        assert_int_equal(counts[i], 0);
}

TEST(test_orders)
{
    uint64_t g = 1;

    for (unsigned i = 0; i < CASES; i++) {
        struct drawn d;
        uint64_t plain[DRAWS], order[DRAWS];

        draw_case(&g, &d);
        uint64_t n = order_of(d.params, plain);
        d.params.changes = d.list;
        assert_int_equal(order_of(d.params, order), n);
        uint64_t begin = begin_of(&d, 0);
        assert_memory_equal(order, plain, begin * sizeof *order);
        d.params.changes = NULL;
        if (d.params.replacement)
            check_drawn(&d, order);
        else
            check_left(&d, order, n);
        d.params.changes = d.list;
        check_worlds(&d, order, n);
        mix_changes_unref(d.list);
    }
}

/* From what is left, each comes next as often as its weight says. */
TEST(test_how_often)
{
    const double changed[] = {5, 1, 2, 2, 0, 3};
    unsigned next[6] = {0}, at[6] = {0};

    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct plan_params params = {
            .length = 6, .sampler = PLAN_WEIGHTS, .order = PLAN_NATIVE, .seed = seed};
        struct mix_changes *list = NULL;
        uint64_t order[6];

        add(&list, 1, changed, 6, 6);
        params.changes = list;
        params.world = 1;
        assert_int_equal(order_of(params, order), 6);
        at[order[0]]++;
        if (order[0] == 5) /* 5, 1, 2 and 2 are left */
            next[order[1]]++;
        mix_changes_unref(list);
    }
    for (int i = 0; i < 6; i++)
        assert_true(fabs(at[i] / 20000.0 - 1.0 / 6) < 0.015);
    for (int i = 0; i < 5; i++)
        assert_true(fabs((double)next[i] / at[5] - changed[i] / 10) < 0.04);
}

TEST(test_refused)
{
    const double weights[] = {1, 2, 3};
    struct plan_params params = {.length = 3,
                                 .sampler = PLAN_WEIGHTS,
                                 .order = PLAN_NATIVE,
                                 .replacement = true,
                                 .world = 1,
                                 .batch_size = 1};
    struct mix_changes *list = NULL, *wide = NULL;
    struct plan *plan = NULL;
    struct dl_error err = {0};
    int i = 0, r;

    add(&list, 4, weights, 3, 3);
    add(&wide, 4, weights, 2, 3);
    params.changes = list;
    params.epoch = 1;
    for (unsigned way = 0; way < 3; way++) {
        params.order = way == 1 ? PLAN_TORCH : PLAN_NATIVE;
        params.replacement = way < 2;
        i = 0;
        do {
            fail_in = i++;
            r = plan_new(&params, &plan);
            fail_in = -1;
            assert_true(r == 0 || r == -ENOMEM);
        } while (r < 0);
        assert_true(i > 3);
        plan_free(plan);
    }
    params.changes = wide;
    assert_int_equal(plan_check_changes(&params, &err), -EINVAL);
    assert_ptr_not_equal(strstr(err.message, "of 2 samples in epochs of 3, not 3 in"), NULL);
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params.changes = list;
    params.num_samples = 2;
    assert_int_equal(plan_check_changes(&params, &err), -EINVAL);
    params.num_samples = 0;
    params.sampler = PLAN_SAMPLES;
    params.replacement = false;
    assert_int_equal(plan_check_changes(&params, &err), -EINVAL);
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params.sampler = PLAN_WEIGHTS;
    mix_changes_share_tables(list, NULL);
    assert_int_equal(plan_check_changes(&params, &err), -ENOENT);
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params.epoch = 0; /* which needs none of them */
    assert_int_equal(plan_check_changes(&params, &err), 0);
    mix_changes_unref(list);
    mix_changes_unref(wide);
}
