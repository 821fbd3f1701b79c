/*
 * Python hosts that a client brings, and what a child made by fork() does about its parent's
 * session.
 */
#include "tests/unit/fake_daemon.h"

/* ---- bringing one ---- */

struct channel {
    int ours;   /* the client's */
    int theirs; /* the host's */
};

static struct channel make_channel(void)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    return (struct channel){pair[0], pair[1]};
}

static void close_channel(struct channel *channel)
{
    close_fdp(&channel->ours);
    close_fdp(&channel->theirs);
}

/* The next HOST: the daemon's and the host's ends of one connection. */
static void expect_host(struct fake *f, uint64_t number, const struct channel *channel)
{
    _cleanup_(frame_reader_deinit)
    struct frame_reader reader = {0};
    struct dl_message msg = fake_expect(f, DL_MSG_HOST);
    int daemons = frame_reader_take_fd(&f->in);
    char text[4] = "";

    assert_int_equal(msg.host.host, number);
    assert_true(daemons >= 0);
    assert_int_equal(fdpass_recv(channel->theirs, &reader, MSG_DONTWAIT), 1);
    int hosts = frame_reader_take_fd(&reader);
    assert_true(hosts >= 0);
    assert_int_equal(write(daemons, "ask", 3), 3);
    assert_int_equal(read(hosts, text, 3), 3);
    assert_string_equal(text, "ask");
    close(daemons);
    assert_int_equal(read(hosts, text, 3), 0); /* nobody else has the daemon's end */
    close(hosts);
}

static void test_bring(void **state)
{
    struct channel one = make_channel(), two = make_channel();
    struct fake f;

    fake_connect(&f);
    assert_int_equal(dl_client_bring_host(f.client, one.ours, 7), 0);
    assert_int_equal(dl_client_bring_host(f.client, two.ours, UINT64_MAX), 0);
    assert_true(fcntl(one.ours, F_GETFD) >= 0); /* still the caller's */
    expect_host(&f, 7, &one);
    expect_host(&f, UINT64_MAX, &two);
    assert_int_equal(dl_client_bring_host(f.client, one.ours, 8), 0); /* to another loader */
    expect_host(&f, 8, &one);
    fake_expect_silence(&f);
    fake_end(&f);
    close_channel(&one);
    close_channel(&two);
}

static void expect_refusal(struct fake *f, int channel, uint64_t number, int code, const char *text)
{
    assert_int_equal(dl_client_bring_host(f->client, channel, number), -code);
    assert_string_equal(dl_client_error(f->client), text);
    assert_int_equal(dl_client_is_usable(f->client), 1);
    fake_expect_silence(f);
}

static void test_what_is_no_host(void **state)
{
    struct channel channel = make_channel();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct fake f;

    fake_connect(&f);
    expect_refusal(&f, channel.ours, 0, EINVAL, "dataset.host: 0 is no number of a host");
    expect_refusal(&f, -1, 1, EBADF, "dataset.host: -1 is no open file descriptor");
    expect_refusal(&f, null, 1, ENOTSOCK,
                   "dataset.host: the host cannot be reached by its channel: Socket operation on "
                   "non-socket");
    close_fdp(&channel.theirs);
    expect_refusal(&f, channel.ours, 1, EPIPE,
                   "dataset.host: the host cannot be reached by its channel: Broken pipe");
    fake_end(&f);
    close_channel(&channel);
    close(null);
}

static void test_to_a_daemon_that_has_gone(void **state)
{
    struct channel channel = make_channel();
    struct fake f;

    fake_connect(&f);
    close_fdp(&f.sock);
    assert_int_equal(dl_client_bring_host(f.client, channel.ours, 8), 0); /* that is read later */
    assert_int_equal(dl_client_bring_host(f.client, channel.ours, 9), 0);
    assert_true(dl_client_dispatch(f.client) < 0);
    assert_true(dl_client_bring_host(f.client, channel.ours, 10) < 0);
    f.client = dl_client_close(f.client);
    frame_reader_deinit(&f.in);
    close_channel(&channel);
}

static void test_without_a_daemon(void **state)
{
    struct dl_client *client;

    assert_int_equal(dl_client_connect_local(&client), 0);
    assert_int_equal(dl_client_bring_host(client, 0, 1), -ENOTSUP);
    dl_client_close(client);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_bring),
    cmocka_unit_test(test_what_is_no_host),
    cmocka_unit_test(test_to_a_daemon_that_has_gone),
    cmocka_unit_test(test_without_a_daemon),
};

TEST_MAIN(tests)
