#include "daemon/helper/reach.h"

#include "daemon/helper/proof.h"
#include "proto/common/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

void reach_tune(int fd)
{
    const int on = 1, idle = 5, interval = 1, count = 3, unanswered = 2 * LINK_PATIENCE_MS;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}

int reach_place_read(struct reach_place *ret, const struct dl_msg_w_reach *msg)
{
    *ret = (struct reach_place){.address = span_dup(msg->address),
                                .secret = span_dup(msg->secret),
                                .certificate = span_dup(msg->certificate),
                                .key = span_dup(msg->key),
                                .authority = span_dup(msg->authority),
                                .interpreter = span_dup(msg->interpreter),
                                .any_versions = msg->any_versions,
                                .checksums = msg->checksums,
                                .serves = msg->serves};
    return ret->address && ret->secret && ret->certificate && ret->key && ret->authority &&
                   ret->interpreter
               ? 0
               : -ENOMEM;
}

void reach_place_deinit(struct reach_place *place)
{
    free(place->address);
    free(place->secret);
    free(place->certificate);
    free(place->key);
    free(place->authority);
    free(place->interpreter);
    *place = (struct reach_place){0};
}

/* ---- connecting ----------------------------------------------------------------------------- */

static int reach_wait(int fd, short events, uint64_t until)
{
    struct pollfd one = {.fd = fd, .events = events};
    uint64_t now = clock_ns();

    if (now >= until)
        return -ETIMEDOUT;
    int n = poll(&one, 1, (int)((until - now) / 1000000) + 1);
    return n < 0 && errno != EINTR ? -errno : 0;
}

static int reach_try(const struct addrinfo *place, uint64_t until, int *ret)
{
    _cleanup_fd_ int fd =
        socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    int code = 0, r = 0;
    socklen_t len = sizeof code;

    if (fd < 0)
        return -errno;
    reach_tune(fd);
    if (connect(fd, place->ai_addr, place->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        struct pollfd one = {.fd = fd, .events = POLLOUT};
        while (r == 0 && poll(&one, 1, 0) == 0)
            r = reach_wait(fd, POLLOUT, until);
        if (r < 0)
            return r;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0 || code != 0)
            return -(code ? code : errno);
    }
    *ret = steal_fd(&fd);
    return 0;
}

/* HOST:PORT, as the configuration has checked. */
static int reach_connect(const char *address, uint64_t until, int *ret, struct dl_error *err)
{
    const char *colon = strrchr(address, ':');
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *places = NULL;
    char host[256] = "";
    size_t len = colon ? (size_t)(colon - address) : 0;
    bool bracketed = len > 2 && address[0] == '[' && address[len - 1] == ']';
    int r = -EHOSTUNREACH;

    if (len == 0 || len >= sizeof host)
        return dl_error_set(err, EINVAL, address, "is not the address of a helper, HOST:PORT");
    memcpy(host, address + bracketed, len - 2 * (size_t)bracketed);
    int code = getaddrinfo(host, colon + 1, &hints, &places);
    if (code != 0)
        return dl_error_set(err, EHOSTUNREACH, address, "the helper's name is not known: %s",
                            gai_strerror(code));
    for (const struct addrinfo *place = places; place && r < 0; place = place->ai_next)
        r = reach_try(place, until, ret);
    freeaddrinfo(places);
    if (r < 0)
        return dl_error_set(err, -r, address,
                            "the helper cannot be reached: %s; see that dloaderd --helper runs "
                            "there, and that no firewall is between",
                            strerror(-r));
    return 0;
}

/* ---- encrypting ----------------------------------------------------------------------------- */

int reach_encrypt(struct link *link, const struct tls_files *files, bool accepts, uint64_t until,
                  struct dl_error *err)
{
    short events = 0;

    if (!*files->certificate)
        return 0;
    int r = tls_new(files, link->fd, accepts, &link->tls, err);
    while (r == 0 && (r = tls_shake(link->tls, &events, err)) == -EAGAIN)
        r = reach_wait(link->fd, events, until);
    return r;
}

/* ---- proving -------------------------------------------------------------------------------- */

/* The next message, and no other than this one; borrowed from the link. */
static int reach_hear(struct link *link, uint64_t until, enum message_number wanted,
                      struct dl_message *ret)
{
    enum link_news news = LINK_NOTHING;
    int r = link_write(link);

    while (r == 0 && news != LINK_FRAME) {
        r = link_read(link, &news);
        if (r == 0 && news != LINK_FRAME)
            r = reach_wait(link->fd, POLLIN, until);
    }
    if (r == 0)
        r = message_decode(link_payload(link).data, link_payload(link).len, FROM_HELPER, ret, NULL);
    return r == 0 && ret->number != wanted ? -EBADMSG : r;
}

static int reach_refuse(const char *address, int r, struct dl_error *err)
{
    return dl_error_set(
        err, -r, address, "the helper does not prove itself: %s",
        r == -EPIPE          ? "it has hung up; both need the same helpers.secret_file, and "
                               "helpers.certificate on both, or on neither"
        : r == -EKEYREJECTED ? "it refuses this machine's certificate; see that its "
                               "helpers.authority has signed that of helpers.certificate here"
        : r == -EBADMSG || r == -EMSGSIZE ? "what answers there is no helper, or one that needs TLS"
        : r == -ETIMEDOUT                 ? "it does not answer in time; see that there is a "
                                            "helpers.certificate on both, or on neither"
                                          : strerror(-r));
}

static int reach_prove(struct link *link, const struct reach_place *place, uint64_t until,
                       struct dl_error *err)
{
    const char *address = place->address, *secret = place->secret;
    char near[PROOF_NONCE_MAX], proof[PEER_PROOF_MAX];
    struct sigv4_crypto crypto;
    struct dl_message msg;

    if (!sigv4_crypto_find(&crypto))
        return dl_error_set(err, ENOENT, "helpers", "%s", SIGV4_NO_CRYPTO);
    int r = proof_nonce(near);
    if (r == 0)
        r = reach_hear(link, until, DL_MSG_H_CHALLENGE, &msg);
    if (r < 0)
        return reach_refuse(address, r, err);
    const char *unlike = proof_compare_releases(msg.h_challenge.release);
    if (*unlike)
        return dl_error_set(err, EPROTO, address, "the helper %s", unlike);
    _cleanup_free_ char *far = span_dup(msg.h_challenge.nonce);
    if (!far)
        return -ENOMEM;
    proof_make(&crypto, secret, "near", near, far, proof);
    r = link_say(link, &(struct dl_message){.number = DL_MSG_H_PROOF,
                                            .h_proof = {.release = span_str(DLOADER_VERSION),
                                                        .nonce = span_str(near),
                                                        .proof = span_str(proof)}});
    if (r == 0)
        r = reach_hear(link, until, DL_MSG_H_WELCOME, &msg);
    if (r < 0)
        return reach_refuse(address, r, err);
    if (!proof_holds(&crypto, secret, "far", near, far, msg.h_welcome.proof))
        return dl_error_set(err, EACCES, address,
                            "what answers there does not know the secret of helpers.secret_file");
    return 0;
}

static int reach_secure(struct link *link, const struct reach_place *place, uint64_t until,
                        struct dl_error *err)
{
    const struct tls_files files = {place->certificate, place->key, place->authority};
    struct dl_error why = {0};
    int r = reach_encrypt(link, &files, false, until, &why);

    if (r < 0 && why.code)
        return dl_error_set(err, why.code, place->address, "the helper cannot be used: %s: %s",
                            why.path, why.message);
    return r < 0 ? reach_refuse(place->address, r, err) : 0;
}

int reach_helper(const struct reach_place *place, struct link *ret, struct dl_error *err)
{
    uint64_t until = clock_ns() + LINK_PROVE_S * UINT64_C(1000000000);
    struct link link;
    int fd = -1;
    int r = reach_connect(place->address, until, &fd, err);

    if (r < 0)
        return r;
    link_init(&link, fd);
    r = reach_secure(&link, place, until, err);
    if (r == 0)
        r = reach_prove(&link, place, until, err);
    if (r < 0) {
        link_deinit(&link);
        return r;
    }
    link.most = DL_MAX_FRAME_BYTES;
    *ret = link;
    return 0;
}
