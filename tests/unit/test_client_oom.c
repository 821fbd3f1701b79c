/*
 * libdlclient when memory runs out: the k-th allocation of a whole session fails, for every k. Each
 * time the call that needed it says -ENOMEM, later ones say it again or succeed, and all is freed.
 */
#include "tests/unit/fail_alloc.h"
#include "tests/unit/fake_daemon.h"

/* Allocations of the library alone are counted: the fake daemon's happen outside. */
static int armed;

static void arm(void)
{
    fail_in = armed;
}

static void disarm(void)
{
    armed = fail_in;
    fail_in = -1;
}

#define LIB(call)    \
    ({               \
        int _r;      \
        arm();       \
        _r = (call); \
        disarm();    \
        _r;          \
    })

static int use(struct fake *f, bool in_order)
{
    struct dl_message started, opened, info = {.number = DL_MSG_INFO};
    struct DLManagedTensor *tensor;
    struct dl_batch *batch, *pinned;
    const char *path = harness_file("oom.yaml", "name: a", 7);
    struct dl_tensor image;
    const void *data;
    size_t len;
    int fd, r;

    fake_pair(f, &fd);
    fake_welcome(f);
    r = LIB(client_adopt(&f->client, fd, "fake", "test", NS_PER_S));
    if (r < 0)
        return r;
    opened = fake_opened(f);
    opened.opened.in_order = in_order;
    fake_send(f, &opened);
    r = LIB(dl_loader_open_file(f->client, path, &f->loader));
    if (r < 0)
        return r;
    info.info.request = fake_next_request(f);
    info.info.value = (struct dl_span){(const uint8_t *)"\x80", 1};
    fake_send(f, &info);
    r = LIB(dl_client_query(f->client, "ring", &data, &len));
    if (r < 0)
        return r;
    started = fake_started(f, 20);
    fake_send(f, &started);
    r = LIB(dl_epoch_start(f->loader, &(struct dl_epoch_options){.credits = 32}, &f->epoch));
    if (r < 0)
        return r;
    fake_segment(f);
    fake_warn(f, FAKE_STREAM, "no memory?");
    fake_fault(f, 0, EIO, false);
    fake_deliver(f, 1, 9);
    fake_deliver(f, 9, 18); /* more than the queue's first size */
    r = LIB(dl_epoch_next(f->epoch, -1, &batch));
    if (r != -EIO)
        return r;
    assert_string_equal(dl_epoch_warning(f->epoch), "no memory?");
    r = LIB(dl_epoch_next(f->epoch, -1, &pinned));
    if (r < 0)
        return r;
    r = LIB(dl_batch_tensor(pinned, "image", &image));
    if (r < 0)
        return r;
    r = LIB(dl_batch_pin(pinned));
    if (r < 0)
        return r;
    r = LIB(dl_batch_dlpack(pinned, "image", &tensor));
    if (r < 0)
        return r;
    struct {
        uint8_t dl_tensor[48];
        void *manager_ctx;
        void (*deleter)(struct DLManagedTensor *self);
    } managed;
    memcpy(&managed, tensor, sizeof managed);
    managed.deleter(tensor);
    do
        r = LIB(dl_epoch_next(f->epoch, 0, &batch));
    while (r == 0);
    if (r != -EAGAIN)
        return r;
    arm();
    f->epoch = dl_epoch_end(f->epoch);
    f->loader = dl_loader_close(f->loader);
    disarm();
    return LIB(dl_client_dispatch(f->client));
}

static void fail_each(bool in_order)
{
    int64_t k = 0;
    int r;

    do {
        struct fake f;

        armed = k++;
        r = use(&f, in_order);
        if (r < 0)
            assert_int_equal(r, -ENOMEM);
        fake_end(&f);
    } while (armed < 0);
    assert_int_equal(r, 0);
    assert_true(k > 20); /* the scenario does allocate */
}

TEST(test_every_allocation)
{
    fail_each(true);
    fail_each(false);
}
