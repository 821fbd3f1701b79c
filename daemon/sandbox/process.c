/* What holds for any process that is closed in, whatever else does. */
#include "daemon/sandbox/sandbox.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/*
 * Anybody may say so of itself, and not take it back. The pages of a ring count as nobody's while
 * they are allocated: the kernel would look elsewhere.
 */
void sandbox_go_first(void)
{
    _cleanup_fd_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, "1000", 4);
}

/*
 * No limit on the size of files: it would hold for segments, too, which the worker allocates. None
 * on processes: it counts all that the user has, and would keep threads from starting. Both are for
 * the calls and the files below.
 */
void sandbox_harden(void)
{
    static const int none[] = {RLIMIT_CORE, RLIMIT_MSGQUEUE, RLIMIT_RTPRIO};
    const struct rlimit zero = {0, 0};

    sandbox_go_first();
    /* None of these can fail for a reason the worker could act on. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        (void)setrlimit((__rlimit_resource_t)none[i], &zero);
    (void)signal(SIGPIPE, SIG_IGN);
    /* Ctrl-C in the terminal of a daemon run by hand is the daemon's to handle. */
    (void)signal(SIGINT, SIG_IGN);
}

/* One by one, as they are listed. */
static void sandbox_close_listed(int first)
{
    DIR *list = opendir("/proc/self/fd");

    if (!list)
        return;
    for (struct dirent *entry; (entry = readdir(list));) {
        int fd = (int)strtol(entry->d_name, NULL, 10); /* 0 of "." and ".." */

        if (fd >= first && fd != dirfd(list))
            close(fd);
    }
    closedir(list);
}

/* The libc has a name for the call from glibc 2.34 on only, and Linux has it from 5.9 on. */
void sandbox_close_from(int first)
{
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0) < 0)
        sandbox_close_listed(first);
}
