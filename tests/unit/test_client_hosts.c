/*
 * Python hosts that a client brings, and what a child made by fork() does about its parent's
 * session.
 */
#include "tests/unit/fake_daemon.h"

#include <sys/wait.h>

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
    _cleanup_(frame_reader_deinit) struct frame_reader reader = {0};
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

TEST(test_bring)
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

TEST(test_what_is_no_host)
{
    struct channel channel = make_channel();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct fake f;

    fake_connect(&f);
    expect_refusal(&f, channel.ours, 0, EINVAL,
                   "dataset.host: 0 is not a host's number; use 1 "
                   "or more");
    expect_refusal(&f, -1, 1, EBADF, "dataset.host: -1 is not an open file descriptor");
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

TEST(test_to_a_daemon_that_has_gone)
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

/* Of a client's hosts, that goes with a loader which its spec names, in YAML or JSON; whatever else
 * looks like it stays for the next loader. */
TEST(test_whose_host_it_is)
{
    static const struct {
        const char *spec;
        bool named;
    } rows[] = {
        {"{\"dataset\": {\"kind\": \"python\", \"host\": 2}}", true},
        {"{\"dataset\":{\"host\":2,\"kind\":\"python\"}}", true},
        {"{\"dataset\": {\n  \"host\" :\n  2\n}}", true},
        {"dataset:\n  kind: python\n  host: 2\n", true},
        {"dataset: {kind: python, host: 2}", true},
        {"dataset: {kind: python,'host': 2}", true},
        {"dataset: {kind: python, host: 2} # don't", true},
        {"name: don't\ndataset: {kind: python, host: 2}", true},
        {"{\"name\": \"a\\\"\", \"dataset\": {\"host\": 2}}", true},
        {"{kind: mix, datasets: [{kind: python, host: 12}, {kind: python, host: 2}]}", true},
        {"host: 2", true},
        {"{\"dataset\": {\"paths\": \"/data/host2/x\"}}", false},
        {"dataset: {kind: npy, paths: /data/host2/x}", false},
        {"dataset: {kind: npy, paths: /data/host-2}", false},
        {"{\"dataset\": {\"paths\": \"/data/host/2\"}}", false},
        {"{\"name\": \"host: 2\"}", false},
        {"{\"name\": \", host: 2\"}", false},
        {"{\"name\": \"\\\"host\\\": 2\"}", false},
        {"{\"name\": \"a\\\\\", \"dataset\": {\"host\": 3}}", false},
        {"name: 'it''s, host: 2 of 3'", false},
        {"{name: 'it''s', host: 2}", true},
        {"# host: 2", false},
        {"dataset: {kind: python, host: 22}", false},
        {"dataset: {kind: python, host: 2.5}", false},
        {"dataset: {kind: python, host: 18446744073709551618}", false},
        {"dataset: {kind: python, ghost: 2, hosts: 2, host_: 2}", false},
        {"dataset: {kind: python, host: }", false},
        {"host", false},
        {"host:", false},
        {"\"host", false},
        {"", false},
    };
    struct channel channel = make_channel();
    struct fake f;

    fake_connect(&f);
    f.client->reconnect.path = strdup("/nowhere");
    f.client->reconnect.life = 1;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_loader loader = {.client = f.client};
        /* Without what follows it in memory. */
        _cleanup_free_ char *spec = malloc(strlen(rows[i].spec) + (rows[i].spec[0] == '\0'));

        memcpy(spec, rows[i].spec, strlen(rows[i].spec));
        assert_int_equal(dl_client_bring_host(f.client, channel.ours, 2), 0);
        expect_host(&f, 2, &channel);
        hosts_take(&loader, spec, strlen(rows[i].spec));
        if ((loader.hosts != NULL) != rows[i].named || (f.client->hosts != NULL) == rows[i].named)
            fail_msg("%s", rows[i].spec);
        hosts_free(loader.hosts);
    }
    fake_end(&f);
    close_channel(&channel);
}

TEST(test_without_a_daemon)
{
    struct dl_client *client;

    assert_int_equal(dl_client_connect_local(&client), 0);
    assert_int_equal(dl_client_bring_host(client, 0, 1), -ENOTSUP);
    dl_client_close(client);
}

/* ---- a child's part ---- */

/* A client that could come to another daemon, in the middle of an epoch, with two hosts. */
static void run_with_hosts(struct fake *f, const struct channel *taken,
                           const struct channel *waiting)
{
    static const char spec[] = "{\"dataset\": {\"kind\": \"python\", \"host\": 7}}";

    fake_connect(f);
    f->client->reconnect.path = strdup("/nowhere");
    f->client->reconnect.life = 1;
    assert_int_equal(dl_client_bring_host(f->client, taken->ours, 7), 0);
    assert_int_equal(dl_client_bring_host(f->client, waiting->ours, 8), 0);
    expect_host(f, 7, taken);
    expect_host(f, 8, waiting);
    struct dl_message msg = fake_opened(f);
    fake_send(f, &msg);
    assert_int_equal(dl_loader_open(f->client, spec, strlen(spec), "/", &f->loader), 0);
    fake_expect(f, DL_MSG_OPEN);
    fake_start(f, 4, 10);
    fake_segment(f);
    fake_deliver(f, 0, 2);
    fake_next(f, 0);
}

/* Another segment, of which the client reads the first byte, and with it the descriptor. */
static struct dl_buffer send_first_byte(struct fake *f)
{
    struct dl_message msg = fake_segment_message();
    struct segment_header header = fake_header();
    struct dl_buffer out = {0};

    header.id = FAKE_SEGMENT + 1;
    msg.segment.id = header.id;
    int fd = fake_memfd(FAKE_BYTES, &header, FAKE_ALL_SEALS);
    assert_int_equal(message_encode(&msg, &out), 0);
    assert_int_equal(fdpass_send(f->sock, out.data, 1, &fd, 1, 0), 1);
    close(fd);
    assert_int_equal(dl_client_dispatch(f->client), 0);
    assert_int_equal(f->client->conn.in.fd_count, 1);
    return out;
}

static void send_rest(struct fake *f, struct dl_buffer *out)
{
    assert_int_equal(fdpass_send(f->sock, out->data + 1, out->len - 1, NULL, 0, 0), out->len - 1);
    buffer_deinit(out);
}

/* What the child finds: 0, or the line of what is wrong. */
static int look_around(struct fake *f)
{
    static const char text[] = "this session belongs to the parent of this forked process; open "
                               "another one here";
    struct dl_batch *batch;
    struct dl_tensor image;
    int before = harness_count_fds();

    dl_client_abandon(f->client);
    /* Its socket, what stands for it in an event loop, two channels, what came for a message. */
    if (before - harness_count_fds() != 5)
        return __LINE__;
    if (dl_epoch_next(f->epoch, 0, &batch) != -ECHILD ||
        strcmp(dl_client_error(f->client), text) != 0)
        return __LINE__;
    if (dl_client_bring_host(f->client, 0, 9) != -ECHILD || dl_client_dispatch(f->client) >= 0 ||
        dl_client_is_usable(f->client))
        return __LINE__;
    if (dl_batch_tensor(f->epoch->current, "image", &image) != 0 ||
        *(const uint8_t *)image.data != 0) /* it stays mapped */
        return __LINE__;
    dl_client_abandon(f->client);
    f->client = dl_client_close(f->client);
    return before - harness_count_fds() != 5 ? __LINE__ : 0;
}

struct child {
    pid_t pid;
    int said;  /* what it has found */
    int alive; /* it lives until this is closed */
};

/* `channels` are the caller's, not the client's. */
static struct child make_child(struct fake *f, const struct channel channels[static 2])
{
    int said[2], alive[2], line;

    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    assert_int_equal(pipe2(alive, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2; i++) {
            close(channels[i].ours);
            close(channels[i].theirs);
        }
        close(alive[1]);
        line = look_around(f);
        (void)!write(said[1], &line, sizeof line);
        (void)!read(alive[0], &line, 1);
        _exit(0);
    }
    assert_true(pid > 0);
    close(said[1]);
    close(alive[0]);
    return (struct child){pid, said[0], alive[1]};
}

static void expect_the_session_s_end(struct fake *f)
{
    ssize_t n;

    while ((n = fdpass_recv(f->sock, &f->in, MSG_DONTWAIT)) > 0)
        continue;
    assert_true(n == 0 || n == -ECONNRESET);
}

TEST(test_abandoned_in_a_child)
{
    struct channel channels[2] = {make_channel(), make_channel()};
    int line = -1;
    char byte;
    struct fake f;

    run_with_hosts(&f, &channels[0], &channels[1]);
    assert_int_not_equal(dl_client_fd(f.client), f.client->fd);
    struct dl_buffer rest = send_first_byte(&f);
    struct child child = make_child(&f, channels);
    assert_int_equal(read(child.said, &line, sizeof line), sizeof line);
    assert_int_equal(line, 0);

    send_rest(&f, &rest); /* the parent's goes on */
    fake_next(&f, 1);
    assert_int_equal(dl_client_is_usable(f.client), 1);

    dl_client_abandon(f.client); /* as if the parent died: nothing is said or shut down */
    expect_the_session_s_end(&f);
    for (int i = 0; i < 2; i++) {
        close_fdp(&channels[i].ours);
        assert_int_equal(read(channels[i].theirs, &byte, 1), 0);
        close_channel(&channels[i]);
    }
    close(child.alive);
    close(child.said);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    fake_end(&f);
}

TEST(test_nothing_to_abandon)
{
    struct dl_client *client;
    int before = harness_count_fds();

    dl_client_abandon(NULL);
    assert_int_equal(dl_client_connect_local(&client), 0);
    dl_client_abandon(client);
    dl_client_close(client);
    assert_int_not_equal(dl_client_connect(&client, "/nowhere", NULL), 0);
    dl_client_abandon(client);
    dl_client_close(client);
    assert_int_equal(harness_count_fds(), before);
}
