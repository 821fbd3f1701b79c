/* The sandbox's files: Landlock, by its system calls, for which there is no library. */
#include "daemon/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* As the kernel has them: headers are often older than the kernel. */
enum {
    NR_CREATE_RULESET = 444,
    NR_ADD_RULE = 445,
    NR_RESTRICT_SELF = 446,
    VERSION = 1 << 0, /* flag: asks which there is */
    PATH_BENEATH = 1, /* type of a rule */
    ABI_REFER = 2,    /* since which version there is what */
    ABI_TRUNCATE = 3,
    ABI_NETWORK = 4,
    ABI_IOCTL = 5,
    ABI_SCOPE = 6,
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    MAKE_FILE = 1 << 8,
    FIRST_RIGHTS = (1 << 13) - 1,
    REFER = 1 << 13,
    TRUNCATE = 1 << 14,
    IOCTL = 1 << 15,
    BIND_TCP = 1 << 0,
    CONNECT_TCP = 1 << 1,
    ABSTRACT_SOCKETS_AND_SIGNALS = 3,
};

struct ruleset_attr {
    uint64_t files;
    uint64_t network;
    uint64_t scoped;
};

struct path_beneath {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed));

/*
 * What a libc and other libraries read when they please: libraries that are loaded late, character
 * sets, time zones, what the machine is like.
 */
static const char *const sandbox_commons[] = {"/usr",
                                              "/lib",
                                              "/lib32",
                                              "/lib64",
                                              "/etc/ld.so.cache",
                                              "/etc/ld.so.preload",
                                              "/etc/localtime",
                                              "/etc/alternatives",
                                              "/sys/devices/system",
                                              "/proc/cpuinfo",
                                              "/proc/meminfo",
                                              "/proc/stat",
                                              "/proc/sys",
                                              "/proc/self",
                                              "/dev/zero",
                                              "/dev/random",
                                              "/dev/urandom"};

static uint64_t sandbox_files_handled_rights(int abi)
{
    uint64_t rights = FIRST_RIGHTS;

    if (SANDBOX_COVERED)
        return EXECUTE | READ_FILE | READ_DIR;
    if (abi >= ABI_REFER)
        rights |= REFER;
    if (abi >= ABI_TRUNCATE)
        rights |= TRUNCATE;
    if (abi >= ABI_IOCTL)
        rights |= IOCTL;
    return rights;
}

int sandbox_landlock(void)
{
    long abi = syscall(NR_CREATE_RULESET, NULL, 0, VERSION);

    return abi > 0 ? (int)abi : 0;
}

static void sandbox_files_add_rule(struct sandbox_files *files, const char *path, uint64_t rights)
{
    _cleanup_fd_ int fd = files->ruleset < 0 ? -1 : open(path, O_PATH | O_CLOEXEC);
    struct path_beneath rule = {.allowed = rights, .parent = fd};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return;
    if (!S_ISDIR(st.st_mode))
        rule.allowed &= ~(uint64_t)READ_DIR;
    (void)syscall(NR_ADD_RULE, files->ruleset, PATH_BENEATH, &rule, 0);
}

static void sandbox_files_begin_with(struct sandbox_files *files, uint64_t network)
{
    struct ruleset_attr attr = {0};

    *files = (struct sandbox_files){.ruleset = -1, .abi = sandbox_landlock()};
    if (files->abi == 0)
        return;
    attr.files = sandbox_files_handled_rights(files->abi);
    if (files->abi >= ABI_NETWORK)
        attr.network = network;
    if (files->abi >= ABI_SCOPE)
        attr.scoped = ABSTRACT_SOCKETS_AND_SIGNALS;
    files->ruleset = (int)syscall(NR_CREATE_RULESET, &attr, sizeof attr, 0);
    for (size_t i = 0; i < ARRAY_SIZE(sandbox_commons); i++)
        sandbox_files_allow(files, sandbox_commons[i]);
    sandbox_files_add_rule(files, "/dev/null", READ_FILE | (SANDBOX_COVERED ? 0 : WRITE_FILE));
    if (SANDBOX_SANITIZED) { /* they look up symbols at their end */
        sandbox_files_allow(files, "/proc");
        sandbox_files_allow(files, "/proc/self/exe");
    }
}

void sandbox_files_begin(struct sandbox_files *files)
{
    sandbox_files_begin_with(files, BIND_TCP | CONNECT_TCP);
}

void sandbox_files_begin_online(struct sandbox_files *files)
{
    sandbox_files_begin_with(files, BIND_TCP);
}

void sandbox_files_allow(struct sandbox_files *files, const char *path)
{
    sandbox_files_add_rule(files, path, READ_FILE | READ_DIR);
}

void sandbox_files_allow_writing(struct sandbox_files *files, const char *path)
{
    uint64_t rights = READ_FILE | READ_DIR | WRITE_FILE | MAKE_FILE | TRUNCATE;

    sandbox_files_add_rule(files, path, rights & sandbox_files_handled_rights(files->abi));
}

uint32_t sandbox_files_hold(struct sandbox_files *files)
{
    _cleanup_fd_ int ruleset = steal_fd(&files->ruleset);
    uint32_t parts = SANDBOX_FILES;

    if (ruleset < 0 || syscall(NR_RESTRICT_SELF, ruleset, 0) < 0)
        return 0;
    if (files->abi >= ABI_NETWORK)
        parts |= SANDBOX_NETWORK;
    if (files->abi >= ABI_SCOPE)
        parts |= SANDBOX_SIGNALS;
    return parts;
}
