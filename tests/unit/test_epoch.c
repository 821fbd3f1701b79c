/* Epochs: plans shared by those who ask for the same, and long shuffles off the loop. */
#include "tests/lib/abort.h"

#include "daemon/plan/plan_lazy.h"
#include "daemon/serve/loader/epoch.h"
#include "tests/lib/uv_threads.h"

#include <errno.h>

/* Of about 10 ns a sample, the loop may be held for at most a millisecond. */
enum { SURELY_ON_LOOP = 5000, SURELY_IN_POOL = 100000, BATCH = 100 };

static const struct plan_params torch = {.length = 3000000,
                                         .order = PLAN_TORCH,
                                         .seed = 42,
                                         .epoch = 1,
                                         .world = 2,
                                         .batch_size = BATCH,
                                         .even = true};

struct fixture {
    uv_loop_t loop;
    struct epoch_set set;
    int calls; /* of done() */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->set.crew = crew_new(&f->loop, 4);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_null(f->set.epochs);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_null(crew_free(f->set.crew));
    int r = uv_loop_close(&f->loop);
    free(f);
    return r;
}

static void done(void *owner)
{
    struct fixture *f = owner;

    f->calls++;
}

static struct epoch *ref(struct fixture *f, const struct plan_params *params)
{
    struct epoch *epoch = NULL;

    assert_int_equal(epoch_ref(&f->set, params, NULL, &epoch, NULL), 0);
    assert_non_null(epoch);
    return epoch;
}

static bool prepare(struct fixture *f, struct epoch *epoch, uint64_t rank, uint64_t step)
{
    return epoch_prepare(epoch, rank, step, done, f);
}

/* The step as a plan of its own gives it. */
static void expect_step(struct epoch *epoch, const struct plan_params *params, uint64_t rank,
                        uint64_t step)
{
    uint64_t want[BATCH];
    uint64_t got[BATCH];
    struct plan *plan = NULL;

    assert_int_equal(plan_new(params, &plan), 0);
    size_t n = plan_step(plan, rank, step, want);
    assert_int_equal(epoch_step(epoch, rank, step, got), n);
    assert_memory_equal(got, want, n * sizeof *want);
    plan_free(plan);
}

/* ---- sharing -------------------------------------------------------------------------------- */

TEST(test_the_same_params_share, setup, teardown)
{
    struct fixture *f = *state;
    struct plan_params copy = torch;
    struct epoch *a = ref(f, &torch);
    struct epoch *b = ref(f, &copy);

    assert_ptr_equal(a, b);
    assert_ptr_equal(epoch_plan(a), epoch_plan(b));
    assert_int_equal(plan_steps(epoch_plan(a), 0), 15000);
    epoch_unref(&f->set, a);
    assert_ptr_equal(ref(f, &torch), b); /* still there for the other */
    epoch_unref(&f->set, b);
    epoch_unref(&f->set, b);
    assert_null(f->set.epochs);
}

TEST(test_any_difference_parts, setup, teardown)
{
    struct fixture *f = *state;
    static const uint64_t indices[] = {1, 2, 3};
    struct plan_params params[13];
    struct epoch *epochs[13];

    for (size_t i = 0; i < ARRAY_SIZE(params); i++)
        params[i] = torch;
    params[1].length++;
    params[2].order = PLAN_NATIVE;
    params[3].seed++;
    params[4].epoch++;
    params[5].world++;
    params[6].batch_size++;
    params[7].drop_last = true;
    params[8].even = false;
    params[9].num_samples = 5;
    params[10].replacement = true;
    params[11].indices = indices;
    params[11].n_indices = 2;
    params[12].indices = indices;
    params[12].n_indices = 3;
    for (size_t i = 0; i < ARRAY_SIZE(params); i++) {
        epochs[i] = ref(f, &params[i]);
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(epochs[i], epochs[k]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(params); i++) {
        assert_ptr_equal(ref(f, &params[i]), epochs[i]);
        epoch_unref(&f->set, epochs[i]);
        epoch_unref(&f->set, epochs[i]);
    }
}

/* What PyTorch's order takes is the user's, once for all who share it, until the last is gone. */
TEST(test_memory_is_charged, setup, teardown)
{
    enum { BYTES = 4000 }; /* four for each sample */
    struct fixture *f = *state;
    struct quota *quota = quota_new(&(struct config_limits){.bytes = 3 * BYTES});
    struct quota_account *account = quota_account(quota, 1000);
    struct plan_params params[3] = {torch, torch, torch};
    struct epoch *epochs[3], *other;
    struct dl_error err = {0};

    f->set.payer.account = account;
    for (size_t i = 0; i < ARRAY_SIZE(params); i++) {
        params[i].length = BYTES / 4;
        params[i].epoch = i;
        epochs[i] = ref(f, &params[i]);
        assert_int_equal(quota_in_use(account, QUOTA_BYTES), (i + 1) * BYTES);
    }
    assert_ptr_equal(ref(f, &params[2]), epochs[2]);
    params[0].epoch = 3;
    assert_int_equal(epoch_ref(&f->set, &params[0], NULL, &other, &err), -EDQUOT);
    assert_string_equal(err.path, "limits.bytes");
    params[0].order = PLAN_NATIVE; /* computed */
    epoch_unref(&f->set, ref(f, &params[0]));
    for (size_t i = 0; i < ARRAY_SIZE(params); i++)
        epoch_unref(&f->set, epochs[i]);
    assert_int_equal(quota_in_use(account, QUOTA_BYTES), BYTES);
    epoch_unref(&f->set, epochs[2]);
    assert_int_equal(quota_in_use(account, QUOTA_BYTES), 0);
    f->set.payer.account = NULL;
    quota_free(quota);
}

TEST(test_impossible_plans, setup, teardown)
{
    struct fixture *f = *state;
    struct epoch *epoch = (struct epoch *)f;
    struct plan_params params = torch;

    params.world = 0;
    assert_int_equal(epoch_ref(&f->set, &params, NULL, &epoch, NULL), -EINVAL);
    params = torch;
    params.length = (uint64_t)1 << 63;
    assert_int_equal(epoch_ref(&f->set, &params, NULL, &epoch, NULL), -EINVAL);
    assert_ptr_equal(epoch, f); /* untouched */
    assert_null(f->set.epochs);
}

/* ---- the loop and the threads --------------------------------------------------------------- */

TEST(test_cheap_orders_are_always_ready, setup, teardown)
{
    struct fixture *f = *state;
    struct plan_params params = torch;

    for (int i = 0; i < 2; i++) {
        params.order = i ? PLAN_SEQUENTIAL : PLAN_NATIVE;
        struct epoch *epoch = ref(f, &params);
        assert_true(prepare(f, epoch, 0, 0));
        assert_true(prepare(f, epoch, 1, 14999));
        assert_true(prepare(f, epoch, 0, 7));
        expect_step(epoch, &params, 1, 14999);
        epoch_unref(&f->set, epoch);
    }
    assert_int_equal(f->calls, 0);
}

/* What is short is done at once, what is long is not; whichever step it is. */
TEST(test_the_limit, setup, teardown)
{
    struct fixture *f = *state;
    uint64_t at_once = 0;
    uint64_t later = 0;

    for (uint64_t step = 0; step < 1000; step += 10 * harness_stride()) {
        struct epoch *epoch = ref(f, &torch);
        uint64_t backlog = plan_backlog(epoch_plan(epoch), 1, step);
        bool ready = prepare(f, epoch, 1, step);

        if (backlog <= SURELY_ON_LOOP)
            assert_true(ready);
        if (backlog >= SURELY_IN_POOL)
            assert_false(ready);
        at_once += ready;
        later += !ready;
        uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(f->calls, later);
        assert_true(prepare(f, epoch, 1, step));
        assert_int_equal(f->calls, later);
        epoch_unref(&f->set, epoch);
    }
    assert_true(at_once > 2 / harness_stride() && later > 10 / harness_stride());
}

TEST(test_long_work_goes_to_a_thread, setup, teardown)
{
    struct fixture *f = *state;
    struct epoch *epoch = ref(f, &torch);

    assert_true(plan_backlog(epoch_plan(epoch), 1, 10000) > SURELY_IN_POOL);
    assert_false(prepare(f, epoch, 1, 10000));
    assert_false(prepare(f, epoch, 1, 10000)); /* busy */
    assert_false(prepare(f, epoch, 0, 0));     /* for all */
    assert_int_equal(f->calls, 0);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 1);
    assert_int_equal(plan_backlog(epoch_plan(epoch), 1, 10000), 0);
    assert_true(prepare(f, epoch, 1, 10000));
    assert_true(prepare(f, epoch, 0, 0)); /* earlier ones are done with it */
    expect_step(epoch, &torch, 1, 10000);
    expect_step(epoch, &torch, 0, 0);
    expect_step(epoch, &torch, 0, 10000);

    assert_false(prepare(f, epoch, 0, 14999)); /* further on: again, same memory */
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 2);
    assert_true(prepare(f, epoch, 0, 14999));
    expect_step(epoch, &torch, 0, 14999);
    epoch_unref(&f->set, epoch);
}

TEST(test_unbatched_and_short_batches, setup, teardown)
{
    struct fixture *f = *state;
    struct plan_params params = torch;

    params.batch_size = 0;
    struct epoch *epoch = ref(f, &params);
    assert_false(prepare(f, epoch, 0, 1499999));
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_true(prepare(f, epoch, 0, 1499999));
    expect_step(epoch, &params, 0, 1499999);
    epoch_unref(&f->set, epoch);

    params.batch_size = 70; /* the last batch is not whole */
    epoch = ref(f, &params);
    uint64_t last = plan_steps(epoch_plan(epoch), 0) - 1;
    assert_false(prepare(f, epoch, 0, last));
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_true(prepare(f, epoch, 0, last));
    expect_step(epoch, &params, 0, last);
    epoch_unref(&f->set, epoch);
    assert_int_equal(f->calls, 2);
}

TEST(test_given_up_while_busy, setup, teardown)
{
    struct fixture *f = *state;
    struct epoch *epoch = ref(f, &torch);

    assert_false(prepare(f, epoch, 0, 14999));
    epoch_unref(&f->set, epoch);
    assert_null(f->set.epochs);
    struct epoch *again = ref(f, &torch); /* not the one that is going */
    assert_ptr_not_equal(again, epoch);
    assert_true(prepare(f, again, 0, 0));
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 0);
    expect_step(again, &torch, 0, 0);
    epoch_unref(&f->set, again);
}

TEST(test_one_of_two_gives_up_while_busy, setup, teardown)
{
    struct fixture *f = *state;
    struct epoch *epoch = ref(f, &torch);

    assert_ptr_equal(ref(f, &torch), epoch);
    assert_false(prepare(f, epoch, 0, 14999));
    epoch_unref(&f->set, epoch);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 1);
    expect_step(epoch, &torch, 0, 14999);
    epoch_unref(&f->set, epoch);
}

TEST(test_several_at_once, setup, teardown)
{
    struct fixture *f = *state;
    struct epoch *epochs[6];

    for (uint64_t i = 0; i < 6; i++) {
        struct plan_params params = torch;
        params.epoch = i;
        epochs[i] = ref(f, &params);
        assert_false(prepare(f, epochs[i], 0, 5000));
    }
    epoch_unref(&f->set, epochs[2]);
    epoch_unref(&f->set, epochs[5]);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 4);
    for (int i = 0; i < 5; i++) {
        if (i == 2)
            continue;
        struct plan_params params = torch;
        params.epoch = (uint64_t)i;
        expect_step(epochs[i], &params, 0, 5000);
        epoch_unref(&f->set, epochs[i]);
    }
}

/* ---- what is a bug -------------------------------------------------------------------------- */

static void use_while_busy(void *arg)
{
    uint64_t indices[BATCH];

    epoch_step(arg, 0, 0, indices);
}

TEST(test_a_busy_plan_is_nobody_s, setup, teardown)
{
    struct fixture *f = *state;
    struct epoch *epoch = ref(f, &torch);

    assert_false(prepare(f, epoch, 0, 14999));
    assert_true(call_aborts(use_while_busy, epoch));
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_false(call_aborts(use_while_busy, epoch));
    epoch_unref(&f->set, epoch);
}

/* ---- batches of tokens ---------------------------------------------------------------------- */

enum { SAMPLES = 500000 };

static struct length_table *some_lengths(void)
{
    struct length_table *table = NULL;

    assert_int_equal(length_table_new(SAMPLES, &(struct payer){0}, &table, NULL), 0);
    for (uint32_t i = 0; i < SAMPLES; i++)
        table->values[i] = 1 + i * 7 % 200;
    return table;
}

static struct plan_params in_tokens(const struct length_table *table)
{
    struct plan_params params = torch;

    params.length = SAMPLES;
    params.tokens = (struct plan_tokens){
        .tokens = 4096, .lengths = table->values, .strategy = PLAN_SORTED, .multiple = 1};
    return params;
}

static int work_out(struct fixture *f, struct epoch *epoch)
{
    return epoch_work_out(epoch, done, f);
}

TEST(test_tokens_are_worked_out_by_a_thread, setup, teardown)
{
    struct fixture *f = *state;
    struct length_table *table = some_lengths();
    struct plan_params params = in_tokens(table);
    struct epoch *epoch = NULL, *same = NULL;

    assert_int_equal(epoch_ref(&f->set, &params, table, &epoch, NULL), 0);
    assert_int_equal(work_out(f, epoch), 1);
    assert_int_equal(epoch_ref(&f->set, &params, table, &same, NULL), 0);
    assert_ptr_equal(same, epoch);
    assert_int_equal(work_out(f, same), 1); /* the same thread is at it */
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 1);
    assert_int_equal(work_out(f, epoch), 0);
    assert_int_equal(plan_samples(epoch_plan(epoch), 0) + plan_samples(epoch_plan(epoch), 1),
                     SAMPLES);
    assert_true(prepare(f, epoch, 1, plan_steps(epoch_plan(epoch), 1) - 1));
    epoch_unref(&f->set, epoch);
    epoch_unref(&f->set, epoch);
    length_table_unref(table);
}

TEST(test_lengths_outlive_their_loader, setup, teardown)
{
    struct fixture *f = *state;
    struct length_table *table = some_lengths();
    struct plan_params params = in_tokens(table);
    struct epoch *epoch = NULL;

    assert_int_equal(epoch_ref(&f->set, &params, table, &epoch, NULL), 0);
    assert_int_equal(work_out(f, epoch), 1);
    epoch_unref(&f->set, epoch);
    length_table_unref(table);
    uv_run(&f->loop, UV_RUN_DEFAULT); /* the thread reads them still */
    assert_int_equal(f->calls, 0);
}

/* ---- what they take, until no thread is at them any more ------------------------------------ */

static struct quota *charge(struct fixture *f, uint64_t bytes)
{
    struct quota *quota = quota_new(&(struct config_limits){.bytes = bytes});

    f->set.payer.account = quota_account(quota, 1000);
    return quota;
}

static void charge_no_more(struct fixture *f, struct quota *quota)
{
    assert_int_equal(quota_in_use(f->set.payer.account, QUOTA_BYTES), 0);
    f->set.payer.account = NULL;
    quota_free(quota);
}

/* Of those that are given up, threads have some still, and the others are nobody's at once. */
TEST(test_given_up_plans_are_charged, setup, teardown)
{
    enum { MANY = 10 };
    struct fixture *f = *state;
    struct quota *quota = charge(f, UINT64_MAX);
    uint64_t each = 4 * torch.length;

    for (uint64_t i = 0; i < MANY; i++) {
        struct plan_params params = torch;
        params.epoch = i;
        struct epoch *epoch = ref(f, &params);
        assert_false(prepare(f, epoch, 0, 14999));
        epoch_unref(&f->set, epoch);
        assert_int_equal(quota_in_use(f->set.payer.account, QUOTA_BYTES),
                         min_u64(i + 1, CREW_JOBS) * each);
    }
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 0);
    charge_no_more(f, quota);
}

/* While they are worked out, and what is left of that. */
TEST(test_batches_of_tokens_are_charged, setup, teardown)
{
    struct fixture *f = *state;
    struct length_table *table = some_lengths();
    struct plan_params params = in_tokens(table);
    struct quota *quota = charge(f, (4 + 20 + 4) * SAMPLES - 1);
    struct epoch *epoch = NULL, *other = NULL;
    struct dl_error err = {0};

    assert_int_equal(epoch_ref(&f->set, &params, table, &epoch, NULL), 0);
    assert_int_equal(quota_in_use(f->set.payer.account, QUOTA_BYTES), (4 + 20) * SAMPLES);
    params.epoch++;
    assert_int_equal(epoch_ref(&f->set, &params, table, &other, &err), -EDQUOT);
    assert_int_equal(work_out(f, epoch), 1);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 1);
    uint64_t kept = quota_in_use(f->set.payer.account, QUOTA_BYTES);
    assert_int_equal(kept, plan_bytes(epoch_plan(epoch)));
    assert_in_range(kept, 4 * SAMPLES, 10 * SAMPLES);
    epoch_unref(&f->set, epoch);
    length_table_unref(table);
    charge_no_more(f, quota);
}

/* Each epoch has a copy of its own. */
TEST(test_lists_are_charged, setup, teardown)
{
    static const uint64_t indices[] = {1, 2, 3};
    static const double weights[] = {1, 2, 3, 4};
    struct fixture *f = *state;
    struct quota *quota = charge(f, UINT64_MAX);
    struct plan_params listed = torch, drawn = torch;

    listed.sampler = PLAN_INDICES;
    listed.indices = indices;
    listed.n_indices = ARRAY_SIZE(indices);
    drawn.sampler = PLAN_WEIGHTS;
    drawn.length = ARRAY_SIZE(weights);
    drawn.weights = weights;
    drawn.order = PLAN_NATIVE;
    struct epoch *a = ref(f, &listed);
    assert_int_equal(quota_in_use(f->set.payer.account, QUOTA_BYTES),
                     3 * (8 + 4)); /* and the places */
    struct epoch *b = ref(f, &drawn);
    assert_int_equal(quota_in_use(f->set.payer.account, QUOTA_BYTES), 3 * (8 + 4) + 4 * (8 + 16));
    drawn.replacement = true;
    struct epoch *c = ref(f, &drawn);
    assert_int_equal(quota_in_use(f->set.payer.account, QUOTA_BYTES),
                     3 * (8 + 4) + 4 * (8 + 16 + 8));
    epoch_unref(&f->set, a);
    epoch_unref(&f->set, b);
    epoch_unref(&f->set, c);
    charge_no_more(f, quota);
}

/* A thread begins the order; windows are cut on the loop, and the rest of the memory is returned.
 */
TEST(test_windows, setup, teardown)
{
    enum { WINDOW = 100000 };
    struct fixture *f = *state;
    struct length_table *table = some_lengths();
    struct plan_params params = in_tokens(table);
    struct epoch *epoch = NULL;
    uint64_t *samples = calloc(WINDOW, sizeof *samples), steps = 0;

    params.tokens.strategy = PLAN_PACK;
    params.tokens.row_length = 2048;
    params.tokens.lazy = WINDOW;
    assert_int_equal(epoch_ref(&f->set, &params, table, &epoch, NULL), 0);
    assert_int_equal(work_out(f, epoch), 1);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(work_out(f, epoch), 0);
    const struct plan *plan = epoch_plan(epoch);
    for (unsigned i = 0; i < SAMPLES / WINDOW; i++) {
        assert_false(plan_is_whole(plan));
        assert_int_equal(epoch_window(epoch, samples), WINDOW);
        assert_int_equal(epoch_cut_window(epoch), 0);
        assert_true(plan_steps(plan, 0) > steps);
        assert_true(prepare(f, epoch, 1, steps));
        steps = plan_steps(plan, 0);
    }
    assert_true(plan_is_whole(plan));
    assert_int_equal(plan_samples(plan, 0) + plan_samples(plan, 1),
                     SAMPLES + plan_totals(plan)->repeated);
    epoch_unref(&f->set, epoch);
    length_table_unref(table);
    free(samples);
}

TEST(test_plain_plans_have_nothing_to_work_out, setup, teardown)
{
    struct fixture *f = *state;
    struct epoch *epoch = ref(f, &torch);

    assert_int_equal(work_out(f, epoch), 0);
    epoch_unref(&f->set, epoch);
}
