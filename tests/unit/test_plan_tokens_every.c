/*
 * Batches of tokens, of every shape: what holds of all plans, a naive second implementation of each
 * strategy, and epochs that carry.
 */
#include "tests/unit/plan_case.h"

#define PLAN_CHECK(condition) assert_true(condition)
#include "tests/lib/plan_check.h"

enum { MAX_LENGTH = 300, ROUNDS = 4000 };

struct shape {
    struct plan_params params;
    uint32_t lengths[MAX_LENGTH];
    uint64_t indices[MAX_LENGTH];
    uint32_t wanted[MAX_LENGTH];
};

static void choose_tokens(struct plan_tokens *tokens, uint64_t *seed)
{
    static const uint64_t windows[] = {0, 1, 2, 5, 40};

    tokens->tokens = 1 + below(seed, below(seed, 2) ? 40 : 400);
    tokens->strategy = (enum plan_strategy)below(seed, 4);
    tokens->leftover = (enum plan_leftover)below(seed, tokens->strategy == PLAN_BUCKET ? 3 : 2);
    tokens->truncate = below(seed, 2);
    tokens->max_length = below(seed, 3) ? 0 : 1 + below(seed, 60);
    tokens->interval = 1 + below(seed, (uint32_t)min_u64(tokens->tokens, 12));
    tokens->multiple = 1;
    tokens->window = windows[below(seed, ARRAY_SIZE(windows))];
    tokens->row_length = 1 + below(seed, (uint32_t)tokens->tokens);
    if (tokens->leftover != PLAN_CARRY)
        tokens->lazy = below(seed, 2) ? 0 : 1 + below(seed, MAX_LENGTH);
    if (tokens->strategy == PLAN_PACK)
        return;
    tokens->multiple = below(seed, 2) ? 1 : 1 + below(seed, 20);
    tokens->pad_length = below(seed, 4) ? 0 : 1 + below(seed, 50);
}

static void choose_balance(struct plan_params *params, uint64_t *seed)
{
    struct plan_tokens *tokens = &params->tokens;

    if (below(seed, 2) || tokens->strategy == PLAN_BUCKET || tokens->lazy > 0 ||
        (tokens->strategy == PLAN_SORTED && params->even))
        return;
    tokens->balance = true;
    tokens->linear = below(seed, 3);
    tokens->square = tokens->linear > 0 ? below(seed, 3) / 64.0 : 1;
    tokens->accumulate = below(seed, 4);
}

static void choose(struct shape *shape, uint64_t *seed)
{
    struct plan_params *params = &shape->params;
    bool listed = below(seed, 4) == 0;

    *params = (struct plan_params){.length = below(seed, below(seed, 2) ? 20 : MAX_LENGTH),
                                   .order = (enum plan_order)below(seed, 3),
                                   .seed = next_random(seed),
                                   .epoch = below(seed, 9),
                                   .world = 1 + below(seed, below(seed, 3) ? 4 : 40),
                                   .even = below(seed, 2)};
    choose_tokens(&params->tokens, seed);
    choose_balance(params, seed);
    params->tokens.lengths = shape->lengths;
    text_like(shape->lengths, params->length, below(seed, 2) ? 8 : 64, *seed);
    for (uint64_t i = 0; i < params->length; i++)
        shape->wanted[i] = !listed;
    for (uint64_t i = below(seed, 4) ? params->length : 0; i < params->length; i += 7)
        shape->lengths[i] = 0;
    if (!listed || params->length == 0)
        return;
    params->sampler = PLAN_INDICES;
    params->indices = shape->indices;
    params->n_indices = below(seed, (uint32_t)params->length + 1);
    for (uint64_t i = 0; i < params->n_indices; i++) {
        shape->indices[i] = below(seed, (uint32_t)params->length);
        shape->wanted[shape->indices[i]]++;
    }
}

TEST(test_every_shape)
{
    static struct shape shape;
    uint64_t seed = 1;

    for (unsigned i = 0; i < ROUNDS; i++) {
        choose(&shape, &seed);
        _cleanup_plan_ struct plan *plan = prepared(shape.params);
        plan_check(&shape.params, plan, shape.wanted);
    }
}

/* With draws and cycles of them, a sample may come any number of times. */
TEST(test_other_samplers)
{
    static uint32_t lengths[MAX_LENGTH];
    double weights[MAX_LENGTH];
    uint64_t seed = 2, samples = 0;

    for (unsigned i = 0; i < MAX_LENGTH; i++)
        weights[i] = 1 + i;
    for (unsigned i = 0; i < 60; i++) {
        struct plan_params params = {.length = MAX_LENGTH,
                                     .order = i % 2 ? PLAN_NATIVE : PLAN_TORCH,
                                     .num_samples = 1 + below(&seed, 700),
                                     .replacement = i % 3 > 0,
                                     .sampler = i % 3 == 2 ? PLAN_WEIGHTS : PLAN_SAMPLES,
                                     .weights = weights,
                                     .seed = i,
                                     .world = 3};

        params.tokens = (struct plan_tokens){.tokens = 100,
                                             .lengths = lengths,
                                             .multiple = 1,
                                             .strategy = (enum plan_strategy)(i / 6 % 3),
                                             .interval = 5,
                                             .row_length = 50};
        text_like(lengths, MAX_LENGTH, 50, seed);
        _cleanup_plan_ struct plan *plan = prepared(params);
        for (uint64_t rank = 0; rank < 3; rank++)
            samples += plan_samples(plan, rank);
        assert_int_equal(samples, params.num_samples);
        samples = 0;
    }
}

/* ---- a naive implementation ----------------------------------------------------------------- */

/* Groups as lists of samples, rows closed by END; made of an order that is not shuffled. */
#define END UINT64_MAX

struct naive {
    const struct plan_params *params;
    uint64_t parts[3 * MAX_LENGTH]; /* of the groups, in turn; END behind each part */
    size_t ends[MAX_LENGTH];        /* of the groups */
    size_t n_parts;
    size_t n_groups;
};

static uint64_t length_of(const struct plan_params *params, uint64_t sample)
{
    return min_u64(params->tokens.lengths[sample], plan_tokens_limit(&params->tokens));
}

static void add_part(struct naive *naive, uint64_t sample)
{
    naive->parts[naive->n_parts++] = sample;
    naive->parts[naive->n_parts++] = END;
}

static void end_group(struct naive *naive)
{
    naive->ends[naive->n_groups++] = naive->n_parts;
}

/* How many fit a batch whose longest has that length: one always does. */
static uint64_t naive_fits(const struct plan_params *params, uint64_t longest)
{
    uint64_t n = 1;

    while ((n + 1) * plan_check_padded(&params->tokens, longest) <= params->tokens.tokens)
        n++;
    return n;
}

/* The order without what is too long. */
static size_t naive_order(const struct plan_params *params, uint64_t *order)
{
    uint32_t limit = plan_tokens_limit(&params->tokens);
    size_t n = 0;

    for (uint64_t i = 0; i < (params->indices ? params->n_indices : params->length); i++) {
        uint64_t sample = params->indices ? params->indices[i] : i;

        if (params->tokens.lengths[sample] == 0)
            continue;
        if (params->tokens.lengths[sample] <= limit || (params->tokens.truncate && limit > 0))
            order[n++] = sample;
    }
    return n;
}

static void naive_bucket(struct naive *naive, const uint64_t *order, size_t n)
{
    const struct plan_params *params = naive->params;
    static uint64_t buckets[70][MAX_LENGTH];
    size_t counts[70] = {0}, waiting = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t b = (length_of(params, order[i]) - 1) / params->tokens.interval;
        uint64_t fits = naive_fits(params, (b + 1) * params->tokens.interval);

        buckets[b][counts[b]++] = order[i];
        if (counts[b] < fits * params->world)
            continue;
        for (size_t j = 0; j < counts[b]; j++)
            add_part(naive, buckets[b][j]);
        end_group(naive);
        counts[b] = 0;
    }
    for (size_t b = 0; params->tokens.leftover == PLAN_EMIT && b < 70; b++) {
        uint64_t fits = naive_fits(params, (b + 1) * params->tokens.interval);

        for (size_t j = 0; j < counts[b]; j++, waiting++) {
            if (waiting == fits * params->world) {
                end_group(naive);
                waiting = 0;
            }
            add_part(naive, buckets[b][j]);
        }
        if (waiting < params->world)
            continue;
        end_group(naive);
        waiting = 0;
    }
    if (waiting > 0)
        end_group(naive);
}

/* Insertion sort, ascending; equals stay as they are. */
static void naive_sort(const struct plan_params *params, uint64_t *list, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0 && length_of(params, list[j - 1]) > length_of(params, list[j]);
             j--) {
            uint64_t other = list[j];
            list[j] = list[j - 1];
            list[j - 1] = other;
        }
}

static size_t naive_window(const struct plan_params *params, const uint64_t *order, size_t first,
                           size_t end, size_t n)
{
    uint64_t enough = params->tokens.window * params->tokens.tokens * params->world, sum = 0;
    size_t i = first;

    if (enough == 0)
        return n;
    for (; i < n && (sum < enough || i <= end); i++)
        sum += params->tokens.strategy == PLAN_PACK
                   ? length_of(params, order[i])
                   : plan_check_padded(&params->tokens, length_of(params, order[i]));
    return i;
}

/* How many of the sorted list make a group; full unless `last`. Tries one for each rank more. */
static size_t naive_group(const struct plan_params *params, const uint64_t *list, size_t n)
{
    size_t deep = 0;

    for (;;) {
        size_t more = min_u64(n, (deep + 1) * params->world);
        uint64_t longest = length_of(params, list[more - 1]);

        if (deep + 1 > naive_fits(params, longest))
            return deep * params->world;
        if (++deep * params->world > n)
            return 0;
    }
}

static void naive_sorted(struct naive *naive, uint64_t *order, size_t n)
{
    size_t first = 0, end = 0, count = 0;

    while (end < n) {
        end = naive_window(naive->params, order, first, end, n);
        naive_sort(naive->params, order + first, end - first);
        while (first < end &&
               (count = naive_group(naive->params, order + first, end - first)) > 0) {
            for (size_t i = 0; i < count; i++)
                add_part(naive, order[first++]);
            end_group(naive);
        }
    }
    if (first == end || naive->params->tokens.leftover != PLAN_EMIT)
        return;
    while (first < end)
        add_part(naive, order[first++]);
    end_group(naive);
}

/* Compares what all ranks have with the naive groups, part by part. */
static void check_naive(const struct naive *naive, struct plan *plan)
{
    const struct plan_params *params = naive->params;

    for (size_t group = 0, from = 0; group < naive->n_groups; from = naive->ends[group++]) {
        size_t parts = (naive->ends[group] - from) / 2;

        for (uint64_t rank = 0; rank < params->world; rank++) {
            uint64_t indices[MAX_LENGTH];
            size_t n = 0;

            if (plan_steps(plan, rank) == group) {
                assert_true(!params->even && rank >= parts);
                continue;
            }
            size_t count = plan_step(plan, rank, group, indices);
            for (size_t i = parts < params->world ? rank % parts : rank; i < parts;
                 i += params->world, n++)
                assert_int_equal(indices[n], naive->parts[from + 2 * i]);
            assert_int_equal(n, count);
        }
    }
    assert_int_equal(plan_steps(plan, 0), naive->n_groups);
}

/* Ranks have batches of their own: see test_batches_as_naive(). */
static bool cuts_batches(const struct plan_params *params)
{
    return params->tokens.strategy == PLAN_IN_TURN ||
           (params->tokens.strategy == PLAN_SORTED && !params->even && params->world > 1);
}

/* As many of the list as fit a batch; `n` when all do. */
static size_t naive_batch(const struct plan_params *params, const uint64_t *list, size_t n)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < n; i++) {
        longest = max_u64(longest, length_of(params, list[i]));
        if (i + 1 > naive_fits(params, longest))
            return i;
    }
    return n;
}

/* Compares the steps before the last with batches that are cut one after another: of the order, or
 * of one sorted window. */
static void check_batches(const struct plan_params *params, struct plan *plan, const uint64_t *list,
                          size_t n)
{
    for (uint64_t step = 0, first = 0; step + 1 < plan_steps(plan, 0); step++) {
        for (uint64_t rank = 0; rank < params->world; rank++) {
            uint64_t indices[MAX_LENGTH];
            size_t count = naive_batch(params, list + first, n - first);

            assert_int_equal(plan_step(plan, rank, step, indices), count);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(indices[i], list[first++]);
        }
    }
}

TEST(test_batches_as_naive)
{
    static struct shape shape;
    uint64_t seed = 5;
    unsigned done = 0;

    while (done < ROUNDS / 4) {
        struct plan_params *params = &shape.params;
        uint64_t order[MAX_LENGTH];

        choose(&shape, &seed);
        params->order = PLAN_SEQUENTIAL;
        params->tokens.window = 0;
        params->tokens.lazy = 0;
        params->tokens.balance = false;
        params->tokens.accumulate = 1;
        if (!cuts_batches(params) || params->tokens.leftover != PLAN_EMIT)
            continue;
        size_t n = naive_order(params, order);
        if (params->tokens.strategy == PLAN_SORTED)
            naive_sort(params, order, n);
        _cleanup_plan_ struct plan *plan = prepared(*params);
        check_batches(params, plan, order, n);
        done++;
    }
}

TEST(test_as_naive)
{
    static struct shape shape;
    static struct naive naive;
    uint64_t seed = 3;
    unsigned done = 0;

    while (done < ROUNDS / 2) {
        uint64_t order[MAX_LENGTH];

        choose(&shape, &seed);
        shape.params.order = PLAN_SEQUENTIAL;
        shape.params.tokens.lazy = 0;                    /* see test_plan_lazy */
        if (shape.params.tokens.strategy == PLAN_PACK || /* see test_packed_as_naive() */
            shape.params.tokens.balance || shape.params.tokens.leftover == PLAN_CARRY ||
            cuts_batches(&shape.params) ||
            (shape.params.tokens.strategy == PLAN_SORTED &&
             shape.params.tokens.leftover == PLAN_DROP))
            continue;
        naive = (struct naive){.params = &shape.params};
        size_t n = naive_order(&shape.params, order);
        if (shape.params.tokens.strategy == PLAN_BUCKET)
            naive_bucket(&naive, order, n);
        else
            naive_sorted(&naive, order, n);
        _cleanup_plan_ struct plan *plan = prepared(shape.params);
        check_naive(&naive, plan);
        done++;
    }
}

/* One window, one rank, one row a batch: best fit, each row looked at. */
TEST(test_packed_as_naive)
{
    static uint32_t lengths[MAX_LENGTH];
    uint64_t seed = 4;

    for (unsigned round = 0; round < 300; round++) {
        static const uint32_t longest[] = {90, 90, 64, 4096, 8000, 1 << 20};
        uint32_t row_length = 1 + below(&seed, longest[round % ARRAY_SIZE(longest)]);
        uint64_t list[MAX_LENGTH], rows[MAX_LENGTH][MAX_LENGTH], space[MAX_LENGTH];
        size_t n_rows = 0, sizes[MAX_LENGTH] = {0};
        struct plan_params params = {.length = MAX_LENGTH, .world = 1};

        text_like(lengths, MAX_LENGTH, row_length, seed);
        params.tokens = (struct plan_tokens){.strategy = PLAN_PACK,
                                             .tokens = row_length,
                                             .row_length = row_length,
                                             .multiple = 1,
                                             .lengths = lengths};
        size_t n = naive_order(&params, list);
        assert_int_equal(n, MAX_LENGTH);
        naive_sort(&params, list, n);
        while (n-- > 0) {
            size_t best = n_rows;

            for (size_t row = 0; row < n_rows; row++)
                if (space[row] >= lengths[list[n]] && (best == n_rows || space[row] < space[best]))
                    best = row;
            if (best == n_rows)
                space[n_rows++] = row_length;
            space[best] -= lengths[list[n]];
            rows[best][sizes[best]++] = list[n];
        }
        _cleanup_plan_ struct plan *plan = prepared(params);
        assert_int_equal(plan_steps(plan, 0), n_rows);
        /* Rows with the same space are alike to the rule: what must agree is how full they are. */
        for (size_t row = 0; row < n_rows; row++)
            assert_int_equal(plan_step_tokens(plan, 0, row).longest, lengths[rows[row][0]]);
        uint64_t squares = 0, naive_squares = 0;
        for (size_t row = 0; row < n_rows; row++) {
            uint64_t full = plan_step_tokens(plan, 0, row).tokens;

            squares += full * full;
            naive_squares += (row_length - space[row]) * (row_length - space[row]);
        }
        assert_int_equal(squares, naive_squares);
    }
}

/* ---- carrying ------------------------------------------------------------------------------- */

enum { EPOCHS = 60, CARRIED_LENGTH = 120 };

/*
 * After any number of epochs each sample has come as often as any other, but for what is left: as
 * often as there were epochs, or fewer, by what its bucket has left altogether.
 */
static void check_epochs(struct plan_params params)
{
    uint64_t times[CARRIED_LENGTH] = {0}, left = 0, indices[1024], all = 0;

    for (params.epoch = 0; params.epoch < EPOCHS; params.epoch++) {
        _cleanup_plan_ struct plan *plan = prepared(params);
        const struct plan_totals *totals = plan_totals(plan);

        assert_int_equal(totals->carried, left);
        assert_int_equal(totals->leftover + totals->samples, left + CARRIED_LENGTH);
        left = totals->leftover;
        for (uint64_t rank = 0; rank < params.world; rank++)
            for (uint64_t step = 0; step < plan_steps(plan, rank); step++) {
                size_t n = plan_step(plan, rank, step, indices);

                for (size_t i = 0; i < n; i++)
                    times[indices[i]]++;
                all += n;
            }
        uint64_t missing = 0;
        for (unsigned i = 0; i < CARRIED_LENGTH; i++) {
            uint32_t b = (params.tokens.lengths[i] - 1) / params.tokens.interval;
            struct plan_bucket bucket = plan_bucket_at(plan, b);
            uint64_t passes = bucket.leftover / bucket.members; /* whole epochs that are left */

            assert_in_range(params.epoch + 1 - times[i], passes, passes + 1);
            missing += params.epoch + 1 - times[i];
        }
        assert_int_equal(missing, left);
    }
    assert_int_equal(all + left, EPOCHS * CARRIED_LENGTH);
}

TEST(test_carry)
{
    static uint32_t lengths[CARRIED_LENGTH];
    uint64_t seed = 5;

    for (unsigned round = 0; round < 30; round++) {
        struct plan_params params = {.length = CARRIED_LENGTH,
                                     .order = (enum plan_order)(round % 3),
                                     .seed = round,
                                     .world = 1 + below(&seed, 5)};

        text_like(lengths, CARRIED_LENGTH, 40, seed);
        params.tokens = (struct plan_tokens){.strategy = PLAN_BUCKET,
                                             .leftover = PLAN_CARRY,
                                             .tokens = 40 + below(&seed, 500),
                                             .interval = 1 + below(&seed, 20),
                                             .lengths = lengths,
                                             .multiple = 1};
        check_epochs(params);
    }
}

/* A late epoch is planned as fast as the first: nothing is replayed. */
TEST(test_carry_far)
{
    static const uint32_t lengths[] = {1, 1, 1};
    struct plan_params params = {
        .length = 3, .world = 1, .order = PLAN_NATIVE, .epoch = UINT64_MAX};

    params.tokens = (struct plan_tokens){.strategy = PLAN_BUCKET,
                                         .leftover = PLAN_CARRY,
                                         .tokens = 7,
                                         .interval = 1,
                                         .lengths = lengths,
                                         .multiple = 1};
    _cleanup_plan_ struct plan *plan = prepared(params);
    /* 2^64 - 1 is 1 modulo 7. */
    assert_int_equal(plan_totals(plan)->carried, 3);
    assert_int_equal(plan_totals(plan)->leftover, 6);
    params.epoch = UINT64_MAX - 4;
    _cleanup_plan_ struct plan *before = prepared(params);
    assert_int_equal(plan_totals(before)->carried, 5);
    assert_int_equal(plan_steps(before, 0), 1);
}
