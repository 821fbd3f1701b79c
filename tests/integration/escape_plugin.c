/*
 * A plug-in that tries to get out of its worker: sample i is what became of attempt i, its name and
 * the errno it failed with, 0 where it did not fail. test_sandbox.py says where it may get.
 *
 * Its configuration: {parent: pid of the daemon, socket: the daemon's, read: a file outside, data:
 * one that it may read, dir: a directory with a file "victim"}. Nothing that succeeds does harm.
 */
#include "daemon/data/plugin/dloader-plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <linux/keyctl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_MAX = 128 };

struct escape {
    const struct dl_plugin_host *host;
    int parent;
    char socket[108];
    char read[512];
    char data[512];
    char dir[512];
    char victim[600];
};

/* 0 or an errno of a call that gives -1 for failure. */
static int code(long r)
{
    return r < 0 ? errno : 0;
}

static int closed(int fd)
{
    int r = code(fd);

    if (fd >= 0)
        close(fd);
    return r;
}

static int path_open(const char *dir, const char *name, int flags)
{
    char path[1024];

    snprintf(path, sizeof path, "%s%s", dir, name);
    return closed(open(path, flags | O_CLOEXEC, 0600));
}

/* ---- files ---------------------------------------------------------------------------------- */

static int read_outside(const struct escape *e)
{
    return path_open(e->read, "", O_RDONLY);
}

static int list_outside(const struct escape *e)
{
    return path_open("/etc", "", O_RDONLY | O_DIRECTORY);
}

static int read_data(const struct escape *e)
{
    return path_open(e->data, "", O_RDONLY);
}

static int open_to_write(const struct escape *e)
{
    return path_open(e->victim, "", O_RDWR);
}

static int append_to_file(const struct escape *e)
{
    return path_open(e->victim, "", O_WRONLY | O_APPEND);
}

static int empty_file(const struct escape *e)
{
    return code(truncate(e->victim, 0));
}

static int create_file(const struct escape *e)
{
    return path_open(e->dir, "/new", O_WRONLY | O_CREAT);
}

static int create_elsewhere(const struct escape *e)
{
    return path_open(e->read, ".new", O_WRONLY | O_CREAT);
}

static int create_nameless(const struct escape *e)
{
    return path_open(e->dir, "", O_RDWR | O_TMPFILE);
}

static int make_directory(const struct escape *e)
{
    char path[600];

    snprintf(path, sizeof path, "%s/made", e->dir);
    return code(mkdir(path, 0700));
}

static int make_link(const struct escape *e)
{
    char path[600];

    snprintf(path, sizeof path, "%s/linked", e->dir);
    return code(symlink(e->read, path));
}

static int change_mode(const struct escape *e)
{
    return code(chmod(e->victim, 0777));
}

static int change_times(const struct escape *e)
{
    return code(utimensat(AT_FDCWD, e->victim, NULL, 0));
}

static int rename_file(const struct escape *e)
{
    return code(rename(e->victim, e->victim));
}

static int remove_file(const struct escape *e)
{
    return code(unlink(e->victim));
}

static int write_null(const struct escape *e)
{
    return path_open("/dev/null", "", O_WRONLY);
}

static int shared_memory(const struct escape *e)
{
    char name[64];

    snprintf(name, sizeof name, "/dloader-escape-%d", e->parent);
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd >= 0)
        shm_unlink(name);
    return closed(fd);
}

/* ---- processes ------------------------------------------------------------------------------ */

static int fork_off(const struct escape *e)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return code(pid);
}

/* By the number, as shellcode would. */
static int clone_off(const struct escape *e)
{
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return code(pid);
}

/* Neither is a program in the end, so that the worker stays what it is: ENOEXEC says that it would
 * have been one. */
static int execute(const struct escape *e)
{
    char *const args[] = {(char *)"x", NULL};

    execve(e->data, args, args + 1);
    return errno == ENOEXEC ? 0 : errno;
}

static int execute_memory(const struct escape *e)
{
    char *const args[] = {(char *)"x", NULL};
    int fd = memfd_create("x", 0);

    if (fd < 0 || write(fd, "something", 9) < 0)
        return 0;
    fexecve(fd, args, args + 1);
    int r = errno == ENOEXEC ? 0 : errno;
    close(fd);
    return r;
}

static int trace_parent(const struct escape *e)
{
    long r = ptrace(PTRACE_SEIZE, e->parent, NULL, NULL);

    int failed = code(r);
    if (r == 0 && ptrace(PTRACE_INTERRUPT, e->parent, NULL, NULL) == 0 &&
        waitpid(e->parent, NULL, __WALL) == e->parent)
        ptrace(PTRACE_DETACH, e->parent, NULL, NULL); /* it stops for no one but its tracer */
    return failed;
}

static int read_parent(const struct escape *e)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/mem", e->parent);
    return path_open(path, "", O_RDONLY);
}

/* Any of the daemon's: rings of other loaders among them. */
static int take_parents_file(const struct escape *e)
{
    char path[64];
    int r = ENOENT;

    for (int fd = 3; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", e->parent, fd);
        r = path_open(path, "", O_RDONLY);
        if (r != ENOENT)
            break;
    }
    return r;
}

static int take_parents_fd(const struct escape *e)
{
    int pidfd = (int)syscall(SYS_pidfd_open, e->parent, 0);

    if (pidfd < 0)
        return errno;
    int r = closed((int)syscall(SYS_pidfd_getfd, pidfd, 3, 0));
    close(pidfd);
    return r;
}

static int kill_parent(const struct escape *e)
{
    return code(kill(e->parent, 0));
}

static int kill_group(const struct escape *e)
{
    return code(kill(0, 0));
}

static int kill_all(const struct escape *e)
{
    return code(kill(-1, 0));
}

/* A file that is ready sends its owner a signal, and any at all: that it may be owned is enough. */
static int own_by_parent(const struct escape *e)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0)
        return errno;
    int r = code(fcntl(pair[0], F_SETOWN, e->parent));
    close(pair[0]);
    close(pair[1]);
    return r;
}

static int own_by_ioctl(const struct escape *e)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return errno;
    int r = code(ioctl(pair[0], FIOSETOWN, &e->parent));
    close(pair[0]);
    close(pair[1]);
    return r;
}

/* As it is already. */
static int slow_parent(const struct escape *e)
{
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)e->parent);

    return errno ? errno : code(setpriority(PRIO_PROCESS, (id_t)e->parent, nice));
}

static int schedule_parent(const struct escape *e)
{
    struct sched_param param = {0};

    return code(sched_setscheduler(e->parent, SCHED_OTHER, &param));
}

static int may_be_nice(const struct escape *e)
{
    return code(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)));
}

static int outlive_parent(const struct escape *e)
{
    return code(prctl(PR_SET_PDEATHSIG, 0));
}

/* What a sanitizer's search for leaks asks for, in a process that nothing else would end. */
static int may_die_with_parent(const struct escape *e)
{
    return code(prctl(PR_SET_PDEATHSIG, SIGKILL));
}

/* ---- limits, kernel, network ---------------------------------------------------------------- */

static int raise_limit(const struct escape *e)
{
    struct rlimit limit = {1 << 20, 1 << 20};

    return code(setrlimit(RLIMIT_CORE, &limit));
}

static int lower_parents_limit(const struct escape *e)
{
    struct rlimit limit = {8, 8};

    return code(prlimit(e->parent, RLIMIT_MSGQUEUE, &limit, NULL));
}

static int new_namespace(const struct escape *e)
{
    return code(unshare(CLONE_NEWUSER));
}

static int key(const struct escape *e)
{
    return code(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
}

static int bpf(const struct escape *e)
{
    return code(syscall(SYS_bpf, 0, NULL, 0));
}

static int ring(const struct escape *e)
{
    return code(syscall(SYS_io_uring_setup, 1, NULL));
}

static int open_socket(const struct escape *e)
{
    return closed(socket(AF_INET, SOCK_STREAM, 0));
}

static int open_unix(const struct escape *e)
{
    return closed(socket(AF_UNIX, SOCK_STREAM, 0));
}

/* With the one socket that every worker has. */
static int connect_daemon(const struct escape *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int pair[2];

    snprintf(address.sun_path, sizeof address.sun_path, "%s", e->socket);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0)
        return errno;
    int r = code(connect(pair[0], (const struct sockaddr *)&address, sizeof address));
    close(pair[0]);
    close(pair[1]);
    return r;
}

/* ---- what must go on working ---------------------------------------------------------------- */

static void *in_thread(void *result)
{
    *(int *)result = 7;
    return NULL;
}

static int run_thread(const struct escape *e)
{
    pthread_t thread;
    int result = 0;
    int r = pthread_create(&thread, NULL, in_thread, &result);

    if (r != 0)
        return r;
    pthread_join(thread, NULL);
    return result == 7 ? 0 : EIO;
}

static int load_library(const struct escape *e)
{
    void *library = dlopen("libz.so.1", RTLD_NOW);

    if (!library)
        return EACCES;
    dlclose(library);
    return 0;
}

static int signal_self(const struct escape *e)
{
    signal(SIGUSR1, SIG_IGN);
    return raise(SIGUSR1) == 0 ? code(kill(getpid(), SIGUSR1)) : errno;
}

static int map_by_host(const struct escape *e)
{
    const void *data;
    uint64_t bytes;
    int r = e->host->map(e->host, e->data, &data, &bytes);

    return r < 0 ? -r : 0;
}

static const struct attempt {
    const char *name;
    int (*run)(const struct escape *e);
} attempts[] = {
    {"read outside", read_outside},
    {"list outside", list_outside},
    {"open to write", open_to_write},
    {"append to file", append_to_file},
    {"empty file", empty_file},
    {"create file", create_file},
    {"create elsewhere", create_elsewhere},
    {"create nameless", create_nameless},
    {"make directory", make_directory},
    {"make link", make_link},
    {"change mode", change_mode},
    {"change times", change_times},
    {"rename file", rename_file},
    {"remove file", remove_file},
    {"shared memory", shared_memory},
    {"fork", fork_off},
    {"clone", clone_off},
    {"execute", execute},
    {"execute memory", execute_memory},
    {"trace parent", trace_parent},
    {"read parent", read_parent},
    {"take a file of its parent", take_parents_file},
    {"take a descriptor of its parent", take_parents_fd},
    {"kill parent", kill_parent},
    {"kill group", kill_group},
    {"kill all", kill_all},
    {"outlive parent", outlive_parent},
    {"signal parent by file", own_by_parent},
    {"signal parent by socket", own_by_ioctl},
    {"slow parent", slow_parent},
    {"schedule parent", schedule_parent},
    {"raise limit", raise_limit},
    {"lower a limit of its parent", lower_parents_limit},
    {"namespace", new_namespace},
    {"key", key},
    {"bpf", bpf},
    {"ring", ring},
    {"socket", open_socket},
    {"unix socket", open_unix},
    {"connect to daemon", connect_daemon},
    {"may read data", read_data},
    {"may die with parent", may_die_with_parent},
    {"may write null", write_null},
    {"may run thread", run_thread},
    {"may load library", load_library},
    {"may signal itself", signal_self},
    {"may be nice", may_be_nice},
    {"may map by host", map_by_host},
};

/* ---- the plug-in ---------------------------------------------------------------------------- */

static void take_text(const json_t *config, const char *key_, char *ret, size_t room)
{
    const char *text = json_string_value(json_object_get(config, key_));

    snprintf(ret, room, "%s", text ? text : "");
}

static int escape_open(const struct dl_plugin_host *host, const char *config, void **ret)
{
    json_t *json = json_loads(config, JSON_DECODE_ANY, NULL);
    struct escape *e = calloc(1, sizeof *e);

    if (!e || !json)
        return -ENOMEM;
    e->host = host;
    e->parent = (int)json_integer_value(json_object_get(json, "parent"));
    take_text(json, "socket", e->socket, sizeof e->socket);
    take_text(json, "read", e->read, sizeof e->read);
    take_text(json, "data", e->data, sizeof e->data);
    take_text(json, "dir", e->dir, sizeof e->dir);
    snprintf(e->victim, sizeof e->victim, "%s/victim", e->dir);
    json_decref(json);
    *ret = e;
    return 0;
}

static void escape_close(void *ds)
{
    free(ds);
}

static int escape_length(void *ds, uint64_t *ret)
{
    *ret = sizeof attempts / sizeof *attempts;
    return 0;
}

/* Text, so that the test finds it in the slot without knowing how a batch is laid out. */
static int escape_get(void *ds, uint64_t index, struct dl_plugin_sample *s,
                      struct dl_plugin_rng *rng)
{
    const struct escape *e = ds;
    char *text = e->host->alloc(s, TEXT_MAX);
    int r = attempts[index].run(e);
    int len = text ? snprintf(text, TEXT_MAX, "<%s: %d>", attempts[index].name, r) : 0;

    return e->host->string(s, NULL, text, (size_t)len);
}

static const struct dl_plugin plugin = {
    .abi = DL_PLUGIN_ABI,
    .size = sizeof plugin,
    .open = escape_open,
    .close = escape_close,
    .length = escape_length,
    .get = escape_get,
};

const struct dl_plugin *dl_plugin_entry(void)
{
    return &plugin;
}
