/*
 * Loaders whose batches are made in the client's own process, through libdlclient and the module
 * that was built; $DLOADER_LOCAL_MODULE names it, $LOCAL_STUB one of another release.
 */
#include "tests/unit/fail_alloc.h"
#include "tests/unit/fake_daemon.h"

#include <stdio.h>

/* ---- allocations of the library alone (not of the module) ---- */

void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
    if (!alloc_fails(len))
        return __real_mmap(at, len, prot, flags, fd, off);
    errno = ENOMEM;
    return MAP_FAILED;
}

/* ---- helpers ---- */

struct managed {
    void *data;
    uint8_t between[56 - sizeof(void *)];
    void (*deleter)(struct managed *self);
};
_Static_assert(sizeof(struct managed) == 64, "as struct DLManagedTensor");

#define RANGE   "dataset: {kind: range, length: 100}, seed: 1, workers: {count: 0}"
#define BATCHES RANGE ", batch: {size: 8}"

struct here {
    struct dl_client *client;
    struct dl_loader *loader;
    struct dl_epoch *epoch;
};

static int open_spec(struct here *h, const char *keys)
{
    _cleanup_free_ char *spec = NULL;

    assert_true(asprintf(&spec, "{%s}", keys) > 0);
    return dl_loader_open(h->client, spec, strlen(spec), "/", &h->loader);
}

static void start(struct here *h, const char *keys, const struct dl_epoch_options *options)
{
    assert_int_equal(dl_client_connect_local(&h->client), 0);
    if (open_spec(h, keys) < 0)
        fail_msg("%s: %s", keys, dl_client_error(h->client));
    assert_int_equal(dl_epoch_start(h->loader, options, &h->epoch), 0);
}

static int next(struct here *h, struct dl_batch **ret)
{
    return dl_epoch_next(h->epoch, 0, ret);
}

/* The batch holds the numbers from `first` on, as a range in sequence does. */
static void check_batch(struct dl_batch *batch, uint64_t first, size_t n)
{
    struct dl_tensor tensor;
    const uint64_t *indices;
    size_t samples;

    assert_int_equal(dl_batch_tensor(batch, "", &tensor), 0);
    assert_int_equal(tensor.shape[0], n);
    assert_int_equal((uintptr_t)tensor.data % 64, 0);
    indices = dl_batch_indices(batch, &samples);
    assert_int_equal(samples, n);
    for (size_t i = 0; i < n; i++) {
        int64_t value;

        memcpy(&value, (const char *)tensor.data + i * sizeof value, sizeof value);
        assert_int_equal(value, first + i);
        assert_int_equal(indices[i], first + i);
    }
}

static struct dl_batch *expect_batch(struct here *h, uint64_t first, size_t n)
{
    struct dl_batch *batch = NULL;
    int r = next(h, &batch);

    if (r != 0)
        fail_msg("%d: %s", r, dl_client_error(h->client));
    check_batch(batch, first, n);
    return batch;
}

static void expect_text(struct here *h, int r, int want, const char *text)
{
    if (r != want || !strstr(dl_client_error(h->client), text))
        fail_msg("%d where %d is due: '%s' lacks '%s'", r, want, dl_client_error(h->client), text);
    assert_true(dl_client_is_usable(h->client));
}

/* ---- without a daemon ---- */

TEST(test_epochs)
{
    struct here h;

    start(&h, BATCHES, NULL);
    assert_int_equal(dl_loader_length(h.loader), 100);
    assert_int_equal(dl_loader_batch_size(h.loader), 8);
    assert_int_equal(dl_loader_seed(h.loader), 1);
    assert_true(dl_loader_fingerprint(h.loader) != 0);
    assert_int_equal(strncmp(dl_loader_name(h.loader), "spec-", 5), 0);
    for (int epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(dl_epoch_steps(h.epoch), 13);
        assert_int_equal(dl_epoch_samples(h.epoch), 100);
        for (uint64_t step = 0; step < 13; step++)
            assert_int_equal(dl_batch_step(expect_batch(&h, step * 8, step < 12 ? 8 : 4)), step);
        assert_true(dl_epoch_wait_ns(h.epoch) > 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(next(&h, &(struct dl_batch *){NULL}), DL_END);
        assert_null(dl_epoch_warning(h.epoch));
        dl_epoch_end(h.epoch);
        assert_int_equal(dl_epoch_start(h.loader, &(struct dl_epoch_options){.epoch = 1}, &h.epoch),
                         0);
    }
    dl_client_close(h.client);
}

TEST(test_ranks_and_steps)
{
    struct dl_epoch_options options = {.rank = 1, .world = 2, .step = 3};
    struct dl_batch *batch = NULL;
    const uint64_t *indices;
    struct here h;
    size_t n;

    start(&h, BATCHES, &options);
    assert_int_equal(dl_epoch_steps(h.epoch), 7);
    assert_int_equal(next(&h, &batch), 0);
    assert_int_equal(dl_batch_step(batch), 3);
    indices = dl_batch_indices(batch, &n);
    assert_int_equal(n, 8);
    assert_int_equal(indices[0], 3 * 16 + 1);
    while (next(&h, &batch) == 0)
        ;
    assert_int_equal(dl_batch_step(batch), 6);
    options.step = 8;
    expect_text(&h, dl_epoch_start(h.loader, &options, &h.epoch), -EINVAL, "step: step 8 is past");
    options = (struct dl_epoch_options){.rank = 2, .world = 2};
    expect_text(&h, dl_epoch_start(h.loader, &options, &h.epoch), -EINVAL, "rank: 2 is not below");
    dl_client_close(h.client);
}

/* Two epochs of two loaders, turn by turn. */
TEST(test_several_at_once)
{
    struct here a, b;

    start(&a, BATCHES, NULL);
    b.client = a.client;
    assert_int_equal(open_spec(&b, RANGE ", batch: {size: 5}"), 0);
    assert_int_equal(dl_epoch_start(b.loader, NULL, &b.epoch), 0);
    for (uint64_t step = 0; step < 12; step++) {
        struct dl_batch *batch = expect_batch(&a, step * 8, 8);

        expect_batch(&b, step * 5, 5);
        check_batch(batch, step * 8, 8);
    }
    dl_loader_close(b.loader);
    expect_batch(&a, 96, 4);
    dl_client_close(a.client);
}

static const struct {
    const char *keys;
    int code;
    const char *text;
} refusals[] = {
    {"dataset: {kind: range, length: 9}", EINVAL,
     "workers.count: 2 needs a daemon; connect to one, or write 0"},
    {"dataset: {kind: range, length: 9}, workers: {count: 7}", EINVAL, "workers.count: 7 needs a"},
    {RANGE ", batch: {size: -3}", EINVAL, "batch.size: -3 is not a positive integer"},
    {RANGE ", colate: {}", EINVAL, "colate: "},
    {RANGE ", memory: {limit: 64}", ENOMEM, "memory.limit: 64 bytes are less than one batch"},
    {RANGE ", sampler: {kind: subset_random, indices: [100]}", EINVAL, "sampler.indices"},
    {"dataset: {kind: npy, paths: none.npy}, workers: {count: 0}", ENOENT, "/none.npy: "},
    {"[", EINVAL, "spec:1: "},
};

TEST(test_refusals)
{
    struct here h;

    assert_int_equal(dl_client_connect_local(&h.client), 0);
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
        expect_text(&h, open_spec(&h, refusals[i].keys), -refusals[i].code, refusals[i].text);
    expect_text(&h, dl_loader_open(h.client, "digits", 6, NULL, &h.loader), -ENOENT,
                "name: only a daemon can open a loader by its name (\"digits\")");
    expect_text(&h, dl_loader_open(h.client, "", 0, NULL, &h.loader), -EINVAL, "");
    expect_text(&h, dl_loader_open(h.client, "a\0b", 3, NULL, &h.loader), -EINVAL, "a NUL byte");
    dl_client_close(h.client);
}

TEST(test_no_daemon_to_ask)
{
    const void *data;
    struct here h;
    size_t len;

    start(&h, BATCHES, NULL);
    assert_int_equal(dl_client_fd(h.client), -1);
    assert_int_equal(dl_client_dispatch(h.client), 0);
    expect_text(&h, dl_client_query(h.client, "status", &data, &len), -ENOTCONN, "no daemon");
    expect_text(&h, dl_client_control(h.client, "stop"), -ENOTCONN, "no daemon");
    expect_batch(&h, 0, 8);
    dl_client_close(h.client);
}

/* ---- the module ---- */

TEST(test_modules_that_are_not_there)
{
    _cleanup_free_ char *module = strdup(getenv("DLOADER_LOCAL_MODULE"));
    const char *bad[][2] = {
        {"/nonexistent.so", "needs a module of libdlclient: /nonexistent.so: cannot open"},
        {getenv("LOCAL_STUB"), " is of another release. Install it"},
        {"libyaml-0.so.2", "libyaml-0.so.2 is something else. Install it"},
        {"", "dlclient-0/dlclient-local.so"}, /* not set: where it is installed */
    };
    struct here h;

    assert_int_equal(dl_client_connect_local(&h.client), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (i == 3 && access(DLOADER_LOCAL_MODULE, F_OK) == 0)
            break;
        setenv("DLOADER_LOCAL_MODULE", bad[i][0], 1);
        expect_text(&h, open_spec(&h, BATCHES), i == 1 || i == 2 ? -EPROTONOSUPPORT : -ENOENT,
                    bad[i][1]);
        assert_string_equal(dl_client_error_path(h.client), "workers.count");
    }
    setenv("DLOADER_LOCAL_MODULE", module, 1);
    assert_int_equal(open_spec(&h, BATCHES), 0);
    dl_client_close(h.client);
}

/* ---- leases ---- */

static const void *data_of(struct dl_batch *batch)
{
    struct dl_tensor tensor;

    assert_int_equal(dl_batch_tensor(batch, "", &tensor), 0);
    return tensor.data;
}

TEST(test_memory_is_used_again)
{
    struct dl_batch *pinned, *batch;
    const void *first, *second;
    struct here h;

    start(&h, BATCHES, NULL);
    first = data_of(expect_batch(&h, 0, 8));
    pinned = expect_batch(&h, 8, 8);
    assert_ptr_equal(data_of(pinned), first);
    assert_int_equal(dl_batch_pin(pinned), 0);
    assert_int_equal(dl_batch_pin(pinned), 0);
    second = data_of(expect_batch(&h, 16, 8));
    assert_ptr_not_equal(second, first);
    check_batch(pinned, 8, 8);
    dl_batch_release(pinned);
    batch = expect_batch(&h, 24, 8); /* what was released last: this epoch's own */
    assert_ptr_equal(data_of(batch), second);
    dl_batch_release(batch);
    expect_batch(&h, 32, 8);
    dl_client_close(h.client);
}

TEST(test_pins_outlive_the_epoch)
{
    struct dl_batch *pinned;
    struct here h;

    start(&h, BATCHES, NULL);
    pinned = expect_batch(&h, 0, 8);
    assert_int_equal(dl_batch_pin(pinned), 0);
    expect_batch(&h, 8, 8);
    dl_epoch_end(h.epoch);
    check_batch(pinned, 0, 8);
    assert_int_equal(dl_epoch_start(h.loader, NULL, &h.epoch), 0);
    expect_batch(&h, 0, 8);
    check_batch(pinned, 0, 8);
    dl_batch_release(pinned);
    dl_loader_close(h.loader);
    dl_client_close(h.client);
}

/* Tensors deleted while the loader is open, after it was closed, and after the client was. */
TEST(test_tensors_outlive_everything)
{
    struct managed *tensors[3];
    struct here h;

    start(&h, BATCHES, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(tensors); i++) {
        struct dl_batch *batch = expect_batch(&h, i * 8, 8);
        struct DLManagedTensor *tensor;

        assert_int_equal(dl_batch_dlpack(batch, NULL, &tensor), 0);
        memcpy(&tensors[i], &tensor, sizeof tensor);
    }
    expect_batch(&h, 24, 8);
    for (size_t i = 0; i < ARRAY_SIZE(tensors); i++) {
        int64_t value;

        memcpy(&value, (const char *)tensors[i]->data + 7 * sizeof value, sizeof value);
        assert_int_equal(value, i * 8 + 7);
        if (i == 1)
            dl_loader_close(h.loader);
        if (i == 2)
            dl_client_close(h.client);
        memcpy(&value, tensors[i]->data, sizeof value);
        assert_int_equal(value, i * 8);
        tensors[i]->deleter(tensors[i]);
    }
}

/* The limit holds two batches. */
TEST(test_memory_limit)
{
    struct dl_batch *a, *b;
    struct here h;

    start(&h,
          "dataset: {kind: range, length: 3000}, workers: {count: 0}, batch: {size: 1000}, "
          "memory: {limit: 40000}",
          NULL);
    a = expect_batch(&h, 0, 1000);
    assert_int_equal(dl_batch_pin(a), 0);
    b = expect_batch(&h, 1000, 1000);
    assert_int_equal(dl_batch_pin(b), 0);
    for (int i = 0; i < 2; i++)
        expect_text(&h, next(&h, &(struct dl_batch *){NULL}), -ENOMEM, "memory.limit: ");
    dl_batch_release(a);
    a = expect_batch(&h, 2000, 1000);
    assert_int_equal(dl_batch_pin(a), 0);
    assert_int_equal(next(&h, &(struct dl_batch *){NULL}), DL_END); /* which needs no memory */
    check_batch(b, 1000, 1000);
    dl_client_close(h.client);
}

/* A batch may repeat samples, and then takes more than the dataset's length lets expect. */
TEST(test_batches_that_grow)
{
    struct dl_batch *batch = NULL;
    struct here h;
    size_t n;

    start(&h,
          "dataset: {kind: range, length: 5}, seed: 3, workers: {count: 0}, "
          "batch: {size: 5000}, sampler: {kind: random, replacement: true, num_samples: 9999}",
          NULL);
    assert_int_equal(next(&h, &batch), 0);
    dl_batch_indices(batch, &n);
    assert_int_equal(n, 5000);
    assert_int_equal(dl_batch_pin(batch), 0);
    assert_int_equal(next(&h, &batch), 0);
    dl_batch_indices(batch, &n);
    assert_int_equal(n, 4999);
    assert_int_equal(next(&h, &batch), DL_END);
    dl_client_close(h.client);
}

/* Each is larger than the one before: what was too small is given up, and counts no more. */
TEST(test_batches_that_grow_within_the_limit)
{
    static uint64_t indices[4000];
    struct dl_batch *batch = NULL;
    struct here h;
    size_t samples;

    start(&h,
          "dataset: {kind: range, length: 5}, workers: {count: 0}, batch: {size: 4000}, "
          "sampler: {kind: client}, memory: {limit: 66000}",
          NULL);
    for (size_t n = 500; n <= 4000; n += 500) {
        assert_int_equal(dl_epoch_feed_batch(h.epoch, indices, n), 0);
        if (next(&h, &batch) < 0)
            fail_msg("%zu: %s", n, dl_client_error(h.client));
        dl_batch_indices(batch, &samples);
        assert_int_equal(samples, n);
    }
    assert_true(h.loader->memory.bytes <= 66000);
    dl_client_close(h.client);
}

/* One that passes the limit is an error of its step alone. */
TEST(test_a_batch_beyond_the_limit)
{
    static uint64_t indices[5000];
    struct here h;

    start(&h,
          "dataset: {kind: range, length: 5}, workers: {count: 0}, batch: {size: 5000}, "
          "sampler: {kind: client}, memory: {limit: 60000}",
          &(struct dl_epoch_options){.credits = 4});
    assert_int_equal(dl_epoch_feed_batch(h.epoch, indices, 5000), 0);
    assert_int_equal(dl_epoch_feed_batch(h.epoch, indices, 1), 0);
    expect_text(&h, next(&h, &(struct dl_batch *){NULL}), -ENOMEM,
                "range: step 0 of epoch 0 (samples 0, 0, 0, 0, 0, 0, 0, 0, … 5000 in all): this "
                "batch takes ");
    expect_batch(&h, 0, 1);
    expect_text(&h, next(&h, &(struct dl_batch *){NULL}), -ENODATA, "feed more");
    dl_client_close(h.client);
}

/* ---- the client as the sampler ---- */

#define FED "dataset: {kind: range, length: 100}, workers: {count: 0}, sampler: {kind: client}"

TEST(test_feeding)
{
    uint64_t indices[] = {7, 8, 9, 100, 3, 4, 5};
    struct here h;

    start(&h, FED ", batch: {size: 3}", &(struct dl_epoch_options){.credits = 1, .epoch = 6});
    assert_true(dl_epoch_steps(h.epoch) == DL_UNKNOWN);
    expect_text(&h, next(&h, &(struct dl_batch *){NULL}), -ENODATA, "feed more, or feed the end");
    assert_int_equal(dl_epoch_feed(h.epoch, indices, 7), 6); /* two steps for one credit */
    assert_int_equal(dl_epoch_feed(h.epoch, indices + 6, 1), -EAGAIN);
    expect_batch(&h, 7, 3);
    assert_int_equal(dl_epoch_feed(h.epoch, indices + 6, 1), 1);
    expect_text(&h, next(&h, &(struct dl_batch *){NULL}), -ERANGE,
                "range: step 1 of epoch 6 (samples 100, 3, 4): sample 100 is beyond");
    expect_text(&h, next(&h, &(struct dl_batch *){NULL}), -ENODATA, "feed more");
    expect_text(&h, dl_epoch_feed_batch(h.epoch, indices, 1), -EINVAL, "wait for their batch");
    assert_int_equal(dl_epoch_feed_end(h.epoch), 0);
    expect_batch(&h, 5, 1);
    assert_int_equal(next(&h, &(struct dl_batch *){NULL}), DL_END);
    assert_int_equal(dl_epoch_feed_end(h.epoch), -EINVAL);
    dl_client_close(h.client);
}

TEST(test_feeding_half)
{
    struct here h;

    start(&h, FED ", batch: {size: 2}", &(struct dl_epoch_options){.credits = 8});
    assert_int_equal(dl_epoch_feed(h.epoch, (const uint64_t[]){1, 2, 3, 4, 5}, 5), 5);
    expect_batch(&h, 1, 2);
    dl_epoch_end(h.epoch);
    assert_int_equal(dl_epoch_start(h.loader, NULL, &h.epoch), 0);
    assert_int_equal(dl_epoch_feed_end(h.epoch), 0);
    assert_int_equal(next(&h, &(struct dl_batch *){NULL}), DL_END);
    dl_client_close(h.client);
}

TEST(test_a_sampler_of_its_own)
{
    struct here h;

    start(&h, BATCHES, NULL);
    expect_text(&h, dl_epoch_feed_batch(h.epoch, (const uint64_t[]){1}, 1), -EINVAL,
                "only sampler.kind client can be fed");
    expect_batch(&h, 0, 8);
    dl_client_close(h.client);
}

/* ---- what the module says ---- */

static struct local_table table; /* the module's, but for what a test changes */
static int failure;              /* errno of what shall fail; 0: nothing */

static void change_table(struct here *h)
{
    table = *h->client->table;
    h->client->table = &table;
    failure = 0;
}

static int (*real_next)(struct module_loader *loader, struct local_pass *pass,
                        struct local_batch *batch, struct dl_error *err);
static int failing_next(struct module_loader *loader, struct local_pass *pass,
                        struct local_batch *batch, struct dl_error *err)
{
    int r = real_next(loader, pass, batch, err);

    return failure ? dl_error_set(err, failure, "dataset", "no good") : r;
}

/* What means something else to the caller of dl_epoch_next() is not a step's error. */
TEST(test_errors_of_steps)
{
    static const int codes[][2] = {{EIO, EIO}, {EAGAIN, EIO}, {ETIMEDOUT, EIO}, {ERANGE, ERANGE}};
    struct here h;

    start(&h, BATCHES, NULL);
    change_table(&h);
    real_next = table.next;
    table.next = failing_next;
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        failure = codes[i][0];
        expect_text(&h, next(&h, &(struct dl_batch *){NULL}), -codes[i][1], "dataset: no good");
    }
    failure = 0;
    expect_batch(&h, ARRAY_SIZE(codes) * 8, 8);
    dl_client_close(h.client);
}

static int (*real_feed)(struct local_pass *pass, const uint64_t *indices, size_t n,
                        struct dl_error *err);
static int failing_feed(struct local_pass *pass, const uint64_t *indices, size_t n,
                        struct dl_error *err)
{
    return failure ? dl_error_set(err, failure, "", "out of memory")
                   : real_feed(pass, indices, n, err);
}

/* What is not taken is not lost: it can be fed again. */
TEST(test_no_memory_to_feed)
{
    const uint64_t indices[] = {1, 2, 3, 4};
    struct here h;

    start(&h, FED ", batch: {size: 3}", &(struct dl_epoch_options){.credits = 2});
    change_table(&h);
    real_feed = table.feed;
    table.feed = failing_feed;
    failure = ENOMEM;
    expect_text(&h, dl_epoch_feed_batch(h.epoch, indices, 3), -ENOMEM, "out of memory");
    assert_int_equal(dl_epoch_feed(h.epoch, indices, 4), 2);
    expect_text(&h, (int)dl_epoch_feed(h.epoch, indices + 2, 2), -ENOMEM, "out of memory");
    failure = 0;
    assert_int_equal(dl_epoch_feed(h.epoch, indices + 2, 2), 2);
    failure = ENOMEM;
    expect_text(&h, dl_epoch_feed_end(h.epoch), -ENOMEM, "out of memory");
    failure = 0;
    assert_int_equal(dl_epoch_feed_end(h.epoch), 0);
    expect_batch(&h, 1, 3);
    expect_batch(&h, 4, 1);
    assert_int_equal(next(&h, &(struct dl_batch *){NULL}), DL_END);
    dl_client_close(h.client);
}

/* As of a daemon's: once, when an iterable dataset gives more than its length. */
TEST(test_more_samples_than_the_length)
{
    struct here h;

    start(&h, BATCHES, NULL);
    h.loader->length = 20;
    h.loader->iterable = true;
    for (uint64_t step = 0; step < 5; step++) {
        const char *warning;

        expect_batch(&h, step * 8, 8);
        warning = dl_epoch_warning(h.epoch);
        assert_int_equal(warning != NULL, step == 2);
        if (warning)
            assert_non_null(strstr(warning, "the iterable dataset range declares 20 samples, "
                                            "but 24 were already fetched; "));
    }
    dl_client_close(h.client);
}

/* Whatever is left of the epoch. The text of the warning that comes with it; NULL: none does. */
static const char *read_on(struct here *h)
{
    struct dl_batch *batch;
    const char *found = NULL;
    int r;

    while ((r = next(h, &batch)) == 0) {
        const char *warning = dl_epoch_warning(h->epoch);
        assert_true(!warning || !found);
        found = warning ? strdup(warning) : found;
    }
    assert_int_equal(r, DL_END);
    const char *warning = dl_epoch_warning(h->epoch);
    assert_true(!warning || !found);
    return warning ? strdup(warning) : found;
}

/* At its end at the latest, and once. */
TEST(test_a_file_that_is_overwritten)
{
    char spec[256], data[4000] = "";
    const char *path = harness_file("overwritten", data, sizeof data);
    struct here h;

    snprintf(spec, sizeof spec,
             "dataset: {kind: records, paths: %s, dtype: uint8, shape: [40]}, batch: {size: 10}, "
             "workers: {count: 0}",
             path);
    start(&h, spec, NULL);
    for (unsigned read = 0; read < 9; read++)
        assert_int_equal(next(&h, &(struct dl_batch *){NULL}), 0);
    assert_null(dl_epoch_warning(h.epoch));
    assert_int_equal(truncate(path, sizeof data + 1), 0);
    _cleanup_free_ char *warning = (char *)(uintptr_t)read_on(&h);
    assert_non_null(warning);
    assert_non_null(strstr(warning, path));
    assert_non_null(
        strstr(warning, "was written to while it is in use: it has 4001 bytes and had 4000"));
    assert_int_equal(dl_epoch_start(h.loader, NULL, &h.epoch), 0);
    assert_null(read_on(&h));
    dl_client_close(h.client);
}

/* ---- with a daemon ---- */

static void refuse_open(struct fake *f, int code, const char *path)
{
    struct dl_message msg = {.number = DL_MSG_ERROR};

    msg.error.request = fake_next_request(f);
    msg.error.code = (uint64_t)code;
    msg.error.path = span_str(path);
    msg.error.message = span_str("not by me");
    fake_send(f, &msg);
}

TEST(test_what_the_daemon_leaves_to_the_client)
{
    struct here h = {0};
    struct fake f;

    fake_run(&f, 4, 10);
    h.client = f.client;
    refuse_open(&f, ENOTSUP, "/data/a.npy");
    expect_text(&h, open_spec(&h, BATCHES), -ENOTSUP, "/data/a.npy: not by me");
    fake_expect(&f, DL_MSG_OPEN);
    refuse_open(&f, EINVAL, "workers.count");
    expect_text(&h, open_spec(&h, BATCHES), -EINVAL, "workers.count: not by me");
    fake_expect(&f, DL_MSG_OPEN);
    refuse_open(&f, ENOTSUP, "workers.count");
    assert_int_equal(open_spec(&h, BATCHES), 0);
    fake_expect(&f, DL_MSG_OPEN);
    assert_int_equal(dl_epoch_start(h.loader, NULL, &h.epoch), 0);

    /* Both kinds side by side; the socket hears of the daemon's alone. */
    for (uint64_t step = 0; step < 3; step++) {
        struct dl_batch *batch = expect_batch(&h, step * 8, 8);

        fake_deliver(&f, step, step + 1);
        fake_next(&f, step);
        check_batch(batch, step * 8, 8);
    }
    assert_int_equal(dl_batch_pin(h.epoch->current), 0);
    dl_loader_close(h.loader);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    expect_steps(&f, DL_MSG_RELEASE, 1);
    fake_expect_silence(&f);
    fake_end(&f);
}

/* A daemon that numbers a stream like a local epoch, 0, does not get at it. */
TEST(test_streams_of_nobody)
{
    struct here h = {0};
    struct fake f;

    fake_run(&f, 4, 10);
    h.client = f.client;
    refuse_open(&f, ENOTSUP, "workers.count");
    assert_int_equal(open_spec(&h, BATCHES), 0);
    assert_int_equal(dl_epoch_start(h.loader, NULL, &h.epoch), 0);
    fake_warn(&f, 0, "boo");
    assert_int_equal(dl_epoch_next(f.epoch, -1, &(struct dl_batch *){NULL}), -EPROTO);
    assert_non_null(strstr(dl_client_error(f.client), "stream 0 is not known"));
    assert_int_equal(next(&h, &(struct dl_batch *){NULL}), -EPROTO); /* fatal is fatal */
    fake_end(&f);
}

/* ---- memory runs out ---- */

static int use(struct here *h)
{
    struct DLManagedTensor *tensor;
    struct managed *managed;
    struct dl_batch *batch;
    int r = dl_client_connect_local(&h->client);

    if (r == 0)
        r = dl_loader_open(h->client, "{" FED "}", sizeof FED + 1, "/", &h->loader);
    if (r == 0)
        r = dl_epoch_start(h->loader, NULL, &h->epoch);
    if (r == 0)
        r = dl_epoch_feed_batch(h->epoch, (const uint64_t[]){5}, 1);
    if (r == 0)
        r = dl_epoch_feed_end(h->epoch);
    if (r == 0)
        r = next(h, &batch);
    if (r == 0)
        r = dl_batch_dlpack(batch, "", &tensor);
    if (r == 0) {
        memcpy(&managed, &tensor, sizeof tensor);
        managed->deleter(managed);
        r = next(h, &batch);
    }
    return r;
}

TEST(test_every_allocation)
{
    int64_t k = 0;
    int r;

    do {
        struct here h = {0};

        fail_in = k++;
        r = use(&h);
        if (r < 0)
            assert_int_equal(r, -ENOMEM);
        if (h.client && r < 0)
            assert_true(dl_client_error(h.client)[0] != '\0');
        dl_client_close(h.client);
    } while (fail_in < 0 && k < 100);
    fail_in = -1;
    assert_int_equal(r, DL_END);
    assert_in_range(k, 8, 99);
}
