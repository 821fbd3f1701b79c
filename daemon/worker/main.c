/*
 * dloader-worker: started by dloaderd, never by hand. Closes itself off before it sees a byte of
 * anyone's data: no privileges to gain, no core file, no life without its daemon.
 */
#include "daemon/worker/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { WORKER_SOCKET = 3 };

static bool is_socket(int fd)
{
    int type;
    socklen_t len = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

static void harden(void)
{
    struct rlimit no_core = {0, 0};

    /* What the daemon itself was started with by mistake is no business of ours. */
    (void)close_range(WORKER_SOCKET + 1, ~0u, 0);
    /* None of these can fail for a reason the worker could act on. */
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(SIGPIPE, SIG_IGN);
    /* Ctrl-C in the terminal of a daemon run by hand is the daemon's to handle. */
    (void)signal(SIGINT, SIG_IGN);
}

int main(int argc, char **argv)
{
    if (argc != 1 || !is_socket(WORKER_SOCKET)) {
        fprintf(stderr, "dloader-worker %s is started by dloaderd, not by hand\n", DLOADER_VERSION);
        return 2;
    }
    harden();
    return worker_run(WORKER_SOCKET, &fetch_engine);
}
