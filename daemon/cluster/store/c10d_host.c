#include "daemon/cluster/store/c10d_host.h"

#include "daemon/base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>

struct c10d_host {
    struct c10d_host_options options;
    char *name; /* owned; options.host */
    struct tcpstore_server *server;
    uv_getaddrinfo_t lookup;
    bool looking_up;
    bool ending;
    int told; /* why it does not serve, as an errno, so that this is logged once; 0: it serves */
};

static void _printf_(3, 4)
    c10d_host_say(const struct c10d_host *host, enum c10d_saying what, const char *fmt, ...)
{
    char text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0)
        text[0] = '\0';
    va_end(args);
    if (host->options.said)
        host->options.said(host->options.context, what, text);
}

/* ---- whose address it is -------------------------------------------------------------------- */

static bool c10d_host_is_same(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

/* All of 127.0.0.0/8 is this machine, whatever its interfaces are said to have. */
static bool c10d_host_is_loopback(const struct sockaddr *address)
{
    return address->sa_family == AF_INET &&
           ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

/* Also true of others' addresses, on a machine whose settings allow that. */
static bool c10d_host_can_be_bound(const struct addrinfo *found)
{
    _cleanup_fd_ int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
}

static bool c10d_host_is_mine(const struct addrinfo *found)
{
    const struct sockaddr *address = found->ai_addr;
    struct ifaddrs *all = NULL;
    bool mine = c10d_host_is_loopback(address);

    /* It asks the kernel by a socket of a kind that a service may not be allowed. */
    if (!mine && getifaddrs(&all) < 0)
        return c10d_host_can_be_bound(found);
    for (const struct ifaddrs *one = all; one && !mine; one = one->ifa_next)
        mine = c10d_host_is_same(one->ifa_addr, address);
    freeifaddrs(all);
    return mine;
}

static bool c10d_host_is_number(const char *host)
{
    struct in6_addr address;

    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* ---- the store ------------------------------------------------------------------------------ */

static void c10d_host_on_dropped(void *context, const char *peer, const char *why)
{
    c10d_host_say(context, C10D_DETAIL, "the store here dropped %s: %s", peer, why);
}

/* `at` NULL: all addresses of this machine. */
static void c10d_host_serve(struct c10d_host *host, const char *at)
{
    struct tcpstore_server_options options = {.loop = host->options.loop,
                                              .host = at,
                                              .port = host->options.port,
                                              .fd = -1,
                                              .dropped = c10d_host_on_dropped,
                                              .context = host};
    struct dl_error err = {0};
    int r = tcpstore_server_new(&options, &host->server, &err);

    if (r == 0) {
        host->told = 0;
        c10d_host_say(host, C10D_NOTE, "this daemon serves the store on port %u of %s",
                      (unsigned)host->options.port, at ? at : "all addresses");
        return;
    }
    host->server = NULL;
    if (host->told == -r)
        return;
    host->told = -r;
    if (r == -EADDRINUSE)
        c10d_host_say(host, C10D_NOTE, "port %u is in use: this daemon uses the store there",
                      (unsigned)host->options.port);
    else
        c10d_host_say(host, C10D_TROUBLE, "this daemon cannot serve the store: %s: %s", err.path,
                      err.message);
}

static void c10d_host_destroy(struct c10d_host *host)
{
    free(host->name);
    free(host);
}

static void c10d_host_on_looked_up(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found)
{
    struct c10d_host *host = lookup->data;
    bool mine = host->options.hosting == C10D_HOST_YES, known = false;

    host->looking_up = false;
    for (const struct addrinfo *one = found; one && !known; one = one->ai_next)
        known = c10d_host_is_mine(one);
    uv_freeaddrinfo(found);
    (void)status; /* a name that is not known is not this machine's; the client says so */
    if (host->ending)
        c10d_host_destroy(host);
    else if (known || mine)
        c10d_host_serve(host, known && c10d_host_is_number(host->name) ? host->name : NULL);
}

void c10d_host_try(struct c10d_host *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};

    if (!host || host->options.hosting == C10D_HOST_NO || host->server || host->looking_up)
        return;
    host->lookup.data = host;
    host->looking_up = uv_getaddrinfo(host->options.loop, &host->lookup, c10d_host_on_looked_up,
                                      host->name, NULL, &hints) == 0;
}

bool c10d_host_serves(const struct c10d_host *host)
{
    return host->server != NULL;
}

uint64_t c10d_host_peers(const struct c10d_host *host)
{
    return host->server ? tcpstore_server_count(host->server).peers : 0;
}

/* ---- all ------------------------------------------------------------------------------------ */

struct c10d_host *c10d_host_new(const struct c10d_host_options *options)
{
    struct c10d_host *host = must_alloc(sizeof *host);

    host->name = must_strdup(options->host);
    host->options = *options;
    host->options.host = host->name;
    return host;
}

struct c10d_host *c10d_host_free(struct c10d_host *host)
{
    if (!host)
        return NULL;
    host->ending = true;
    host->server = tcpstore_server_free(host->server);
    if (!host->looking_up)
        c10d_host_destroy(host);
    else
        uv_cancel((uv_req_t *)&host->lookup);
    return NULL;
}
