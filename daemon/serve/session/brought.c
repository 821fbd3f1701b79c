#include "daemon/serve/session/brought.h"

#include "daemon/base/memory.h"
#include "proto/limits.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static const char brought_place[] = "dataset.host";

static bool brought_is_connected_stream(int fd)
{
    int domain = 0, type = 0;
    socklen_t len = sizeof domain;
    struct sockaddr_storage peer;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX)
        return false;
    len = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM)
        return false;
    len = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &len) == 0;
}

static void brought_remove_at(struct brought *brought, uint32_t i)
{
    assert(i < brought->n && brought->sockets <= brought->n);
    brought->sockets -= brought->hosts[i].sock >= 0;
    close_fdp(&brought->hosts[i].sock);
    brought->n--;
    memmove(&brought->hosts[i], &brought->hosts[i + 1],
            (brought->n - i) * sizeof brought->hosts[0]);
}

static struct brought_host *brought_find(const struct brought *brought, uint64_t number)
{
    for (uint32_t i = 0; i < brought->n; i++) {
        if (brought->hosts[i].number == number)
            return &brought->hosts[i];
    }
    return NULL;
}

void brought_deinit(struct brought *brought)
{
    while (brought->n > 0)
        brought_remove_at(brought, brought->n - 1);
    assert(brought->sockets == 0);
    free(brought->hosts);
    *brought = (struct brought){0};
}

void brought_add(struct brought *brought, uint64_t number, int sock)
{
    struct brought_host *host = brought_find(brought, number);

    if (host) /* given again: the latest counts */
        brought_remove_at(brought, (uint32_t)(host - brought->hosts));
    if (!brought->hosts)
        brought->hosts = must_alloc(BROUGHT_MAX * sizeof *brought->hosts);
    if (brought->n == BROUGHT_MAX)
        brought_remove_at(brought, 0);
    host = &brought->hosts[brought->n++];
    *host = (struct brought_host){.number = number, .sock = -1};
    if (brought_is_connected_stream(sock)) {
        host->sock = sock;
        brought->sockets++;
        return;
    }
    dl_error_set(&host->why, EINVAL, brought_place,
                 "host %llu is not a connected Unix stream socket; send one end of a socket "
                 "pair whose other end the host has",
                 (ull)number);
    close(sock);
}

int brought_take(struct brought *brought, uint64_t number, int *ret_sock, struct dl_error *err)
{
    struct brought_host *host = brought_find(brought, number);

    if (!host)
        return dl_error_set(err, ENOENT, brought_place,
                            "there is no host %llu; send HOST before each OPEN that names it "
                            "(the last %d unused hosts are kept)",
                            (ull)number, BROUGHT_MAX);
    int r = host->sock < 0 ? -host->why.code : 0;
    if (r < 0 && err)
        *err = host->why;
    if (r == 0) {
        *ret_sock = steal_fd(&host->sock);
        brought->sockets--;
    }
    brought_remove_at(brought, (uint32_t)(host - brought->hosts));
    return r;
}
