/* Who is let in: tokens and names by table, and whose socket is at the other end. */
#include "tests/lib/harness.h"

#include "daemon/serve/page/visitor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

TEST(test_tokens)
{
    static const struct {
        const char *said, *token;
        bool right;
    } rows[] = {
        {"Bearer 0123456789abcdef", "0123456789abcdef", true},
        {"bearer 0123456789abcdef", "0123456789abcdef", true},
        {"Bearer 0123456789abcdeF", "0123456789abcdef", false},
        {"Bearer 0123456789abcde", "0123456789abcdef", false},
        {"Bearer 0123456789abcdef0", "0123456789abcdef", false},
        {"Bearer  0123456789abcdef", "0123456789abcdef", false},
        {"Basic 0123456789abcdef", "0123456789abcdef", false},
        {"0123456789abcdef", "0123456789abcdef", false},
        {"Bearer ", "0123456789abcdef", false},
        {"", "0123456789abcdef", false},
        {NULL, "0123456789abcdef", false},
        {"Bearer 0123456789abcdef", NULL, false},
        {"Bearer ", NULL, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(visitor_has_token(rows[i].said, rows[i].token), rows[i].right);
}

TEST(test_names_of_this_machine)
{
    static const struct {
        const char *host;
        bool here;
    } rows[] = {
        {"localhost", true},
        {"localhost:9400", true},
        {"LocalHost:9400", true},
        {"127.0.0.1", true},
        {"127.0.0.1:9400", true},
        {"127.255.0.9:1", true},
        {"[::1]", true},
        {"[::1]:9400", true},
        {"evil.example", false},
        {"evil.example:9400", false},
        {"localhost.evil.example", false},
        {"127.0.0.1.evil.example", false},
        {"10.0.0.1:9400", false},
        {"0.0.0.0:9400", false},
        {"[::]:9400", false},
        {"[::1", false},
        {"::1", false},
        {":9400", false},
        {"", false},
        {"127.0.0.1:99999", false},
        {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
         false},
        {NULL, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(visitor_means_here(rows[i].host), rows[i].here);
}

/* A connection of this process with itself: ret[0] has come to the listener. False: this machine
 * has none of the family. */
static bool connect_pair(int family, int ret[2])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at = {0};
    socklen_t len = family == AF_INET ? sizeof at.v4 : sizeof at.v6;
    _cleanup_fd_ int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.any.sa_family = (sa_family_t)family;
    if (family == AF_INET)
        at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        at.v6.sin6_addr = in6addr_loopback;
    if (listener < 0 || bind(listener, &at.any, len) < 0 || listen(listener, 1) < 0) {
        assert_int_equal(family, AF_INET6);
        return false;
    }
    assert_int_equal(getsockname(listener, &at.any, &len), 0);
    ret[1] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(ret[1], &at.any, len), 0);
    ret[0] = accept(listener, NULL, NULL);
    assert_true(ret[0] >= 0);
    return true;
}

static void expect_owner(int family)
{
    int pair[2];

    if (!connect_pair(family, pair))
        return;
    /* A kernel that does not tell, without its inet_diag, lets nobody in. */
    assert_true(visitor_is_own(pair[0], getuid()));
    assert_false(visitor_is_own(pair[0], getuid() + 1));
    close(pair[1]);
    close(pair[0]);
}

TEST(test_owner_by_v4)
{
    expect_owner(AF_INET);
}

TEST(test_owner_by_v6)
{
    expect_owner(AF_INET6);
}

TEST(test_other_descriptors)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_true(visitor_is_own(pair[0], getuid()));
    close(pair[0]);
    close(pair[1]);
    assert_false(visitor_is_own(pair[0], getuid()));
    assert_false(visitor_is_own(STDIN_FILENO, getuid()));
}
