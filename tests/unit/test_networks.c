/* Networks as text, and which addresses are in them. */
#include "tests/lib/harness.h"

#include "daemon/base/networks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>

static bool have(const char *text, const char *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct networks networks = {0};
    const char *wrong = NULL;

    if (networks_parse(text, &networks, &wrong) < 0)
        fail_msg("\"%s\" is refused at \"%s\"", text, wrong);
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        return networks_have(&networks, (struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    return networks_have(&networks, (struct sockaddr *)&v6);
}

TEST(test_have)
{
    static const struct {
        const char *networks, *address;
        bool is_in;
    } rows[] = {
        {"", "127.0.0.1", false},
        {"169.254.0.0/16", "169.254.169.254", true},
        {"169.254.0.0/16", "169.254.0.0", true},
        {"169.254.0.0/16", "169.255.0.0", false},
        {"169.254.0.0/16", "169.253.255.255", false},
        {"169.254.0.0/16", "::1", false},
        {"169.254.0.0/16", "::ffff:169.254.169.254", true},
        {"169.254.0.0/16", "::169.254.169.254", true},
        {"169.254.0.0/16", "64:ff9b::169.254.169.254", true},
        {"169.254.0.0/16", "64:ff9b:1::169.254.169.254", true},
        {"169.254.0.0/16", "64:ff9b:2::169.254.169.254", false},
        {"169.254.0.0/16", "64:ff9b::8.8.8.8", false},
        {"169.254.0.0/16", "2002:a9fe:a9fe::", true},
        {"169.254.0.0/16", "2002:aafe:a9fe::", false},
        {"169.254.0.0/16", "2003:a9fe:a9fe::", false},
        {"fe80::/10", "fe80::1", true},
        {"fe80::/10", "febf:ffff::1", true},
        {"fe80::/10", "fec0::1", false},
        {"fe80::/10", "fe7f::1", false},
        {"fe80::/10", "254.128.0.1", false},
        {"fd00:ec2::/32", "fd00:ec2::254", true},
        {"fd00:ec2::/32", "fd00:ec3::254", false},
        {"100.100.100.200/32", "100.100.100.200", true},
        {"100.100.100.200/32", "100.100.100.201", false},
        {"127.0.0.0/9", "127.127.255.255", true},
        {"127.0.0.0/9", "127.128.0.0", false},
        {"0.0.0.0/0", "8.8.8.8", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"::/0", "8.8.8.8", true},
        {"::/0", "2001:db8::1", true},
        {"::1/128", "::1", true},
        {"::1/128", "::2", false},
        {"10.0.0.0/8,192.168.0.0/16", "192.168.3.4", true},
        {" 10.0.0.0/8 , 192.168.0.0/16 ", "10.1.2.3", true},
        {"10.0.0.0/8, 192.168.0.0/16,", "172.16.0.1", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (have(rows[i].networks, rows[i].address) != rows[i].is_in)
            fail_msg("\"%s\" has %s, or has not", rows[i].networks, rows[i].address);
}

/* A socket of another kind leads where nobody can say. */
TEST(test_other_kind)
{
    struct networks networks = {0};

    assert_true(networks_have(&networks, &(struct sockaddr){.sa_family = AF_UNIX}));
}

TEST(test_refused)
{
    static const struct {
        const char *text, *wrong;
    } rows[] = {
        {"x", "x"},
        {"10.0.0.0", "10.0.0.0"},
        {"10.0.0.0/", "10.0.0.0/"},
        {"10.0.0.0/x", "10.0.0.0/x"},
        {"10.0.0.0/8x", "10.0.0.0/8x"},
        {"10.0.0.0/-8", "10.0.0.0/-8"},
        {"10.0.0.0/33", "10.0.0.0/33"},
        {"10.0.0.1/8", "10.0.0.1/8"},
        {"10.0.0.1/31", "10.0.0.1/31"},
        {"::/129", "::/129"},
        {"fe80::1/10", "fe80::1/10"},
        {"10.0.0.0/8,,::/0", ",::/0"},
        {"10.0.0.0/8, localhost/8", "localhost/8"},
        {"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa/128",
         "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa/128"},
    };
    struct networks networks = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *wrong = NULL;

        if (networks_parse(rows[i].text, &networks, &wrong) != -EINVAL)
            fail_msg("\"%s\" is taken", rows[i].text);
        assert_string_equal(wrong, rows[i].wrong);
    }
}

TEST(test_many)
{
    char text[NETWORKS_MAX * 16 + 64] = "";
    struct networks networks = {0};
    const char *wrong;

    for (size_t i = 0; i < NETWORKS_MAX; i++)
        snprintf(text + strlen(text), 16, "%zu.0.0.0/8,", i);
    assert_int_equal(networks_parse(text, &networks, &wrong), 0);
    assert_int_equal(networks.n, NETWORKS_MAX);
    snprintf(text + strlen(text), 16, "255.0.0.0/8");
    assert_int_equal(networks_parse(text, &networks, &wrong), -E2BIG);
}
