/* Which system calls a client makes that has to wait for its next batch, by whether its user came
 * back at once. Time stands still here unless a test says otherwise. */
#include "tests/unit/fake_daemon.h"

enum { MS = 1000 * 1000, CALLS = 64 };

static uint64_t now_ns = 1000ULL * 1000 * MS;
static char calls[CALLS]; /* s: it sent, r: it received, or found nothing, p: it waited */

/* What happens as soon as it waits. */
static struct {
    struct fake *f;
    uint64_t from, to; /* these steps are delivered */
    bool interrupts;   /* a signal comes */
    bool hangs_up;     /* the daemon ends */
} on_wait;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    *ret = (struct timespec){.tv_sec = (time_t)(now_ns / (1000 * MS)),
                             .tv_nsec = (long)(now_ns % (1000 * MS))};
    return 0;
}

static void waits_note(char call)
{
    size_t n = strlen(calls);

    assert_true(n + 1 < sizeof calls);
    calls[n] = call;
}

ssize_t __real_fdpass_recv(int sock, struct frame_reader *reader, int flags);
ssize_t __wrap_fdpass_recv(int sock, struct frame_reader *reader, int flags);
ssize_t __wrap_fdpass_recv(int sock, struct frame_reader *reader, int flags)
{
    if (flags & MSG_DONTWAIT) /* the daemon's end waits for what it expects */
        waits_note('r');
    return __real_fdpass_recv(sock, reader, flags);
}

ssize_t __real_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags);
ssize_t __wrap_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags);
ssize_t __wrap_fdpass_send(int sock, const void *data, size_t len, const int *fds, uint32_t n_fds,
                           int flags)
{
    if (flags & MSG_DONTWAIT)
        waits_note('s');
    return __real_fdpass_send(sock, data, len, fds, n_fds, flags);
}

int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask)
{
    int ready;

    waits_note('p');
    if (on_wait.to > on_wait.from)
        fake_deliver(on_wait.f, on_wait.from, on_wait.to);
    on_wait.from = on_wait.to;
    if (on_wait.hangs_up)
        close_fdp(&on_wait.f->sock);
    if (on_wait.interrupts) {
        errno = EINTR;
        return -1;
    }
    ready = __real_ppoll(fds, n, &(struct timespec){0}, mask);
    assert_true(ready != 0 || timeout); /* else the test would hang */
    if (ready == 0)
        now_ns += (uint64_t)timeout->tv_sec * 1000 * MS + (uint64_t)timeout->tv_nsec;
    return ready;
}

/* One batch has been given out, and lies with the user. */
static void waits_begin(struct fake *f)
{
    fake_run(f, 4, 100);
    fake_deliver(f, 0, 1);
    fake_next(f, 0);
    on_wait.f = f;
    on_wait.from = on_wait.to = 0;
    on_wait.interrupts = on_wait.hangs_up = false;
    memset(calls, 0, sizeof calls);
}

static void waits_deliver(uint64_t from, uint64_t to)
{
    on_wait.from = from;
    on_wait.to = to;
}

static void waits_expect(struct fake *f, uint64_t step, const char *want)
{
    struct dl_batch *batch = NULL;

    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), 0);
    assert_int_equal(dl_batch_step(batch), step);
    assert_string_equal(calls, want);
    memset(calls, 0, sizeof calls);
}

/* Three calls for a batch, of which none finds nothing. */
TEST(test_back_at_once)
{
    struct fake f;

    waits_begin(&f);
    for (uint64_t step = 1; step < 10; step++) {
        waits_deliver(step, step + 1);
        waits_expect(&f, step, "spr");
        expect_steps(&f, DL_MSG_RELEASE, step - 1);
        memset(calls, 0, sizeof calls);
    }
    fake_end(&f);
}

/* It has come meanwhile: the wait is over at once. */
TEST(test_back_at_once_and_it_is_there)
{
    struct fake f;

    waits_begin(&f);
    fake_deliver(&f, 1, 2);
    waits_expect(&f, 1, "spr");
    fake_end(&f);
}

/* Who computes for a while finds the next batch there as a rule, and so looks first. */
TEST(test_back_later)
{
    struct fake f;

    waits_begin(&f);
    fake_deliver(&f, 1, 2);
    now_ns += MS;
    waits_expect(&f, 1, "sr");
    now_ns += MS;
    waits_deliver(2, 3);
    waits_expect(&f, 2, "srpr");
    fake_end(&f);
}

/* Batches in store cost a call for a quarter of the credits, and no look. */
TEST(test_in_store)
{
    struct fake f;

    waits_begin(&f);
    waits_deliver(1, 4);
    waits_expect(&f, 1, "spr");
    waits_expect(&f, 2, "s");
    waits_expect(&f, 3, "s");
    fake_end(&f);
}

TEST(test_timeouts)
{
    struct dl_batch *batch = NULL;
    uint64_t began = now_ns;
    struct fake f;

    waits_begin(&f);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN);
    assert_string_equal(calls, "sr"); /* it looks, since it may not wait */
    memset(calls, 0, sizeof calls);
    assert_int_equal(dl_epoch_next(f.epoch, 5 * MS, &batch), -ETIMEDOUT);
    assert_string_equal(calls, "pp"); /* the second finds that the time is over */
    assert_int_equal(now_ns - began, 5 * MS);
    fake_deliver(&f, 1, 2);
    f.epoch->given_ns = now_ns; /* back at once, however long it has waited */
    assert_int_equal(dl_epoch_next(f.epoch, 1, &batch), 0);
    assert_int_equal(dl_batch_step(batch), 1);
    fake_end(&f);
}

static int waits_count_interrupts(void *count)
{
    return ++*(int *)count == 2;
}

TEST(test_interrupts)
{
    struct dl_batch *batch = NULL;
    int count = 0;
    struct fake f;

    waits_begin(&f);
    dl_set_interrupt(waits_count_interrupts, &count);
    on_wait.interrupts = true;
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -EINTR);
    dl_set_interrupt(NULL, NULL);
    assert_int_equal(count, 2);
    assert_string_equal(calls, "spp");
    assert_int_equal(dl_client_is_usable(f.client), 0);
    fake_end(&f);
}

TEST(test_the_daemon_ends)
{
    struct dl_batch *batch = NULL;
    struct fake f;

    waits_begin(&f);
    on_wait.hangs_up = true;
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ECONNRESET);
    assert_non_null(strstr(dl_client_error(f.client), "closed the session"));
    fake_end(&f);
}

/* Who feeds, and has fed nothing more, is told so after a look, and without a wait. */
TEST(test_fed)
{
    struct dl_epoch_options options = {.credits = 4};
    struct dl_batch *batch = NULL;
    uint64_t index = 0;
    struct fake f;

    fake_connect(&f);
    fake_open(&f);
    f.loader->identity.order = STATE_CLIENT;
    struct dl_message msg = fake_started(&f, DL_UNKNOWN);
    msg.started.samples = DL_UNKNOWN;
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, &options, &f.epoch), 0);
    fake_segment(&f);
    assert_int_equal(dl_epoch_feed_batch(f.epoch, &index, 1), 0);
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    memset(calls, 0, sizeof calls);
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ENODATA);
    assert_string_equal(calls, "sr");
    fake_end(&f);
}
