/* The worker's sandbox by itself: each case closes in a child of its own and looks around there. */
#include "daemon/worker/sandbox.h"
#include "tests/unit/spec_text.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/keyctl.h>
#if HAVE_SECCOMP
#include <seccomp.h>
#endif
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static bool can_read(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Below harness_tmpdir(). */
static const char *at(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    return path;
}

static void make_tree(void)
{
    static const char *const directories[] = {"a", "a/deep", "b"};
    static const char *const files[] = {"a/x.npy", "a/y.npy", "a/deep/z.npy", "b/x.npy", "b/y.npy"};

    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (mkdir(at(directories[i]), 0700) < 0)
            assert_int_equal(errno, EEXIST);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        harness_file(files[i], "x", 1);
    if (symlink("../b/x.npy", at("a/link.npy")) < 0)
        assert_int_equal(errno, EEXIST);
}

/* What a child can read of the tree after it closed itself in; a bit for each of `looked_at`. */
static const char *const looked_at[] = {"a/x.npy", "a/y.npy", "a/deep/z.npy", "b/x.npy", "b/y.npy"};

static unsigned look(const struct dl_spec *spec, const struct data_env *env)
{
    unsigned found = 0;
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct sandbox_files files;

        sandbox_harden();
        sandbox_files_begin(&files);
        sandbox_files_allow_spec(&files, spec, env);
        if (!(sandbox_files_hold(&files) & SANDBOX_FILES))
            _exit(0x80);
        for (size_t i = 0; i < ARRAY_SIZE(looked_at); i++)
            found |= can_read(at(looked_at[i])) ? 1u << i : 0;
        _exit((int)found);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (unsigned)WEXITSTATUS(status);
}

TEST(test_what_a_spec_reads)
{
    static const struct {
        const char *dataset;
        const char *root; /* of the daemon; NULL: none */
        unsigned readable;
    } cases[] = {
        {"{kind: range, length: 3}", NULL, 0},
        /* Files that are opened once, and no others. */
        {"{kind: npy, paths: {f: a/x.npy}}", NULL, 1},
        {"{kind: npy, paths: {f: a/x.npy, g: b/y.npy}}", NULL, 1 | 16},
        {"{kind: npy, paths: {f: a/link.npy}}", NULL, 8},
        {"{kind: npy, paths: {f: nothing.npy}}", NULL, 0},
        {"{kind: records, paths: a/y.npy, dtype: uint8, shape: [1]}", NULL, 2},
        {"{kind: subset, indices: [0], dataset: {kind: npy, paths: {f: b/x.npy}}}", NULL, 8},
        {"{kind: concat, datasets: [{kind: npy, paths: {f: a/x.npy}}, {kind: npy, paths: {f: "
         "a/y.npy}}]}",
         NULL, 1 | 2},
        {"{kind: text, paths: [a/x.npy]}", NULL, 1},
        /* Shards are looked for by name again. */
        {"{kind: tar, paths: [a/x.npy]}", NULL, 1 | 2 | 4},
        {"{kind: tar, paths: [a/link.npy]}", NULL, 8 | 16},
        /* What has to be looked for: as far as the daemon lets it. */
        {"{kind: text, paths: [\"a/*.npy\"]}", NULL, 31},
        {"{kind: text, paths: [\"a/*.npy\"]}", "b", 8 | 16},
        {"{kind: tar, paths: [\"a/{0..1}.tar\"]}", "a/deep", 4},
        {"{kind: imagefolder, paths: a}", NULL, 31},
        {"{kind: imagefolder, paths: a}", "a", 1 | 2 | 4},
        {"{kind: npy, paths: {f: a/x.npy}}", "a", 1},
        /* To name what lies elsewhere opens nothing. */
        {"{kind: npy, paths: {f: b/x.npy}}", "a", 0},
        {"{kind: npy, paths: {f: a/link.npy}}", "a", 0},
        {"{kind: tar, paths: [b/x.npy]}", "a", 0},
        {"{kind: concat, datasets: [{kind: npy, paths: {f: a/x.npy}}, {kind: npy, paths: {f: "
         "b/y.npy}}]}",
         "a", 1},
        /* A plug-in's own directory, if it is one that plug-ins may lie in, which b is. */
        {"{kind: plugin, path: b/x.npy}", "a/deep", 4 | 8 | 16},
        {"{kind: plugin, path: a/x.npy}", "a/deep", 4},
    };

    make_tree();
    if (!sandbox_landlock())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        struct dl_error err = {0};
        char text[1024], root[PATH_MAX], plugin[PATH_MAX];
        char *roots[] = {root}, *plugins[] = {plugin};
        struct data_env env = {
            .roots = roots, .n_roots = cases[i].root != NULL, .plugins = plugins, .n_plugins = 1};

        snprintf(plugin, sizeof plugin, "%s", at("b"));
        snprintf(root, sizeof root, "%s", at(cases[i].root ? cases[i].root : ""));
        snprintf(text, sizeof text, "dataset: %s\nbatch: {size: 1}", cases[i].dataset);
        if (read_spec(text, harness_tmpdir(), &spec, &err) < 0)
            fail_msg("%s: %s: %s", text, err.path, err.message);
        unsigned got = look(&spec, &env);
        if (got != cases[i].readable)
            fail_msg("%s below %s: %#x can be read, not %#x", cases[i].dataset,
                     cases[i].root ? cases[i].root : "anything", got, cases[i].readable);
    }
}

/* ---- descriptors ---------------------------------------------------------------------------- */

/* Without the call that closes a range, as before Linux 5.9. */
static bool forget_close_range(void)
{
#if HAVE_SECCOMP
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    bool done = ctx && seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SYS_close_range, 0) == 0 &&
                seccomp_load(ctx) == 0;

    seccomp_release(ctx);
    return done && syscall(SYS_close_range, ~0u, ~0u, 0) < 0 && errno == ENOSYS;
#else
    return false;
#endif
}

/* In a child: whether what lies below `first` is still open, and nothing from there on. */
static bool closes_from(int first)
{
    for (int fd = first - 1; fd < first + 9; fd += 3) {
        if (dup2(STDIN_FILENO, fd) < 0)
            return false;
    }
    sandbox_close_from(first);
    for (int fd = first; fd < first + 9; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            return false;
    }
    return fcntl(first - 1, F_GETFD) >= 0;
}

TEST(test_descriptors)
{
    for (int old = 0; old < 2; old++) {
        int status = 0;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            sandbox_harden();
            if (old && !forget_close_range())
                _exit(0);
            _exit(closes_from(100) ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0)
            fail_msg("%s close_range(): %#x", old ? "without" : "with", (unsigned)status);
    }
}

/* ---- calls ---------------------------------------------------------------------------------- */

enum { ONLINE = 100 }; /* besides the levels: what goes out to servers */

static bool close_in(unsigned level, bool landlock)
{
    if (level == ONLINE)
        return sandbox_calls_online(landlock, false) == SANDBOX_CALLS;
    return sandbox_calls((enum sandbox_level)level, landlock) ==
           (level == SANDBOX_OFF ? 0 : SANDBOX_CALLS);
}

/* The errno of `attempt` in a child that forbade itself calls; 0: it succeeded. -1: no seccomp. */
static int forbidden(unsigned level, bool landlock, int (*attempt)(void))
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        sandbox_harden();
        if (!close_in(level, landlock))
            _exit(255);
        _exit(attempt());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

static int closed(int fd)
{
    int code = fd < 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    return code;
}

static int open_to_write(void)
{
    return closed(open(at("a/x.npy"), O_WRONLY | O_CLOEXEC));
}

static int open_both_ways(void)
{
    return closed(open(at("a/x.npy"), O_RDWR | O_CLOEXEC));
}

static int open_new(void)
{
    return closed(open(at("new"), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int open_to_read(void)
{
    return closed(open(at("a/x.npy"), O_RDONLY | O_CLOEXEC));
}

static int remove_file(void)
{
    return unlink(at("b/y.npy")) < 0 ? errno : 0;
}

static int make_socket(void)
{
    return closed(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int socket_family;

static int make_socket_of_family(void)
{
    return closed(socket(socket_family, SOCK_RAW | SOCK_CLOEXEC, 0)) == EAFNOSUPPORT ? EAFNOSUPPORT
                                                                                     : 0;
}

static int listen_somewhere(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int code = fd < 0 || listen(fd, 1) < 0 ? errno : 0;

    close_fdp(&fd);
    return code;
}

static int make_process(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid < 0 ? errno : 0;
}

static int set_core_limit(void)
{
    const struct rlimit limit = {0, 0};

    return setrlimit(RLIMIT_CORE, &limit) < 0 ? errno : 0;
}

static int ask_for_keys(void)
{
    return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) < 0 ? errno : 0;
}

/* What a worker does all the time. */
static int work(void)
{
    char text[16];
    int fd = memfd_create("test", MFD_CLOEXEC);
    void *base = fd < 0 || ftruncate(fd, 4096) < 0
                     ? MAP_FAILED
                     : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int other = open(at("a/x.npy"), O_RDONLY | O_CLOEXEC);
    bool ok = base != MAP_FAILED && posix_fallocate(fd, 0, 8192) == 0 && other >= 0 &&
              read(other, text, sizeof text) == 1;

    close_fdp(&fd);
    close_fdp(&other);
    return ok ? 0 : EIO;
}

TEST(test_calls)
{
    static const struct {
        const char *name;
        int (*attempt)(void);
        int light, full, full_alone, online, online_alone; /* alone: without Landlock */
    } cases[] = {
        {"work", work, 0, 0, 0, 0, 0},
        {"open to read", open_to_read, 0, 0, 0, 0, 0},
        {"open to write", open_to_write, 0, 0, EACCES, 0, EACCES},
        {"open both ways", open_both_ways, 0, 0, EACCES, 0, EACCES},
        {"open new", open_new, 0, 0, EACCES, 0, EACCES},
        {"remove", remove_file, 0, EPERM, EPERM, EPERM, EPERM},
        {"socket", make_socket, 0, EPERM, EPERM, 0, 0},
        {"listen", listen_somewhere, 0, EPERM, EPERM, EPERM, EPERM},
        {"process", make_process, 0, EPERM, EPERM, EPERM, EPERM},
        {"limit", set_core_limit, 0, EPERM, EPERM, EPERM, EPERM},
        {"keys", ask_for_keys, EPERM, EPERM, EPERM, EPERM, EPERM},
    };

    if (!HAVE_SECCOMP || forbidden(SANDBOX_LIGHT, true, work) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct {
            unsigned level;
            bool landlock;
            int code;
        } levels[] = {{SANDBOX_LIGHT, true, cases[i].light},
                      {SANDBOX_FULL, true, cases[i].full},
                      {SANDBOX_FULL, false, cases[i].full_alone},
                      {ONLINE, true, cases[i].online},
                      {ONLINE, false, cases[i].online_alone}};

        for (size_t level = 0; level < ARRAY_SIZE(levels); level++) {
            make_tree();
            (void)unlink(at("new"));
            int got = forbidden(levels[level].level, levels[level].landlock, cases[i].attempt);
            if (got != levels[level].code)
                fail_msg("%s, level %zu: %s, not %s", cases[i].name, level, strerror(got),
                         strerror(levels[level].code));
        }
    }
    assert_int_equal(forbidden(SANDBOX_OFF, true, make_socket), 0);
}

/* Of those that the kernel has: what no client of a server needs is not there. */
TEST(test_families)
{
    static const struct {
        int family, code;
    } rows[] = {
        {AF_UNIX, 0},
        {AF_INET, 0},
        {AF_INET6, 0},
        {AF_NETLINK, 0},
        {AF_UNSPEC, EAFNOSUPPORT},
        {AF_X25, EAFNOSUPPORT},
        {AF_PACKET, EAFNOSUPPORT},
        {AF_ALG, EAFNOSUPPORT},
        {AF_VSOCK, EAFNOSUPPORT},
    };

    if (!HAVE_SECCOMP || forbidden(SANDBOX_LIGHT, true, work) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        socket_family = rows[i].family;
        if (forbidden(ONLINE, true, make_socket_of_family) != rows[i].code)
            fail_msg("family %d", rows[i].family);
    }
}
