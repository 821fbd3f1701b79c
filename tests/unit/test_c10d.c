/* Endpoints of a TCPStore, and on which of them this machine serves one: also where the kernel does
 * not say what addresses it has. What the backend does is in tests/cluster. */
#include "tests/lib/harness.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/store/c10d.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <sys/socket.h>

static bool forbidden;

int __real_getifaddrs(struct ifaddrs **ret);
int __wrap_getifaddrs(struct ifaddrs **ret);
int __wrap_getifaddrs(struct ifaddrs **ret)
{
    if (!forbidden)
        return __real_getifaddrs(ret);
    errno = EAFNOSUPPORT;
    return -1;
}

/* ---- endpoints ------------------------------------------------------------------------------ */

TEST(test_endpoints)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } rows[] = {
        {"host", "host", 29400},
        {"host:1", "host", 1},
        {"10.0.0.1:65535", "10.0.0.1", 65535},
        {"[::1]", "::1", 29400},
        {"[::1]:2", "::1", 2},
        {"::1", "::1", 29400},
        {"[fe80::1%eth0]:2", "fe80::1%eth0", 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};
        char *host = NULL;
        uint16_t port = 0;

        if (c10d_endpoint(rows[i].text, &host, &port, &err) < 0)
            fail_msg("%s: %s", rows[i].text, err.message);
        assert_string_equal(host, rows[i].host);
        assert_int_equal(port, rows[i].port);
        free(host);
    }
}

TEST(test_bad_endpoints)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "is not such an address"},
        {":1", "is not such an address"},
        {"[]:1", "is not such an address"},
        {"a b", "is not such an address"},
        {"tcp://a:1", "is not such an address"},
        {"a:1,b:1", "is not such an address"},
        {"[::1:1", "has a [ without a ]"},
        {"[::1]1", "has no port"},
        {"a:", "has no port"},
        {"a:0", "has no port"},
        {"a:65536", "has no port"},
        {"a:+1", "has no port"},
        {"a:1x", "has no port"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};
        char *host = NULL;
        uint16_t port = 0;

        assert_int_equal(c10d_endpoint(rows[i].text, &host, &port, &err), -EINVAL);
        assert_null(host);
        assert_string_equal(err.path, "rendezvous.endpoint");
        if (!strstr(err.message, rows[i].message) || !strstr(err.message, rows[i].text))
            fail_msg("%s: %s", rows[i].text, err.message);
    }
}

/* ---- whose address it is -------------------------------------------------------------------- */

static uint16_t free_port(void)
{
    _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;

    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    return ntohs(address.sin_port);
}

struct said {
    unsigned n;
    char text[256];
};

static void on_said(void *context, enum c10d_saying what, const char *text)
{
    struct said *said = context;

    assert_int_not_equal(what, C10D_DETAIL);
    said->n++;
    (void)snprintf(said->text, sizeof said->text, "%s", text);
}

/* Tries as often as that; whether it serves, and what it said last, how often. */
static bool serves(const char *name, enum c10d_hosting hosting, unsigned times, struct said *said)
{
    struct c10d_host_options options = {
        .host = name, .port = free_port(), .hosting = hosting, .said = on_said, .context = said};
    uv_loop_t loop;

    assert_int_equal(uv_loop_init(&loop), 0);
    options.loop = &loop;
    *said = (struct said){0};
    struct c10d_host *host = c10d_host_new(&options);
    assert_non_null(host);
    for (unsigned i = 0; i < times; i++) {
        c10d_host_try(host);
        c10d_host_try(host); /* one is enough */
        while (uv_loop_alive(&loop) && !c10d_host_serves(host))
            uv_run(&loop, UV_RUN_ONCE);
    }
    bool does = c10d_host_serves(host);
    assert_int_equal(c10d_host_peers(host), 0);
    assert_null(c10d_host_free(host));
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    return does;
}

TEST(test_where_it_serves)
{
    static const struct {
        const char *name;
        enum c10d_hosting hosting;
        bool serves;
        const char *at;
    } rows[] = {
        {"127.0.0.1", C10D_HOST_AUTO, true, "of 127.0.0.1"},
        {"127.9.9.9", C10D_HOST_AUTO, true, "of 127.9.9.9"},
        {"localhost", C10D_HOST_AUTO, true, "of all addresses"},
        {"127.0.0.1", C10D_HOST_NO, false, ""},
        {"192.0.2.1", C10D_HOST_AUTO, false, ""},
        {"2001:db8::1", C10D_HOST_AUTO, false, ""},
        {"192.0.2.1", C10D_HOST_YES, true, "of all addresses"},
    };
    struct said said;

    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        size_t row = i / 2;

        forbidden = i % 2;
        assert_int_equal(serves(rows[row].name, rows[row].hosting, 2, &said), rows[row].serves);
        assert_int_equal(said.n, rows[row].serves);
        if (!strstr(said.text, rows[row].at))
            fail_msg("%s: %s", rows[row].name, said.text);
    }
    forbidden = false;
}

TEST(test_six)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    _cleanup_fd_ int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct said said;

    if (fd < 0 || bind(fd, (struct sockaddr *)&six, sizeof six) < 0)
        return; /* this machine has none */
    for (int i = 0; i < 2; i++) {
        forbidden = i;
        assert_true(serves("::1", C10D_HOST_AUTO, 1, &said));
        assert_non_null(strstr(said.text, "of ::1"));
    }
    forbidden = false;
}

/* Somebody has the port: that is told once, however often it is tried, until it is free. */
TEST(test_taken)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof address;
    struct said said = {0};
    uv_loop_t loop;

    assert_int_equal(bind(taken, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(taken, 1), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &len), 0);
    assert_int_equal(uv_loop_init(&loop), 0);
    const struct c10d_host_options options = {.loop = &loop,
                                              .host = "127.0.0.1",
                                              .port = ntohs(address.sin_port),
                                              .hosting = C10D_HOST_AUTO,
                                              .said = on_said,
                                              .context = &said};
    struct c10d_host *host = c10d_host_new(&options);
    assert_non_null(host);
    for (int i = 0; i < 3; i++) {
        c10d_host_try(host);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_false(c10d_host_serves(host));
    }
    assert_int_equal(said.n, 1);
    assert_non_null(strstr(said.text, "this daemon uses the store there"));
    close_fdp(&taken);
    c10d_host_try(host);
    while (!c10d_host_serves(host))
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(said.n, 2);
    c10d_host_free(host);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void on_done(void *owner, const struct backend_answer *answer)
{
    (void)owner, (void)answer;
}

/* The name is still being looked up, or calls are still to be answered. */
TEST(test_freed_at_once)
{
    char endpoint[32];
    struct c10d_options options = {.endpoint = endpoint, .hosting = C10D_HOST_AUTO};
    struct backend *backend = NULL;
    struct dl_error err = {0};
    uv_loop_t loop;

    assert_int_equal(uv_loop_init(&loop), 0);
    options.loop = &loop;
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", (unsigned)free_port());
    for (int i = 0; i < 20; i++) {
        assert_int_equal(c10d_new(&options, &backend, &err), 0);
        backend_get(backend, "key", on_done, NULL);
        backend_set(backend, "key", 0, span_str("one"), on_done, NULL);
        for (int turn = 0; turn < i % 4; turn++)
            uv_run(&loop, UV_RUN_NOWAIT);
        assert_null(backend_free(backend));
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}
