/* Mixtures of iterable datasets: their schedule in a replica, shares, ends, skipping and states. */
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include "tests/unit/fake_streams.h"

#include <errno.h>
#include <math.h>

/* ---- a schedule in a replica ----------------------------------------------------------------- */

TEST(test_schedule_of_a_replica)
{
    static double even[] = {1, 1}, first[] = {1, 0};
    static const struct mix_point points[] = {
        {0, even, false}, {1, first, false}, {5, even, true}, {9, first, true}};
    const struct mix_schedule whole = {.n = 2, .n_points = 4, .points = points, .step_samples = 24};
    static const struct {
        struct mix_replica replica;
        uint32_t n;
        uint64_t steps[4];
        bool ramps[4];
        uint64_t step_samples;
    } rows[] = {
        {{0, 1, 0, 1}, 4, {0, 1, 5, 9}, {false, false, true, true}, 24},
        {{0, 2, 0, 1}, 4, {0, 1, 5, 9}, {false, false, true, true}, 12},
        /* Batches 0, 3, 6, 9: 5 is that of number 6, so from the third on. */
        {{1, 2, 0, 3}, 4, {0, 1, 2, 3}, {false, false, true, true}, 12},
        /* Batches 1, 4, 7, 10: it has none before step 1. */
        {{0, 1, 1, 3}, 3, {0, 2, 3}, {false, true, true}, 24},
        {{0, 1, 7, 8}, 2, {0, 1}, {false, true}, 24},
        {{0, 1, 63, 64}, 1, {0}, {false}, 0},
        {{0, 99, 0, 1}, 4, {0, 1, 5, 9}, {false, false, true, true}, 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct mix_point room[4];
        struct mix_schedule mine;

        mix_replica_schedule(&whole, &rows[i].replica, room, &mine);
        assert_int_equal(mine.n, 2);
        assert_int_equal(mine.n_points, rows[i].n);
        assert_int_equal(mine.step_samples, rows[i].step_samples);
        for (uint32_t p = 0; p < mine.n_points; p++) {
            assert_int_equal(mine.points[p].step, rows[i].steps[p]);
            assert_int_equal(mine.points[p].ramp, rows[i].ramps[p]);
        }
        assert_ptr_equal(mine.points[mine.n_points - 1].weights, first);
    }
}

TEST(test_parts_of_replicas)
{
    for (uint64_t samples = 0; samples < 50; samples++) {
        uint64_t sum = 0;

        for (uint32_t rank = 0; rank < 3; rank++)
            for (uint32_t worker = 0; worker < 4; worker++) {
                const struct mix_replica replica = {rank, 3, worker, 4};
                uint64_t part = mix_replica_part(&replica, samples);

                assert_in_range(part, samples / 12, samples / 12 + 1);
                sum += part;
            }
        assert_int_equal(sum, samples);
    }
}

/* ---- shares and ends ------------------------------------------------------------------------- */

static const uint64_t long_ones[] = {900, 900, 900}, mixed_ones[] = {60, 41, 7};
static const double some[] = {5, 3, 1};

/* Weights are rounded to 2^-80. */
#define ONE (1 + 1e-9)

/* Each child gives its samples in turn, from the beginning again where it is through. */
static void check_shares(const int64_t *numbers, size_t n, const double *weights,
                         const uint64_t *lengths)
{
    double sum = weights[0] + weights[1] + weights[2];
    uint64_t counts[CHILDREN] = {0};

    for (size_t i = 0; i < n; i++) {
        size_t child = (size_t)numbers[i] / 1000;

        assert_int_equal(numbers[i] % 1000, counts[child]++ % lengths[child]);
        for (size_t c = 0; c < CHILDREN; c++) {
            double off = (double)counts[c] - (double)(i + 1) * weights[c] / sum;

            assert_true(fabs(off) < ONE);
        }
    }
}

TEST(test_shares_in_every_replica)
{
    static const double weights[][CHILDREN] = {
        {5, 3, 1}, {1, 1, 1}, {0, 1, 2}, {1, 0, 0}, {9, 90, 1}};
    int64_t numbers[ROOM], others[ROOM];

    for (size_t w = 0; w < ARRAY_SIZE(weights); w++) {
        struct mixture m;

        mixture_init(&m, mixed_ones, weights[w], MIX_STOP_NEVER);
        struct dataset *ds = mixture_open(&m);
        size_t all = 0;
        assert_int_equal(ds->length, 600);
        for (uint32_t worker = 0; worker < 3; worker++) {
            struct replica_params params = only;

            params.worker = worker;
            params.workers = 3;
            params.key.seed = w;
            size_t n = collect(begin(ds, &params), numbers);
            check_shares(numbers, n, weights[w], mixed_ones);
            assert_int_equal(collect(begin(ds, &params), others), n);
            assert_memory_equal(numbers, others, n * sizeof *numbers);
            all += n;
        }
        assert_int_equal(all, 600);
        dataset_close(ds);
    }
}

TEST(test_where_it_ends)
{
    static const struct {
        uint64_t lengths[CHILDREN];
        double weights[CHILDREN];
        enum mix_stop stop;
        uint64_t least, most; /* samples */
    } rows[] = {
        {{60, 41, 7}, {1, 1, 1}, MIX_STOP_FIRST, 21, 23},
        {{60, 41, 7}, {1, 0, 0}, MIX_STOP_FIRST, 60, 60},
        {{60, 0, 7}, {9, 0, 1}, MIX_STOP_FIRST, 66, 71},
        {{60, 41, 7}, {1, 1, 1}, MIX_STOP_ALL, 178, 183},
        {{60, 41, 7}, {8, 1, 1}, MIX_STOP_ALL, 408, 420},
        {{60, 0, 7}, {1, 0, 1}, MIX_STOP_ALL, 118, 122},
    };
    int64_t numbers[ROOM];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct mixture m;

        mixture_init(&m, rows[i].lengths, rows[i].weights, rows[i].stop);
        struct dataset *ds = mixture_open(&m);
        assert_int_equal(ds->length, DATASET_LENGTH_UNKNOWN);
        size_t n = collect(begin(ds, &only), numbers);
        assert_in_range(n, rows[i].least, rows[i].most);
        check_shares(numbers, n, rows[i].weights, rows[i].lengths);
        dataset_close(ds);
    }
}

/* From one epoch to the next the order goes on; each begins its datasets anew. */
TEST(test_never_goes_on)
{
    static const double weights[] = {5, 3, 1};
    uint64_t counts[CHILDREN] = {0}, positions = 0;
    int64_t numbers[ROOM];
    struct mixture m;

    mixture_init(&m, long_ones, weights, MIX_STOP_NEVER);
    m.spec.length = 37;
    struct dataset *ds = mixture_open(&m);
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        struct replica_params params = only;

        params.key.epoch = epoch;
        assert_int_equal(collect(begin(ds, &params), numbers), 37);
        for (size_t i = 0; i < 37; i++) {
            counts[numbers[i] / 1000]++;
            positions++;
            for (size_t c = 0; c < CHILDREN; c++) {
                double off = (double)counts[c] - (double)positions * weights[c] / 9;

                assert_true(fabs(off) < ONE);
            }
        }
    }
    struct replica_params far = only;
    struct dl_error err = {0};
    struct dataset_iter *it;
    far.key.epoch = UINT64_MAX / 2;
    assert_int_equal(ds->ops->iterate(ds, &far, &it, &err), -EINVAL);
    assert_non_null(strstr(err.message, "maximum of 2^46 in all; lower length"));
    dataset_close(ds);
}

/* A change at a step is one at that step's batch, in every worker. */
TEST(test_schedule_by_steps)
{
    enum { SIZE = 10, WORKERS = 3, STEPS = 60, STEP = 31 };
    static double before[] = {1, 0, 0}, after[] = {0, 1, 1};
    struct mix_point points[] = {{0, before, false}, {STEP, after, false}};
    int64_t numbers[ROOM];
    struct mixture m;

    mixture_init(&m, long_ones, some, MIX_STOP_NEVER);
    m.spec.length = STEPS * SIZE;
    m.spec.points = points;
    m.spec.n_points = 2;
    m.spec.global_batch = SIZE;
    struct dataset *ds = mixture_open(&m);
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        struct replica_params params = only;

        params.worker = worker;
        params.workers = WORKERS;
        size_t n = collect(begin(ds, &params), numbers);
        assert_int_equal(n, STEPS / WORKERS * SIZE);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(numbers[i] / 1000 == 0, i / SIZE * WORKERS + worker < STEP);
    }
    dataset_close(ds);
}

/* A dataset that lost its weight is not waited for. */
TEST(test_all_without_one_that_is_out)
{
    static double before[] = {1, 1, 1}, after[] = {1, 0, 1};
    struct mix_point points[] = {{0, before, false}, {2, after, false}};
    int64_t numbers[ROOM];
    struct mixture m;

    mixture_init(&m, mixed_ones, some, MIX_STOP_ALL);
    m.spec.points = points;
    m.spec.n_points = 2;
    m.spec.global_batch = 10;
    struct dataset *ds = mixture_open(&m);
    assert_in_range(collect(begin(ds, &only), numbers), 100, 130);
    dataset_close(ds);
}

TEST(test_passes_have_other_seeds)
{
    int64_t numbers[ROOM];
    struct mixture m;

    mixture_init(&m, mixed_ones, some, MIX_STOP_NEVER);
    struct dataset *ds = mixture_open(&m);
    faked.begun = 0;
    collect(begin(ds, &only), numbers);
    assert_in_range(faked.begun, 15, ROOM);
    for (unsigned i = 0; i < faked.begun; i++)
        for (unsigned j = 0; j < i; j++)
            assert_true(faked.seeds[i] != faked.seeds[j]);
    dataset_close(ds);
}

/* ---- passing over samples, and states -------------------------------------------------------- */

TEST(test_skips)
{
    static const enum mix_stop stops[] = {MIX_STOP_FIRST, MIX_STOP_ALL, MIX_STOP_NEVER};
    int64_t all[ROOM], rest[ROOM];

    for (size_t s = 0; s < ARRAY_SIZE(stops); s++) {
        struct mixture m;

        mixture_init(&m, mixed_ones, some, stops[s]);
        struct dataset *ds = mixture_open(&m);
        assert_true(ds->can_skip);
        size_t n = collect(begin(ds, &only), all);
        for (uint64_t from = 0; from <= n + 3; from += 1 + from / 20) {
            struct dataset_iter *it = begin(ds, &only);
            uint64_t passed;

            assert_int_equal((it->ops->skip)(it, from, &passed), from > n ? DATASET_END : 0);
            assert_int_equal(passed, min_u64(from, n));
            assert_int_equal(collect(it, rest), n - passed);
            assert_memory_equal(rest, all + passed, (n - passed) * sizeof *rest);
        }
        dataset_close(ds);
    }
    struct mixture m;
    mixture_init(&m, mixed_ones, some, MIX_STOP_ALL);
    m.parts[1].part = SAVES;
    struct dataset *ds = mixture_open(&m);
    struct dataset_iter *it = begin(ds, &only);
    assert_true(!ds->can_skip && !it->ops->skip && ds->saves_state);
    it->ops->close(it);
    dataset_close(ds);
    m.parts[2].part = 0;
    ds = mixture_open(&m);
    assert_false(ds->saves_state);
    dataset_close(ds);
}

/* What the replica saves behind its first `from` samples; 0: nothing. */
static size_t save_behind(struct dataset *ds, uint64_t from, uint8_t *buf, size_t room)
{
    struct dataset_iter *it = begin(ds, &only);
    enum dataset_state_loss lost = DATASET_STATE_SAVED;
    struct sample_batch batch = {0};
    struct dl_error err = {0};
    size_t len = 0;

    for (uint64_t i = 0; i < from; i++)
        (void)take(it, &batch, &err);
    int r = it->ops->save(it, buf, room, &len, &lost, &err);
    assert_true(r == 0 || r == -ENOTSUP);
    it->ops->close(it);
    sample_batch_deinit(&batch);
    return r == 0 && lost == DATASET_STATE_SAVED ? len : 0;
}

static struct replica_params resumed(const uint8_t *state, size_t len, uint64_t position)
{
    struct replica_params params = only;

    params.state = (struct dl_span){state, len};
    params.position = position;
    return params;
}

TEST(test_states)
{
    static const uint64_t abilities[][CHILDREN] = {
        {SAVES, SAVES, SAVES}, {SAVES, SKIPS, SKIPS}, {SKIPS | SAVES, SKIPS, SAVES}};
    static const enum mix_stop stops[] = {MIX_STOP_FIRST, MIX_STOP_ALL, MIX_STOP_NEVER};
    int64_t all[ROOM], rest[ROOM];
    uint8_t buf[STATE_ROOM];

    for (size_t s = 0; s < ARRAY_SIZE(stops) * ARRAY_SIZE(abilities); s++) {
        struct mixture m;

        mixture_init(&m, mixed_ones, some, stops[s % 3]);
        for (size_t i = 0; i < CHILDREN; i++)
            m.parts[i].part = (uint32_t)abilities[s / 3][i];
        struct dataset *ds = mixture_open(&m);
        assert_true(ds->saves_state);
        size_t n = collect(begin(ds, &only), all);
        for (uint64_t from = 0; from <= n; from += 1 + from / 20) {
            size_t len = save_behind(ds, from, buf, sizeof buf);
            assert_in_range(len, 1, 256);
            struct replica_params params = resumed(buf, len, from);
            assert_int_equal(collect(begin(ds, &params), rest), n - from);
            assert_memory_equal(rest, all + from, (n - from) * sizeof *rest);
        }
        dataset_close(ds);
    }
}

TEST(test_states_that_are_lost)
{
    uint8_t buf[STATE_ROOM];
    struct mixture m;

    mixture_init(&m, mixed_ones, some, MIX_STOP_ALL);
    struct dataset *ds = mixture_open(&m);
    size_t len = save_behind(ds, 30, buf, sizeof buf);
    for (size_t room = 0; room < len; room++)
        assert_int_equal(save_behind(ds, 30, buf, room), 0);
    assert_int_equal(save_behind(ds, 30, buf, len), len);
    faked.loses = DATASET_STATE_NOT_PLAIN;
    assert_int_equal(save_behind(ds, 30, buf, sizeof buf), 0);
    faked.loses = DATASET_STATE_SAVED;
    faked.stateless = true; /* they skip instead */
    assert_in_range(save_behind(ds, 30, buf, sizeof buf), 1, len - 3 * 8);
    dataset_close(ds);
    m.parts[0].part = SAVES;
    ds = mixture_open(&m);
    assert_int_equal(save_behind(ds, 30, buf, sizeof buf), 0);
    faked.stateless = false;
    dataset_close(ds);
}

/* Any bytes: refused, or a replica that ends. */
TEST(test_states_that_are_none)
{
    uint8_t good[STATE_ROOM], bad[STATE_ROOM];
    unsigned refused = 0;
    struct mixture m;

    mixture_init(&m, mixed_ones, some, MIX_STOP_NEVER);
    struct dataset *ds = mixture_open(&m);
    size_t len = save_behind(ds, 50, good, sizeof good);
    for (size_t i = 0; i < len * 8 + len; i++) {
        struct replica_params params = resumed(bad, i < len * 8 ? len : i - len * 8, 50);
        struct dl_error err = {0};
        struct dataset_iter *it = NULL;
        int64_t numbers[ROOM];

        memcpy(bad, good, len);
        if (i < len * 8)
            bad[i / 8] ^= (uint8_t)(1U << i % 8);
        if (params.state.len == 0)
            continue;
        int r = ds->ops->iterate(ds, &params, &it, &err);
        assert_true(r == 0 || r == -EINVAL);
        refused += r < 0;
        if (r == 0)
            assert_in_range(collect(it, numbers), 0, 600);
    }
    assert_true(refused > len * 4);
    dataset_close(ds);
}

/* ---- a mixture in it ------------------------------------------------------------------------- */

/* Of the three the last is a mixture of as many: its datasets' numbers begin with 3. */
struct nested {
    struct mixture outer, inner;
};

static void nested_init(struct nested *m, enum mix_stop outer, enum mix_stop inner)
{
    static const uint64_t lengths[] = {50, 31, 4};
    static const double weights[] = {1, 2, 2};

    mixture_init(&m->outer, mixed_ones, weights, outer);
    mixture_init(&m->inner, lengths, some, inner);
    for (size_t i = 0; i < CHILDREN; i++)
        m->inner.parts[i].length += UINT64_C(1) << 32; /* fake_open(): the inner one's */
    m->outer.parts[2] = m->inner.spec;
}

/* The order of either, each sample's number below 3000 being the outer one's. */
static void check_nested(const int64_t *numbers, size_t n, bool inner_goes_on)
{
    uint64_t counts[CHILDREN] = {0}, inner[CHILDREN] = {0}, given = 0;

    for (size_t i = 0; i < n; i++) {
        size_t child = min_u64((uint64_t)numbers[i] / 1000, 2);

        counts[child]++;
        for (size_t c = 0; c < CHILDREN; c++)
            assert_true(fabs((double)counts[c] - (double)(i + 1) * (c ? 2 : 1) / 5) < ONE);
        if (numbers[i] < 3000 || !inner_goes_on)
            continue;
        inner[(numbers[i] - 3000) / 1000]++;
        given++;
        for (size_t c = 0; c < CHILDREN; c++)
            assert_true(fabs((double)inner[c] - (double)given * some[c] / 9) < ONE);
    }
}

TEST(test_nested)
{
    static const enum mix_stop stops[] = {MIX_STOP_FIRST, MIX_STOP_ALL, MIX_STOP_NEVER};
    int64_t all[ROOM], rest[ROOM];
    uint8_t buf[STATE_ROOM];

    for (size_t s = 0; s < 9; s++) {
        struct nested m;

        nested_init(&m, stops[s / 3], stops[s % 3]);
        struct dataset *ds = mixture_open(&m.outer);
        assert_true(ds->saves_state && ds->can_skip);
        size_t n = collect(begin(ds, &only), all);
        assert_in_range(n, 15, ROOM);
        check_nested(all, n, stops[s % 3] == MIX_STOP_NEVER);
        for (uint64_t from = 0; from <= n; from += 1 + from / 10) {
            size_t len = save_behind(ds, from, buf, sizeof buf);
            assert_in_range(len, 1, 512);
            struct replica_params params = resumed(buf, len, from);
            assert_int_equal(collect(begin(ds, &params), rest), n - from);
            assert_memory_equal(rest, all + from, (n - from) * sizeof *rest);
            struct dataset_iter *it = begin(ds, &only);
            assert_int_equal((it->ops->skip)(it, from, NULL), 0);
            assert_int_equal(collect(it, rest), n - from);
            assert_memory_equal(rest, all + from, (n - from) * sizeof *rest);
        }
        dataset_close(ds);
    }
}

/* Its datasets draw apart from those beside it. */
TEST(test_nested_keys)
{
    int64_t numbers[ROOM];
    struct nested m;

    nested_init(&m, MIX_STOP_ALL, MIX_STOP_ALL);
    struct dataset *ds = mixture_open(&m.outer);
    faked.begun = 0;
    collect(begin(ds, &only), numbers);
    assert_in_range(faked.begun, 8, ROOM);
    for (unsigned i = 0; i < faked.begun; i++)
        for (unsigned j = 0; j < i; j++) {
            assert_true(faked.seeds[i] != faked.seeds[j]);
            assert_true(faked.keys[i].base != faked.keys[j].base ||
                        faked.keys[i].seed != faked.keys[j].seed);
        }
    dataset_close(ds);
}

/* ---- trouble --------------------------------------------------------------------------------- */

TEST(test_bad_samples_have_their_turn)
{
    int64_t good[ROOM], numbers[ROOM];
    struct mixture m;

    mixture_init(&m, mixed_ones, some, MIX_STOP_FIRST);
    struct dataset *ds = mixture_open(&m);
    size_t n = collect(begin(ds, &only), good);
    faked.bad = 4;
    assert_int_equal(collect(begin(ds, &only), numbers), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(numbers[i], good[i] % 1000 == 4 ? -2 : good[i]);
    faked.bad = UINT64_MAX;
    dataset_close(ds);
}

TEST(test_nothing_in_a_replica)
{
    static const uint64_t lengths[] = {60, 0, 7};
    static const enum mix_stop stops[] = {MIX_STOP_FIRST, MIX_STOP_ALL, MIX_STOP_NEVER};
    struct sample_batch batch = {0};

    for (size_t s = 0; s < ARRAY_SIZE(stops); s++) {
        struct dl_error err = {0};
        unsigned bad = 0, n = 0;
        int64_t number;
        struct mixture m;

        mixture_init(&m, lengths, some, stops[s]);
        struct dataset *ds = mixture_open(&m);
        struct dataset_iter *it = begin(ds, &only);
        while ((number = take(it, &batch, &err)) != -1) {
            bad += number == -2;
            assert_true(++n < ROOM);
        }
        assert_int_equal(stops[s] == MIX_STOP_FIRST ? 1 : n / 3, bad);
        assert_string_equal(err.path, "dataset.datasets.1");
        assert_string_equal(
            err.message,
            "has a weight, but no samples for worker 0 of 1 of rank 0 of 1; give it at least as "
            "many "
            "shards as there are workers in all, lower workers.count, or write divide: false");
        it->ops->close(it);
        dataset_close(ds);
    }
    sample_batch_deinit(&batch);
}

/* As it is of foreign code, of which the spec does not know that it is iterable. */
TEST(test_inner_steps)
{
    static double one[] = {1};
    static struct mix_point points[] = {{.weights = one}, {.step = 3, .weights = one}};
    struct spec_dataset part = {.kind = DATASET_RANGE, .length = 9, .iterable = true};
    struct dl_error err = {0};
    struct dataset *ds;
    struct mixture m;

    mixture_init(&m, mixed_ones, some, MIX_STOP_ALL);
    m.parts[1] = (struct spec_dataset){.kind = DATASET_MIX,
                                       .datasets = &part,
                                       .n_datasets = 1,
                                       .points = points,
                                       .n_points = 2,
                                       .global_batch = 4,
                                       .stop = MIX_STOP_NEVER,
                                       .length = 9};
    assert_int_equal(dataset_open(&m.spec, &env, &ds, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.datasets.1");
    assert_string_equal(err.message, "has a schedule, which a mix of iterable datasets has in the "
                                     "outermost one alone; write weights, or list its datasets "
                                     "there");
}

TEST(test_one_sort)
{
    struct dl_error err = {0};
    struct dataset *ds;
    struct mixture m;

    mixture_init(&m, mixed_ones, some, MIX_STOP_ALL);
    m.parts[2] = (struct spec_dataset){.kind = DATASET_RANGE, .length = 9};
    assert_int_equal(dataset_open(&m.spec, &env, &ds, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.datasets.2");
    assert_string_equal(err.message, "is map-style, and dataset.datasets.0 iterable; a mix takes "
                                     "only map-style or only iterable datasets");
    m.parts[0] = m.parts[2];
    assert_int_equal(dataset_open(&m.spec, &env, &ds, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.datasets.1");
    assert_non_null(strstr(err.message, "is an iterable dataset, which has no indices"));
}

static int open_and_begin(struct mixture *m, struct dl_error *err)
{
    struct dataset_iter *it = NULL;
    struct dataset *ds = NULL;
    struct sample_batch batch = {0};
    int r = dataset_open(&m->spec, &env, &ds, err);

    if (r == 0)
        r = ds->ops->iterate(ds, &only, &it, err);
    if (r == 0 && take(it, &batch, err) == -2)
        r = -err->code;
    if (it)
        it->ops->close(it);
    sample_batch_deinit(&batch);
    dataset_close(ds);
    return r;
}

TEST(test_out_of_memory)
{
    struct dl_error err = {0};
    struct mixture m;
    int r, at = 0;

    mixture_init(&m, mixed_ones, some, MIX_STOP_ALL);
    for (;; at++) {
        fail_in = at;
        r = open_and_begin(&m, &err);
        if (fail_in >= 0)
            break;
        assert_true(r == -ENOMEM || r == 0);
    }
    fail_in = -1;
    assert_int_equal(r, 0);
    assert_in_range(at, 9, 59);
}
