/* The control group of a client: what /proc says, and whose it is. */
#include "tests/lib/harness.h"

#include "daemon/base/control_group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(test_texts)
{
    static const struct {
        const char *text, *group; /* NULL: none is found */
    } rows[] = {
        {"0::/system.slice/a.service\n", "/system.slice/a.service"},
        {"0::/", "/"},
        {"0::/../pod-7/x\n", "/../pod-7/x"}, /* out of the daemon's own namespace of them */
        {"4:memory:/a\n1:cpu:/b\n0::/c\n", "/a"},
        {"0::/c\n4:cpu,memory,pids:/a\n", "/a"},
        {"4:memory2:/a\n3:amemory:/b\n0::/c\n", "/c"},
        {"9:name=systemd:/a\n", NULL},
        {"0::/with:colon\n", "/with:colon"},
        {"0::\n", NULL},
        {"0::relative\n", NULL},
        {"0::/a\tb\n", NULL},
        {"0::/\xff\n", NULL},
        {"0:\n:\n::\n\n0", NULL},
        {"", NULL},
    };
    char group[CONTROL_GROUP_MAX], text[CONTROL_GROUP_MAX + 16] = "0::/";

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(control_group_parse(rows[i].text, group), rows[i].group != NULL);
        if (rows[i].group)
            assert_string_equal(group, rows[i].group);
    }
    memset(text + 4, 'x', CONTROL_GROUP_MAX - 2);
    assert_true(control_group_parse(text, group));
    assert_int_equal(strlen(group), CONTROL_GROUP_MAX - 1);
    text[4 + CONTROL_GROUP_MAX - 2] = 'x';
    assert_false(control_group_parse(text, group));
}

static void read_own(char ret[static CONTROL_GROUP_MAX])
{
    char text[16384];
    FILE *file = fopen("/proc/self/cgroup", "re");

    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    assert_true(control_group_parse(text, ret));
}

TEST(test_of_a_peer)
{
    char own[CONTROL_GROUP_MAX], group[CONTROL_GROUP_MAX];
    struct dl_error err = {0};
    int pair[2];

    read_own(own);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(control_group_of_peer(pair[0], group, &err), 0);
    assert_string_equal(group, own);
    (void)close(pair[0]);
    (void)close(pair[1]);
    assert_int_equal(control_group_of_peer(-1, group, &err), -EBADF);
    assert_string_equal(err.path, "limits.charge");
}

/* It has handed its connection on, and ended: the process that has its number now is not asked. */
TEST(test_of_one_that_has_ended)
{
    char group[CONTROL_GROUP_MAX];
    struct dl_error err = {0};
    int pair[2], status;

    int sock = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char control[CMSG_SPACE(sizeof(int))] = {0};
        int made[2];
        struct iovec one = {.iov_base = (char[]){1}, .iov_len = 1};
        struct msghdr msg = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, made) < 0)
            _exit(1);
        *CMSG_FIRSTHDR(&msg) = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &made[0], sizeof(int));
        _exit(sendmsg(pair[1], &msg, 0) == 1 ? 0 : 2);
    }
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec one = {.iov_base = &byte, .iov_len = 1};
    struct msghdr msg = {
        .msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    assert_int_equal(recvmsg(pair[0], &msg, MSG_CMSG_CLOEXEC), 1);
    assert_non_null(CMSG_FIRSTHDR(&msg));
    memcpy(&sock, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof sock);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(control_group_of_peer(sock, group, &err) < 0);
    (void)close(sock);
    (void)close(pair[0]);
    (void)close(pair[1]);
}
