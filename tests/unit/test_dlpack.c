/*
 * DLPack tensors: their layout, and that they keep slot, mapping and lease however the batch, the
 * epoch and the client end, and in whatever thread they are deleted.
 */
#include "tests/unit/fake_daemon.h"

#include <pthread.h>

/* As dlpack.h v0.8 declares it, written here a second time on purpose. */
struct managed {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void *manager_ctx;
    void (*deleter)(struct managed *self);
};

static struct managed *export_image(struct dl_batch *batch)
{
    struct DLManagedTensor *tensor = NULL;
    struct managed *managed;

    assert_int_equal(dl_batch_dlpack(batch, "image", &tensor), 0);
    memcpy(&managed, &tensor, sizeof managed);
    return managed;
}

static void check_bytes(const struct managed *m, uint64_t step)
{
    const uint8_t *data = m->data;

    for (int i = 0; i < FAKE_ROWS * FAKE_ROW_BYTES; i++)
        assert_int_equal(data[i], (uint8_t)step);
}

static void test_layout(void **state)
{
    struct DLManagedTensor *none = NULL;
    struct dl_tensor tensor;
    struct dl_batch *batch;
    struct managed *m;
    struct fake f;

    fake_run(&f, 4, 10);
    fake_deliver(&f, 0, 1);
    batch = fake_next(&f, 0);
    m = export_image(batch);
    assert_int_equal(dl_batch_tensor(batch, "image", &tensor), 0);
    assert_ptr_equal(m->data, tensor.data);
    assert_int_equal((uintptr_t)m->data % 64, 0);
    assert_int_equal(m->device_type, 1);
    assert_int_equal(m->device_id, 0);
    assert_int_equal(m->ndim, 2);
    assert_int_equal(m->code, 1);
    assert_int_equal(m->bits, 8);
    assert_int_equal(m->lanes, 1);
    assert_int_equal(m->shape[0], FAKE_ROWS);
    assert_int_equal(m->shape[1], FAKE_ROW_BYTES);
    assert_int_equal(m->strides[0], FAKE_ROW_BYTES);
    assert_int_equal(m->strides[1], 1);
    assert_int_equal(m->byte_offset, 0);
    check_bytes(m, 0);
    m->deleter(m);
    assert_int_equal(dl_batch_dlpack(batch, "nothing", &none), -ENOENT);
    assert_int_equal(dl_batch_dlpack(batch, "", &none), -EINVAL);
    assert_null(none);
    fake_end(&f);
}

/* Every element type, no dimension, and an empty tensor of absurd other dimensions. */
static void test_types(void **state)
{
    static const struct {
        uint32_t dtype, ndim;
        uint64_t shape[3];
        int code, bits;
        int64_t stride;
    } rows[] = {
        {DL_BOOL, 1, {2}, 6, 8, 1},
        {DL_INT8, 1, {2}, 0, 8, 1},
        {DL_UINT16, 1, {2}, 1, 16, 1},
        {DL_INT64, 1, {2}, 0, 64, 1},
        {DL_FLOAT16, 1, {2}, 2, 16, 1},
        {DL_BFLOAT16, 1, {2}, 4, 16, 1},
        {DL_FLOAT32, 2, {2, 3}, 2, 32, 3},
        {DL_FLOAT64, 0, {0}, 2, 64, 0},
        {DL_COMPLEX64, 1, {2}, 5, 64, 1},
        {DL_COMPLEX128, 3, {1, 2, 3}, 5, 128, 6},
        {DL_UINT8, 3, {0, 1ULL << 31, 1ULL << 31}, 1, 8, 1LL << 62},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct DLManagedTensor *tensor;
        struct dl_descriptor d = fake_descriptor(0, 1);
        struct slot_header *header;
        struct tree tree = {0};
        struct managed *m;
        struct dl_batch *batch;
        struct fake f;

        fake_run(&f, 4, 10);
        fake_fill(&f, 0, 1);
        assert_int_equal(tree_add_tensor(&tree, NULL, rows[i].dtype, rows[i].ndim, rows[i].shape),
                         0);
        tree.nodes[0].offset = FAKE_DATA_AT;
        header = (struct slot_header *)(void *)fake_slot(&f, 0);
        header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
        header->tree_count = 1;
        tree_encode(&tree, fake_slot(&f, 0) + FAKE_TREE_AT);
        tree_deinit(&tree);
        fake_send_descriptors(&f, FAKE_STREAM, &d, 1);
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), 0);
        assert_int_equal(dl_batch_dlpack(batch, NULL, &tensor), 0);
        memcpy(&m, &tensor, sizeof m);
        assert_int_equal(m->code, rows[i].code);
        assert_int_equal(m->bits, rows[i].bits);
        assert_int_equal(m->ndim, rows[i].ndim);
        if (rows[i].ndim > 0)
            assert_int_equal(m->strides[0], rows[i].stride);
        m->deleter(m);
        fake_end(&f);
    }
}

/* next() pins what tensors still use, and the last deleter's news goes out with the next call. */
static void test_tensor_outlives_batch(void **state)
{
    struct managed *one, *two;
    struct dl_batch *batch;
    struct fake f;

    fake_run(&f, 2, 100);
    fake_deliver(&f, 0, 2);
    batch = fake_next(&f, 0);
    one = export_image(batch);
    two = export_image(batch);
    fake_next(&f, 1);
    expect_steps(&f, DL_MSG_PIN, 0);
    one->deleter(one);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    fake_expect_silence(&f);
    check_bytes(two, 0);
    two->deleter(two);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_end(&f);
}

/* Deleted while the batch is still the user's: nothing happens on the wire but one RELEASE. */
static void test_tensor_first(void **state)
{
    struct managed *m;
    struct fake f;

    fake_run(&f, 1, 100);
    fake_deliver(&f, 0, 1);
    m = export_image(fake_next(&f, 0));
    m->deleter(m);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    fake_expect_silence(&f);
    dl_epoch_end(f.epoch);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_expect(&f, DL_MSG_STOP);
    fake_end(&f);
}

static void test_pinned_and_exported(void **state)
{
    struct dl_batch *batch;
    struct managed *m;
    struct fake f;

    fake_run(&f, 4, 100);
    fake_deliver(&f, 0, 1);
    batch = fake_next(&f, 0);
    m = export_image(batch);
    assert_int_equal(dl_batch_pin(batch), 0);
    expect_steps(&f, DL_MSG_PIN, 0);
    dl_batch_release(batch);
    fake_expect_silence(&f);
    check_bytes(m, 0);
    m->deleter(m);
    dl_epoch_end(f.epoch);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_expect(&f, DL_MSG_STOP);
    fake_end(&f);
}

/* The tensor keeps its lease beyond epoch, loader and segment. */
static void test_tensor_outlives_loader(void **state)
{
    struct dl_message msg = {.number = DL_MSG_RETIRE};
    struct managed *m;
    struct fake f;

    fake_run(&f, 4, 100);
    fake_deliver(&f, 0, 1);
    m = export_image(fake_next(&f, 0));
    dl_epoch_end(f.epoch);
    expect_steps(&f, DL_MSG_PIN, 0);
    fake_expect(&f, DL_MSG_STOP);
    dl_loader_close(f.loader);
    assert_int_equal(fake_expect(&f, DL_MSG_LEAVE).leave.loader, FAKE_LOADER);
    fake_expect_silence(&f); /* CLOSE would end the lease */
    msg.retire.id = FAKE_SEGMENT;
    fake_send(&f, &msg);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    check_bytes(m, 0);
    m->deleter(m);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_expect(&f, DL_MSG_CLOSE);
    assert_null(f.client->loaders);
    fake_end(&f);
}

/* The session, and with it the lease, ends with the last tensor and not with the client. */
static void test_tensor_outlives_client(void **state)
{
    struct managed *one, *two;
    struct fake f;

    fake_run(&f, 4, 100);
    fake_deliver(&f, 0, 2);
    one = export_image(fake_next(&f, 0));
    two = export_image(fake_next(&f, 1));
    fake_expect(&f, DL_MSG_PIN);
    f.client = dl_client_close(f.client);
    expect_steps(&f, DL_MSG_PIN, 1);
    fake_expect(&f, DL_MSG_STOP);
    fake_expect(&f, DL_MSG_LEAVE);
    fake_expect_silence(&f);
    check_bytes(one, 0);
    one->deleter(one);
    fake_expect_silence(&f);
    check_bytes(two, 1);
    two->deleter(two);
    fake_expect_end(&f);
    fake_end(&f);
}

/* Two loaders, each kept by a tensor that is deleted while the client closes the other. */
static void test_tensors_of_two_loaders(void **state)
{
    struct dl_descriptor d;
    struct dl_loader *first;
    struct managed *one, *two;
    struct dl_message msg;
    struct dl_batch *batch;
    struct fake f;

    fake_run(&f, 4, 100);
    fake_deliver(&f, 0, 1);
    one = export_image(fake_next(&f, 0));
    first = f.loader;
    msg = fake_opened(&f);
    msg.opened.loader = FAKE_LOADER + 1;
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "other", 5, NULL, &f.loader), 0);
    msg = fake_started(&f, 10);
    msg.started.stream = FAKE_STREAM + 1;
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &f.epoch), 0);
    fake_fill(&f, 0, FAKE_ROWS);
    d = fake_descriptor(0, FAKE_ROWS);
    fake_send_descriptors(&f, FAKE_STREAM + 1, &d, 1);
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), 0);
    two = export_image(batch);
    dl_loader_close(first);
    assert_int_equal(f.client->loaders->closed + f.client->loaders->next->closed, 1);
    one->deleter(one);
    f.client = dl_client_close(f.client);
    check_bytes(two, 0);
    two->deleter(two);
    fake_end(&f);
}

/* Deleted but not yet brought home when the client closes. */
static void test_close_takes_the_deleted(void **state)
{
    struct managed *m;
    struct fake f;

    fake_run(&f, 1, 100);
    fake_deliver(&f, 0, 1);
    m = export_image(fake_next(&f, 0));
    dl_epoch_end(f.epoch);
    expect_steps(&f, DL_MSG_PIN, 0);
    fake_expect(&f, DL_MSG_STOP);
    m->deleter(m);
    f.client = dl_client_close(f.client);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    fake_expect(&f, DL_MSG_CLOSE);
    fake_expect_end(&f);
    fake_end(&f);
}

/* ---- threads ---- */

enum { THREADS = 4, TENSORS = 8, ROUNDS = 200 };

struct deleter {
    struct managed *tensors[TENSORS];
    pthread_barrier_t *start;
};

static void *delete_all(void *arg)
{
    struct deleter *d = arg;

    pthread_barrier_wait(d->start);
    for (int i = 0; i < TENSORS; i++) {
        check_bytes(d->tensors[i], (uint64_t)i);
        d->tensors[i]->deleter(d->tensors[i]);
    }
    return NULL;
}

/* Each batch has a tensor in every thread; the client goes on, or closes, at the same time. */
static void race(bool close_client)
{
    struct deleter deleters[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    struct fake f;

    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS + 1), 0);
    fake_run(&f, TENSORS, 100);
    fake_deliver(&f, 0, TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        struct dl_batch *batch = fake_next(&f, (uint64_t)i);

        for (int t = 0; t < THREADS; t++)
            deleters[t].tensors[i] = export_image(batch);
    }
    for (int t = 0; t < THREADS; t++) {
        deleters[t].start = &start;
        assert_int_equal(pthread_create(&threads[t], NULL, delete_all, &deleters[t]), 0);
    }
    pthread_barrier_wait(&start);
    if (close_client)
        f.client = dl_client_close(f.client);
    else
        for (int i = 0; i < 100; i++)
            assert_int_equal(dl_client_dispatch(f.client), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    fake_end(&f);
    pthread_barrier_destroy(&start);
}

static void test_deleting_threads(void **state)
{
    for (int i = 0; i < ROUNDS; i++)
        race(false);
}

static void test_deleting_threads_and_close(void **state)
{
    for (int i = 0; i < ROUNDS; i++)
        race(true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_layout),
    cmocka_unit_test(test_types),
    cmocka_unit_test(test_tensor_outlives_batch),
    cmocka_unit_test(test_tensor_first),
    cmocka_unit_test(test_pinned_and_exported),
    cmocka_unit_test(test_tensor_outlives_loader),
    cmocka_unit_test(test_tensor_outlives_client),
    cmocka_unit_test(test_tensors_of_two_loaders),
    cmocka_unit_test(test_close_takes_the_deleted),
    cmocka_unit_test(test_deleting_threads),
    cmocka_unit_test(test_deleting_threads_and_close),
};

TEST_MAIN(tests)
