/* What the fetcher can still read and do once it has closed itself in. */
#include "tests/lib/harness.h"

#include "daemon/fetcher/confine.h"
#include "daemon/sandbox/sandbox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char home[PATH_MAX];

/* Below the home that harness_tmpdir() is here. */
static const char *at(const char *name)
{
    static char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", home, name);
    return path;
}

static void write_at(const char *name)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0 && write(fd, "x", 1) == 1);
    close(fd);
}

static int set_up(void **state)
{
    static const char *const directories[] = {".aws", "keys", "cache", "token", "other"};
    static const char *const files[] = {".aws/credentials", "keys/a",      "cache/token",
                                        "token/identity",   "other/x.npy", "profile"};

    snprintf(home, sizeof home, "%s", harness_tmpdir());
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (mkdir(at(directories[i]), 0700) < 0)
            assert_int_equal(errno, EEXIST);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        write_at(files[i]);
    (void)setenv("HOME", home, 1);
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", at("keys/a"), 1);
    (void)setenv("HF_HOME", at("cache"), 1);
    (void)setenv("AWS_CONFIG_FILE", at("profile"), 1);
    return 0;
}

/* What attempt() returns in a child that has closed itself in. */
static int confined(int (*attempt)(const char *), const char *name)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct confine confine;

        sandbox_harden();
        confine_begin(&confine, at("token/identity"), "", false);
        int r = attempt(name);
        confine_deinit(&confine);
        _exit(r);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int read_it(const char *name)
{
    int fd = open(*name == '/' ? name : at(name), O_RDONLY | O_CLOEXEC);

    return fd < 0 ? errno : close(fd);
}

static int write_it(const char *name)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    return fd < 0 ? errno : close(fd);
}

static int run_it(const char *name)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    return pid < 0 ? errno : 0;
}

static int exec_it(const char *name)
{
    char *args[] = {(char *)name, NULL};

    (void)execv(name, args);
    return errno;
}

/* As libcurl does: a name, and a socket that is connected to where nobody listens. */
static int connect_it(const char *name)
{
    struct addrinfo *found = NULL;
    int r = getaddrinfo(name, "9", NULL, &found);

    if (r != 0)
        return 255;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    r = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0 ? errno : 0;
    freeaddrinfo(found);
    return r == ECONNREFUSED ? 0 : r;
}

TEST(test_what_is_left)
{
    static const struct {
        const char *name;
        int (*attempt)(const char *);
        int code;
    } rows[] = {
        {"keys/a", read_it, 0},
        {"cache/token", read_it, 0},
        {"token/identity", read_it, 0},
        {"profile", read_it, 0}, /* it alone of HOME */
        {"/etc/hosts", read_it, 0},
        {"/etc/ssl/openssl.cnf", read_it, 0},
        {"localhost", connect_it, 0},
        {".aws/credentials", read_it, EACCES}, /* others are given instead */
        {"other/x.npy", read_it, EACCES},
        {"/tmp", read_it, EACCES},
        {"/root", read_it, EACCES},
        {"keys/a", write_it, EACCES},
        {"keys/new", write_it, EACCES},
        {"", run_it, EPERM},
        {"/bin/true", exec_it, EPERM},
    };

    if (!HAVE_SECCOMP || sandbox_landlock() == 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (SANDBOX_COVERED && rows[i].attempt == write_it)
            continue; /* what is covered is written at the end */
        int got = confined(rows[i].attempt, rows[i].name);

        if (got != rows[i].code)
            fail_msg("row %zu, %s: %s", i, rows[i].name, strerror(got));
    }
}

/* Root's process finds none of root's secrets there; another user's finds what anybody may read. */
TEST(test_etc)
{
    if (sandbox_landlock() == 0 || geteuid() != 0)
        return;
    assert_int_equal(confined(read_it, "/etc/shadow"), EACCES);
}

/* Whether a process that has closed itself in is stale after `change`. */
static bool stale_after(void (*change)(void))
{
    int go[2], status = 0;
    char byte;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, go), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct confine confine;

        close(go[1]);
        confine_begin(&confine, NULL, "", false);
        if (confine_is_stale(&confine) || write(go[0], "x", 1) != 1 || read(go[0], &byte, 1) != 0)
            _exit(2);
        int stale = confine_is_stale(&confine);
        confine_deinit(&confine);
        _exit(stale);
    }
    close(go[0]);
    assert_int_equal(read(go[1], &byte, 1), 1);
    change();
    close(go[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

static void rename_at(const char *from, const char *to)
{
    char old[sizeof home + 64];

    snprintf(old, sizeof old, "%s", at(from));
    assert_int_equal(rename(old, at(to)), 0);
}

static void change_keys(void)
{
    write_at("keys/new");
    rename_at("keys/new", "keys/a");
}

static void change_directory(void)
{
    (void)unlink(at("cache/token"));
    rename_at("cache", "cache-old");
    assert_int_equal(mkdir(at("cache"), 0700), 0);
}

static void change_profile(void)
{
    write_at("profile-new");
    rename_at("profile-new", "profile");
}

static void make_identity(void)
{
    assert_int_equal(mkdir(at("identity"), 0700), 0);
}

TEST(test_stale)
{
    (void)setenv("AWS_WEB_IDENTITY_TOKEN_FILE", at("identity/token"), 1);
    assert_false(stale_after(change_keys));
    assert_true(stale_after(change_directory));
    assert_true(stale_after(change_profile));
    assert_true(stale_after(make_identity));
    assert_false(stale_after(change_keys));
}

TEST_GROUP(set_up, NULL)
