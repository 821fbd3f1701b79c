#include "daemon/serve/page/visitor.h"

#include "daemon/base/address.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <strings.h>

/* ---- headers ---------------------------------------------------------------------------- */

bool visitor_has_token(const char *authorization, const char *token)
{
    static const char scheme[] = "Bearer ";
    volatile unsigned char differ = 0;

    if (!authorization || !token || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *said = authorization + sizeof scheme - 1;
    size_t len = strlen(token);
    if (strlen(said) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        differ |= (unsigned char)(said[i] ^ token[i]);
    return differ == 0;
}

bool visitor_means_here(const char *host)
{
    union address address;
    char name[INET6_ADDRSTRLEN + 16];

    if (!host)
        return false;
    if (strncasecmp(host, "localhost", 9) == 0 && (host[9] == '\0' || host[9] == ':'))
        return true;
    if (strlen(host) + sizeof ":80" > sizeof name)
        return false;
    /* With a port of some kind, it is an address to listen at. */
    const char *colon = strrchr(host, ':'), *bracket = strrchr(host, ']');
    bool port = colon && (!bracket || colon > bracket);
    (void)snprintf(name, sizeof name, "%s%s", host, port ? "" : ":80");
    return address_parse(name, &address) == 0 && address_is_local(&address);
}

/* ---- what the kernel knows ------------------------------------------------------------------ */

struct visitor_question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 ask;
};

static void visitor_fill_end(const union address *end, __be16 *port, __be32 ret[static 4])
{
    if (end->any.sa_family == AF_INET6)
        memcpy(ret, &end->v6.sin6_addr, sizeof end->v6.sin6_addr);
    else
        memcpy(ret, &end->v4.sin_addr, sizeof end->v4.sin_addr);
    *port = end->any.sa_family == AF_INET6 ? end->v6.sin6_port : end->v4.sin_port;
}

/* The answer is there when the question has been sent: the kernel looks one socket up. */
static bool visitor_ask(const struct visitor_question *q, uid_t *ret)
{
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    union {
        struct nlmsghdr head;
        uint8_t bytes[1024];
    } answer;
    struct inet_diag_msg found;
    _cleanup_fd_ int fd =
        socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);

    if (fd < 0 || sendto(fd, q, sizeof *q, 0, (const struct sockaddr *)&kernel, sizeof kernel) < 0)
        return false;
    ssize_t n = recv(fd, &answer, sizeof answer, 0);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof found) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        answer.head.nlmsg_len < NLMSG_LENGTH(sizeof found))
        return false;
    memcpy(&found, answer.bytes + NLMSG_HDRLEN, sizeof found);
    *ret = found.idiag_uid;
    return true;
}

/* The owner of the socket that is `theirs` seen from there. */
static bool visitor_find_owner(const union address *theirs, const union address *ours, uid_t *ret)
{
    struct visitor_question q = {
        .head = {.nlmsg_len = sizeof q,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .ask = {.sdiag_family = (uint8_t)theirs->any.sa_family,
                .sdiag_protocol = IPPROTO_TCP,
                .idiag_states = UINT32_MAX,
                .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
    };

    visitor_fill_end(theirs, &q.ask.id.idiag_sport, q.ask.id.idiag_src);
    visitor_fill_end(ours, &q.ask.id.idiag_dport, q.ask.id.idiag_dst);
    return visitor_ask(&q, ret);
}

bool visitor_is_own(int fd, uid_t own)
{
    enum { OVERFLOW_UID = 65534 }; /* what stands for users of other namespaces */
    union {
        union address address;
        struct sockaddr_storage any;
    } theirs = {0}, ours = {0};
    socklen_t their_len = sizeof theirs, our_len = sizeof ours;
    uid_t uid;

    if (getsockname(fd, &ours.address.any, &our_len) < 0 ||
        getpeername(fd, &theirs.address.any, &their_len) < 0)
        return false;
    if (ours.any.ss_family == AF_UNIX)
        return true;
    if (ours.any.ss_family != theirs.any.ss_family || !address_is_local(&theirs.address) ||
        !address_is_local(&ours.address))
        return false;
    return visitor_find_owner(&theirs.address, &ours.address, &uid) && uid == own &&
           uid != OVERFLOW_UID;
}
