/*
 * The program's own Python hosts, each with a channel to it. The daemon and the host get the two
 * ends of a socket pair: the host through its channel, the daemon through HOST, whose descriptor
 * travels with the first byte of the message.
 */
#include "client/internal.h"

#include "proto/fdpass.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

/* ---- the host's end ---- */

/* Gives the host one end of a new connection; *ret_sock, owned, is the daemon's. */
static int hosts_connect(int channel, int *ret_sock)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    _cleanup_fd_ int daemons = pair[0], hosts = pair[1];
    ssize_t n = fdpass_send(channel, "", 1, &hosts, 1, MSG_DONTWAIT);
    if (n < 0)
        return (int)n;
    *ret_sock = steal_fd(&daemons);
    return 0;
}

/* ---- for the next daemon ---- */

enum { HOSTS_MAX = 16 };  /* as many as a daemon keeps that no loader has taken */
#define NOBODY UINT32_MAX /* no daemon */

struct brought_host *hosts_free(struct brought_host *list)
{
    while (list) {
        struct brought_host *next = list->next;

        close_fdp(&list->channel);
        free(list);
        list = next;
    }
    return NULL;
}

static void hosts_drop(struct brought_host **link)
{
    struct brought_host *host = *link;

    *link = host->next;
    host->next = NULL;
    hosts_free(host);
}

static struct brought_host **hosts_find(struct dl_client *client, uint64_t number)
{
    struct brought_host **link = &client->hosts;

    while (*link && (*link)->number != number)
        link = &(*link)->next;
    return link;
}

static void hosts_forget(struct dl_client *client, uint64_t number)
{
    struct brought_host **link = hosts_find(client, number);

    if (*link)
        hosts_drop(link);
}

/* The newest first; of a number the last. */
static int hosts_keep(struct dl_client *client, int channel, uint64_t number)
{
    struct brought_host *host = calloc(1, sizeof *host), *last;

    if (!host)
        return client_fail(client, ENOMEM, "dataset.host", "no memory to keep it");
    host->number = number;
    host->has_it = NOBODY;
    host->channel = fcntl(channel, F_DUPFD_CLOEXEC, 0);
    if (host->channel < 0) {
        free(host);
        return client_fail(client, errno, "dataset.host", "its channel cannot be kept: %s",
                           strerror(errno));
    }
    hosts_forget(client, number);
    last = host->next = client->hosts;
    client->hosts = host;
    for (int i = 1; i < HOSTS_MAX - 1 && last; i++)
        last = last->next;
    if (last)
        last->next = hosts_free(last->next);
    return 0;
}

/* A spec's text, JSON or YAML, from some place on. */
struct hosts_text {
    const char *at, *end;
};

static void hosts_skip_spaces(struct hosts_text *text)
{
    while (text->at < text->end && isspace((unsigned char)*text->at))
        text->at++;
}

/* Past "host", if that is there, perhaps in these quotes. */
static bool hosts_skip_key(struct hosts_text *text, const char *quote)
{
    char key[8];
    int n = snprintf(key, sizeof key, "%shost%s", quote, quote);

    if (text->end - text->at < n || memcmp(text->at, key, (size_t)n) != 0)
        return false;
    text->at += n;
    return true;
}

/* Whether the key and the number come next. */
static bool hosts_name_next(struct hosts_text text, uint64_t number)
{
    uint64_t found = 0;
    bool fits = true;

    if (!hosts_skip_key(&text, "\"") && !hosts_skip_key(&text, "'") && !hosts_skip_key(&text, ""))
        return false;
    hosts_skip_spaces(&text);
    if (text.at == text.end || *text.at++ != ':')
        return false;
    hosts_skip_spaces(&text);
    const char *digits = text.at;
    for (; text.at < text.end && isdigit((unsigned char)*text.at); text.at++)
        fits = fits && !mul_overflows(found, 10, &found) &&
               !add_overflows(found, (uint64_t)(*text.at - '0'), &found);
    bool ends = text.at == text.end || strchr(" \t\r\n,}", *text.at);
    return fits && ends && text.at > digits && found == number;
}

/* Past a string in quotes, a comment, or else one character. */
static void hosts_skip_one(struct hosts_text *text)
{
    char first = *text->at++, last = first == '#' ? '\n' : first;

    if (first != '"' && first != '\'' && first != '#')
        return;
    while (text->at < text->end && *text->at != last)
        text->at += 1 + (first == '"' && *text->at == '\\' && text->end - text->at > 1);
    text->at += text->at < text->end;
}

/* Whether the spec names this host. It is a text search: a path may look like a host, and a missed
 * host does little harm, since a new daemon gets it all the same. */
static bool hosts_names(const char *spec, size_t len, uint64_t number)
{
    struct hosts_text text = {spec, spec + len};

    while (text.at < text.end) {
        bool begins = text.at == spec || strchr(" \t\r\n{[,:'", text.at[-1]);

        if (begins && hosts_name_next(text, number))
            return true;
        if (begins)
            hosts_skip_one(&text);
        else
            text.at++;
    }
    return false;
}

void hosts_take(struct dl_loader *loader, const char *spec, size_t len)
{
    struct brought_host **link = &loader->client->hosts;

    while (*link) {
        struct brought_host *host = *link;

        if (!hosts_names(spec, len, host->number)) {
            link = &host->next;
            continue;
        }
        *link = host->next;
        host->next = loader->hosts;
        loader->hosts = host;
    }
}

/* Queues HOST. -errno: the host cannot be reached, or latched. */
static int hosts_offer(struct dl_client *client, int channel, uint64_t number)
{
    struct dl_message msg = {.number = DL_MSG_HOST, .host = {.host = number}};
    int sock = -1, r = hosts_connect(channel, &sock);

    return r < 0 ? r : connection_send_fd(&client->conn, &msg, sock);
}

int hosts_send(struct dl_client *client, struct brought_host **list, uint64_t *ret_ended)
{
    *ret_ended = 0;
    for (struct brought_host **link = list; *link;) {
        struct brought_host *host = *link;
        int r = hosts_offer(client, host->channel, host->number);

        if (r == 0) {
            host->has_it = client->incarnation;
            link = &host->next;
        } else if (r == -EPIPE || r == -ECONNRESET) {
            *ret_ended = host->number;
            hosts_drop(link);
        } else {
            return r;
        }
    }
    return 0;
}

/* ---- for the program ---- */

/* A client that can lose its daemon keeps the host. Returns 1 if a daemon that took over meanwhile
 * already has it. */
static int hosts_prepare(struct dl_client *client, int channel, uint64_t number)
{
    int r = client_may_reconnect(client) ? hosts_keep(client, channel, number) : 0;

    if (r < 0)
        return r;
    client_queue_pending(client);
    r = client_be_there(client);
    if (r < 0)
        return client_fatal(client);
    const struct brought_host *host = *hosts_find(client, number);
    return host && host->has_it == client->incarnation;
}

int dl_client_bring_host(struct dl_client *client, int channel, uint64_t number)
{
    int r = client_begin(client);

    if (r < 0)
        return r;
    if (client->fd < 0)
        return client_fail(client, ENOTSUP, "dataset.host",
                           "this client has no daemon to bring a host to");
    if (number == 0)
        return client_fail(client, EINVAL, "dataset.host",
                           "0 is not a host's number; use 1 or more");
    if (fcntl(channel, F_GETFD) < 0)
        return client_fail(client, EBADF, "dataset.host", "%d is not an open file descriptor",
                           channel);
    r = hosts_prepare(client, channel, number);
    if (r != 0)
        return r < 0 ? r : 0;
    r = hosts_offer(client, channel, number);
    if (r < 0 && connection_check(&client->conn) == 0) {
        hosts_forget(client, number);
        return client_fail(client, -r, "dataset.host",
                           "the host cannot be reached by its channel: %s", strerror(-r));
    }
    if (r == 0)
        r = client_flush(client);
    return r < 0 ? client_fatal(client) : 0;
}
