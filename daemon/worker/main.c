/*
 * dloader-worker: started by dloaderd, never by hand. Closes itself off before it sees a byte of
 * anyone's data: no privileges to gain, no core file, no life without its daemon.
 */
#include "daemon/worker/sandbox.h"
#include "daemon/worker/worker.h"

#include <stdio.h>
#include <sys/socket.h>

enum { WORKER_SOCKET = 3 };

static bool is_socket(int fd)
{
    int type;
    socklen_t len = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

int main(int argc, char **argv)
{
    if (argc != 1 || !is_socket(WORKER_SOCKET)) {
        fprintf(stderr, "dloader-worker %s is started by dloaderd, not by hand\n", DLOADER_VERSION);
        return 2;
    }
    /* What the daemon itself was started with by mistake is no business of ours. */
    sandbox_close_from(WORKER_SOCKET + 1);
    sandbox_harden();
    return worker_run(WORKER_SOCKET, &fetch_engine);
}
