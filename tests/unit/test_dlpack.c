/*
 * DLPack tensors: their layout, and that they keep slot, mapping and lease however the batch, the
 * epoch and the client end, and in whatever thread they are deleted; of leases, also pins.
 */
#include "tests/unit/fake_daemon.h"

#include <pthread.h>

#include "tests/lib/splitmix.h"

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

TEST(test_layout)
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
TEST(test_types)
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

/* The tensor keeps its lease beyond epoch, loader and segment. */
TEST(test_tensor_outlives_loader)
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

/* Two loaders, each kept by a tensor that is deleted while the client closes the other. */
TEST(test_tensors_of_two_loaders)
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

/* ---- at random ------------------------------------------------------------------------------- */

/*
 * A user takes batches, pins, releases and exports them, deletes tensors, ends the epoch, the
 * loader or the client, each whenever it likes. Whatever it does, a batch's bytes are there as long
 * as it has the batch or a tensor of it; each lease is given back once, not before, and at the
 * latest when the epoch has ended; a pin is told once; and a batch that is not pinned has one of
 * the credits.
 */
enum { STEPS = 40, CREDITS = 4, HELD = 3, PLAYS = 2000 };

enum lease { UNSENT, LEASED, PINNED, RELEASED };

struct step {
    enum lease lease;       /* as the daemon knows it */
    struct dl_batch *batch; /* that the user may use; NULL: none */
    bool pinned;            /* by the user */
    struct managed *tensors[HELD];
};

struct play {
    struct fake fake;
    struct step steps[STEPS];
    uint64_t sent, next;   /* the first steps not sent, and not taken */
    uint64_t number, seed; /* of this play, and what is drawn next */
    bool ended;            /* the daemon has nothing more to deliver */
};

static uint64_t draw(struct play *p, uint64_t below)
{
    return next_random(&p->seed) % below;
}

static bool has_tensors(const struct step *step)
{
    bool has = false;

    for (int i = 0; i < HELD; i++)
        has = has || step->tensors[i];
    return has;
}

static bool is_held(const struct step *step)
{
    return step->batch || has_tensors(step);
}

/* ---- the daemon ---- */

static void pin_or_release(struct play *p, struct dl_span span, bool release)
{
    uint64_t number;

    for (size_t at = 0; at < span.len; at += sizeof number) {
        memcpy(&number, span.data + at, sizeof number);
        assert_in_range(number, 0, p->sent - 1);
        struct step *step = &p->steps[number];

        assert_true(step->lease == LEASED || (release && step->lease == PINNED));
        assert_false(release && is_held(step));
        step->lease = release ? RELEASED : PINNED;
    }
}

/* All that the client has said. It does not go before the last tensor. */
static void hear(struct play *p)
{
    struct dl_error err = {0};
    struct dl_message msg;
    struct dl_span payload;
    ssize_t n = 1;

    for (;;) {
        while (frame_reader_next(&p->fake.in, &payload) == 0) {
            n = fdpass_recv(p->fake.sock, &p->fake.in, MSG_DONTWAIT);
            for (uint64_t i = 0; i < p->next && n <= 0 && n != -EAGAIN; i++)
                assert_false(has_tensors(&p->steps[i]));
            if (n <= 0)
                return;
        }
        assert_int_equal(message_decode(payload.data, payload.len, FROM_CLIENT, &msg, &err), 0);
        if (msg.number == DL_MSG_PIN)
            pin_or_release(p, msg.pin.steps, false);
        else if (msg.number == DL_MSG_RELEASE)
            pin_or_release(p, msg.release.steps, true);
    }
}

/* As many as there are credits for. */
static void deliver(struct play *p)
{
    uint64_t leased = 0, first = p->sent;

    hear(p);
    for (uint64_t i = 0; i < p->sent; i++)
        leased += p->steps[i].lease == LEASED;
    assert_in_range(leased, 0, CREDITS);
    for (; !p->ended && p->sent < STEPS && leased < CREDITS && draw(p, 4); leased++) {
        if (p->sent >= FAKE_SLOTS && p->steps[p->sent - FAKE_SLOTS].lease != RELEASED)
            break;
        p->steps[p->sent++].lease = LEASED;
    }
    if (p->sent > first)
        fake_deliver(&p->fake, first, p->sent);
}

/* ---- the user ---- */

static void check_all(struct play *p)
{
    struct dl_tensor image;

    for (uint64_t number = 0; number < p->next; number++) {
        struct step *step = &p->steps[number];

        if (step->batch) {
            assert_int_equal(dl_batch_tensor(step->batch, "image", &image), 0);
            assert_int_equal(*(const uint8_t *)image.data, (uint8_t)number);
        }
        for (int i = 0; i < HELD; i++)
            if (step->tensors[i])
                check_bytes(step->tensors[i], number);
    }
}

/* The batches that are the client's again: all, or those that are not pinned. */
static void forget(struct play *p, bool pinned)
{
    for (uint64_t i = 0; i < p->next; i++)
        if (pinned || !p->steps[i].pinned)
            p->steps[i].batch = NULL;
}

static void take(struct play *p)
{
    struct dl_batch *batch = NULL;
    int r;

    forget(p, false);
    r = dl_epoch_next(p->fake.epoch, 0, &batch);
    if (p->next == p->sent) {
        assert_int_equal(r, -EAGAIN);
        return;
    }
    assert_int_equal(r, 0);
    assert_int_equal(dl_batch_step(batch), p->next);
    p->steps[p->next++].batch = batch;
}

static void use(struct play *p, struct step *step, uint64_t how)
{
    uint64_t i = draw(p, HELD);

    if (how == 0 && step->tensors[i]) {
        struct managed *managed = step->tensors[i];

        step->tensors[i] = NULL;
        managed->deleter(managed);
    } else if (how == 1 && step->batch && !step->tensors[i]) {
        step->tensors[i] = export_image(step->batch);
    } else if (how == 2 && step->batch) {
        step->pinned = true;
        assert_int_equal(dl_batch_pin(step->batch), 0);
    } else if (how == 3 && step->batch) {
        struct dl_batch *batch = step->batch;

        step->batch = NULL;
        assert_null(dl_batch_release(batch));
        assert_null(dl_batch_release(NULL));
    }
}

static void live(struct play *p)
{
    for (unsigned turns = (unsigned)draw(p, 120); turns > 0; turns--) {
        uint64_t what = draw(p, 10);

        if (what < 2)
            deliver(p);
        else if (what < 5 && p->fake.epoch)
            take(p);
        else if (what == 5)
            assert_int_equal(dl_client_dispatch(p->fake.client), 0);
        else if (p->next > 0)
            use(p, &p->steps[p->next - 1 - draw(p, min_u64(p->next, 6))], draw(p, 4));
        check_all(p);
        hear(p);
    }
}

static void check_all_returned(struct play *p)
{
    for (int i = 0; i < 3; i++) /* it reads no further than a descriptor at once */
        assert_int_equal(dl_client_dispatch(p->fake.client), 0);
    hear(p);
    for (uint64_t i = 0; i < p->sent; i++)
        if (!is_held(&p->steps[i]) && p->steps[i].lease != RELEASED)
            fail_msg("seed %u: step %u was not given back", (unsigned)p->number, (unsigned)i);
}

/* Its parts end in turn, and between them it goes on with what it has. */
static void end_all(struct play *p)
{
    if (draw(p, 4)) {
        p->ended = true;
        forget(p, false);
        p->fake.epoch = dl_epoch_end(p->fake.epoch);
        check_all(p);
        live(p);
        check_all_returned(p);
        if (draw(p, 2)) {
            forget(p, true);
            p->fake.loader = dl_loader_close(p->fake.loader);
            check_all(p);
            live(p);
        }
    }
    forget(p, true);
    p->fake.client = dl_client_close(p->fake.client);
    check_all(p);
    hear(p);
    for (uint64_t i = 0; i < p->next; i++)
        for (int k = 0; k < HELD; k++)
            if (p->steps[i].tensors[k]) {
                struct managed *managed = p->steps[i].tensors[k];

                p->steps[i].tensors[k] = NULL;
                managed->deleter(managed);
                check_all(p);
                hear(p);
            }
    fake_expect_end(&p->fake);
}

TEST(test_at_random)
{
    static struct play p;
    uint64_t pinned = 0, taken = 0;

    for (uint64_t seed = 0; seed < PLAYS / harness_stride(); seed++) {
        p = (struct play){.number = seed, .seed = seed};
        fake_run(&p.fake, CREDITS, STEPS + 1);
        live(&p);
        for (uint64_t i = 0; i < p.sent; i++)
            pinned += p.steps[i].lease == PINNED;
        taken += p.next;
        end_all(&p);
        fake_end(&p.fake);
    }
    assert_in_range(taken, 8 * PLAYS / harness_stride(), UINT64_MAX);
    assert_in_range(pinned, PLAYS / harness_stride() / 2, UINT64_MAX);
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

TEST(test_deleting_threads)
{
    for (int i = 0; i < ROUNDS; i++)
        race(false);
}

TEST(test_deleting_threads_and_close)
{
    for (int i = 0; i < ROUNDS; i++)
        race(true);
}
