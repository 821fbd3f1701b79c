#include "daemon/serve/lend.h"

#include "daemon/serve/base/address.h"
#include "daemon/serve/base/config.h"
#include "daemon/serve/base/environment.h"
#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/notify.h"
#include "daemon/serve/pool/sandbox.h"
#include "proto/codec.h"
#include "proto/fdpass.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    LEND_BACKLOG = 64,
    LEND_STRANGERS = 16, /* connections beyond helpers.lend, as some may not be proven yet */
    LEND_TURN_MS = 500,  /* how often ended processes are looked for, beside each connection */
};

struct lend {
    struct config config;
    struct dl_buffer lent; /* W_LEND, for each connection */
    int fd;                /* owned; listens */
    int signals;           /* owned; readable when one has come that ends it */
    uint64_t running;
};

/* ---- beginning ------------------------------------------------------------------------------ */

static int lend_listen(struct lend *lend, const char *text, struct dl_error *err)
{
    union address address;
    const int on = 1;

    if (address_parse(text, &address) < 0)
        return dl_error_set(err, EINVAL, "--helper",
                            "\"%s\" is not an address of this machine such as 10.0.0.7:7071 or "
                            "0.0.0.0:7071",
                            text);
    lend->fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lend->fd < 0 || setsockopt(lend->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(lend->fd, &address.any, address_len(&address)) < 0 ||
        listen(lend->fd, LEND_BACKLOG) < 0)
        return dl_error_set(err, errno, "--helper", "cannot listen on %s: %s", text,
                            strerror(errno));
    return 0;
}

/* What its workers are opened with: this machine's places, whatever the daemon's are. */
static int lend_encode(struct lend *lend)
{
    const struct config *config = &lend->config;
    _cleanup_(buffer_deinit)
    struct dl_buffer roots = {0};
    _cleanup_(buffer_deinit)
    struct dl_buffer seen_as = {0};
    _cleanup_(buffer_deinit)
    struct dl_buffer plugins = {0};
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
    if ((r = config_find_worker(&lend->config, err)) < 0 ||
        (r = lend_listen(lend, address, err)) < 0)
        return r;
    r = lend_encode(lend);
    return r < 0 ? dl_error_set(err, -r, "", "out of memory") : 0;
}

/* ---- connections ---------------------------------------------------------------------------- */

static void lend_exec(const struct lend *lend, int sock)
{
    enum { PLACE = 3 };
    char far[] = "--far", *args[] = {lend->config.worker, far, NULL};
    char **environment = environment_new(&lend->config.python_path);
    sigset_t none;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (sock == PLACE ? fcntl(sock, F_SETFD, 0) == 0 : dup2(sock, PLACE) >= 0)
        (void)execve(lend->config.worker, args, environment);
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
    lend->running++;
    ssize_t n = fdpass_send(ours, lend->lent.data, lend->lent.len, &connection, 1, MSG_DONTWAIT);
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
    int r = lend->running >= lend->config.helpers.lend + LEND_STRANGERS ? -EDQUOT
                                                                        : lend_serve(lend, fd);
    if (r == -EDQUOT) {
        close(fd);
        log_warning("a connection from %s is refused: %llu run already (helpers.lend)", host,
                    (unsigned long long)lend->running);
    } else if (r < 0) {
        log_error("a connection from %s cannot be served: %s", host, strerror(-r));
    } else {
        log_debug("a connection from %s", host);
    }
}

/* False: it is to end. */
static bool lend_turn(struct lend *lend)
{
    struct pollfd fds[2] = {{.fd = lend->fd, .events = POLLIN},
                            {.fd = lend->signals, .events = POLLIN}};

    (void)poll(fds, ARRAY_SIZE(fds), LEND_TURN_MS);
    if (fds[0].revents)
        lend_accept(lend);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        lend->running--;
    return fds[1].revents == 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* With the port that the kernel may have chosen. */
static void lend_say_place(const struct lend *lend)
{
    union address address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "";

    (void)getsockname(lend->fd, &address.any, &len);
    bool v6 = address.any.sa_family == AF_INET6;
    (void)inet_ntop(address.any.sa_family,
                    v6 ? (const void *)&address.v6.sin6_addr : (const void *)&address.v4.sin_addr,
                    host, sizeof host);
    log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_STARTED},
              v6 ? "lends up to %llu workers at [%s]:%u" : "lends up to %llu workers at %s:%u",
              (unsigned long long)lend->config.helpers.lend, host,
              (unsigned)ntohs(v6 ? address.v6.sin6_port : address.v4.sin_port));
}

int lend_run(const char *address, const char *config_path, const char *log_level)
{
    struct lend lend = {.fd = -1};
    sigset_t stop;
    struct dl_error err = {0};

    (void)signal(SIGPIPE, SIG_IGN);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &stop, NULL);
    lend.signals = signalfd(-1, &stop, SFD_CLOEXEC);
    int r = lend_begin(&lend, address, config_path, log_level, &err);
    if (r < 0) {
        log_error("%s%s%s", err.path, *err.path ? ": " : "", err.message);
    } else {
        lend_say_place(&lend);
        notify_ready("lending");
        while (lend_turn(&lend))
            ;
        notify_stopping(); /* its processes end with it */
    }
    close_fdp(&lend.fd);
    close_fdp(&lend.signals);
    buffer_deinit(&lend.lent);
    config_deinit(&lend.config);
    return r < 0 ? 1 : 0;
}
