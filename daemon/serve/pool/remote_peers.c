#include "daemon/serve/pool/remote_peers.h"

#include "daemon/base/address.h"
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "proto/common/sealed.h"
#include "proto/fdpass.h"
#include "proto/fetcher_control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>

enum {
    REMOTE_PEERS_BACKLOG = 256,
    REMOTE_PEERS_PAUSE_MS = 1000, /* a process that ends at once is not started at once */
};

struct remote_peers {
    uv_poll_t poll; /* of calls, while no process runs */
    uv_timer_t timer;
    uint32_t handles;
    int fd; /* owned; listens */
    struct peer_card card;
    char *list; /* owned; NULL: not known yet */
    void (*called)(void *owner);
    void *owner;
};

/* ---- the address ---------------------------------------------------------------------------- */

static bool remote_peers_is_any(const union address *address)
{
    if (address->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
    return address->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

int remote_peers_check(const struct config *config, struct dl_error *err)
{
    const char *text = config->remote.peers;
    union address address;

    if (!*text)
        return 0;
    if (address_parse(text, &address) < 0 || remote_peers_is_any(&address))
        return dl_error_set(err, EINVAL, "remote.peers",
                            "\"%s\" is not an address of this node by which the others reach it, "
                            "such as 10.0.0.5:7070 or 10.0.0.5:0",
                            text);
    if (config->rendezvous.backend == CONFIG_BACKEND_NONE || !*config->rendezvous.id)
        return dl_error_set(err, EINVAL, "remote.peers",
                            "this daemon is in no cluster, so it has no peers: set "
                            "rendezvous.backend and rendezvous.id, or remove remote.peers");
    return 0;
}

static int remote_peers_cannot_listen(const char *text, int code, struct dl_error *err)
{
    return dl_error_set(err, code, "remote.peers", "cannot listen on %s: %s%s", text,
                        strerror(code),
                        code == EADDRINUSE      ? "; choose another port"
                        : code == EADDRNOTAVAIL ? "; give an address of this machine"
                                                : "");
}

static int remote_peers_listen(const char *text, int *ret, struct dl_error *err)
{
    union address address;
    int on = 1;

    (void)!address_parse(text, &address);
    _cleanup_fd_ int fd =
        socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return remote_peers_cannot_listen(text, errno, err);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &address.any, address_len(&address)) < 0 || listen(fd, REMOTE_PEERS_BACKLOG) < 0)
        return remote_peers_cannot_listen(text, errno, err);
    *ret = steal_fd(&fd);
    return 0;
}

/* With the port that the kernel may have chosen. */
static void remote_peers_name(int fd, char ret[static PEER_ADDRESS_MAX])
{
    union address address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "";

    (void)getsockname(fd, &address.any, &len);
    bool v6 = address.any.sa_family == AF_INET6;
    inet_ntop(address.any.sa_family,
              v6 ? (const void *)&address.v6.sin6_addr : (const void *)&address.v4.sin_addr, host,
              sizeof host);
    snprintf(ret, PEER_ADDRESS_MAX, v6 ? "[%s]:%u" : "%s:%u", host,
             (unsigned)ntohs(v6 ? address.v6.sin6_port : address.v4.sin_port));
}

static int remote_peers_make_card(int fd, const struct config *config, struct peer_card *ret,
                                  struct dl_error *err)
{
    uint8_t drawn[(PEER_TOKEN_MAX - 1) / 2];

    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
        return dl_error_set(err, EAGAIN, "remote.peers", "the system has no random numbers");
    *ret =
        (struct peer_card){.uid = geteuid(), .room = *config->cache.dir ? config->cache.size : 0};
    remote_peers_name(fd, ret->address);
    for (size_t i = 0; i < sizeof drawn; i++)
        snprintf(ret->token + 2 * i, 3, "%02x", drawn[i]);
    return 0;
}

/* ---- the process ---------------------------------------------------------------------------- */

static void remote_peers_send(int control, enum fetcher_control what, int fd)
{
    const struct fetcher_word word = {.what = what};

    if (fdpass_send(control, &word, sizeof word, &fd, 1, MSG_DONTWAIT) < 0)
        log_debug("the process that fetches remote files is about to end");
}

void remote_peers_tell(const struct remote_peers *peers, int control, bool begins)
{
    _cleanup_fd_ int list =
        peers->list ? sealed_new("dloader-peers", peers->list, strlen(peers->list)) : -1;

    if (list >= 0)
        remote_peers_send(control, FETCHER_PEER_LIST, list);
    if (begins)
        remote_peers_send(control, FETCHER_LISTENER, peers->fd);
}

static void remote_peers_on_timer(uv_timer_t *timer);

static void remote_peers_on_poll(uv_poll_t *poll, int status, int events)
{
    struct remote_peers *peers = container_of(poll, struct remote_peers, poll);

    (void)status, (void)events;
    uv_poll_stop(poll);
    uv_timer_start(&peers->timer, remote_peers_on_timer, REMOTE_PEERS_PAUSE_MS, 0);
    peers->called(peers->owner);
}

static void remote_peers_on_timer(uv_timer_t *timer)
{
    struct remote_peers *peers = container_of(timer, struct remote_peers, timer);

    (void)uv_poll_start(&peers->poll, UV_READABLE, remote_peers_on_poll);
}

void remote_peers_note(struct remote_peers *peers, bool runs)
{
    uv_poll_stop(&peers->poll);
    uv_timer_stop(&peers->timer);
    if (!runs)
        uv_timer_start(&peers->timer, remote_peers_on_timer, REMOTE_PEERS_PAUSE_MS, 0);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

int remote_peers_new(uv_loop_t *loop, const struct config *config, void (*called)(void *owner),
                     void *owner, struct remote_peers **ret, struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    struct peer_card card;

    *ret = NULL;
    if (!*config->remote.peers)
        return 0;
    int r = remote_peers_listen(config->remote.peers, &fd, err);
    if (r < 0 || (r = remote_peers_make_card(fd, config, &card, err)) < 0)
        return r;
    struct remote_peers *peers = must_alloc(sizeof *peers);
    if ((r = uv_poll_init(loop, &peers->poll, fd)) < 0) {
        free(peers);
        return dl_error_set(err, -r, "remote.peers", "cannot wait for calls: %s", uv_strerror(r));
    }
    (void)uv_timer_init(loop, &peers->timer);
    peers->handles = 2;
    peers->fd = steal_fd(&fd);
    peers->card = card;
    peers->called = called;
    peers->owner = owner;
    log_info("blocks of remote files are given to other nodes at %s", card.address);
    (void)uv_poll_start(&peers->poll, UV_READABLE, remote_peers_on_poll);
    *ret = peers;
    return 0;
}

const struct peer_card *remote_peers_card(const struct remote_peers *peers)
{
    return &peers->card;
}

void remote_peers_set_list(struct remote_peers *peers, const char *list)
{
    free(peers->list);
    peers->list = must_strdup(list);
}

static void remote_peers_let_go(struct remote_peers *peers)
{
    if (--peers->handles > 0)
        return;
    close_fdp(&peers->fd);
    free(peers->list);
    free(peers);
}

static void remote_peers_on_poll_closed(uv_handle_t *handle)
{
    remote_peers_let_go(container_of((uv_poll_t *)handle, struct remote_peers, poll));
}

static void remote_peers_on_timer_closed(uv_handle_t *handle)
{
    remote_peers_let_go(container_of((uv_timer_t *)handle, struct remote_peers, timer));
}

struct remote_peers *remote_peers_free(struct remote_peers *peers)
{
    if (!peers)
        return NULL;
    uv_close((uv_handle_t *)&peers->poll, remote_peers_on_poll_closed);
    uv_close((uv_handle_t *)&peers->timer, remote_peers_on_timer_closed);
    return NULL;
}
