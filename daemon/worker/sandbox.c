#include "daemon/worker/sandbox.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/*
 * No limit on the size of files: it would hold for segments, too, which the worker allocates. None
 * on processes: it counts all that the user has, and would keep threads from starting. Both are for
 * the calls and the files below.
 */
void sandbox_harden(void)
{
    static const int none[] = {RLIMIT_CORE, RLIMIT_MSGQUEUE, RLIMIT_RTPRIO};
    const struct rlimit zero = {0, 0};

    /* None of these can fail for a reason the worker could act on. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        (void)setrlimit((__rlimit_resource_t)none[i], &zero);
    (void)signal(SIGPIPE, SIG_IGN);
    /* Ctrl-C in the terminal of a daemon run by hand is the daemon's to handle. */
    (void)signal(SIGINT, SIG_IGN);
}
