/* Plug-ins at work: what their samples become, and what is said of those that are none. */
#include "daemon/data/base/rng.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/plugins.h"

#include <errno.h>

/* ---- map-style ------------------------------------------------------------------------------ */

TEST(test_every_sort_of_leaf)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dataset *ds = must_open("map", "", &env);
    struct dl_error err = {0};
    struct rng rng;
    double uniform;
    uint32_t i;

    assert_false(dataset_is_iterable(ds));
    assert_false(dataset_is_fixed(ds));
    assert_int_equal(ds->length, 10);
    struct sample_key key = {.seed = 42, .epoch = 3, .base = 100};
    struct sample *s = empty(&taken);
    assert_int_equal(dataset_get(ds, &key, 7, s, &err), 0);
    assert_leaf(s, "numbers", TREE_TENSOR, DL_DTYPE_INT16, (int16_t[]){7, -3}, 4);
    assert_int_equal(s->tree.nodes[1].ndim, 2);
    assert_int_equal(s->tree.nodes[1].shape[0], 1);
    assert_int_equal(s->tree.nodes[1].shape[1], 2);
    assert_int_equal((uintptr_t)s->data[1] % 64, 0);
    assert_leaf(s, "constant", TREE_TENSOR, DL_DTYPE_FLOAT32, (float[]){1.5f, -2}, 8);
    assert_leaf(s, "empty", TREE_TENSOR, DL_DTYPE_UINT8, NULL, 0);
    assert_leaf(s, "index", TREE_TENSOR, DL_DTYPE_INT64, (int64_t[]){7}, 8);
    assert_leaf(s, "odd", TREE_TENSOR, DL_DTYPE_BOOL, "\1", 1);
    assert_leaf(s, "text", TREE_STRING, 0, "gr\xc3\xbcn", 5);
    assert_leaf(s, "raw", TREE_BYTES, 0, "\0\xff", 2);
    assert_leaf(s, "", TREE_STRING, 0, NULL, 0);
    /* The numbers of rng.h, for this sample's place in all of the data. */
    rng_init(&rng, 42, 3, 107);
    uniform = rng_uniform(&rng);
    assert_leaf(s, "uniform", TREE_TENSOR, DL_DTYPE_FLOAT64, &uniform, 8);
    i = find(s, "list");
    assert_int_equal(s->tree.nodes[i].kind, TREE_LIST);
    assert_int_equal(s->tree.nodes[i + 1].kind, TREE_TUPLE);
    assert_int_equal(integer(s, i + 2), (int64_t)rng_u64(&rng));
    assert_int_equal(integer(s, i + 3), (int64_t)rng_below(&rng, 100));
    assert_int_equal(integer(s, i + 4), 0);
    dataset_close(ds);
}

TEST(test_beyond_the_end)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dataset *ds = must_open("map", "", &env);
    struct dl_error err = {0};

    assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 10, empty(&taken), &err), -ERANGE);
    assert_error_has(&err, "10");
    dataset_close(ds);
}

/* One library, opened twice: each has its own handle. */
TEST(test_two_at_once)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dataset *good = must_open("map", "", &env), *bad = must_open("map", "silent", &env);
    struct dl_error err = {0};

    assert_int_equal(dataset_get(bad, &(struct sample_key){0}, 0, empty(&taken), &err), -EIO);
    dataset_close(bad);
    assert_int_equal(dataset_get(good, &(struct sample_key){0}, 5, empty(&taken), &err), 0);
    assert_int_equal(field(&taken.sample, "index"), 5);
    dataset_close(good);
}

#define NO_TREE "the sample is not a tree: a second root, a key outside a dict or none in one, "

/* What a get() does, and how begins what is said of it, after "sample 3: ". */
static const struct {
    const char *mode;
    int code;
    const char *message;
} faults[] = {
    {"says ENOENT", ENOENT, "no fish today, only 7"},
    {"says 0", EIO, "nothing"},
    {"says one, returns another", ENOENT, "gone"},
    {"says nothing", EINVAL, "it failed with a text that cannot be formatted"},
    {"silent", EIO, "it failed with -5 (Input/output error) without a message"},
    {"says ENOBUFS", EIO, "no room"},
    {"is silent with ENODATA", EIO, "it failed with -61 (No data available) without a message"},
    {"positive", EPROTO, "it returned 7 instead of 0 or a negative errno"},
    {"an end", EPROTO, "it returned 1 instead of 0 or a negative errno"},
    {"absurd", EIO, "it failed with -2147483648 (Input/output error) without a message"},
    {"nothing", EINVAL, "the sample is empty: it has neither leaf nor container"},
    {"left open", EINVAL, "the sample is incomplete: a container has no end"},
    {"ends early", EINVAL, NO_TREE},
    {"two roots", EINVAL, NO_TREE},
    {"key outside", EINVAL, "\"x\": " NO_TREE},
    {"no key", EINVAL, NO_TREE},
    {"key not UTF-8", EINVAL, "\"?\": " NO_TREE},
    {"too many", E2BIG, "\"x\": the sample has more than "},
    {"too deep", E2BIG, "\"x\": the sample has more than "},
    {"a tensor begins", EINVAL, "1 is not a kind of container"},
    {"77 begins", EINVAL, "77 is not a kind of container"},
    {"type 0", EINVAL, "0 is not a type of a tensor's elements"},
    {"type 99", EINVAL, "99 is not a type of a tensor's elements"},
    {"faults are ignored", EINVAL, "\"first\": 99 is not a type of a tensor's elements"},
    {"nine dimensions", EINVAL, "a tensor of 9 dimensions; the maximum is 8"},
    {"no shape", EINVAL, "a tensor of 2 dimensions has no shape: NULL"},
    {"huge shape", EINVAL, "a tensor of 2^63 bytes or more"},
    {"no data", EINVAL, "a tensor of 8 bytes has no data: NULL"},
    {"no text", EINVAL, "3 bytes of text have no data: NULL"},
    {"huge text", EINVAL, "18446744073709551615 bytes of text; a batch has at most 68719476736"},
    {"huge memory", EINVAL,
     "it requests 18446744073709551615 bytes of memory at once; a batch has at most 68719476736"},
    {"not UTF-8", EILSEQ, "a string of the sample is not UTF-8"},
    {"map relative/path", EINVAL, "relative/path: a data file is named by its absolute path"},
    {"maps nothing", EINVAL, "(null): a data file is named by its absolute path"},
};

TEST(test_faults_of_samples)
{
    struct data_env env = plugin_env();

    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        struct taken taken = {0};
        struct dataset *ds = must_open("map", faults[i].mode, &env);
        struct dl_error err = {0};
        char message[DL_ERROR_MESSAGE_MAX];

        snprintf(message, sizeof message, "sample 3: %s", faults[i].message);
        int r = dataset_get(ds, &(struct sample_key){0}, 3, empty(&taken), &err);
        if (r != -faults[i].code)
            fail_msg("%s: %d, %s", faults[i].mode, r, err.message);
        err.message[strlen(message)] = '\0';
        assert_error(&err, faults[i].code, bad_plugin(), message);
        dataset_close(ds);
        taken_deinit(&taken);
    }
}

TEST(test_long_words_are_cut)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dl_error err = {0};
    struct dataset *ds = must_open("map", "says it at length", &env);

    assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 0, empty(&taken), &err), -EINVAL);
    assert_error_has(&err, "sample 0: wwwwwwwwwwwwwww");
    dataset_close(ds);
    ds = must_open("map", "long key", &env);
    assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 0, empty(&taken), &err), -EINVAL);
    assert_error_has(&err, "kkkk\": a key of the sample has more than 128 bytes");
    dataset_close(ds);
}

/* A plug-in may recover from what it said; calls without a sample do no harm. */
TEST(test_what_is_forgiven)
{
    static const struct {
        const char *mode;
        int64_t value;
    } cases[] = {{"forgiven", 1}, {"no sample", 9L * -EPERM}};
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dl_error err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dataset *ds = must_open("map", cases[i].mode, &env);
        assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 0, empty(&taken), &err), 0);
        assert_int_equal(integer(&taken.sample, 0), cases[i].value);
        dataset_close(ds);
    }
}

TEST(test_data_files)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    char mode[4500], message[5000], *roots[1] = {(char *)(uintptr_t)harness_tmpdir()};
    const char *path = harness_file("data", "hello", 5);
    struct dl_error err = {0};

    snprintf(mode, sizeof mode, "map %.400s", path);
    struct dataset *ds = must_open("map", mode, &env);
    /* Twice, and both stay until the end. */
    for (int i = 0; i < 2; i++)
        assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 0, empty(&taken), &err), 0);
    assert_int_equal(taken.sample.tree.nodes[0].nbytes, 5);
    assert_memory_equal(taken.sample.data[0], "hello", 5);
    dataset_close(ds);

    env.roots = roots;
    env.n_roots = 1;
    ds = must_open("map", mode, &env);
    assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 0, empty(&taken), &err), 0);
    dataset_close(ds);
    ds = must_open("map", "map /etc/passwd", &env);
    assert_int_equal(dataset_get(ds, &(struct sample_key){0}, 0, empty(&taken), &err), -EACCES);
    snprintf(message, sizeof message,
             "sample 0: /etc/passwd: lies outside the daemon's data_roots (%.400s); move it "
             "below one of them, or have its directory added",
             roots[0]);
    assert_error(&err, EACCES, bad_plugin(), message);
    dataset_close(ds);
}

/* ---- iterable ------------------------------------------------------------------------------- */

static struct dataset_iter *must_iterate(struct dataset *ds, const struct replica_params *params)
{
    struct dataset_iter *it = NULL;
    struct dl_error err = {0};

    if (ds->ops->iterate(ds, params, &it, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return it;
}

static const struct replica_params second_of_two = {.key = {.seed = 42, .epoch = 3, .base = 1000},
                                                    .seed = 777,
                                                    .worker = 1,
                                                    .workers = 2,
                                                    .world = 1};

static void expect_number(struct dataset_iter *it, struct taken *taken, int64_t number)
{
    struct dl_error err = {0};
    int r = it->ops->next(it, empty(taken), &err);

    if (number < 0) {
        assert_int_equal(r, DATASET_END);
        return;
    }
    if (r != 0)
        fail_msg("%d: %s: %s", r, err.path, err.message);
    assert_int_equal(field(&taken->sample, "number"), number);
}

TEST(test_iterate)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dataset *ds = must_open("iter", "", &env);
    struct dataset_iter *it = must_iterate(ds, &second_of_two);
    struct dataset_iter *all = must_iterate(ds, &(struct replica_params){.workers = 1, .world = 1});
    struct rng rng;

    assert_true(dataset_is_iterable(ds));
    assert_int_equal(ds->length, DATASET_LENGTH_UNKNOWN);
    for (int64_t i = 0; i < 5; i++) {
        expect_number(it, &taken, 2 * i + 1);
        rng_init(&rng, 777, 3, 1000 + (uint64_t)i);
        assert_int_equal(field(&taken.sample, "random"), (int64_t)rng_u64(&rng));
        assert_int_equal(field(&taken.sample, "seed"), 777);
        assert_int_equal(field(&taken.sample, "epoch"), 3);
        assert_int_equal(field(&taken.sample, "inits"), 0);
        expect_number(all, &taken, i);
    }
    for (int i = 0; i < 3; i++)
        expect_number(it, &taken, -1);
    it->ops->close(it);
    expect_number(all, &taken, 5);
    all->ops->close(all);
    dataset_close(ds);
}

TEST(test_length_of_iterables)
{
    static const struct {
        const char *mode;
        uint64_t length;
    } cases[] = {{"", 10}, {"length unknown", DATASET_LENGTH_UNKNOWN}};
    struct data_env env = plugin_env();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dataset *ds = must_open("iter, length", cases[i].mode, &env);
        assert_int_equal(ds->length, cases[i].length);
        dataset_close(ds);
    }
}

/* What was passed over counts: what follows is the same, random numbers too. */
TEST(test_skip)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dataset *ds = must_open("iter", "", &env);
    struct dataset_iter *whole = must_iterate(ds, &second_of_two);
    struct dataset_iter *part = must_iterate(ds, &second_of_two);

    for (int i = 0; i < 4; i++)
        expect_number(whole, &taken, 2 * i + 1);
    int64_t random = field(&taken.sample, "random");
    assert_int_equal(part->ops->skip(part, 3, NULL), 0);
    expect_number(part, &taken, 7);
    assert_int_equal(field(&taken.sample, "random"), random);
    assert_int_equal(part->ops->skip(part, 1000, NULL), DATASET_END);
    assert_int_equal(part->ops->skip(part, 0, NULL), DATASET_END);
    expect_number(part, &taken, -1);
    part->ops->close(part);
    part = must_iterate(ds, &second_of_two);
    uint64_t passed = 0;
    assert_int_equal(part->ops->skip(part, 3, &passed), 0);
    assert_int_equal(passed, 3);
    expect_number(part, &taken, 7);
    assert_int_equal(part->ops->skip(part, 1000, &passed), DATASET_END);
    assert_int_equal(passed, 1); /* of five */
    part->ops->close(part);
    whole->ops->close(whole);
    dataset_close(ds);

    ds = must_open("iter, no skip", "", &env);
    part = must_iterate(ds, &second_of_two);
    assert_null(part->ops->skip);
    part->ops->close(part);
    dataset_close(ds);
}

/* A sample that cannot be had stands in its place; the ones behind it do not mind. */
TEST(test_failing_samples)
{
    static const struct {
        const char *mode;
        int code;
        const char *message;
    } cases[] = {
        {"third fails", EILSEQ, "sample 2 of worker 0 of rank 0: bad record"},
        {"third is broken", EINVAL,
         "sample 2 of worker 0 of rank 0: the sample is incomplete: a container has no end"},
    };
    struct data_env env = plugin_env();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct taken taken = {0};
        struct dataset *ds = must_open("iter", cases[i].mode, &env);
        struct dataset_iter *it =
            must_iterate(ds, &(struct replica_params){.workers = 1, .world = 1});
        struct dl_error err = {0};

        expect_number(it, &taken, 0);
        expect_number(it, &taken, 1);
        assert_int_equal(it->ops->next(it, empty(&taken), &err), -cases[i].code);
        assert_error(&err, cases[i].code, bad_plugin(), cases[i].message);
        expect_number(it, &taken, 3);
        it->ops->close(it);
        dataset_close(ds);
        taken_deinit(&taken);
    }
}

TEST(test_faults_of_iterators)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dl_error err = {0};
    struct dataset_iter *it = NULL;

    struct dataset *ds = must_open("iter", "iterate fails", &env);
    assert_int_equal(ds->ops->iterate(ds, &second_of_two, &it, &err), -EIO);
    assert_error(&err, EIO, bad_plugin(), "iterate(): no rewinding");
    assert_null(it);
    dataset_close(ds);

    ds = must_open("iter", "iterate silent", &env);
    assert_int_equal(ds->ops->iterate(ds, &second_of_two, &it, &err), -EIO);
    assert_error(&err, EIO, bad_plugin(),
                 "iterate(): it failed with -5 (Input/output error) without a message");
    dataset_close(ds);

    ds = must_open("iter", "next positive", &env);
    it = must_iterate(ds, &second_of_two);
    assert_int_equal(it->ops->next(it, empty(&taken), &err), -EPROTO);
    assert_error(&err, EPROTO, bad_plugin(),
                 "sample 0 of worker 1 of rank 0: it returned 2 instead of 0 or a negative errno");
    it->ops->close(it);
    dataset_close(ds);

    /* What was built before the end is nothing. */
    ds = must_open("iter", "half and end", &env);
    it = must_iterate(ds, &second_of_two);
    expect_number(it, &taken, -1);
    assert_int_equal(taken.sample.tree.count, 0);
    it->ops->close(it);
    dataset_close(ds);
}

/* Where it stands after a skip that failed is not known: one error, and then the end. */
TEST(test_failing_skip)
{
    static const struct {
        const char *mode;
        int code;
        const char *message;
    } cases[] = {
        {"skip fails", EIO, "skip(): cannot seek"},
        {"skip positive", EPROTO, "skip(): it returned 5 instead of 0 or a negative errno"},
    };
    struct data_env env = plugin_env();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct taken taken = {0};
        struct dataset *ds = must_open("iter", cases[i].mode, &env);
        struct dataset_iter *it = must_iterate(ds, &second_of_two);
        struct dl_error err = {0};

        assert_int_equal(it->ops->skip(it, 1, NULL), 0);
        assert_int_equal(it->ops->skip(it, 1, NULL), 0);
        assert_int_equal(it->ops->next(it, empty(&taken), &err), -cases[i].code);
        assert_error(&err, cases[i].code, bad_plugin(), cases[i].message);
        expect_number(it, &taken, -1);
        it->ops->close(it);
        dataset_close(ds);
        taken_deinit(&taken);
    }
}

/* A worker is told once who it is; loading without workers has none to tell. */
TEST(test_init)
{
    _cleanup_(taken_deinit) struct taken taken = {0};
    struct data_env env = plugin_env();
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    env.worker = 2;
    env.workers = 5;
    env.seed = 1234567890123;
    ds = must_open("iter", "", &env);
    struct dataset_iter *it = must_iterate(ds, &second_of_two);
    for (int i = 0; i < 2; i++)
        expect_number(it, &taken, 2 * i + 1);
    assert_int_equal(field(&taken.sample, "inits"), 1);
    assert_int_equal(field(&taken.sample, "worker"), 2);
    assert_int_equal(field(&taken.sample, "count"), 5);
    assert_int_equal(field(&taken.sample, "worker seed"), 1234567890123);
    it->ops->close(it);
    dataset_close(ds);

    ds = NULL;
    assert_int_equal(try_open("map", "init fails", &env, &ds, &err), -ENODEV);
    assert_error(&err, ENODEV, bad_plugin(), "init(): no device for worker 2");
    assert_null(ds);
    env.workers = 0;
    dataset_close(must_open("map", "init fails", &env));
}

/* ---- without memory ------------------------------------------------------------------------- */

/* Whichever allocation fails: an error or the sample, and no leak. */
TEST(test_out_of_memory)
{
    struct data_env env = plugin_env();
    bool done = false;

    for (int k = 0; !done; k++) {
        struct taken taken = {0};
        struct dataset *ds = NULL;
        struct dl_error err = {0};
        assert_in_range(k, 0, 100);
        fail_in = k;
        int r = try_open("map", "", &env, &ds, &err);
        if (r == 0)
            r = dataset_get(ds, &(struct sample_key){0}, 3, empty(&taken), &err);
        done = fail_in >= 0;
        fail_in = -1;
        assert_int_equal(r, done ? 0 : -ENOMEM);
        assert_int_equal(err.code, done ? 0 : ENOMEM);
        dataset_close(ds);
        taken_deinit(&taken);
    }
}
