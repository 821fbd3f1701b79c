#include "daemon/serve/pool/remotes.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/base/networks.h"
#include "proto/common/sealed.h"
#include "proto/fdpass.h"
#include "proto/fetcher_control.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <utlist.h>

enum { REMOTES_CONTROL = 3, REMOTES_PAGE }; /* descriptors in the process */

struct remotes {
    uv_loop_t *loop;
    const struct config *config;    /* borrowed */
    struct remote_peers *peers;     /* owned; NULL: there are none */
    struct fetching *head;          /* (utlist) */
    uint64_t before[REMOTE_COUNTS]; /* counted by processes that have gone */
    uint64_t loaders;               /* that have a number */
};

/* One process, until its handle is closed. */
struct fetching {
    uv_process_t process;
    struct remotes *remotes; /* NULL: they have gone */
    bool own;                /* the daemon's own user's; else of */
    uid_t uid;
    gid_t gid;
    int control; /* owned; -1: it does not run */
    bool ended;
    const struct remote_tally *counts; /* mapped: what it counts */
    struct fetching *prev, *next;
};

/* Adds what it has counted, and what it holds if it runs. */
static void fetching_add_counts(const struct fetching *fetching,
                                uint64_t sums[static REMOTE_COUNTS])
{
    for (int i = 0; i < REMOTE_COUNTS; i++) {
        if (!fetching->ended || !remote_count_is_gauge(i))
            sums[i] += remote_tally_read(fetching->counts, i);
    }
}

static void fetching_on_closed(uv_handle_t *handle)
{
    struct fetching *fetching = container_of(handle, struct fetching, process);

    if (fetching->remotes) {
        fetching_add_counts(fetching, fetching->remotes->before);
        DL_DELETE(fetching->remotes->head, fetching);
    }
    (void)munmap((void *)(uintptr_t)fetching->counts, sizeof *fetching->counts);
    free(fetching);
}

static void fetching_end(struct fetching *fetching)
{
    fetching->ended = true;
    close_fdp(&fetching->control);
    uv_close((uv_handle_t *)&fetching->process, fetching_on_closed);
}

/* Of another user it also ends when that has had no loader for a while. */
static void fetching_on_exit(uv_process_t *process, int64_t status, int signal)
{
    struct fetching *fetching = container_of(process, struct fetching, process);

    if (fetching->remotes && (fetching->own || status != 0 || signal != 0))
        log_warning("the process that fetches remote files%s has ended (status %lld, signal %d); "
                    "the next worker starts another",
                    fetching->own ? "" : " for another user", (long long)status, signal);
    if (fetching->remotes && fetching->own && fetching->remotes->peers)
        remote_peers_note(fetching->remotes->peers, false);
    fetching_end(fetching);
}

/* What another user's process has of the daemon's environment; ends with NULL. */
enum { FETCHING_VARIABLES = 2 };

static void fetching_fill_environment(char *ret[FETCHING_VARIABLES + 1])
{
    static const char *const names[FETCHING_VARIABLES] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};
    size_t n = 0;

    for (size_t i = 0; i < FETCHING_VARIABLES; i++) {
        const char *value = getenv(names[i]);
        size_t size = strlen(names[i]) + (value ? strlen(value) : 0) + 2;

        if (!value)
            continue;
        ret[n] = must_alloc(size);
        snprintf(ret[n++], size, "%s=%s", names[i], value);
    }
    ret[n] = NULL;
}

/* Memory that it counts in. The descriptor is the caller's. */
static int fetching_make_page(const struct remote_tally **ret, int *ret_page)
{
    _cleanup_fd_ int fd = sealed_memory("dloader-counts", sizeof **ret);

    if (fd < 0)
        return fd;
    void *map = mmap(NULL, sizeof **ret, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    *ret = map;
    *ret_page = steal_fd(&fd);
    return 0;
}

/* As daemon/serve/main.c reads them: its end of the socket and of the page, how it is to be,
 * networks. */
static int fetching_spawn(struct fetching *fetching, int control, int page)
{
    const struct config *config = fetching->remotes->config;
    const struct config_dirs *denied = &config->remote.denied;
    char name[] = "dloaderd", fetch[] = "--fetch", how[128], *environment[FETCHING_VARIABLES + 1];
    char none[] = "", *args[NETWORKS_MAX + 5] = {name, fetch, how};
    uv_stdio_container_t stdio[REMOTES_PAGE + 1] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = control},
        {.flags = UV_INHERIT_FD, .data.fd = page},
    };
    uv_process_options_t options = {.exit_cb = fetching_on_exit,
                                    .flags = UV_PROCESS_DETACHED,
                                    .file = "/proc/self/exe",
                                    .args = args,
                                    .cwd = "/",
                                    .stdio = stdio,
                                    .stdio_count = REMOTES_PAGE + 1};

    assert(denied->n <= NETWORKS_MAX);
    for (uint32_t i = 0; i < denied->n; i++)
        args[4 + i] = denied->paths[i];
    args[3] = fetching->own && config->cache.size > 0 ? config->cache.dir : none;
    snprintf(how, sizeof how, "%d:%d:%llu:%d:%llu:%llu:%d", REMOTES_CONTROL, REMOTES_PAGE,
             (ull)config->remote.held, config->sandbox != CONFIG_SANDBOX_OFF,
             fetching->own ? ULLONG_MAX : (ull)(config->linger / 1000000), (ull)config->cache.size,
             fetching->own && fetching->remotes->peers != NULL);
    if (fetching->own)
        return uv_spawn(fetching->remotes->loop, &fetching->process, &options);
    /* The user can reach into it, and is to write nothing into the daemon's log. */
    stdio[STDERR_FILENO] = (uv_stdio_container_t){.flags = UV_IGNORE};
    options.flags |= UV_PROCESS_SETUID | UV_PROCESS_SETGID;
    options.uid = fetching->uid;
    options.gid = fetching->gid;
    options.env = environment;
    fetching_fill_environment(environment);
    int r = uv_spawn(fetching->remotes->loop, &fetching->process, &options);
    for (char **variable = environment; *variable; variable++)
        free(*variable);
    return r;
}

static int remotes_start(struct remotes *remotes, const struct credentials *user,
                         struct fetching **ret, struct dl_error *err)
{
    const struct remote_tally *counts = NULL;
    _cleanup_fd_ int page = -1;
    int pair[2];
    int r = fetching_make_page(&counts, &page);

    if (r < 0)
        return dl_error_set(err, -r, "remote files", "no memory to count in can be had: %s",
                            strerror(-r));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        r = dl_error_set(err, errno, "remote files", "no socket can be made: %s", strerror(errno));
        (void)munmap((void *)(uintptr_t)counts, sizeof *counts);
        return r;
    }
    _cleanup_fd_ int theirs = pair[1];
    struct fetching *fetching = must_alloc(sizeof *fetching);
    fetching->counts = counts;
    fetching->remotes = remotes;
    fetching->own = !user;
    fetching->uid = user ? user->ids[0] : 0;
    fetching->gid = user ? user->ids[1] : 0;
    fetching->control = pair[0];
    DL_APPEND(remotes->head, fetching);
    r = fetching_spawn(fetching, theirs, page);
    if (r < 0) {
        fetching_end(fetching);
        return dl_error_set(err, -r, "remote files",
                            "the process that fetches them cannot be started: %s", uv_strerror(r));
    }
    if (fetching->own && remotes->peers) {
        remote_peers_note(remotes->peers, true);
        remote_peers_tell(remotes->peers, fetching->control, true);
    }
    *ret = fetching;
    return 0;
}

/* Also one that has ended in this turn of the loop; the one after it starts another. */
static struct fetching *remotes_find(const struct remotes *remotes, const struct credentials *user)
{
    struct fetching *fetching;

    DL_FOREACH (remotes->head, fetching) {
        if (user ? !fetching->own && fetching->uid == user->ids[0] && fetching->gid == user->ids[1]
                 : fetching->own)
            return fetching;
    }
    return NULL;
}

uint64_t remotes_number(struct remotes *remotes)
{
    return ++remotes->loaders;
}

int remotes_give(struct remotes *remotes, const struct credentials *user, uint64_t loader,
                 int theirs, struct dl_error *err)
{
    const struct fetcher_word word = {.what = FETCHER_WORKER, .loader = loader};
    struct fetching *fetching = remotes_find(remotes, user);

    if (user && geteuid() != 0)
        return dl_error_set(err, EPERM, "remote files",
                            "only root's daemon fetches them for other users than its own");
    int r = fetching ? 0 : remotes_start(remotes, user, &fetching, err);
    if (r < 0)
        return r;
    /* Of one that has just ended a worker finds its socket closed, and is started again; also of
     * one that its user has stopped, so that the daemon would have to wait. */
    if (fetching->ended ||
        fdpass_send(fetching->control, &word, sizeof word, &theirs, 1, MSG_DONTWAIT) < 0)
        log_debug("the process that fetches remote files is about to end");
    return 0;
}

int remotes_connect(struct remotes *remotes, const struct credentials *user, uint64_t loader,
                    int *ret, struct dl_error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return dl_error_set(err, errno, "remote files", "no socket can be made: %s",
                            strerror(errno));
    _cleanup_fd_ int ours = pair[0];
    _cleanup_fd_ int theirs = pair[1];
    int r = remotes_give(remotes, user, loader, theirs, err);
    if (r == 0)
        *ret = steal_fd(&ours);
    return r;
}

/* ---- other nodes ---------------------------------------------------------------------------- */

/* They may have what this one kept before it ended. */
static void remotes_on_called(void *owner)
{
    struct remotes *remotes = owner;
    struct fetching *fetching = remotes_find(remotes, NULL);
    struct dl_error err = {0};

    if (!fetching && remotes_start(remotes, NULL, &fetching, &err) < 0)
        log_warning("%s: %s", err.path, err.message);
}

int remotes_listen(struct remotes *remotes, const struct peer_card **ret, struct dl_error *err)
{
    int r = remote_peers_new(remotes->loop, remotes->config, remotes_on_called, remotes,
                             &remotes->peers, err);

    *ret = remotes->peers ? remote_peers_card(remotes->peers) : NULL;
    return r;
}

void remotes_set_peers(struct remotes *remotes, const char *list)
{
    const struct fetching *own = remotes_find(remotes, NULL);

    remote_peers_set_list(remotes->peers, list);
    if (own && !own->ended)
        remote_peers_tell(remotes->peers, own->control, false);
}

int remotes_check(const struct config *all, struct dl_error *err)
{
    const char *dir = all->cache.dir;

    if (!*dir || (dir[0] == '/' && strlen(dir) < PATH_MAX))
        return remote_peers_check(all, err);
    return dl_error_set(err, EINVAL, "cache.dir",
                        "\"%s\" is not the absolute path of a directory, such as "
                        "/var/cache/dloader",
                        dir);
}

struct remotes *remotes_new(uv_loop_t *loop, const struct config *config)
{
    struct remotes *remotes = must_alloc(sizeof *remotes);

    remotes->loop = loop;
    remotes->config = config;
    return remotes;
}

void remotes_look(const struct remotes *remotes, uint64_t ret[static REMOTE_COUNTS], int *ret_pid)
{
    const struct fetching *own = remotes_find(remotes, NULL), *fetching;

    memcpy(ret, remotes->before, sizeof remotes->before);
    DL_FOREACH (remotes->head, fetching)
        fetching_add_counts(fetching, ret);
    *ret_pid = own && !own->ended ? own->process.pid : 0;
}

struct remotes *remotes_free(struct remotes *remotes)
{
    struct fetching *fetching, *next;

    if (!remotes)
        return NULL;
    DL_FOREACH_SAFE (remotes->head, fetching, next) {
        fetching->remotes = NULL;
        close_fdp(&fetching->control);
        if (!fetching->ended)
            (void)uv_process_kill(&fetching->process, SIGKILL);
    }
    remote_peers_free(remotes->peers);
    free(remotes);
    return NULL;
}
