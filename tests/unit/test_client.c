/* Sessions of libdlclient: connecting, requests and their refusals, the end. */
#include "tests/unit/fake_daemon.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>

/* ---- connecting through a path ---- */

static struct sockaddr_un address(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    assert_true(strlen(path) < sizeof a.sun_path);
    strcpy(a.sun_path, path);
    return a;
}

static unsigned connects; /* calls of connect() */

int __real_connect(int fd, const struct sockaddr *a, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len);

int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len)
{
    connects++;
    return __real_connect(fd, a, len);
}

static int listen_at(const char *path, int backlog)
{
    struct sockaddr_un a = address(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static const char *socket_path(void)
{
    static char path[100];

    snprintf(path, sizeof path, "%s/socket", harness_tmpdir());
    return path;
}

/* The connection fails as it should, leaves a client with a text, and stays failed. */
static void refused(const char *path, uint64_t timeout_ns, int want, const char *text)
{
    struct dl_client *client = NULL;
    const void *data;
    size_t len;

    assert_int_equal(client_connect(&client, path, "test", timeout_ns), want);
    assert_non_null(client);
    if (!strstr(dl_client_error(client), text))
        fail_msg("'%s' does not say '%s'", dl_client_error(client), text);
    assert_int_equal(dl_client_fd(client), -1);
    assert_int_equal(dl_client_query(client, "status", &data, &len), want);
    assert_int_equal(dl_client_dispatch(client), want);
    assert_null(dl_client_close(client));
}

TEST(test_no_daemon)
{
    char path[200];
    int fd;

    snprintf(path, sizeof path, "%s/nothing", harness_tmpdir());
    refused(path, NS_PER_S, -ENOENT, "start dloaderd");
    refused(path, NS_PER_S, -ENOENT, path);
    refused("", NS_PER_S, -ENOENT, "empty");
    fd = listen_at(socket_path(), 1);
    close(fd);
    refused(socket_path(), NS_PER_S, -ECONNREFUSED, "no daemon listens there");
    refused(harness_file("file", "x", 1), NS_PER_S, -ECONNREFUSED, "no daemon listens there");
    snprintf(path, sizeof path, "%s/file/socket", harness_tmpdir());
    refused(path, NS_PER_S, -ENOTDIR, "no socket there");
}

TEST(test_not_allowed)
{
    bool root = geteuid() == 0;
    int fd = listen_at(socket_path(), 1);

    assert_int_equal(chmod(socket_path(), 0), 0);
    /* Root may everything: be nobody for a moment. */
    assert_true(!root || seteuid(65534) == 0);
    refused(socket_path(), NS_PER_S, -EACCES, "socket_group");
    assert_true(!root || seteuid(0) == 0);
    close(fd);
}

TEST(test_other_socket_kind)
{
    struct sockaddr_un a = address(socket_path());
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    unlink(socket_path());
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    refused(socket_path(), NS_PER_S, -EPROTOTYPE, "another kind");
    close(fd);
}

TEST(test_path_too_long)
{
    char path[200];

    memset(path, 'x', sizeof path);
    path[108] = '\0';
    refused(path, NS_PER_S, -ENAMETOOLONG, "107 bytes");
    path[107] = '\0';
    refused(path, NS_PER_S, -ENOENT, "start dloaderd");
}

TEST(test_silent_daemon)
{
    int fd = listen_at(socket_path(), 4);
    struct dl_client *client;
    uint64_t begin = clock_ns();

    assert_int_equal(client_connect(&client, socket_path(), "test", NS_PER_S / 20), -ETIMEDOUT);
    /* What was left of the time once it was connected: 0.05 s, or less on a busy machine. */
    assert_non_null(strstr(dl_client_error(client), "did not answer within 0.0"));
    assert_non_null(strstr(dl_client_error(client), socket_path()));
    assert_true(clock_ns() - begin >= NS_PER_S / 20);
    dl_client_close(client);
    close(fd);
}

/* A queue of connections that stays full: for each tenth of a second the client takes its place
 * once. */
TEST(test_deaf_daemon)
{
    int fd = listen_at(socket_path(), 0), filler[8], n = 0;
    struct sockaddr_un a = address(socket_path());

    for (; n < 8; n++) {
        filler[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(filler[n], (const struct sockaddr *)&a, sizeof a) < 0) {
            close(filler[n]);
            break;
        }
    }
    assert_true(n < 8);
    uint64_t began = clock_ns();
    connects = 0;
    refused(socket_path(), NS_PER_S / 2, -ETIMEDOUT, "accepts no connections");
    assert_in_range(connects, 2, 2 + (clock_ns() - began) / (NS_PER_S / 10));
    while (n-- > 0)
        close(filler[n]);
    close(fd);
}

static void *accept_and_welcome(void *arg)
{
    struct fake f = {.sock = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC)};

    fake_welcome(&f);
    while (fdpass_recv(f.sock, &f.in, 0) > 0)
        ;
    close(f.sock);
    frame_reader_deinit(&f.in);
    return NULL;
}

/* Where the default path leads: the environment first, then the user's own socket. */
static void connect_by_default(void)
{
    int fd = listen_at(socket_path(), 4);
    struct dl_client *client;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, accept_and_welcome, &fd), 0);
    assert_int_equal(dl_client_connect(&client, NULL, NULL), 0);
    assert_string_equal(dl_client_error(client), "");
    assert_string_equal(dl_client_error_path(client), "");
    dl_client_close(client);
    pthread_join(thread, NULL);
    close(fd);
}

/* There is none on the machine, so that its path is in the error. */
static void expect_the_systems(void)
{
    struct dl_client *client;

    if (access("/run/dloaderd/socket", F_OK) == 0)
        return;
    assert_int_equal(dl_client_connect(&client, NULL, NULL), -ENOENT);
    assert_string_equal(dl_client_error_path(client), "/run/dloaderd/socket");
    dl_client_close(client);
}

TEST(test_default_path)
{
    char runtime[200], socket_there[256];

    setenv("DLOADER_SOCKET", socket_path(), 1);
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    connect_by_default();
    unsetenv("DLOADER_SOCKET");

    snprintf(runtime, sizeof runtime, "%s/dloaderd", harness_tmpdir());
    assert_int_equal(mkdir(runtime, 0700), 0);
    snprintf(socket_there, sizeof socket_there, "%s/socket", runtime);
    assert_int_equal(symlink(socket_path(), socket_there), 0);
    setenv("XDG_RUNTIME_DIR", harness_tmpdir(), 1);
    connect_by_default();

    /* Where nobody listens any more, the system's is next. */
    assert_int_equal(unlink(socket_path()), 0);
    expect_the_systems();
    assert_int_equal(unlink(socket_there), 0);
    expect_the_systems();
    unsetenv("XDG_RUNTIME_DIR");
    expect_the_systems();
}

/* ---- the handshake ---- */

static void handshake_fails(const struct dl_message *answer, int want, const char *text)
{
    struct fake f;
    int fd;

    fake_pair(&f, &fd);
    fake_send(&f, answer);
    assert_int_equal(client_adopt(&f.client, fd, "/run/x", "test", NS_PER_S), want);
    if (!strstr(dl_client_error(f.client), text))
        fail_msg("'%s' does not say '%s'", dl_client_error(f.client), text);
    assert_int_equal(dl_client_dispatch(f.client), want);
    fake_end(&f);
}

TEST(test_handshake)
{
    static const uint32_t unspoken[] = {0, DL_PROTOCOL_VERSION + 1, UINT32_MAX};
    struct dl_message msg = {.number = DL_MSG_WELCOME};
    char text[96];

    for (size_t i = 0; i < ARRAY_SIZE(unspoken); i++) {
        msg.welcome.version = unspoken[i];
        snprintf(text, sizeof text,
                 "/run/x: the daemon speaks version %u of the protocol, this "
                 "library 3 and 4; install",
                 unspoken[i]);
        handshake_fails(&msg, -EPROTO, text);
    }
    msg = (struct dl_message){.number = DL_MSG_FINISHED};
    handshake_fails(&msg, -EPROTO, "before WELCOME");
    msg = (struct dl_message){.number = DL_MSG_ERROR};
    msg.error.code = EACCES;
    msg.error.message = span_str("uid 1000 may not");
    handshake_fails(&msg, -EACCES, "uid 1000 may not");
    msg.error.request = 9;
    handshake_fails(&msg, -EPROTO, "is not pending");
}

TEST(test_second_welcome)
{
    struct fake f;

    fake_connect(&f);
    fake_welcome(&f);
    assert_int_equal(dl_client_dispatch(f.client), -EPROTO);
    fake_end(&f);
}

TEST(test_agent)
{
    char agent[200];
    struct fake f;
    int fd;

    memset(agent, 'a', sizeof agent);
    agent[129] = '\0';
    fake_pair(&f, &fd);
    assert_int_equal(client_adopt(&f.client, fd, "x", agent, NS_PER_S), -EINVAL);
    fake_end(&f);

    fake_pair(&f, &fd);
    assert_int_equal(client_adopt(&f.client, fd, "x", "\xff\xfe", NS_PER_S), -EINVAL);
    assert_non_null(strstr(dl_client_error(f.client), "UTF-8"));
    fake_end(&f);

    agent[128] = '\0';
    fake_pair(&f, &fd);
    fake_welcome(&f);
    assert_int_equal(client_adopt(&f.client, fd, "x", agent, NS_PER_S), 0);
    assert_int_equal(fake_expect(&f, DL_MSG_HELLO).hello.agent.len, 128);
    fake_end(&f);
}

/* ---- requests ---- */

TEST(test_open)
{
    struct fake f;
    struct dl_message msg;

    fake_connect(&f);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "digits", 6, "/data", &f.loader), 0);
    assert_string_equal(dl_loader_name(f.loader), "digits");
    assert_int_equal(dl_loader_length(f.loader), 1000);
    assert_int_equal(dl_loader_batch_size(f.loader), FAKE_ROWS);
    assert_int_equal(dl_loader_replicas(f.loader), 1);
    assert_int_equal(dl_loader_seed(f.loader), 42);
    assert_int_equal(dl_loader_fingerprint(f.loader), 0xF00D);
    msg = fake_expect(&f, DL_MSG_OPEN);
    assert_int_equal(msg.open.request, 1);
    assert_memory_equal(msg.open.base.data, "/data", 5);
    assert_int_equal(msg.open.spec.len, 7);
    assert_memory_equal(msg.open.spec.data,
                        "\xA6"
                        "digits",
                        7);
    assert_null(dl_loader_close(f.loader));
    assert_int_equal(fake_expect(&f, DL_MSG_CLOSE).close.loader, FAKE_LOADER);
    assert_null(dl_loader_close(NULL));
    fake_end(&f);
}

TEST(test_open_file)
{
    const char *path = harness_file("a.yaml", "name: a", 7);
    struct dl_message msg;
    struct fake f;
    char cwd[4096];

    fake_connect(&f);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open_file(f.client, path, &f.loader), 0);
    msg = fake_expect(&f, DL_MSG_OPEN);
    assert_int_equal(msg.open.base.len, strlen(harness_tmpdir()));
    assert_memory_equal(msg.open.base.data, harness_tmpdir(), msg.open.base.len);
    dl_loader_close(f.loader);
    fake_expect(&f, DL_MSG_CLOSE);

    /* Without a slash: the current directory. */
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(harness_tmpdir()), 0);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open_file(f.client, "a.yaml", &f.loader), 0);
    msg = fake_expect(&f, DL_MSG_OPEN);
    assert_memory_equal(msg.open.base.data, harness_tmpdir(), msg.open.base.len);
    /* A relative base is made absolute. */
    dl_loader_close(f.loader);
    fake_expect(&f, DL_MSG_CLOSE);
    msg = fake_opened(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "a", 1, "sub", &f.loader), 0);
    msg = fake_expect(&f, DL_MSG_OPEN);
    assert_int_equal(msg.open.base.len, strlen(harness_tmpdir()) + 4);
    assert_int_equal(chdir(cwd), 0);
    fake_end(&f);
}

TEST(test_open_bad_input)
{
    static char large[262146];
    struct dl_loader *loader = NULL;
    struct fake f;
    char path[200];

    memset(large, '#', sizeof large);
    fake_connect(&f);
    assert_int_equal(dl_loader_open(f.client, large, sizeof large, NULL, &loader), -EINVAL);
    assert_non_null(strstr(dl_client_error(f.client), "262146 bytes"));
    assert_int_equal(dl_loader_open(f.client, "a\0b", 3, NULL, &loader), -EINVAL);
    assert_non_null(strstr(dl_client_error(f.client), "NUL"));
    memset(large, '/', 5000);
    large[5000] = '\0';
    assert_int_equal(dl_loader_open(f.client, "a", 1, large, &loader), -ENAMETOOLONG);
    assert_int_equal(dl_loader_open(f.client, "a", 1, "/\xff", &loader), -EINVAL);
    assert_int_equal(dl_loader_open_file(f.client, "/nowhere/x.yaml", &loader), -ENOENT);
    assert_string_equal(dl_client_error_path(f.client), "/nowhere/x.yaml");
    assert_int_equal(dl_loader_open_file(f.client, harness_tmpdir(), &loader), -EISDIR);
    memset(large, '#', sizeof large);
    snprintf(path, sizeof path, "%s", harness_file("large", large, 262145));
    assert_int_equal(dl_loader_open_file(f.client, path, &loader), -EINVAL);
    assert_non_null(strstr(dl_client_error(f.client), "longer than the 262144"));
    assert_null(loader);
    fake_expect_silence(&f);
    fake_end(&f);
}

TEST(test_refused_open)
{
    struct dl_message msg = {.number = DL_MSG_ERROR};
    struct fake f;

    fake_connect(&f);
    msg.error.request = fake_next_request(&f);
    msg.error.code = EINVAL;
    msg.error.path = span_str("batch.size");
    msg.error.message = span_str("-3 is not a positive integer");
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "x", 1, NULL, &f.loader), -EINVAL);
    assert_string_equal(dl_client_error(f.client), "batch.size: -3 is not a positive integer");
    assert_string_equal(dl_client_error_path(f.client), "batch.size");
    fake_expect(&f, DL_MSG_OPEN);
    /* The session goes on. */
    fake_open(&f);
    fake_end(&f);
}

TEST(test_query)
{
    struct dl_message msg = {.number = DL_MSG_INFO};
    const void *data = NULL;
    struct fake f;
    size_t len = 0;

    fake_connect(&f);
    msg.info.request = fake_next_request(&f);
    msg.info.value = (struct dl_span){(const uint8_t *)"\x81\xA1k\x05", 4};
    fake_send(&f, &msg);
    assert_int_equal(dl_client_query(f.client, "status", &data, &len), 0);
    assert_int_equal(len, 4);
    assert_memory_equal(data, "\x81\xA1k\x05", 4);
    assert_memory_equal(fake_expect(&f, DL_MSG_QUERY).query.view.data, "status", 6);
    msg.info.request = fake_next_request(&f);
    fake_send(&f, &msg);
    assert_int_equal(dl_client_control(f.client, "drain"), 0);
    assert_memory_equal(fake_expect(&f, DL_MSG_CONTROL).control.verb.data, "drain", 5);

    assert_int_equal(dl_client_query(f.client, "", &data, &len), -EINVAL);
    assert_int_equal(dl_client_query(f.client, NULL, &data, &len), -EINVAL);
    assert_int_equal(dl_client_control(f.client, "a verb of thirty-three bytes, no."), -EINVAL);
    assert_int_equal(dl_client_control(f.client, "\xff"), -EINVAL);
    msg = (struct dl_message){.number = DL_MSG_ERROR};
    msg.error.request = fake_next_request(&f);
    msg.error.code = EPERM;
    msg.error.message = span_str("only root may");
    fake_send(&f, &msg);
    assert_int_equal(dl_client_control(f.client, "stop"), -EPERM);
    fake_end(&f);
}

/* It may take longer than an answer otherwise does. */
TEST(test_headspace)
{
    struct dl_message msg = {.number = DL_MSG_INFO};
    struct dl_message asked;
    char name[DL_BOUND_NAME_BYTES + 2];
    const void *data = NULL;
    struct fake f;
    size_t len = 0;

    fake_connect(&f);
    msg.info.request = fake_next_request(&f);
    msg.info.value = (struct dl_span){(const uint8_t *)"\x80", 1};
    fake_send(&f, &msg);
    assert_int_equal(dl_client_headspace(f.client, "train", 50, &data, &len), 0);
    assert_int_equal(len, 1);
    asked = fake_expect(&f, DL_MSG_HEADSPACE);
    assert_int_equal(asked.headspace.loader.len, 5);
    assert_memory_equal(asked.headspace.loader.data, "train", 5);
    assert_int_equal(asked.headspace.steps, 50);

    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(dl_client_headspace(f.client, name, 50, &data, &len), -EINVAL);
    assert_int_equal(dl_client_headspace(f.client, NULL, 50, &data, &len), -EINVAL);
    assert_int_equal(dl_client_headspace(f.client, "", 50, &data, &len), -EINVAL);
    assert_int_equal(dl_client_headspace(f.client, "train", 10001, &data, &len), -EINVAL);
    assert_int_equal(dl_client_headspace(f.client, "train", 0, &data, &len), -EINVAL);
    msg = (struct dl_message){.number = DL_MSG_ERROR};
    msg.error.request = fake_next_request(&f);
    msg.error.code = ENOENT;
    msg.error.message = span_str("no loader of that name is open");
    fake_send(&f, &msg);
    assert_int_equal(dl_client_headspace(f.client, "other", 1, &data, &len), -ENOENT);
    fake_end(&f);
}

TEST(test_resize)
{
    struct dl_message msg = {.number = DL_MSG_INFO};
    struct dl_message asked;
    char name[DL_BOUND_NAME_BYTES + 2];
    const void *data = NULL;
    struct fake f;
    size_t len = 0;

    fake_connect(&f);
    for (uint32_t workers = 0; workers <= 256; workers += 256) { /* 0: as the daemon finds */
        msg.info.request = fake_next_request(&f);
        msg.info.value = (struct dl_span){(const uint8_t *)"\x80", 1};
        fake_send(&f, &msg);
        assert_int_equal(dl_client_resize(f.client, "train", workers, &data, &len), 0);
        assert_int_equal(len, 1);
        asked = fake_expect(&f, DL_MSG_RESIZE);
        assert_int_equal(asked.resize.loader.len, 5);
        assert_memory_equal(asked.resize.loader.data, "train", 5);
        assert_int_equal(asked.resize.workers, workers);
    }
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(dl_client_resize(f.client, name, 2, &data, &len), -EINVAL);
    assert_int_equal(dl_client_resize(f.client, NULL, 2, &data, &len), -EINVAL);
    assert_int_equal(dl_client_resize(f.client, "", 2, &data, &len), -EINVAL);
    assert_int_equal(dl_client_resize(f.client, "train", 257, &data, &len), -EINVAL);
    fake_end(&f);
}

TEST(test_request_times_out)
{
    struct dl_loader *loader;
    struct fake f;

    fake_connect(&f);
    f.client->call_timeout = NS_PER_S / 50;
    assert_int_equal(dl_loader_open(f.client, "x", 1, NULL, &loader), -ETIMEDOUT);
    assert_non_null(strstr(dl_client_error(f.client), "expected: OPENED"));
    assert_int_equal(dl_client_dispatch(f.client), -ETIMEDOUT);
    fake_end(&f);
}

TEST(test_fatal_error)
{
    struct dl_message msg = {.number = DL_MSG_ERROR};
    struct dl_batch *batch;
    struct fake f;

    fake_run(&f, 4, 10);
    msg.error.code = ESHUTDOWN;
    msg.error.message = span_str("the daemon stops");
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ESHUTDOWN);
    assert_string_equal(dl_client_error(f.client), "the daemon stops");
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ESHUTDOWN);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &f.epoch), -ESHUTDOWN);
    fake_end(&f);
}

/* ---- the end ---- */

TEST(test_eof)
{
    struct dl_batch *batch;
    struct fake f;

    fake_run(&f, 4, 10);
    fake_deliver(&f, 0, 2);
    shutdown(f.sock, SHUT_WR);
    /* What was delivered before is not lost. */
    fake_next(&f, 0);
    fake_next(&f, 1);
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ECONNRESET);
    assert_non_null(strstr(dl_client_error(f.client), "closed the session"));
    fake_end(&f);
}

/* The daemon's last word is read even when writing to it fails first. */
TEST(test_last_word)
{
    struct dl_message msg = {.number = DL_MSG_ERROR};
    const void *data;
    struct fake f;
    size_t len;

    fake_connect(&f);
    msg.error.code = ESHUTDOWN;
    msg.error.message = span_str("drained");
    fake_send(&f, &msg);
    close_fdp(&f.sock);
    assert_int_equal(dl_client_query(f.client, "status", &data, &len), -ESHUTDOWN);
    assert_string_equal(dl_client_error(f.client), "drained");
    fake_end(&f);
}

TEST(test_eof_in_frame)
{
    _cleanup_(buffer_deinit) struct dl_buffer frame = {0};
    struct dl_message msg;
    struct dl_batch *batch;

    msg = (struct dl_message){.number = DL_MSG_FINISHED};
    msg.finished.stream = FAKE_STREAM;
    assert_int_equal(message_encode(&msg, &frame), 0);
    for (size_t cut = 1; cut < frame.len; cut++) {
        struct fake f;

        fake_run(&f, 4, 0);
        assert_int_equal(write(f.sock, frame.data, cut), cut);
        assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN);
        shutdown(f.sock, SHUT_WR);
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ECONNRESET);
        assert_non_null(strstr(dl_client_error(f.client), "in the middle of a message"));
        fake_end(&f);
    }
}

TEST(test_close_tells_the_daemon)
{
    struct fake f;

    fake_run(&f, 4, 10);
    fake_deliver(&f, 0, 2);
    fake_next(&f, 0);
    f.client = dl_client_close(f.client);
    expect_steps(&f, DL_MSG_RELEASE, 0);
    assert_int_equal(fake_expect(&f, DL_MSG_STOP).stop.stream, FAKE_STREAM);
    expect_steps(&f, DL_MSG_RELEASE, 1);
    fake_expect(&f, DL_MSG_CLOSE);
    fake_expect_end(&f);
    assert_null(dl_client_close(NULL));
    assert_string_equal(dl_client_error(NULL), "out of memory");
    fake_end(&f);
}

TEST(test_constants)
{
    assert_string_equal(dl_version(), DLOADER_VERSION);
    assert_string_equal(dl_type_name(DL_FLOAT32), "float32");
    assert_string_equal(dl_type_name(99), "?");
    assert_int_equal(dl_type_bytes(DL_COMPLEX128), 16);
    assert_int_equal(dl_type_bytes(0), 0);
}
