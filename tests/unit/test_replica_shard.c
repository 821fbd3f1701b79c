/* Rounds that ranks share: shard modes batch, split and dispatch of iterable datasets. */
#include "tests/lib/harness.h"

#include "daemon/data/replica.h"

#include <errno.h>

/* ---- a dataset of numbers that tells what is done with it ----------------------------------- */

enum { LONGEST = 40 };

enum ability { WALKS, LEAPS, REMEMBERS }; /* next() alone; also skip(); also again() */

static struct {
    uint64_t length;
    uint64_t bad;    /* the sample that cannot be had; UINT64_MAX: none */
    uint64_t second; /* how many samples there are the second time; UINT64_MAX: as many */
    enum ability ability;
    unsigned begun, made, again, open;
    struct replica_params params; /* of the last one */
} told;

struct counting {
    struct dataset_iter base;
    uint64_t next;
    uint64_t length;
};

static int counting_next(struct dataset_iter *it, struct sample *ret, struct dl_error *err)
{
    struct counting *c = container_of(it, struct counting, base);

    if (c->next >= c->length)
        return DATASET_END;
    told.made++;
    if (c->next++ == told.bad)
        return dl_error_set(err, EBADMSG, "file", "it is bad");
    sample_int(ret, NULL, (int64_t)c->next - 1);
    return 0;
}

static int counting_skip(struct dataset_iter *it, uint64_t n, uint64_t *ret)
{
    struct counting *c = container_of(it, struct counting, base);
    uint64_t left = c->length - c->next;

    assert_null(ret); /* nobody here wants to know */
    c->next += n > left ? left : n;
    return n > left ? DATASET_END : 0;
}

static int counting_again(struct dataset_iter *it, uint64_t *number, struct sample *ret,
                          struct dl_error *err)
{
    struct counting *c = container_of(it, struct counting, base);

    (void)err;
    assert_true(*number < c->next && *number < told.params.again);
    told.again++;
    sample_int(ret, NULL, (int64_t)*number);
    return 0;
}

static void counting_close(struct dataset_iter *it)
{
    told.open--;
    free(container_of(it, struct counting, base));
}

static const struct dataset_iter_ops abilities[] = {
    [WALKS] = {.next = counting_next, .close = counting_close},
    [LEAPS] = {.next = counting_next, .skip = counting_skip, .close = counting_close},
    [REMEMBERS] = {.next = counting_next, .again = counting_again, .close = counting_close},
};

static int counting_iterate(struct dataset *ds, const struct replica_params *params,
                            struct dataset_iter **ret, struct dl_error *err)
{
    struct counting *c = calloc(1, sizeof *c);

    (void)ds;
    (void)err;
    assert_non_null(c);
    c->length = told.begun++ > 0 ? min_u64(told.length, told.second) : told.length;
    told.params = *params;
    told.open++;
    c->base.ops = &abilities[told.ability];
    *ret = &c->base;
    return 0;
}

static const struct dataset_ops counting_ops = {.iterate = counting_iterate};
static struct dataset counting = {.ops = &counting_ops, .length = DATASET_LENGTH_UNKNOWN};

/* ---- what the modes are, list by list ------------------------------------------------------- */

struct rule {
    enum shard_mode mode;
    uint64_t size; /* of a rank's batch; dispatch: of all ranks' */
    uint32_t world;
    uint32_t rank;
    bool drop_last;
    bool even;
};

struct model_round {
    uint64_t numbers[6 * LONGEST];
    size_t n;
    size_t repeated;
};

static uint64_t of_all_ranks(const struct rule *rule)
{
    return rule->mode == SHARD_DISPATCH ? rule->size : rule->size * rule->world;
}

/* P of Accelerate's rule: samples 0..length-1, cut or padded; how many it has. */
static size_t model_order(const struct rule *rule, uint64_t length, uint64_t *ret)
{
    uint64_t all = of_all_ranks(rule), rest = length % all, n = length;
    uint64_t to = rule->mode == SHARD_DISPATCH ? rule->world : all;

    for (uint64_t i = 0; i < length; i++)
        ret[i] = i;
    if (rule->drop_last)
        return length - rest;
    while (rule->even && n % to > 0) {
        ret[n] = (n - length) % min_u64(length, all);
        n++;
    }
    return n;
}

/* False: there is no such round. */
static bool model(const struct rule *rule, uint64_t length, uint64_t number,
                  struct model_round *ret)
{
    uint64_t order[6 * LONGEST];
    size_t n = model_order(rule, length, order);
    uint64_t from =
        number * of_all_ranks(rule) + (rule->mode == SHARD_DISPATCH ? 0 : rule->rank * rule->size);

    *ret = (struct model_round){0};
    for (uint64_t at = from; at < from + rule->size && at < n; at++) {
        ret->numbers[ret->n++] = order[at];
        ret->repeated += at >= length;
    }
    return ret->n > 0;
}

/* ---- asking --------------------------------------------------------------------------------- */

static struct replica_set make_set(const struct rule *rule, uint64_t length, enum ability ability)
{
    memset(&told, 0, sizeof told);
    told.length = length;
    told.bad = told.second = UINT64_MAX;
    told.ability = ability;
    return (struct replica_set){.dataset = &counting,
                                .seed = 42,
                                .worker = 1,
                                .workers = 3,
                                .shard = rule->mode,
                                .drop_last = rule->drop_last,
                                .even = rule->even};
}

static int ask(struct replica_set *set, const struct rule *rule, uint64_t number,
               struct sample_batch **ret, uint64_t *ret_bad, struct dl_error *err)
{
    struct round round = {.stream = 7,
                          .rank = rule->rank,
                          .world = rule->world,
                          .epoch = 5,
                          .size = rule->size,
                          .number = number};

    return replica_round(set, &round, ret, ret_bad, err);
}

static void expect_round(struct replica_set *set, const struct rule *rule, uint64_t number)
{
    struct model_round want;
    struct sample_batch *batch = NULL;
    struct dl_error err = {0};
    uint64_t bad;

    bool exists = model(rule, told.length, number, &want);
    assert_int_equal(ask(set, rule, number, &batch, &bad, &err), exists ? 0 : DATASET_END);
    if (!exists)
        return;
    assert_int_equal(batch->n, want.n);
    assert_int_equal(batch->repeated, want.repeated);
    assert_memory_equal(batch->numbers, want.numbers, want.n * sizeof *want.numbers);
    for (size_t i = 0; i < want.n; i++)
        assert_memory_equal(batch->samples[i].data[0], &want.numbers[i], sizeof(int64_t));
}

static uint64_t rounds_of(const struct rule *rule, uint64_t length)
{
    struct model_round round;
    uint64_t n = 0;

    while (model(rule, length, n, &round))
        n++;
    return n;
}

/* Calls `check` for what there is of small numbers. */
static void for_each_rule(void (*check)(const struct rule *rule, uint64_t length,
                                        enum ability ability))
{
    static const uint64_t lengths[] = {0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 23, 24, 25, LONGEST};

    for (unsigned flags = 0; flags < 12; flags++)
        for (uint32_t world = 1; world <= 4; world++)
            for (uint64_t size = 1; size <= 3; size++)
                for (uint32_t rank = 0; rank < world; rank++)
                    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
                        for (unsigned ability = WALKS; ability <= REMEMBERS; ability++) {
                            struct rule rule = {.mode = (enum shard_mode)(SHARD_BATCH + flags / 4),
                                                .size = size,
                                                .world = world,
                                                .rank = rank,
                                                .drop_last = flags & 1,
                                                .even = flags & 2};
                            if (rule.mode == SHARD_DISPATCH)
                                rule.size *= world;
                            check(&rule, lengths[i], (enum ability)ability);
                        }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void check_in_order(const struct rule *rule, uint64_t length, enum ability ability)
{
    struct replica_set set = make_set(rule, length, ability);
    uint64_t rounds = rounds_of(rule, length);

    for (uint64_t number = 0; number < rounds + 2; number++)
        expect_round(&set, rule, number);
    assert_true(told.params.rank == 0 && told.params.world == 1);
    assert_true(told.params.worker == 1 && told.params.workers == 3);
    assert_true(told.params.seed == dataset_replica_seed(42, 5, 0, 3, 1));
    assert_true(told.params.key.seed == 42 && told.params.key.epoch == 5);
    /* What is repeated is remembered, or read again; nothing else is read twice. */
    if (told.ability == REMEMBERS || !rule->even || rule->drop_last || length == 0)
        assert_int_equal(told.begun, 1);
    replica_set_deinit(&set);
    assert_int_equal(told.open, 0);
}

TEST(test_rounds_in_order)
{
    for_each_rule(check_in_order);
}

/* By a new worker, and by one that had made it, or the one behind it. */
static void check_any(const struct rule *rule, uint64_t length, enum ability ability)
{
    uint64_t rounds = rounds_of(rule, length);

    for (uint64_t number = 0; number <= rounds; number += 1 + rounds / 3) {
        struct replica_set set = make_set(rule, length, ability);
        expect_round(&set, rule, number);
        expect_round(&set, rule, number);
        expect_round(&set, rule, number + 1);
        expect_round(&set, rule, number);
        replica_set_deinit(&set);
        assert_int_equal(told.open, 0);
    }
}

TEST(test_any_round_is_the_same_whoever_makes_it)
{
    for_each_rule(check_any);
}

/* In sequence the rounds are the same, where no sample is bad. */
static void check_in_sequence(const struct rule *rule, uint64_t length, enum ability ability)
{
    struct replica_set set = make_set(rule, length, ability);
    uint64_t rounds = rounds_of(rule, length);

    set.in_sequence = true;
    expect_round(&set, rule, rounds / 2);
    for (uint64_t number = 0; number <= rounds; number++)
        expect_round(&set, rule, number);
    replica_set_deinit(&set);
    assert_int_equal(told.open, 0);
}

TEST(test_in_sequence)
{
    for_each_rule(check_in_sequence);
}

/* Sample 9 ends round 1 of all ranks, no matter whose it is, and round 2 begins behind it. */
TEST(test_in_sequence_an_error_is_all_ranks)
{
    struct rule rule = {.mode = SHARD_BATCH, .size = 2, .world = 4};
    struct sample_batch *batch;
    struct dl_error err;
    uint64_t bad;

    for (; rule.rank < rule.world; rule.rank++) {
        struct replica_set set = make_set(&rule, LONGEST, WALKS);
        set.in_sequence = true;
        told.bad = 9;
        assert_int_equal(ask(&set, &rule, 1, &batch, &bad, &err), -EBADMSG);
        assert_int_equal(bad, 9);
        assert_int_equal(ask(&set, &rule, 2, &batch, &bad, &err), 0);
        assert_int_equal(batch->n, 2);
        assert_int_equal(batch->numbers[0], 10 + 2 * rule.rank);
        replica_set_deinit(&set);
    }
}

/* With `even` and with drop_last; else the first ranks may have one more. */
TEST(test_all_ranks_end_at_the_same_round)
{
    for (uint64_t length = 0; length <= LONGEST; length++)
        for (int drop_last = 0; drop_last < 2; drop_last++) {
            struct rule rule = {SHARD_BATCH, 3, 4, 0, drop_last, !drop_last};
            uint64_t first = rounds_of(&rule, length);
            for (rule.rank = 0; rule.rank < rule.world; rule.rank++) {
                struct replica_set set = make_set(&rule, length, LEAPS);
                assert_int_equal(rounds_of(&rule, length), first);
                expect_round(&set, &rule, first); /* which is the end */
                replica_set_deinit(&set);
            }
        }
}

/* Where samples must be made to be passed over, each rank makes all of a round in its step. */
TEST(test_ranks_draw_alike)
{
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct rule rule = {SHARD_BATCH, 2, 3, rank, false, true};
        struct replica_set set = make_set(&rule, 24, WALKS);
        for (unsigned number = 0; number < 4; number++) {
            expect_round(&set, &rule, number);
            assert_int_equal(told.made, 6 * (number + 1));
        }
        replica_set_deinit(&set);
    }
}

/* It costs the step of the rank that it belongs to, and a step that repeats it. */
TEST(test_a_bad_sample)
{
    for (unsigned ability = WALKS; ability <= LEAPS; ability++)
        for (uint32_t rank = 0; rank < 3; rank++) {
            struct rule rule = {SHARD_BATCH, 2, 3, rank, false, true};
            struct replica_set set = make_set(&rule, 11, (enum ability)ability);
            struct dl_error err = {0};
            struct sample_batch *batch;
            uint64_t bad;

            told.bad = 0; /* of rank 0; the 12th, of rank 2, is sample 0 again */
            for (unsigned number = 0; number < 2; number++) {
                if ((number == 0 && rank == 0) || (number == 1 && rank == 2)) {
                    assert_int_equal(ask(&set, &rule, number, &batch, &bad, &err), -EBADMSG);
                    assert_int_equal(bad, 0);
                } else {
                    expect_round(&set, &rule, number);
                }
            }
            assert_int_equal(ask(&set, &rule, 2, &batch, &bad, &err), DATASET_END);
            replica_set_deinit(&set);
        }
}

TEST(test_a_dataset_that_is_another_the_second_time)
{
    struct rule rule = {SHARD_BATCH, 2, 3, 2, false, true};
    struct replica_set set = make_set(&rule, 9, LEAPS);
    struct dl_error err = {0};
    struct sample_batch *batch;
    uint64_t bad;

    told.second = 1; /* ranks 1 and 2 lack samples 0 to 2 */
    expect_round(&set, &rule, 0);
    assert_int_equal(ask(&set, &rule, 1, &batch, &bad, &err), -EIO);
    assert_non_null(strstr(err.message, "did not come a second time"));
    assert_int_equal(ask(&set, &rule, 2, &batch, &bad, &err), DATASET_END);
    replica_set_deinit(&set);
    assert_int_equal(told.open, 0);
}

TEST(test_a_round_that_did_not_fit_keeps_what_is_repeated)
{
    struct rule rule = {SHARD_BATCH, 3, 2, 1, false, true};
    struct replica_set set = make_set(&rule, 10, LEAPS);
    struct round second = {
        .stream = 7, .rank = 1, .world = 2, .epoch = 5, .size = 3, .number = 1, .settled = 1};

    expect_round(&set, &rule, 1);
    replica_retain(&set, &second, 1 << 20);
    unsigned made = told.made;
    expect_round(&set, &rule, 1);
    assert_int_equal(told.made, made);
    replica_set_deinit(&set);
}
