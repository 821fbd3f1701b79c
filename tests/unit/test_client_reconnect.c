/*
 * The way back to another daemon, step by step: the session ends at every point of it, and of what
 * follows. No batch is lost, none comes twice, and what had arrived can be read.
 */
#include "tests/unit/next_daemon.h"

/* ---- in order ---- */

/* `arrived` steps arrived and `received` of them were given out when the daemon ended. */
static void one_pause(uint64_t arrived, uint64_t received, bool pin)
{
    enum { STEPS = 5 };
    struct dl_batch *pinned = NULL, *batch = NULL;
    struct fake f;

    run(&f, 0, STEPS);
    if (arrived > 0)
        fake_deliver(&f, 0, arrived);
    for (uint64_t step = 0; step < received; step++) {
        batch = fake_next(&f, step);
        if (step == 0 && pin && dl_batch_pin(batch) == 0)
            pinned = batch;
    }
    turn(&f);
    lose(&f);
    assert_true(client_is_away(f.client) && dl_client_is_usable(f.client));
    come_back(&f, 0, STEPS, arrived);
    assert_false(client_is_away(f.client));
    /* The new daemon's slots lie elsewhere: what was received is as it was. */
    if (pinned)
        first_byte(pinned, 0);
    if (batch)
        first_byte(batch, received - 1);
    for (uint64_t step = received; step < arrived; step++)
        fake_next(&f, step);
    for (uint64_t step = arrived; step < STEPS; step++) {
        deliver(&f, NEXT_STREAM, step);
        fake_next(&f, step);
    }
    finish(&f);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), DL_END);
    dl_batch_release(pinned);
    assert_int_equal(f.loader->extra_leases, 0);
    assert_int_equal(f.loader->held_bytes, 0);
    dl_epoch_end(f.epoch);
    turn(&f);
    /* Nothing of the first daemon's leases was said to the second. */
    for (uint64_t step = arrived; step < STEPS; step++)
        expect_release(&f, step);
    assert_int_equal(fake_expect(&f, DL_MSG_STOP).stop.stream, NEXT_STREAM);
    fake_expect_silence(&f);
    fake_end(&f);
}

TEST(test_end_at_every_step, setup, teardown)
{
    for (uint64_t arrived = 0; arrived <= 5; arrived++)
        for (uint64_t received = 0; received <= arrived; received++)
            for (int pin = 0; pin < 2; pin++)
                one_pause(arrived, received, pin);
}

/* Nothing of an epoch that is over, or of a loader without epochs, is asked for again. */
TEST(test_only_what_runs, setup, teardown)
{
    struct dl_batch *batch;
    struct fake f;

    run(&f, 0, 1);
    fake_deliver(&f, 0, 1);
    fake_finish(&f);
    fake_next(&f, 0);
    turn(&f);
    lose(&f);
    come_and_open(&f, 0);
    assert_false(client_is_away(f.client));
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), DL_END);
    f.epoch = dl_epoch_end(f.epoch);
    turn(&f);
    fake_expect_silence(&f);
    dl_loader_close(f.loader);
    assert_int_equal(fake_expect(&f, DL_MSG_CLOSE).close.loader, NEXT_LOADER);
    fake_end(&f);
}

/* The user ends it while the daemon is asked to start it again, or closes the loader. */
TEST(test_given_up_on_the_way, setup, teardown)
{
    struct fake f;

    run(&f, 0, 3);
    lose(&f);
    come_and_open(&f, 0);
    f.epoch = dl_epoch_end(f.epoch);
    start_again(&f, 3, 0);
    assert_int_equal(fake_expect(&f, DL_MSG_STOP).stop.stream, NEXT_STREAM);
    segment_again(&f);
    deliver(&f, NEXT_STREAM, 0); /* it was on its way: released unseen */
    turn(&f);
    expect_release(&f, 0);

    lose(&f);
    come(&f, NEXT_LIFE + 1);
    dl_loader_close(f.loader);
    fake_expect(&f, DL_MSG_OPEN);
    say_opened(&f);
    turn(&f);
    assert_int_equal(fake_expect(&f, DL_MSG_CLOSE).close.loader, FAKE_LOADER);
    assert_false(client_is_away(f.client));
    fake_end(&f);
}

/* A tensor of a batch of the first daemon's outlives it, and its loader in the second. */
TEST(test_tensor, setup, teardown)
{
    struct DLManagedTensor *tensor;
    struct dl_batch *batch;
    struct fake f;

    run(&f, 0, 3);
    fake_deliver(&f, 0, 1);
    batch = fake_next(&f, 0);
    assert_int_equal(dl_batch_dlpack(batch, "image", &tensor), 0);
    lose(&f);
    come_back(&f, 0, 3, 1);
    deliver(&f, NEXT_STREAM, 1);
    fake_next(&f, 1); /* gives step 0 back: nobody is told */
    assert_int_equal(dl_epoch_held_bytes(f.epoch), 0);
    dl_loader_close(f.loader);
    delete_tensor(tensor);
    turn(&f);
    expect_release(&f, 1);
    fake_expect(&f, DL_MSG_STOP);
    fake_expect(&f, DL_MSG_LEAVE);
    fake_expect(&f, DL_MSG_CLOSE);
    fake_end(&f);
}

/* ---- in any order, and fed ---- */

TEST(test_any_order, setup, teardown)
{
    struct dl_batch *batch;
    struct fake f;

    run(&f, ANY_ORDER, 6);
    deliver(&f, FAKE_STREAM, 0);
    deliver(&f, FAKE_STREAM, 2);
    fake_fault(&f, 4, EIO, false);
    fake_next(&f, 0);
    turn(&f);
    lose(&f);
    come_back(&f, ANY_ORDER, 6, 1); /* the first that has not come */
    fake_next(&f, 2);
    for (uint64_t step = 5; step > 0; step--)
        deliver(&f, NEXT_STREAM, step);
    finish(&f);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EIO);
    assert_int_equal(dl_epoch_failed_step(f.epoch), 4);
    fake_next(&f, 5);
    fake_next(&f, 3);
    fake_next(&f, 1);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), DL_END);
    fake_end(&f);
}

/* What had not arrived is fed again, the end too, and what is said meanwhile follows. */
TEST(test_fed, setup, teardown)
{
    for (uint64_t arrived = 0; arrived <= 4; arrived++) {
        struct dl_batch *batch;
        struct fake f;

        run(&f, FED, 0);
        feed(&f, 0, 4);
        turn(&f);
        expect_feed(&f, FAKE_STREAM, 0, 4, false);
        if (arrived > 0)
            fake_deliver(&f, 0, arrived);
        turn(&f);
        lose(&f);
        feed(&f, 4, 6); /* nobody is there */
        come(&f, NEXT_LIFE);
        open_again(&f, FED);
        feed(&f, 6, 7);
        assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
        start_again(&f, DL_UNKNOWN, arrived);
        expect_feed(&f, NEXT_STREAM, arrived, 7, true);
        segment_again(&f);
        for (uint64_t step = 0; step < 7; step++) {
            if (step >= arrived)
                deliver(&f, NEXT_STREAM, step);
            fake_next(&f, step);
        }
        finish(&f);
        assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), DL_END);
        assert_null(f.epoch->feed.head);
        fake_end(&f);
    }
}

/* The end alone, when all steps had arrived. */
TEST(test_fed_to_the_end, setup, teardown)
{
    struct fake f;

    run(&f, FED, 0);
    feed(&f, 0, 1);
    assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
    fake_deliver(&f, 0, 1);
    turn(&f);
    lose(&f);
    come_back(&f, FED, 0, 1);
    struct dl_message msg = fake_expect(&f, DL_MSG_FEED);
    assert_int_equal(msg.feed.end, 1);
    assert_int_equal(msg.feed.indices.len, 0);
    fake_expect_silence(&f);
    fake_end(&f);
}

/* ---- what ends it ---- */

static void expect_fatal(struct fake *f, int want, const char *text)
{
    struct dl_batch *batch;

    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), want);
    if (!strstr(dl_client_error(f->client), text))
        fail_msg("'%s' does not say '%s'", dl_client_error(f->client), text);
    assert_int_equal(dl_client_is_usable(f->client), 0);
    fake_end(f);
}

TEST(test_nobody_comes, setup, teardown)
{
    struct dl_batch *batch;
    struct fake f;

    close_fdp(&listener);
    run(&f, 0, 3);
    dl_client_set_reconnect(f.client, NS_PER_S / 100);
    end_session(&f);
    expect_fatal(&f, -ECONNRESET, "no new one came within 0.01 s: connect: Connection refused");

    run(&f, 0, 3);
    dl_client_set_reconnect(f.client, 0);
    end_session(&f);
    expect_fatal(&f, -ECONNRESET, "closed the session");

    /* The user's patience ends first. */
    run(&f, 0, 3);
    fake_deliver(&f, 0, 1);
    end_session(&f);
    fake_next(&f, 0);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN);
    assert_int_equal(dl_epoch_next(f.epoch, NS_PER_S / 100, &batch), -ETIMEDOUT);
    assert_int_equal(dl_client_is_usable(f.client), 1);
    listen_again();
    come_back(&f, 0, 3, 1);
    deliver(&f, NEXT_STREAM, 1);
    fake_next(&f, 1);
    fake_end(&f);
}

/* One that nobody starts anew, and one that has ended the session alone. */
TEST(test_no_other_daemon, setup, teardown)
{
    struct fake f;

    run(&f, 0, 3);
    f.client->reconnect.life = 0;
    end_session(&f);
    expect_fatal(&f, -ECONNRESET, "closed the session");

    run(&f, 0, 3);
    lose(&f);
    f.client->reconnect.next_try = 0;
    turn(&f);
    f.sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    welcome(&f, LIFE);
    expect_fatal(&f, -ECONNRESET, "the daemon ended this session");
}

/* A batch that the user holds was filled again: that daemon did not end. */
TEST(test_overwritten, setup, teardown)
{
    struct fake f;

    run(&f, 0, 3);
    fake_deliver(&f, 0, 1);
    assert_int_equal(dl_batch_pin(fake_next(&f, 0)), 0);
    ((struct slot_header *)(void *)fake_slot(&f, 0))->generation++;
    end_session(&f);
    expect_fatal(&f, -EPROTO, "has refilled the slot of step 0");
}

TEST(test_another_dataset, setup, teardown)
{
    static const struct {
        size_t field;
        const char *text;
    } rows[] = {
        {offsetof(struct dl_msg_opened, fingerprint), "digits: a new daemon is running, but with "
                                                      "another spec fingerprint: 5 now, 61453"},
        {offsetof(struct dl_msg_opened, length), "length of the dataset: 5 now, 1000 before"},
        {offsetof(struct dl_msg_opened, seed), "seed: 5 now, 42 before"},
        {SIZE_MAX, "another number of steps: 4 now, 3 before"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_message msg;
        struct fake f;

        run(&f, 0, 3);
        lose(&f);
        come(&f, NEXT_LIFE);
        fake_expect(&f, DL_MSG_OPEN);
        msg = fake_opened(&f);
        msg.opened.request--;
        if (rows[i].field != SIZE_MAX)
            *(uint64_t *)(void *)((uint8_t *)&msg.opened + rows[i].field) = 5;
        fake_send(&f, &msg);
        if (rows[i].field == SIZE_MAX) {
            turn(&f);
            fake_expect(&f, DL_MSG_START);
            say_started(&f, 4);
        }
        expect_fatal(&f, -ESTALE, rows[i].text);
    }
}

/* What a user has to know ends it; what will pass does not. */
TEST(test_refused, setup, teardown)
{
    static const struct {
        int code;
        const char *path;
        bool fatal;
    } rows[] = {
        {ENOENT, "dataset.paths", true},
        {ENOENT, "name", false},
        {ESHUTDOWN, "", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fake f;

        run(&f, 0, 3);
        refuse(&f, 0, ESHUTDOWN, ""); /* the daemon's last words are no error */
        turn(&f);
        end_session(&f);
        come(&f, NEXT_LIFE);
        refuse(&f, fake_expect(&f, DL_MSG_OPEN).open.request, rows[i].code, rows[i].path);
        if (rows[i].fatal) {
            expect_fatal(&f, -rows[i].code, "a new daemon is running, but no such thing");
            continue;
        }
        turn(&f);
        fake_expect_end(&f);
        end_session(&f);
        come_back(&f, 0, 3, 0);
        fake_end(&f);
    }
}

/* Whether a daemon did what it was told before it ended is not known: the next is not told. */
TEST(test_control_once, setup, teardown)
{
    struct fake f;

    run(&f, 0, 3);
    end_session(&f);
    assert_int_equal(dl_client_control(f.client, "reload"), -ECONNRESET);
    assert_non_null(strstr(dl_client_error(f.client), "may not have carried out"));
    assert_int_equal(dl_client_is_usable(f.client), 1);
    come_and_open(&f, 0);
    start_again(&f, 3, 0);
    fake_expect_silence(&f);
    fake_end(&f);
}

/* ---- the user's event loop, and hosts ---- */

/* As an event loop would: nothing is done unless the descriptor says so. */
static void watch(struct fake *f, int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    for (int i = 0; i < 100 && poll(&pfd, 1, 20) > 0; i++)
        assert_int_equal(dl_client_dispatch(f->client), 0);
}

/* The descriptor stays the same, and is readable when there is something to do. */
TEST(test_descriptor, setup, teardown)
{
    struct pollfd pfd = {.events = POLLIN};
    struct fake f;

    run(&f, 0, 3);
    turn(&f);
    pfd.fd = dl_client_fd(f.client);
    assert_int_equal(poll(&pfd, 1, 0), 0);
    end_session(&f);
    close_fdp(&listener);
    for (int i = 0; i < 4; i++) { /* the end, and tries in vain */
        assert_int_equal(poll(&pfd, 1, 10000), 1);
        assert_int_equal(dl_client_dispatch(f.client), 0);
    }
    listen_again();
    f.client->reconnect.pause = PAUSE_LITTLE;
    while ((f.sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
        watch(&f, pfd.fd);
    fake_expect(&f, DL_MSG_HELLO);
    welcome(&f, NEXT_LIFE);
    watch(&f, pfd.fd);
    fake_expect(&f, DL_MSG_OPEN);
    say_opened(&f);
    watch(&f, pfd.fd);
    fake_expect(&f, DL_MSG_START);
    say_started(&f, 3);
    watch(&f, pfd.fd);
    assert_false(client_is_away(f.client));
    assert_int_equal(dl_client_fd(f.client), pfd.fd);
    assert_int_equal(poll(&pfd, 1, 0), 0);
    segment_again(&f);
    assert_int_equal(poll(&pfd, 1, 10000), 1);
    fake_end(&f);
}

/* What the host behind the channel gets over it: its end of a connection. */
static int expect_connection(int theirs)
{
    _cleanup_(frame_reader_deinit) struct frame_reader reader = {0};

    assert_int_equal(fdpass_recv(theirs, &reader, MSG_DONTWAIT), 1);
    int fd = frame_reader_take_fd(&reader);
    assert_true(fd >= 0);
    return fd;
}

/* The daemon and the host behind the channel got the two ends of one connection. */
static void expect_host(struct fake *f, uint64_t number, int theirs)
{
    struct dl_message msg = fake_expect(f, DL_MSG_HOST);
    int ends[2] = {frame_reader_take_fd(&f->in), expect_connection(theirs)};
    char byte = 0;

    assert_int_equal(msg.host.host, number);
    assert_true(ends[0] >= 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(ends[0]);
    close(ends[1]);
}

/* Returns the host's end of its channel. */
static int bring(struct fake *f, uint64_t number)
{
    int channel[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
    assert_int_equal(dl_client_bring_host(f->client, channel[0], number), 0);
    close(channel[0]);
    expect_host(f, number, channel[1]);
    return channel[1];
}

/* The next daemon gets them too: those that no loader has taken, and each loader's with its OPEN.
 */
TEST(test_hosts, setup, teardown)
{
    static const char spec[] = "{\"dataset\": {\"kind\": \"python\", \"host\": 31}}";
    int taken, waiting, last[20];
    struct dl_message msg;
    struct fake f;

    connect_to(&f, LIFE);
    taken = bring(&f, 31);
    waiting = bring(&f, 32);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, spec, strlen(spec), "/", &f.loader), 0);
    fake_expect(&f, DL_MSG_OPEN);
    lose(&f);
    come(&f, NEXT_LIFE);
    expect_host(&f, 32, waiting);
    expect_host(&f, 31, taken);
    fake_expect(&f, DL_MSG_OPEN);
    say_opened(&f);
    turn(&f);
    assert_false(client_is_away(f.client));
    for (uint64_t i = 0; i < ARRAY_SIZE(last); i++) /* the last 16 of them stay */
        last[i] = bring(&f, 100 + i);
    dl_loader_close(f.loader);
    fake_expect(&f, DL_MSG_CLOSE);
    lose(&f);
    come(&f, NEXT_LIFE + 1);
    for (uint64_t i = ARRAY_SIZE(last); i-- > 4;)
        expect_host(&f, 100 + i, last[i]);
    fake_expect_silence(&f);
    for (uint64_t i = 0; i < ARRAY_SIZE(last); i++)
        close(last[i]);
    close(taken);
    close(waiting);
    fake_end(&f);
}

/* While the loaders are opened again: those that waited have been sent by then. */
TEST(test_brought_on_the_way, setup, teardown)
{
    int channel[2];
    struct dl_message msg;
    struct fake f;

    connect_to(&f, LIFE);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "name: digits", 12, "/data", &f.loader), 0);
    fake_expect(&f, DL_MSG_OPEN);
    lose(&f);
    come(&f, NEXT_LIFE);
    fake_expect(&f, DL_MSG_OPEN);
    say_opened(&f);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
    assert_int_equal(dl_client_bring_host(f.client, channel[0], 5), 0);
    assert_false(client_is_away(f.client));
    expect_host(&f, 5, channel[1]);
    fake_expect_silence(&f);
    close(channel[0]);
    close(channel[1]);
    fake_end(&f);
}

/* The last of a number is the one that counts, for each daemon. */
TEST(test_a_number_again, setup, teardown)
{
    int first, second;
    struct fake f;

    connect_to(&f, LIFE);
    first = bring(&f, 5);
    second = bring(&f, 5);
    lose(&f);
    come(&f, NEXT_LIFE);
    expect_host(&f, 5, second);
    fake_expect_silence(&f);
    close(first);
    close(second);
    fake_end(&f);
}

/* One that has ended is not brought to the next daemon; the others are. */
TEST(test_a_host_has_ended, setup, teardown)
{
    int ended, alive, channel[2];
    struct fake f;

    connect_to(&f, LIFE);
    alive = bring(&f, 4);
    ended = bring(&f, 5);
    close(ended);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
    close(channel[1]);
    assert_int_equal(dl_client_bring_host(f.client, channel[0], 6), -EPIPE);
    close(channel[0]);
    lose(&f);
    come(&f, NEXT_LIFE);
    expect_host(&f, 4, alive);
    fake_expect_silence(&f);
    assert_false(client_is_away(f.client));
    close(alive);
    fake_end(&f);
}

/* A loader whose host has ended cannot go on, and its user hears so at once. */
TEST(test_a_loader_s_host_has_ended, setup, teardown)
{
    static const char spec[] = "{\"dataset\": {\"kind\": \"python\", \"host\": 31}}";
    struct dl_message msg;
    struct fake f;

    connect_to(&f, LIFE);
    int host = bring(&f, 31);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, spec, strlen(spec), "/", &f.loader), 0);
    fake_expect(&f, DL_MSG_OPEN);
    close(host);
    lose(&f);
    f.client->reconnect.next_try = 0;
    assert_int_equal(dl_client_dispatch(f.client), 0);
    f.sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(f.sock >= 0);
    fake_expect(&f, DL_MSG_HELLO);
    welcome(&f, NEXT_LIFE);
    assert_int_equal(dl_client_dispatch(f.client), -EPIPE);
    assert_string_equal(dl_client_error(f.client),
                        "dataset.host: a new daemon is running, but host 31 of the loader digits "
                        "has ended; open the loader again");
    fake_end(&f);
}

/* The daemon of the release before takes the place, and is not told what it cannot be. */
TEST(test_a_daemon_of_before, setup, teardown)
{
    struct dl_message msg = {.number = DL_MSG_WELCOME};
    struct fake f;

    run(&f, 0, 3);
    f.loader->wants_automatic = true;
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    lose(&f);
    f.client->reconnect.next_try = 0;
    turn(&f);
    f.sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_int_equal(fake_expect(&f, DL_MSG_HELLO).hello.version, DL_PROTOCOL_VERSION);
    msg.welcome.version = DL_PROTOCOL_OLDEST;
    msg.welcome.life = NEXT_LIFE;
    fake_send(&f, &msg);
    turn(&f);
    open_again(&f, 0);
    start_again(&f, 3, 1);
    deliver_there(&f, 1);
    fake_next(&f, 1);
    lose(&f);
    come(&f, 9);
    fake_end(&f);
}

/* One that does not speak the version of HELLO is no daemon of this client's. */
TEST(test_a_daemon_of_long_before, setup, teardown)
{
    struct dl_message msg = {.number = DL_MSG_ERROR};
    struct fake f;

    run(&f, 0, 3);
    lose(&f);
    f.client->reconnect.next_try = 0;
    turn(&f);
    f.sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    fake_expect(&f, DL_MSG_HELLO);
    msg.error.code = EPROTONOSUPPORT;
    msg.error.path = span_str("version");
    msg.error.message = span_str("it speaks others");
    fake_send(&f, &msg);
    assert_int_equal(dl_client_dispatch(f.client), -EPROTONOSUPPORT);
    assert_string_equal(dl_client_error(f.client), "version: it speaks others");
    fake_end(&f);
}
