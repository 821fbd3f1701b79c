/* The sandbox's list of forbidden system calls. */
#include "daemon/sandbox/sandbox.h"

#if !HAVE_SECCOMP

uint32_t sandbox_calls(enum sandbox_level level, bool landlock)
{
    (void)level, (void)landlock;
    return 0;
}

uint32_t sandbox_calls_online(bool landlock, bool accepts)
{
    (void)landlock, (void)accepts;
    return 0;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* Newer than some copies of libseccomp; the same number on all architectures but Alpha. */
enum { NR_FCHMODAT2 = 452, NR_SETXATTRAT = 463, NR_REMOVEXATTRAT = 466, NR_FILE_SETATTR = 469 };

enum { IOPRIO_WHO_PROCESS = 1 }; /* only in the kernel's headers */

/* Nobody who loads data has a use for these, whatever language it is written in. */
static const char *const sandbox_attacks[] = {
    "acct",
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_load",
    "kexec_file_load",
    "keyctl",
    "lookup_dcookie",
    "nfsservctl",
    "quotactl",
    "open_by_handle_at",
    "perf_event_open",
    "quotactl_fd",
    "reboot",
    "request_key",
    "sethostname",
    "setdomainname",
    "settimeofday",
    "swapon",
    "swapoff",
    "syslog",
    "userfaultfd",
    "vhangup",
    "process_vm_readv",
    "process_vm_writev",
};

/* Other programs, processes, users, namespaces, and what goes around a file's opening. */
static const char *const sandbox_outside[] = {
    /* programs and processes; clone() is looked at below */
    "execve", "execveat", "fork", "vfork", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    "pidfd_getfd", "pidfd_send_signal", "process_madvise", "process_mrelease", "setrlimit",
    /* users and namespaces */
    "capset", "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups",
    "setfsuid", "setfsgid", "chroot", "mount", "umount", "umount2", "pivot_root", "move_mount",
    "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "setns", "unshare",
    "modify_ldt", "adjtimex",
    /* other processes' ears; what the worker has open already, it may use */
    "listen", "shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl", "semget",
    "semop", "semtimedop", "semctl", "mq_open", "mq_unlink", "io_uring_setup", "io_uring_enter",
    "io_uring_register"};

/* Who is called on a socket that listens already. */
static const char *const sandbox_called[] = {"accept", "accept4"};

/* Networks, for who has no business there. */
static const char *const sandbox_sockets[] = {"socket", "bind", "connect"};

/* A file's name, rights, owner, times and place: with Landlock, too, which does not see them all.
 */
static const char *const sandbox_file_calls[] = {
    "chmod",    "fchmod",    "fchmodat",  "chown",       "fchown",       "lchown",       "fchownat",
    "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "utime",
    "utimes",   "futimesat", "utimensat", "truncate",    "mkdir",        "mkdirat",      "rmdir",
    "mknod",    "mknodat",   "link",      "linkat",      "symlink",      "symlinkat",    "unlink",
    "unlinkat", "rename",    "renameat",  "renameat2",   "creat"};

/* The filter being made; the first failure sticks. */
struct filter {
    scmp_filter_ctx ctx;
    int r;
};

static void sandbox_calls_forbid_number(struct filter *f, int number)
{
    if (f->r == 0)
        f->r = seccomp_rule_add(f->ctx, SCMP_ACT_ERRNO(EPERM), number, 0);
}

static void sandbox_calls_forbid(struct filter *f, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);

        if (number != __NR_SCMP_ERROR) /* that copy of libseccomp has never heard of it */
            sandbox_calls_forbid_number(f, number);
    }
}

/* The call fails with `code` where one of its arguments is so. */
static void sandbox_calls_forbid_where(struct filter *f, const char *name, int code,
                                       struct scmp_arg_cmp arg)
{
    int number = seccomp_syscall_resolve_name(name);

    if (f->r == 0)
        f->r = seccomp_rule_add_array(f->ctx, SCMP_ACT_ERRNO((uint32_t)code), number, 1, &arg);
}

/* `value` in the lower half of an argument: the kernel reads no more of an int. */
static struct scmp_arg_cmp sandbox_calls_is_int(unsigned arg, uint32_t value)
{
    return SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, UINT32_MAX, value);
}

static void sandbox_calls_forbid_attacks(struct filter *f)
{
    sandbox_calls_forbid(f, sandbox_attacks, ARRAY_SIZE(sandbox_attacks));
    if (!SANDBOX_SANITIZED)
        sandbox_calls_forbid_number(f, SCMP_SYS(ptrace));
    /* Keys that its user never pressed. */
    sandbox_calls_forbid_where(f, "ioctl", EPERM, sandbox_calls_is_int(1, TIOCSTI));
    sandbox_calls_forbid_where(f, "ioctl", EPERM, sandbox_calls_is_int(1, TIOCLINUX));
}

/* Threads are clones that share all; anything else is a process. */
static void sandbox_calls_forbid_processes(struct filter *f)
{
    static const uint64_t namespaces[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
                                          CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
                                          CLONE_NEWNET};
    const uint64_t thread = CLONE_THREAD | (SANDBOX_SANITIZED ? CLONE_VM : 0);
#if defined(__s390__) || defined(__CRIS__)
    const unsigned flags = 1;
#else
    const unsigned flags = 0;
#endif

    sandbox_calls_forbid_where(f, "clone", EPERM, SCMP_CMP64(flags, SCMP_CMP_MASKED_EQ, thread, 0));
    for (size_t i = 0; i < ARRAY_SIZE(namespaces); i++)
        sandbox_calls_forbid_where(
            f, "clone", EPERM, SCMP_CMP64(flags, SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i]));
    /* Its flags lie in memory, where nobody can judge them; the libc then makes a clone(). */
    if (f->r == 0)
        f->r = seccomp_rule_add(f->ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/* A file that is ready sends its owner a signal, which may be any process and any signal. */
static void sandbox_calls_forbid_owners(struct filter *f)
{
    sandbox_calls_forbid_where(f, "fcntl", EPERM, sandbox_calls_is_int(1, F_SETOWN));
    sandbox_calls_forbid_where(f, "fcntl", EPERM, sandbox_calls_is_int(1, F_SETOWN_EX));
    sandbox_calls_forbid_where(f, "fcntl", EPERM, sandbox_calls_is_int(1, F_SETSIG));
    sandbox_calls_forbid_where(f, "ioctl", EPERM, sandbox_calls_is_int(1, FIOSETOWN));
    sandbox_calls_forbid_where(f, "ioctl", EPERM, sandbox_calls_is_int(1, SIOCSPGRP));
}

/*
 * How fast another process runs and where its memory lies; 0 is the caller. On which CPUs, can
 * be said of others still: a thread's own number is not known here.
 */
static void sandbox_calls_forbid_slowing(struct filter *f)
{
    static const struct {
        const char *name;
        unsigned pid;
    } calls[] = {{"setpriority", 1},    {"ioprio_set", 1},    {"sched_setscheduler", 0},
                 {"sched_setparam", 0}, {"sched_setattr", 0}, {"migrate_pages", 0},
                 {"move_pages", 0}};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        sandbox_calls_forbid_where(f, calls[i].name, EPERM,
                                   SCMP_CMP64(calls[i].pid, SCMP_CMP_NE, 0));
    /* Of a group or a user 0 is the caller's, and others are in it. */
    sandbox_calls_forbid_where(f, "setpriority", EPERM, SCMP_CMP64(0, SCMP_CMP_NE, PRIO_PROCESS));
    sandbox_calls_forbid_where(f, "ioprio_set", EPERM,
                               SCMP_CMP64(0, SCMP_CMP_NE, IOPRIO_WHO_PROCESS));
}

/* Of what a process does to any, what it may do to itself. */
static void sandbox_calls_forbid_others(struct filter *f)
{
    static const int prctls[] = {PR_SET_PTRACER, PR_SET_MM};
    struct scmp_arg_cmp outlive[] = {sandbox_calls_is_int(0, PR_SET_PDEATHSIG),
                                     SCMP_CMP64(1, SCMP_CMP_NE, SIGKILL)};
    uint64_t self = (uint64_t)getpid();

    sandbox_calls_forbid_where(f, "kill", EPERM, SCMP_CMP64(0, SCMP_CMP_NE, self));
    sandbox_calls_forbid_where(f, "tgkill", EPERM, SCMP_CMP64(0, SCMP_CMP_NE, self));
    sandbox_calls_forbid_where(f, "prlimit64", EPERM,
                               SCMP_CMP64(2, SCMP_CMP_NE, 0)); /* new limits */
    sandbox_calls_forbid_owners(f);
    sandbox_calls_forbid_slowing(f);
    /* Which personality it has, it may ask. */
    sandbox_calls_forbid_where(f, "personality", EPERM, SCMP_CMP64(0, SCMP_CMP_LT, UINT32_MAX));
    for (size_t i = 0; i < ARRAY_SIZE(prctls); i++)
        sandbox_calls_forbid_where(f, "prctl", EPERM, sandbox_calls_is_int(0, (uint32_t)prctls[i]));
    /* It dies with its parent, and so does what a sanitizer looks for leaks with, which asks. */
    if (f->r == 0)
        f->r = seccomp_rule_add_array(f->ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prctl),
                                      ARRAY_SIZE(outlive), outlive);
}

/* Where Landlock does not keep files from being opened to write. */
static void sandbox_calls_forbid_writing(struct filter *f)
{
    static const uint64_t ways[] = {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC};

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        sandbox_calls_forbid_where(f, "open", EACCES,
                                   SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, ways[i], ways[i]));
        sandbox_calls_forbid_where(f, "openat", EACCES,
                                   SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, ways[i], ways[i]));
    }
    if (f->r == 0)
        f->r = seccomp_rule_add(f->ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(openat2), 0);
}

/* Kinds of sockets that no client of a server needs: raw packets, the kernel's ciphers, … */
static void sandbox_calls_forbid_families(struct filter *f)
{
    static const int needed[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    uint32_t next = 0;

    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        for (; next < (uint32_t)needed[i]; next++)
            sandbox_calls_forbid_where(f, "socket", EAFNOSUPPORT, sandbox_calls_is_int(0, next));
        next++;
    }
    sandbox_calls_forbid_where(f, "socket", EAFNOSUPPORT, SCMP_CMP64(0, SCMP_CMP_GE, next));
}

static void sandbox_calls_forbid_outside(struct filter *f, bool landlock)
{
    static const int later[] = {NR_FCHMODAT2, NR_SETXATTRAT, NR_REMOVEXATTRAT, NR_FILE_SETATTR};

    sandbox_calls_forbid(f, sandbox_outside, ARRAY_SIZE(sandbox_outside));
    sandbox_calls_forbid_processes(f);
    sandbox_calls_forbid_others(f);
    if (SANDBOX_COVERED)
        return;
    sandbox_calls_forbid(f, sandbox_file_calls, ARRAY_SIZE(sandbox_file_calls));
    for (size_t i = 0; i < ARRAY_SIZE(later); i++)
        sandbox_calls_forbid_number(f, later[i]);
    if (!landlock)
        sandbox_calls_forbid_writing(f);
}

static struct filter sandbox_calls_begin(void)
{
    struct filter f = {.ctx = seccomp_init(SCMP_ACT_ALLOW)};

    if (!f.ctx)
        return f;
    /* The process runs no code of others beside its own: it need not be slower for that. */
    (void)seccomp_attr_set(f.ctx, SCMP_FLTATR_CTL_SSB, 1);
    sandbox_calls_forbid_attacks(&f);
    return f;
}

static uint32_t sandbox_calls_hold(struct filter *f)
{
    if (f->r == 0)
        f->r = seccomp_load(f->ctx);
    seccomp_release(f->ctx);
    return f->r == 0 ? SANDBOX_CALLS : 0;
}

uint32_t sandbox_calls(enum sandbox_level level, bool landlock)
{
    struct filter f = level == SANDBOX_OFF ? (struct filter){0} : sandbox_calls_begin();

    if (!f.ctx)
        return 0;
    if (level == SANDBOX_FULL) {
        sandbox_calls_forbid_outside(&f, landlock);
        sandbox_calls_forbid(&f, sandbox_called, ARRAY_SIZE(sandbox_called));
        sandbox_calls_forbid(&f, sandbox_sockets, ARRAY_SIZE(sandbox_sockets));
    }
    return sandbox_calls_hold(&f);
}

uint32_t sandbox_calls_online(bool landlock, bool accepts)
{
    struct filter f = sandbox_calls_begin();

    if (!f.ctx)
        return 0;
    sandbox_calls_forbid_outside(&f, landlock);
    if (!accepts)
        sandbox_calls_forbid(&f, sandbox_called, ARRAY_SIZE(sandbox_called));
    sandbox_calls_forbid_families(&f);
    return sandbox_calls_hold(&f);
}

#endif
