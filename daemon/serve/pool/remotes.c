#include "daemon/serve/pool/remotes.h"

#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/base/networks.h"
#include "proto/fdpass.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

enum { REMOTES_CONTROL = 3 }; /* its descriptor in the process */

struct remotes {
    uv_loop_t *loop;
    const struct config *config; /* borrowed */
    uv_process_t process;
    int control; /* owned; -1: it does not run */
    bool alive;  /* it runs, or its handle is not closed yet */
    bool ended;  /* it does not run any more */
    bool freed;
};

static void remotes_on_closed(uv_handle_t *handle)
{
    struct remotes *remotes = container_of(handle, struct remotes, process);

    remotes->alive = remotes->ended = false;
    if (remotes->freed)
        free(remotes);
}

static void remotes_on_exit(uv_process_t *process, int64_t status, int signal)
{
    struct remotes *remotes = container_of(process, struct remotes, process);

    if (!remotes->freed)
        log_warning("the process that fetches remote files has ended (status %lld, signal %d); the "
                    "next worker starts another",
                    (long long)status, signal);
    remotes->ended = true;
    close_fdp(&remotes->control);
    uv_close((uv_handle_t *)process, remotes_on_closed);
}

static int remotes_spawn(struct remotes *remotes, int control)
{
    char name[] = "dloaderd", fetch[] = "--fetch", memory[32];
    const struct config_dirs *denied = &remotes->config->remote.denied;
    char *args[NETWORKS_MAX + 4] = {name, fetch, memory};
    uv_stdio_container_t stdio[REMOTES_CONTROL + 1] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = control},
    };
    const uv_process_options_t options = {.exit_cb = remotes_on_exit,
                                          .flags = UV_PROCESS_DETACHED,
                                          .file = "/proc/self/exe",
                                          .args = args,
                                          .cwd = "/",
                                          .stdio = stdio,
                                          .stdio_count = REMOTES_CONTROL + 1};

    assert(denied->n <= NETWORKS_MAX);
    for (uint32_t i = 0; i < denied->n; i++)
        args[3 + i] = denied->paths[i];
    snprintf(memory, sizeof memory, "%d:%llu:%d", REMOTES_CONTROL,
             (unsigned long long)remotes->config->remote.held,
             remotes->config->sandbox != CONFIG_SANDBOX_OFF);
    return uv_spawn(remotes->loop, &remotes->process, &options);
}

static int remotes_start(struct remotes *remotes, struct dl_error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return dl_error_set(err, errno, "remote files", "no socket can be made: %s",
                            strerror(errno));
    _cleanup_fd_ int theirs = pair[1];
    int r = remotes_spawn(remotes, theirs);
    remotes->alive = true;
    if (r < 0) {
        remotes->ended = true;
        close(pair[0]);
        uv_close((uv_handle_t *)&remotes->process, remotes_on_closed);
        return dl_error_set(err, -r, "remote files",
                            "the process that fetches them cannot be started: %s", uv_strerror(r));
    }
    remotes->control = pair[0];
    return 0;
}

int remotes_connect(struct remotes *remotes, int *ret, struct dl_error *err)
{
    int pair[2];
    int r = remotes->alive ? 0 : remotes_start(remotes, err);

    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return dl_error_set(err, errno, "remote files", "no socket can be made: %s",
                            strerror(errno));
    _cleanup_fd_ int theirs = pair[1];
    *ret = pair[0];
    /* Of one that has just ended a worker finds its socket closed, and is started again. */
    if (remotes->control < 0 || fdpass_send(remotes->control, "", 1, &theirs, 1, 0) < 0)
        log_debug("the process that fetches remote files is about to end");
    return 0;
}

struct remotes *remotes_new(uv_loop_t *loop, const struct config *config)
{
    struct remotes *remotes = must_alloc(sizeof *remotes);

    remotes->loop = loop;
    remotes->config = config;
    remotes->control = -1;
    return remotes;
}

struct remotes *remotes_free(struct remotes *remotes)
{
    if (!remotes)
        return NULL;
    close_fdp(&remotes->control);
    remotes->freed = true;
    if (!remotes->alive)
        free(remotes);
    else if (!remotes->ended)
        (void)uv_process_kill(&remotes->process, SIGKILL);
    return NULL;
}
