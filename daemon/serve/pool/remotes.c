#include "daemon/serve/pool/remotes.h"

#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/base/networks.h"
#include "proto/fdpass.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { REMOTES_CONTROL = 3, REMOTES_PAGE }; /* descriptors in the process */

struct remotes {
    uv_loop_t *loop;
    const struct config *config; /* borrowed */
    uv_process_t process;
    int control;                       /* owned; -1: it does not run */
    int page;                          /* owned: memory of `counts`; -1: it never ran */
    const struct remote_tally *counts; /* mapped; NULL likewise */
    bool alive;                        /* it runs, or its handle is not closed yet */
    bool ended;                        /* it does not run any more */
    bool freed;
};

static void remotes_drop(struct remotes *remotes)
{
    if (remotes->counts)
        (void)munmap((void *)(uintptr_t)remotes->counts, sizeof *remotes->counts);
    close_fdp(&remotes->page);
    free(remotes);
}

static void remotes_on_closed(uv_handle_t *handle)
{
    struct remotes *remotes = container_of(handle, struct remotes, process);

    remotes->alive = remotes->ended = false;
    if (remotes->freed)
        remotes_drop(remotes);
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
    char name[] = "dloaderd", fetch[] = "--fetch", how[64];
    const struct config_dirs *denied = &remotes->config->remote.denied;
    char *args[NETWORKS_MAX + 4] = {name, fetch, how};
    uv_stdio_container_t stdio[REMOTES_PAGE + 1] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = control},
        {.flags = UV_INHERIT_FD, .data.fd = remotes->page},
    };
    const uv_process_options_t options = {.exit_cb = remotes_on_exit,
                                          .flags = UV_PROCESS_DETACHED,
                                          .file = "/proc/self/exe",
                                          .args = args,
                                          .cwd = "/",
                                          .stdio = stdio,
                                          .stdio_count = REMOTES_PAGE + 1};

    assert(denied->n <= NETWORKS_MAX);
    for (uint32_t i = 0; i < denied->n; i++)
        args[3 + i] = denied->paths[i];
    snprintf(how, sizeof how, "%d:%d:%llu:%d", REMOTES_CONTROL, REMOTES_PAGE,
             (unsigned long long)remotes->config->remote.held,
             remotes->config->sandbox != CONFIG_SANDBOX_OFF);
    return uv_spawn(remotes->loop, &remotes->process, &options);
}

/* The page that all processes count in, one after another. */
static int remotes_make_page(struct remotes *remotes)
{
    _cleanup_fd_ int fd = memfd_create("dloader-counts", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (remotes->counts)
        return 0;
    if (fd < 0 || ftruncate(fd, sizeof *remotes->counts) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    void *map = mmap(NULL, sizeof *remotes->counts, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    remotes->counts = map;
    remotes->page = steal_fd(&fd);
    return 0;
}

static int remotes_start(struct remotes *remotes, struct dl_error *err)
{
    int pair[2];
    int r = remotes_make_page(remotes);

    if (r < 0)
        return dl_error_set(err, -r, "remote files", "no memory to count in can be had: %s",
                            strerror(-r));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return dl_error_set(err, errno, "remote files", "no socket can be made: %s",
                            strerror(errno));
    _cleanup_fd_ int theirs = pair[1];
    r = remotes_spawn(remotes, theirs);
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
    remotes->control = remotes->page = -1;
    return remotes;
}

void remotes_look(const struct remotes *remotes, uint64_t ret[static REMOTE_COUNTS], int *ret_pid)
{
    bool runs = remotes->alive && !remotes->ended;

    for (int i = 0; i < REMOTE_COUNTS; i++) {
        bool is_known = remotes->counts && (runs || !remote_count_is_gauge(i));

        ret[i] = is_known ? remote_tally_read(remotes->counts, i) : 0;
    }
    *ret_pid = runs ? remotes->process.pid : 0;
}

struct remotes *remotes_free(struct remotes *remotes)
{
    if (!remotes)
        return NULL;
    close_fdp(&remotes->control);
    remotes->freed = true;
    if (!remotes->alive)
        remotes_drop(remotes);
    else if (!remotes->ended)
        (void)uv_process_kill(&remotes->process, SIGKILL);
    return NULL;
}
