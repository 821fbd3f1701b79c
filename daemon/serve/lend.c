#include "daemon/serve/lend.h"

#include "daemon/base/address.h"
#include "daemon/base/allowance.h"
#include "daemon/base/config.h"
#include "daemon/base/environment.h"
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/discovery.h"
#include "daemon/serve/loader/length_table.h"
#include "daemon/serve/notify.h"
#include "daemon/serve/pool/remotes.h"
#include "daemon/serve/pool/sandbox.h"
#include "daemon/serve/ring/lent_pictures.h"
#include "proto/codec.h"
#include "proto/fdpass.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LEND_BACKLOG = 64,
    LEND_STRANGERS = 16, /* connections beyond helpers.lend, as some may not be proven yet */
    LEND_REFUSED_NS = 10 * 1000 * 1000, /* of the loop's tenth: some ten strangers a second */
    LEND_PLACE_MAX = 256 + sizeof ":65535"
};

struct lend {
    struct config config;
    struct dl_buffer lent; /* W_LEND, for each connection */
    char **environment;    /* owned; of its processes */
    int fd;                /* owned; listens */
    pid_t *running;        /* owned; its processes, of which there are */
    uint64_t n_running;
    struct remotes *remotes;       /* owned; fetches for workers that read URLs */
    int asks[2];                   /* owned; through the second one its processes ask for that */
    struct lent_pictures pictures; /* what workers keep decoded, likewise */
    int workers; /* owned; a file of as many bytes as it lends: who lends one locks a byte */
    uv_loop_t loop;
    uv_poll_t listener, asked;
    struct allowance strangers; /* its time for connections that are refused */
    uv_timer_t rest;            /* until there is some again */
    uv_signal_t signals[3];
    struct discovery *discovery; /* owned; NULL: daemons list its address */
};

/* ---- beginning ------------------------------------------------------------------------------ */

/* `text`: of the command line, or NULL. */
static int lend_listen(struct lend *lend, const char *text, struct dl_error *err)
{
    const char *said = text ? "--helper" : "helpers.lend_at";
    union address address;
    const int on = 1;

    text = text ? text : lend->config.helpers.lend_at;
    if (address_parse(text, &address) < 0)
        return dl_error_set(err, EINVAL, said,
                            "\"%s\" is not an address of this machine such as 10.0.0.7:7071 or "
                            "0.0.0.0:7071",
                            text);
    lend->fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lend->fd < 0 || setsockopt(lend->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(lend->fd, &address.any, address_len(&address)) < 0 ||
        listen(lend->fd, LEND_BACKLOG) < 0)
        return dl_error_set(err, errno, said, "cannot listen on %s: %s", text, strerror(errno));
    return 0;
}

/* What its workers are opened with: this machine's places, whatever the daemon's are. */
static int lend_encode(struct lend *lend)
{
    const struct config *config = &lend->config;
    _cleanup_(buffer_deinit) struct dl_buffer roots = {0};
    _cleanup_(buffer_deinit) struct dl_buffer seen_as = {0};
    _cleanup_(buffer_deinit) struct dl_buffer plugins = {0};
    char *anywhere[] = {(char *)"/"};
    const struct config_dirs all = {.paths = anywhere, .n = 1};
    /* Each root has a name for clients, "": its own. */
    const struct config_dirs names = {.paths = config->data_roots.seen_as,
                                      .n = config->data_roots.n};
    int r = config_dirs_pack(&config->data_roots, &roots);

    if (r == 0)
        r = config_dirs_pack(&names, &seen_as);
    if (r == 0)
        r = config_dirs_pack(config->plugins.n ? &config->plugins : &all, &plugins);
    if (r < 0)
        return r;
    return message_encode(
        &(struct dl_message){
            .number = DL_MSG_W_LEND,
            .w_lend = {.secret = span_str(config->helpers.secret),
                       .roots = {roots.data, roots.len},
                       .seen_as = {seen_as.data, seen_as.len},
                       .plugins = {plugins.data, plugins.len},
                       .sandbox = sandbox_choose(config, false, false, false),
                       .cache = {0},
                       .certificate = span_str(config->helpers.certificate),
                       .key = span_str(config->helpers.key),
                       .authority = span_str(config->helpers.authority),
                       .interpreter = span_str(config_interpreter(config)),
                       .python_sandbox = sandbox_choose(config, true, false, false),
                       .uid = geteuid(),
                       .memory = config->limits.bytes}},
        &lend->lent);
}

static int lend_begin(struct lend *lend, const char *address, const char *config_path,
                      const char *log_level, struct dl_error *err)
{
    enum log_level level;
    int r = config_load(config_path, &lend->config, err);

    if (r < 0)
        return r;
    if (log_level && log_level_from_name(log_level, &level) < 0)
        return dl_error_set(err, EINVAL, "--log-level",
                            "\"%s\" is not one of error, warning, info, debug", log_level);
    log_set_level(log_level ? level : lend->config.log_level);
    if (!lend->config.helpers.secret)
        return dl_error_set(err, EINVAL, "helpers.secret_file",
                            "is not set: without a secret anybody who reaches this machine could "
                            "read its files; make one with: openssl rand -hex 32");
    length_cache_locate(&lend->config.cache.dir);
    if ((r = config_find_worker(&lend->config, err)) < 0 ||
        (r = remotes_check(&lend->config, err)) < 0 || (r = lend_listen(lend, address, err)) < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, lend->asks) < 0)
        return dl_error_set(err, errno, "", "no socket can be made: %s", strerror(errno));
    lend->workers = memfd_create("dloader-lent", MFD_CLOEXEC);
    if (lend->workers < 0 || ftruncate(lend->workers, (off_t)lend->config.helpers.lend) < 0)
        return dl_error_set(err, errno, "", "no memory can be had: %s", strerror(errno));
    r = lend_encode(lend);
    return r < 0 ? dl_error_set(err, -r, "", "out of memory") : 0;
}

static uint64_t lend_most(const struct lend *lend)
{
    return lend->config.helpers.lend + LEND_STRANGERS;
}

/* ---- connections ---------------------------------------------------------------------------- */

static void lend_exec(const struct lend *lend, int sock)
{
    enum { PLACE = 3 };
    char far[] = "--far", *args[] = {lend->config.worker, far, NULL};

    if (sock == PLACE ? fcntl(sock, F_SETFD, 0) == 0 : dup2(sock, PLACE) >= 0)
        (void)execve(lend->config.worker, args, lend->environment);
    _exit(127);
}

/* Consumes `fd`. */
static int lend_serve(struct lend *lend, int fd)
{
    _cleanup_fd_ int connection = fd;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    _cleanup_fd_ int ours = pair[0];
    _cleanup_fd_ int theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        lend_exec(lend, theirs);
    lend->running[lend->n_running++] = pid;
    const int fds[] = {connection, lend->asks[1], lend->workers};
    ssize_t n =
        fdpass_send(ours, lend->lent.data, lend->lent.len, fds, ARRAY_SIZE(fds), MSG_DONTWAIT);
    if (n >= 0 && (size_t)n == lend->lent.len)
        return 0;
    (void)kill(pid, SIGKILL);
    return n < 0 ? (int)n : -ENOBUFS;
}

static void lend_accept(struct lend *lend)
{
    union address address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    int fd = accept4(lend->fd, &address.any, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    bool v6 = address.any.sa_family == AF_INET6;
    (void)inet_ntop(address.any.sa_family,
                    v6 ? (const void *)&address.v6.sin6_addr : (const void *)&address.v4.sin_addr,
                    host, sizeof host);
    int r = lend->n_running >= lend_most(lend) ? -EDQUOT : lend_serve(lend, fd);
    if (r == -EDQUOT) {
        close(fd);
        log_warning("a connection from %s is refused: %llu run already (helpers.lend)", host,
                    (ull)lend->n_running);
    } else if (r < 0) {
        log_error("a connection from %s cannot be served: %s", host, strerror(-r));
    } else {
        log_debug("a connection from %s", host);
    }
}

static void lend_on_connection(uv_poll_t *listener, int status, int events)
{
    (void)status, (void)events;
    lend_accept(listener->data);
}

static void lend_on_rested(uv_timer_t *rest)
{
    struct lend *lend = rest->data;

    (void)uv_poll_start(&lend->listener, UV_READABLE, lend_on_connection);
}

/* It was refused, and has cost a process: who comes next waits in the kernel's queue. */
static void lend_charge_stranger(struct lend *lend)
{
    uint64_t now = uv_hrtime();

    allowance_charge(&lend->strangers, LEND_REFUSED_NS, now);
    uint64_t due = allowance_due(&lend->strangers, now);
    if (due <= now)
        return;
    log_debug("no connection is let in for %llu ms, as many were refused",
              (ull)((due - now) / 1000000 + 1));
    (void)uv_poll_stop(&lend->listener);
    (void)uv_timer_start(&lend->rest, lend_on_rested, (due - now) / 1000000 + 1, 0);
}

/* Who asks is at the other end of `fd`; without an answer its worker keeps nothing. */
static void lend_give_pictures(struct lend *lend, struct dl_span payload, int fd)
{
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    struct dl_message msg;

    if (message_decode(payload.data, payload.len, TO_WORKER, &msg, NULL) < 0 ||
        (msg.number != DL_MSG_W_PICTURES && msg.number != DL_MSG_W_IDS))
        return;
    bool ids = msg.number == DL_MSG_W_IDS;
    uint64_t *bytes = ids ? &msg.w_ids.bytes : &msg.w_pictures.bytes;
    bool asked_for = !ids || *bytes != SPEC_IDS_BYTES;
    _cleanup_free_ char *root = span_dup(ids ? msg.w_ids.model : msg.w_pictures.root);
    int r = root ? lent_pictures_find(&lend->pictures, root, ids, lend->config.limits.bytes, bytes)
                 : -ENOMEM;
    if (r >= 0 && message_encode(&msg, &out) == 0)
        (void)!fdpass_send(fd, out.data, out.len, &r, 1, MSG_DONTWAIT);
    else if (r < 0 && asked_for)
        log_warning("%s: workers keep %s: %s", root ? root : "", ids ? "no ids" : "nothing decoded",
                    r == -EDQUOT ? "limits.bytes is too low" : strerror(-r));
}

/* One of its processes has a worker that reads URLs: the other end of its socket. Or one that keeps
 * what it decodes.
 */
static void lend_on_asked(uv_poll_t *asked, int status, int events)
{
    struct lend *lend = asked->data;
    _cleanup_(frame_reader_deinit) struct frame_reader reader = {0};
    struct dl_error err = {0};
    struct dl_span payload;

    (void)status, (void)events;
    if (fdpass_recv(lend->asks[0], &reader, MSG_DONTWAIT) <= 0)
        return;
    _cleanup_fd_ int fd = frame_reader_take_fd(&reader);
    if (fd >= 0 && frame_reader_next(&reader, &payload) > 0)
        lend_give_pictures(lend, payload, fd);
    else if (fd >= 0 && remotes_give(lend->remotes, NULL, 0, fd, &err) < 0)
        log_error("%s: %s", err.path, err.message);
}

static void lend_end(struct lend *lend)
{
    notify_stopping(); /* its processes end with it */
    lend->discovery = discovery_free(lend->discovery);
    lend->remotes = remotes_free(lend->remotes);
    uv_close((uv_handle_t *)&lend->listener, NULL);
    uv_close((uv_handle_t *)&lend->asked, NULL);
    uv_close((uv_handle_t *)&lend->rest, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(lend->signals); i++)
        uv_close((uv_handle_t *)&lend->signals[i], NULL);
}

static void lend_on_signal(uv_signal_t *handle, int number)
{
    struct lend *lend = handle->data;

    if (number != SIGCHLD) {
        lend_end(lend);
        return;
    }
    /* Others, which fetch, are libuv's to reap. */
    for (uint64_t i = lend->n_running; i-- > 0;) {
        int status = 0;

        if (waitpid(lend->running[i], &status, WNOHANG) != lend->running[i])
            continue;
        lend->running[i] = lend->running[--lend->n_running];
        if (status != 0)
            lend_charge_stranger(lend);
    }
    lent_pictures_tidy(&lend->pictures);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* With the port that the kernel may have chosen. Where it listens at all addresses of this machine,
 * others know it by its name. */
static void lend_name_place(const struct lend *lend, char listens[static LEND_PLACE_MAX],
                            char known[static LEND_PLACE_MAX])
{
    union address address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "", name[256] = "";

    (void)getsockname(lend->fd, &address.any, &len);
    bool v6 = address.any.sa_family == AF_INET6;
    bool any = v6 ? IN6_IS_ADDR_UNSPECIFIED(&address.v6.sin6_addr)
                  : address.v4.sin_addr.s_addr == htonl(INADDR_ANY);
    unsigned port = ntohs(v6 ? address.v6.sin6_port : address.v4.sin_port);
    (void)inet_ntop(address.any.sa_family,
                    v6 ? (const void *)&address.v6.sin6_addr : (const void *)&address.v4.sin_addr,
                    host, sizeof host);
    (void)snprintf(listens, LEND_PLACE_MAX, v6 ? "[%s]:%u" : "%s:%u", host, port);
    (void)gethostname(name, sizeof name - 1);
    if (any)
        (void)snprintf(known, LEND_PLACE_MAX, "%s:%u", name, port);
    else
        (void)snprintf(known, LEND_PLACE_MAX, "%s", listens);
}

static int lend_serve_all(struct lend *lend, struct dl_error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGCHLD};
    char listens[LEND_PLACE_MAX], known[LEND_PLACE_MAX];

    lend_name_place(lend, listens, known);
    int r = discovery_announce(&lend->loop, &lend->config, known, &lend->discovery, err);
    if (r < 0)
        return r;
    lend->environment = environment_new(&lend->config.python_path);
    lend->running = must_alloc(lend_most(lend) * sizeof *lend->running);
    lend->remotes = remotes_new(&lend->loop, &lend->config);
    r = uv_poll_init(&lend->loop, &lend->asked, lend->asks[0]);
    assert(r == 0);
    lend->asked.data = lend;
    (void)uv_poll_start(&lend->asked, UV_READABLE, lend_on_asked);
    (void)uv_timer_init(&lend->loop, &lend->rest);
    lend->rest.data = lend;
    r = uv_poll_init(&lend->loop, &lend->listener, lend->fd);
    assert(r == 0);
    lend->listener.data = lend;
    (void)uv_poll_start(&lend->listener, UV_READABLE, lend_on_connection);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        (void)uv_signal_init(&lend->loop, &lend->signals[i]);
        lend->signals[i].data = lend;
        (void)uv_signal_start(&lend->signals[i], lend_on_signal, numbers[i]);
    }
    log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_STARTED},
              "lends up to %llu workers at %s%s%s", (ull)lend->config.helpers.lend, listens,
              lend->discovery ? " and tells daemons of " : "",
              lend->discovery ? lend->config.helpers.run : "");
    notify_ready("lending");
    return 0;
}

int lend_run(const char *address, const char *config_path, const char *log_level)
{
    struct lend lend = {.fd = -1, .asks = {-1, -1}, .workers = -1};
    struct dl_error err = {0};
    int r = uv_loop_init(&lend.loop);

    if (r < 0) {
        log_error("cannot create an event loop: %s", uv_strerror(r));
        return 1;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    r = lend_begin(&lend, address, config_path, log_level, &err);
    if (r == 0)
        r = lend_serve_all(&lend, &err);
    if (r < 0)
        log_error("%s%s%s", err.path, *err.path ? ": " : "", err.message);
    (void)uv_run(&lend.loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&lend.loop);
    assert(left == 0);
    close_fdp(&lend.fd);
    close_fdp(&lend.asks[0]);
    close_fdp(&lend.asks[1]);
    close_fdp(&lend.workers);
    lent_pictures_deinit(&lend.pictures);
    free(lend.running);
    lend.environment = environment_free(lend.environment);
    buffer_deinit(&lend.lent);
    config_deinit(&lend.config);
    return r < 0 ? 1 : 0;
}
