/* Replicas of iterable datasets: rounds in order, again, too early, kept, with bad samples. */
#include "tests/lib/harness.h"

#include "daemon/data/kinds/arrays/array.h"
#include "daemon/data/kinds/combine/combine.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/replica.h"

#include <errno.h>

/* ---- a dataset that tells what is done with it ---------------------------------------------- */

enum { LENGTH = 23, BAD_SAMPLE = 9 };

static struct {
    bool can_skip;
    bool fails_to_begin;
    int fails_to_save;
    enum dataset_state_loss loses;
    uint64_t bad; /* the sample that cannot be had; UINT64_MAX: none */
    uint64_t bad_too[3];
    unsigned begun, made, skipped, open;
    struct replica_params params; /* of the last one */
} told;

struct counting {
    struct dataset_iter base;
    uint64_t next;
};

static int counting_next(struct dataset_iter *it, struct sample *ret, struct dl_error *err)
{
    struct counting *c = container_of(it, struct counting, base);

    if (c->next == LENGTH)
        return DATASET_END;
    told.made++;
    uint64_t number = c->next++;
    bool bad = number == told.bad;
    for (size_t i = 0; i < ARRAY_SIZE(told.bad_too); i++)
        bad = bad || (number > 0 && number == told.bad_too[i]);
    if (bad)
        return dl_error_set(err, EBADMSG, "file", "sample %u is bad", BAD_SAMPLE);
    sample_int(ret, NULL, (int64_t)c->next - 1);
    return 0;
}

static int counting_skip(struct dataset_iter *it, uint64_t n, uint64_t *ret)
{
    struct counting *c = container_of(it, struct counting, base);

    assert_null(ret); /* nobody here wants to know */
    told.skipped++;
    if (n > LENGTH - c->next) {
        c->next = LENGTH;
        return DATASET_END;
    }
    c->next += n;
    return 0;
}

/* Its place is the number of the next sample. */
static int counting_save(struct dataset_iter *it, void *buf, size_t room, size_t *ret_len,
                         enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    struct counting *c = container_of(it, struct counting, base);

    assert_true(room >= sizeof c->next);
    if (told.loses)
        *ret_lost = told.loses;
    if (told.fails_to_save)
        return dl_error_set(err, -told.fails_to_save, "file", "it has forgotten");
    memcpy(buf, &c->next, sizeof c->next);
    *ret_len = sizeof c->next;
    return 0;
}

static void counting_close(struct dataset_iter *it)
{
    told.open--;
    free(container_of(it, struct counting, base));
}

static const struct dataset_iter_ops skipping_ops = {
    .next = counting_next, .skip = counting_skip, .save = counting_save, .close = counting_close};
static const struct dataset_iter_ops walking_ops = {
    .next = counting_next, .save = counting_save, .close = counting_close};

static int counting_iterate(struct dataset *ds, const struct replica_params *params,
                            struct dataset_iter **ret, struct dl_error *err)
{
    struct counting *c;

    (void)ds;
    told.begun++;
    told.params = *params;
    if (told.fails_to_begin)
        return dl_error_set(err, ENOENT, "file", "it is gone");
    c = calloc(1, sizeof *c);
    assert_non_null(c);
    told.open++;
    c->base.ops = told.can_skip ? &skipping_ops : &walking_ops;
    if (params->state.data) {
        assert_int_equal(params->state.len, sizeof c->next);
        memcpy(&c->next, params->state.data, sizeof c->next);
        assert_int_equal(params->position, c->next);
    }
    *ret = &c->base;
    return 0;
}

static const struct dataset_ops counting_ops = {.iterate = counting_iterate};
static struct dataset counting = {.ops = &counting_ops, .length = DATASET_LENGTH_UNKNOWN};

static uint64_t batch_size; /* of the rounds that are asked for */

static struct replica_set make_set(uint64_t size, bool drop_last, bool can_skip)
{
    memset(&told, 0, sizeof told);
    told.can_skip = can_skip;
    told.bad = UINT64_MAX;
    batch_size = size;
    counting.saves_state = false;
    return (struct replica_set){.dataset = &counting,
                                .shard = SHARD_STRIDED,
                                .seed = 42,
                                .worker = 1,
                                .workers = 3,
                                .drop_last = drop_last};
}

static struct round round_of(uint32_t stream, uint64_t number, uint64_t settled)
{
    return (struct round){.stream = stream,
                          .rank = 2,
                          .world = 4,
                          .epoch = 5,
                          .size = batch_size,
                          .number = number,
                          .settled = settled};
}

/* The round's first sample and how many; or what it said. */
static int ask(struct replica_set *set, struct round round, uint64_t *ret_first, size_t *ret_n)
{
    struct dl_error err = {0};
    struct sample_batch *batch = NULL;
    uint64_t bad = 0;

    int r = replica_round(set, &round, &batch, &bad, &err);
    if (r != 0)
        return r;
    *ret_n = batch->n;
    *ret_first = batch->numbers[0];
    for (size_t i = 0; i < batch->n; i++) {
        int64_t value;
        memcpy(&value, batch->samples[i].data[0], sizeof value);
        assert_int_equal(value, batch->numbers[i]);
        assert_int_equal(batch->numbers[i], *ret_first + i);
    }
    return 0;
}

static void expect_round(struct replica_set *set, uint64_t number, uint64_t settled)
{
    uint64_t first = 0, left = LENGTH - number * batch_size;
    size_t n = 0;

    assert_int_equal(ask(set, round_of(7, number, settled), &first, &n), 0);
    assert_int_equal(first, number * batch_size);
    assert_int_equal(n, left < batch_size ? left : batch_size);
}

static void expect_end(struct replica_set *set, uint64_t number)
{
    uint64_t first;
    size_t n;

    assert_int_equal(ask(set, round_of(7, number, number), &first, &n), DATASET_END);
}

/* ---- tests ---------------------------------------------------------------------------------- */

TEST(test_rounds_in_order)
{
    struct replica_set set = make_set(5, false, false);

    for (uint64_t number = 0; number < 5; number++)
        expect_round(&set, number, number);
    expect_end(&set, 5);
    expect_end(&set, 9);
    assert_int_equal(told.begun, 1);
    assert_int_equal(told.made, LENGTH);
    assert_int_equal(told.params.worker, 1);
    assert_int_equal(told.params.workers, 3);
    assert_int_equal(told.params.rank, 2);
    assert_int_equal(told.params.world, 4);
    assert_true(told.params.key.seed == 42 && told.params.key.epoch == 5);
    assert_true(told.params.seed == dataset_replica_seed(42, 5, 2, 3, 1));
    replica_set_deinit(&set);
    assert_int_equal(told.open, 0);
}

TEST(test_short_rounds_and_drop_last)
{
    for (uint64_t size = 1; size <= LENGTH + 2; size++) {
        for (int drop = 0; drop < 2; drop++) {
            struct replica_set set = make_set(size, drop, true);
            uint64_t rounds = drop ? LENGTH / size : (LENGTH + size - 1) / size;
            for (uint64_t number = 0; number < rounds; number++)
                expect_round(&set, number, number);
            expect_end(&set, rounds);
            replica_set_deinit(&set);
        }
    }
}

/* A new worker is asked for a round in the middle; an old one for a round that it had made. */
TEST(test_any_round_is_the_same_whoever_makes_it)
{
    for (int can_skip = 0; can_skip < 2; can_skip++) {
        for (uint64_t from = 0; from < 6; from++) {
            for (uint64_t to = 0; to < 5; to++) {
                struct replica_set set = make_set(5, false, can_skip);
                if (from == 5)
                    expect_end(&set, from);
                else
                    expect_round(&set, from, 0);
                expect_round(&set, to, 0);
                assert_int_equal(told.begun, to <= from ? 2 : 1);
                replica_set_deinit(&set);
                assert_int_equal(told.open, 0);
            }
        }
    }
}

/* ---- in sequence ---------------------------------------------------------------------------- */

static uint64_t entered[16];
static size_t n_entered;

static void on_enter(void *context, uint64_t number)
{
    (void)context;
    assert_true(n_entered < ARRAY_SIZE(entered));
    entered[n_entered++] = number;
}

/* Sample 9 ends round 1 after 4 samples: round 2 begins with sample 10. */
TEST(test_in_sequence_an_error_ends_its_round)
{
    static const struct {
        int r;
        uint64_t first;
        size_t n;
    } want[] = {{0, 0, 5},  {-EBADMSG, 0, 0}, {0, 10, 5},
                {0, 15, 5}, {0, 20, 3},       {DATASET_END, 0, 0}};

    for (uint64_t from = 0; from < ARRAY_SIZE(want); from++) {
        struct replica_set set = make_set(5, false, true);
        set.in_sequence = true;
        set.enter = on_enter;
        told.bad = BAD_SAMPLE;
        n_entered = 0;
        for (uint64_t number = from; number < ARRAY_SIZE(want); number++) {
            uint64_t first = 0;
            size_t n = 0;
            assert_int_equal(ask(&set, round_of(7, number, 0), &first, &n), want[number].r);
            assert_int_equal(first, want[number].first);
            assert_int_equal(n, want[number].n);
        }
        /* Each round once, those that are dropped, too; and nothing is leapt over. */
        assert_int_equal(n_entered, 5);
        for (uint64_t i = 0; i < n_entered; i++)
            assert_int_equal(entered[i], i);
        assert_int_equal(told.begun, 1);
        assert_int_equal(told.skipped, 0);
        replica_set_deinit(&set);
        assert_int_equal(told.open, 0);
    }
}

/* ---- where the dataset says that it stands -------------------------------------------------- */

enum { RECORD_BYTES = DATASET_STATE_HEAD_BYTES + sizeof(uint64_t) };

/* The record behind round `number`, made by a set of its own. */
static void save_behind(struct replica_set *set, uint64_t number, uint8_t ret[static RECORD_BYTES])
{
    struct round round = round_of(7, number, 0);
    struct dl_error err = {0};
    enum dataset_state_loss lost;
    struct dataset_state at;

    counting.saves_state = true;
    for (uint64_t i = 0; i <= number; i++)
        expect_round(set, i, 0);
    assert_int_equal(replica_save(set, &round, &at, &lost, &err), 0);
    assert_int_equal(lost, DATASET_STATE_SAVED);
    assert_int_equal(at.round, number + 1);
    dataset_state_write_head(&at, ret);
    assert_int_equal(at.state.len, sizeof(uint64_t));
    memcpy(ret + DATASET_STATE_HEAD_BYTES, at.state.data, at.state.len);
    replica_set_deinit(set);
}

/* Any later round is what it is, and of what lies before the state nothing is made. */
TEST(test_a_replica_begins_where_a_state_says)
{
    for (uint64_t behind = 0; behind < 4; behind++) {
        for (uint64_t wanted = 0; wanted < 5; wanted++) {
            uint8_t bytes[RECORD_BYTES];
            struct replica_set set = make_set(5, false, false);
            save_behind(&set, behind, bytes);
            set = make_set(5, false, false);
            counting.saves_state = true;
            struct round round = round_of(7, wanted, 0);
            round.state = (struct dl_span){bytes, sizeof bytes};
            uint64_t first = 0, from = wanted > behind ? (behind + 1) * 5 : 0;
            size_t n = 0;
            assert_int_equal(ask(&set, round, &first, &n), 0);
            assert_int_equal(first, wanted * 5);
            assert_int_equal(told.made, wanted * 5 + n - from);
            assert_int_equal(told.begun, 1);
            replica_set_deinit(&set);
            assert_int_equal(told.open, 0);
        }
    }
}

TEST(test_a_state_that_is_none_of_its_own_is_left)
{
    uint8_t bytes[RECORD_BYTES];
    struct replica_set set = make_set(5, false, false);
    uint64_t first = 0;
    size_t n = 0;

    save_behind(&set, 2, bytes);
    for (int how = 0; how < 4; how++) {
        struct round round = round_of(7, 4, 0);
        set = make_set(5, false, false);
        counting.saves_state = how != 0; /* the dataset has lost its functions */
        round.rank -= how == 1;
        round.world += how == 2;
        round.state =
            (struct dl_span){bytes, how == 3 ? DATASET_STATE_HEAD_BYTES - 1 : sizeof bytes};
        assert_int_equal(ask(&set, round, &first, &n), 0);
        assert_int_equal(first, 20);
        assert_int_equal(told.made, LENGTH);
        replica_set_deinit(&set);
    }
}

TEST(test_what_cannot_be_saved)
{
    static const struct {
        int code;
        enum dataset_state_loss loses;
        int r;
    } cases[] = {{0, DATASET_STATE_TOO_LARGE, 0},
                 {-ENOTSUP, DATASET_STATE_SAVED, 0},
                 {-EBADMSG, DATASET_STATE_SAVED, -EBADMSG}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct replica_set set = make_set(5, false, false);
        struct round round = round_of(7, 0, 0);
        struct dl_error err = {0};
        enum dataset_state_loss lost;
        struct dataset_state at;

        counting.saves_state = true;
        told.fails_to_save = cases[i].code;
        told.loses = cases[i].loses;
        expect_round(&set, 0, 0);
        assert_int_equal(replica_save(&set, &round, &at, &lost, &err), cases[i].r);
        assert_int_equal(lost, cases[i].loses);
        assert_int_equal(at.round, 0);
        replica_set_deinit(&set);
    }
}

TEST(test_streams_are_apart)
{
    struct replica_set set = make_set(5, false, true);
    uint64_t first;
    size_t n;

    for (uint64_t number = 0; number < 5; number++)
        for (uint32_t stream = 1; stream <= 4; stream++) {
            assert_int_equal(ask(&set, round_of(stream, number, number), &first, &n), 0);
            assert_int_equal(first, number * 5);
        }
    assert_int_equal(told.begun, 4);
    replica_forget(&set, 2);
    assert_int_equal(told.open, 3);
    /* What was on its way when it was forgotten does not bring it back. */
    assert_int_equal(ask(&set, round_of(2, 1, 0), &first, &n), DATASET_END);
    assert_int_equal(told.begun, 4);
    replica_forget(&set, 99);
    replica_set_deinit(&set);
    assert_int_equal(told.open, 0);
}

TEST(test_a_round_that_did_not_fit_is_kept)
{
    struct replica_set set = make_set(5, false, true);
    struct round kept = round_of(7, 1, 1);
    uint64_t first;
    size_t n;

    expect_round(&set, 0, 0);
    expect_round(&set, 1, 1);
    replica_retain(&set, &kept, 12345);
    /* Those behind it wait for it, other streams do not. */
    assert_int_equal(ask(&set, round_of(7, 2, 1), &first, &n), -EAGAIN);
    assert_int_equal(replica_retained_bytes(&set, 7), 12345);
    assert_int_equal(ask(&set, round_of(8, 0, 0), &first, &n), 0);
    assert_int_equal(replica_retained_bytes(&set, 8), 0);
    unsigned made = told.made;
    expect_round(&set, 1, 1);
    replica_retain(&set, &kept, 12346); /* still too small */
    expect_round(&set, 1, 1);
    assert_int_equal(told.made, made);
    /* It went to a slot: the next one comes. */
    expect_round(&set, 2, 2);
    assert_int_equal(told.made, made + 5);
    replica_set_deinit(&set);
    assert_int_equal(told.open, 0);
}

TEST(test_a_kept_round_nobody_wants_gives_way)
{
    struct replica_set set = make_set(5, false, true);
    struct round kept = round_of(7, 1, 1);

    expect_round(&set, 1, 1);
    replica_retain(&set, &kept, 1 << 20);
    expect_round(&set, 2, 2); /* settled: it became a fault */
    expect_round(&set, 3, 3);
    replica_set_deinit(&set);
}

TEST(test_a_bad_sample_costs_its_round_alone)
{
    for (int can_skip = 0; can_skip < 2; can_skip++) {
        struct replica_set set = make_set(5, false, can_skip);
        struct round second = round_of(7, 1, 1);
        struct sample_batch *batch;
        uint64_t bad = 0;

        told.bad = BAD_SAMPLE;
        for (int again = 0; again < 2; again++) {
            struct dl_error err = {0};
            expect_round(&set, 0, 0);
            assert_int_equal(replica_round(&set, &second, &batch, &bad, &err), -EBADMSG);
            assert_int_equal(bad, BAD_SAMPLE);
            assert_string_equal(err.message, "sample 9 is bad");
            expect_round(&set, 2, 2);
        }
        replica_set_deinit(&set);
    }
}

/* What the rounds of seven have of 23 samples, of which numbers 9, 10 and 21 are bad. */
TEST(test_rounds_go_on_without_bad_samples)
{
    static const uint64_t N = UINT64_MAX;
    const struct {
        enum on_error on_error;
        uint64_t numbers[4][8]; /* N ends them */
        uint32_t bad[4];
    } rows[] = {
        {ON_ERROR_SKIP,
         {{0, 1, 2, 3, 4, 5, 6, N},
          {7, 8, 11, 12, 13, N},
          {14, 15, 16, 17, 18, 19, 20, N},
          {22, N}},
         {0, 2, 0, 1}},
        {ON_ERROR_SUBSTITUTE,
         {{0, 1, 2, 3, 4, 5, 6, N},
          {7, 8, 11, 12, 13, 14, 15, N},
          {16, 17, 18, 19, 20, 22, N},
          {N}},
         {0, 2, 1, 0}},
    };
    /* In order; each again; from the end; by another worker, which begins anew. */
    static const unsigned orders[][8] = {
        {0, 1, 2, 3, 4}, {0, 0, 1, 1, 2, 2, 3, 4}, {3, 2, 1, 0, 4}, {2, 4}};

    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows) * ARRAY_SIZE(orders); i++) {
        const enum on_error on_error = rows[i / 2 % ARRAY_SIZE(rows)].on_error;
        const unsigned *order = orders[i / 2 / ARRAY_SIZE(rows)];
        struct replica_set set = make_set(7, false, i % 2);
        told.bad_too[0] = 9;
        told.bad_too[1] = 10;
        told.bad_too[2] = 21;
        set.on_error = on_error;
        for (; *order < 4; order++) {
            const uint64_t *want = rows[i / 2 % ARRAY_SIZE(rows)].numbers[*order];
            struct round round = round_of(7, *order, 0);
            struct dl_error err = {0};
            struct sample_batch *batch = NULL;
            uint64_t bad = 0;
            int r = replica_round(&set, &round, &batch, &bad, &err);
            assert_int_equal(r, *want == N ? DATASET_END : 0);
            for (size_t s = 0; r == 0 && s < batch->n; s++)
                assert_int_equal(batch->numbers[s], want[s]);
            if (r == 0) {
                assert_true(want[batch->n] == N);
                assert_int_equal(batch->bad.n, rows[i / 2 % ARRAY_SIZE(rows)].bad[*order]);
            }
        }
        replica_set_deinit(&set);
    }
}

TEST(test_a_round_of_nothing_but_bad_samples)
{
    struct replica_set set = make_set(2, false, true);
    struct round round = round_of(7, 5, 5);
    struct dl_error err = {0};
    struct sample_batch *batch;
    uint64_t bad = 0;

    told.bad_too[0] = 10;
    told.bad_too[1] = 11;
    set.on_error = ON_ERROR_SKIP;
    assert_int_equal(replica_round(&set, &round, &batch, &bad, &err), -EBADMSG);
    assert_int_equal(bad, 10);
    assert_string_equal(err.message,
                        "no sample is left in this batch: all are bad (sample 10: file: sample "
                        "9 is bad; sample 11: file: sample 9 is bad)");
    expect_round(&set, 6, 6);
    replica_set_deinit(&set);
}

/* It is told once; then the replica is as one without samples, so that the epoch ends. */
TEST(test_a_replica_that_cannot_begin)
{
    struct replica_set set = make_set(5, false, true);
    struct round first = round_of(7, 0, 0);
    struct dl_error err = {0};
    struct sample_batch *batch;
    uint64_t bad = 0;

    told.fails_to_begin = true;
    assert_int_equal(replica_round(&set, &first, &batch, &bad, &err), -ENOENT);
    assert_true(bad == UINT64_MAX);
    assert_string_equal(err.message, "it is gone");
    expect_end(&set, 1);
    assert_int_equal(told.begun, 1);
    replica_set_deinit(&set);
}

TEST(test_far_rounds)
{
    struct replica_set set = make_set(1 << 20, false, true);

    expect_end(&set, UINT64_MAX);
    expect_end(&set, UINT64_MAX >> 20);
    expect_round(&set, 0, 0);
    replica_set_deinit(&set);
}

/* ---- range and chain ------------------------------------------------------------------------ */

static struct spec_dataset range_of(uint64_t length, bool divide)
{
    return (struct spec_dataset){
        .kind = DATASET_RANGE, .length = length, .iterable = true, .divide = divide};
}

/* All numbers that one replica gives. */
static size_t collect(struct dataset *ds, uint32_t rank, uint32_t world, uint32_t worker,
                      uint32_t workers, int64_t *ret, size_t room)
{
    struct replica_params params = {
        .rank = rank, .world = world, .worker = worker, .workers = workers};
    struct sample_batch batch = {0};
    struct dataset_iter *it;
    struct dl_error err = {0};
    size_t n = 0;
    int r;

    assert_int_equal(ds->ops->iterate(ds, &params, &it, &err), 0);
    for (;;) {
        struct sample *sample = sample_batch_add(&batch, n);
        r = it->ops->next(it, sample, &err);
        if (r == DATASET_END)
            break;
        assert_int_equal(r, 0);
        assert_true(n < room);
        memcpy(&ret[n++], sample->data[0], sizeof *ret);
    }
    assert_int_equal(it->ops->next(it, sample_batch_add(&batch, n), &err), DATASET_END);
    it->ops->close(it);
    sample_batch_deinit(&batch);
    return n;
}

TEST(test_range_is_divided_among_ranks_then_workers)
{
    for (uint64_t length = 0; length < 30; length += 7) {
        struct spec_dataset spec = range_of(length, true);
        struct dl_error err = {0};
        struct dataset *ds;
        unsigned seen[30] = {0};

        assert_int_equal(range_open(&spec, "dataset", NULL, &ds, &err), 0);
        assert_true(dataset_is_iterable(ds) && ds->length == length);
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t worker = 0; worker < 3; worker++) {
                int64_t numbers[30];
                size_t n = collect(ds, rank, 2, worker, 3, numbers, 30);
                for (size_t i = 0; i < n; i++) {
                    seen[numbers[i]]++;
                    assert_int_equal(numbers[i], ((int64_t)i * 3 + worker) * 2 + rank);
                }
            }
        }
        for (uint64_t i = 0; i < length; i++)
            assert_int_equal(seen[i], 1);
        dataset_close(ds);
    }
}

TEST(test_chain_is_one_after_another)
{
    struct spec_dataset parts[] = {range_of(4, true), range_of(0, true), range_of(3, false)};
    struct spec_dataset spec = {.kind = DATASET_CHAIN, .datasets = parts, .n_datasets = 3};
    struct data_env env = {0};
    struct dl_error err = {0};
    struct dataset *ds;
    int64_t numbers[20];

    assert_int_equal(dataset_open(&spec, &env, &ds, &err), 0);
    assert_int_equal(ds->length, 7);
    static const int64_t second[] = {1, 3, 0, 1, 2};
    assert_int_equal(collect(ds, 0, 1, 1, 2, numbers, 20), ARRAY_SIZE(second));
    assert_memory_equal(numbers, second, sizeof second);
    dataset_close(ds);

    parts[1].iterable = false;
    assert_int_equal(dataset_open(&spec, &env, &ds, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.datasets.1");
    assert_non_null(strstr(err.message, "chain takes iterable datasets"));
    spec.kind = DATASET_CONCAT;
    assert_int_equal(dataset_open(&spec, &env, &ds, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.datasets.0");
    assert_non_null(strstr(err.message, "has no indices"));
}

/* From `begin` on; all if it is 0. Passes over them in two goes, and says what it passed. */
static size_t collect_behind(struct dataset *ds, uint64_t begin, int64_t *ret, size_t room,
                             uint64_t *ret_passed)
{
    struct replica_params params = {.world = 1, .worker = 1, .workers = 2};
    struct sample_batch batch = {0};
    struct dataset_iter *it;
    struct dl_error err = {0};
    uint64_t passed = 0;
    size_t n = 0;

    assert_int_equal(ds->ops->iterate(ds, &params, &it, &err), 0);
    int r = (it->ops->skip)(it, begin / 2, ret_passed);
    assert_int_equal(r, *ret_passed < begin / 2 ? DATASET_END : 0);
    r = (it->ops->skip)(it, begin - begin / 2, &passed);
    assert_int_equal(r, passed < begin - begin / 2 ? DATASET_END : 0);
    *ret_passed += passed;
    for (;;) {
        struct sample *sample = sample_batch_add(&batch, n);
        if (it->ops->next(it, sample, &err) == DATASET_END)
            break;
        assert_true(n < room);
        memcpy(&ret[n++], sample->data[0], sizeof *ret);
    }
    assert_int_equal((it->ops->skip)(it, 1, NULL), DATASET_END);
    it->ops->close(it);
    sample_batch_deinit(&batch);
    return n;
}

TEST(test_chain_skips_its_parts)
{
    struct spec_dataset inner[] = {range_of(3, false), range_of(1, true)};
    struct spec_dataset chain = {.kind = DATASET_CHAIN, .datasets = inner, .n_datasets = 2};
    struct spec_dataset cases[][4] = {
        {range_of(5, false)},
        {range_of(0, false), range_of(0, true)},
        {range_of(4, true), range_of(0, true), range_of(3, false)},
        {range_of(2, false), chain, range_of(7, true), range_of(1, false)},
    };
    static const uint32_t parts[] = {1, 2, 3, 4};
    struct data_env env = {0};
    struct dl_error err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct spec_dataset spec = {
            .kind = DATASET_CHAIN, .datasets = cases[i], .n_datasets = parts[i]};
        struct dataset *ds;
        int64_t all[20], rest[20];
        uint64_t passed;

        assert_int_equal(dataset_open(&spec, &env, &ds, &err), 0);
        assert_true(ds->can_skip);
        size_t n = collect(ds, 0, 1, 1, 2, all, 20);
        for (uint64_t begin = 0; begin <= n + 2; begin++) {
            size_t left = collect_behind(ds, begin, rest, 20, &passed);
            assert_int_equal(passed, min_u64(begin, n));
            assert_int_equal(left, n - passed);
            if (left > 0)
                assert_memory_equal(rest, all + passed, left * sizeof *rest);
        }
        dataset_close(ds);
    }
}

TEST(test_no_seed_comes_twice)
{
    enum { EPOCHS = 5, RANKS = 3, WORKERS = 4, N = EPOCHS * RANKS * WORKERS };
    uint64_t seeds[N];
    size_t n = 0;

    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint32_t rank = 0; rank < RANKS; rank++)
            for (uint32_t worker = 0; worker < WORKERS; worker++)
                seeds[n++] = dataset_replica_seed(42, epoch, rank, WORKERS, worker);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(seeds[i] != seeds[j]);
}

/* None comes twice, none is a replica's. */
TEST(test_each_step_has_a_seed)
{
    enum { N = 3 * 3 * 3 };
    uint64_t seeds[2 * N];
    size_t n = 0;

    for (uint64_t epoch = 0; epoch < 3; epoch++)
        for (uint32_t rank = 0; rank < 3; rank++)
            for (uint64_t step = 0; step < 3; step++) {
                seeds[n++] = dataset_step_seed(42, epoch, rank, step);
                seeds[n++] = dataset_step_seed(43, epoch, rank, step);
            }
    for (size_t i = 0; i < n; i++) {
        assert_true(seeds[i] < UINT64_C(1) << 63);
        assert_true(seeds[i] != dataset_replica_seed(42, 0, 0, 1, 0));
        for (size_t j = 0; j < i; j++)
            assert_true(seeds[i] != seeds[j]);
    }
}
