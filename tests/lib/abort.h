/*
 * Proof that an assertion stands: a call that must end in abort(), made in a child process. The
 * child says nothing, leaves no core, and exits with 0 when the call returns.
 */
#ifndef DL_TEST_ABORT_H
#define DL_TEST_ABORT_H

#include "tests/lib/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static inline bool call_aborts(void (*call)(void *arg), void *arg)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(null, STDERR_FILENO);
        call(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#endif
