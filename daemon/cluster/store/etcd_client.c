#include "daemon/cluster/store/etcd_client.h"

#include "daemon/base/memory.h"

#include "daemon/cluster/store/etcd_json.h"

#include <errno.h>
#include <stdio.h>

enum { URL_MAX = 320, SAID_MAX = 160 };

/* ---- what it is given ----------------------------------------------------------------------- */

/* "host", "host:port", "[v6]:port", "https://host": with what is left out. */
static int etcd_client_add_endpoint(struct etcd_client *client, const char *text, size_t len,
                                    struct dl_error *err)
{
    char url[URL_MAX];
    bool has_scheme = strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
    size_t host_at = has_scheme ? (size_t)(strstr(text, "://") - text) + 3 : 0;

    while (len > host_at && text[len - 1] == '/')
        len--;
    (void)snprintf(url, sizeof url, "%s%.*s", has_scheme ? "" : "http://", (int)len, text);
    const char *host = strstr(url, "://") + 3, *bracket = strchr(host, ']');
    if (len <= host_at || len > URL_MAX - 32 || strpbrk(host, "/ ?#@\\\"'"))
        return dl_error_set(err, EINVAL, "rendezvous.endpoint",
                            "%.*s: is not [http[s]://]host[:port]", (int)min_u64(len, 200), text);
    if (client->n == ETCD_ENDPOINTS_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.endpoint", "more than %d endpoints",
                            ETCD_ENDPOINTS_MAX);
    if (!strchr(bracket ? bracket : host, ':'))
        (void)snprintf(url + strlen(url), sizeof url - strlen(url), ":2379");
    client->endpoints[client->n++] = must_strdup(url);
    return 0;
}

static int etcd_client_add_endpoints(struct etcd_client *client, const char *text,
                                     struct dl_error *err)
{
    int r = 0;

    do {
        text += strspn(text, " ");
        size_t len = strcspn(text, ",");
        size_t word = len;

        while (word > 0 && text[word - 1] == ' ')
            word--;
        r = etcd_client_add_endpoint(client, text, word, err);
        text += len;
    } while (r == 0 && *text++ == ',');
    return r;
}

int etcd_client_init(struct etcd_client *client, const struct etcd_options *options,
                     struct dl_error *err)
{
    struct http_options http = {options->loop, options->ca, options->cert, options->key};
    const char *password = options->password ? options->password : "";

    *client = (struct etcd_client){0};
    if (options->user) {
        client->user = must_strdup(options->user);
        client->password = must_strdup(password);
    }
    int r = etcd_client_add_endpoints(client, options->endpoints, err);
    return r < 0 ? r : http_new(&http, &client->http, err);
}

static void etcd_client_forget_password(struct etcd_client *client)
{
    if (client->password)
        explicit_bzero(client->password, strlen(client->password));
    free(client->password);
    client->password = NULL;
}

int etcd_client_move(struct etcd_client *client, const char *endpoints, const char *password,
                     struct dl_error *err)
{
    struct etcd_client moved = {0};
    int r = etcd_client_add_endpoints(&moved, endpoints, err);
    struct etcd_client *old = r < 0 ? &moved : client;

    for (unsigned i = 0; i < old->n; i++)
        free(old->endpoints[i]);
    if (r < 0)
        return r;
    memcpy(client->endpoints, moved.endpoints, sizeof client->endpoints);
    client->n = moved.n;
    client->current = 0;
    if (client->user) {
        etcd_client_forget_password(client);
        client->password = must_strdup(password);
    }
    return 0;
}

void etcd_client_deinit(struct etcd_client *client)
{
    client->http = http_free(client->http);
    for (unsigned i = 0; i < client->n; i++)
        free(client->endpoints[i]);
    free(client->user);
    etcd_client_forget_password(client);
    free(client->token);
    *client = (struct etcd_client){0};
}

/* ---- requests and answers ------------------------------------------------------------------- */

const char *etcd_client_here(const struct etcd_client *client)
{
    return client->endpoints[client->current];
}

void etcd_client_turn(struct etcd_client *client)
{
    client->current = (client->current + 1) % client->n;
}

int etcd_client_post(struct etcd_client *client, const char *path, char *body,
                     struct http_request request, struct http_call **ret)
{
    char url[URL_MAX + 64];
    int r = -EINVAL;

    (void)snprintf(url, sizeof url, "%s/v3/%s", etcd_client_here(client), path);
    request.url = url;
    request.body = body;
    request.token = client->token;
    if (body)
        r = http_send(client->http, &request, ret);
    free(body);
    return r;
}

/* It may be a stranger, or etcd that does not look at the request: its first line says most. */
static void etcd_client_say_strange(const struct http_answer *with, char *text, size_t size)
{
    const uint8_t *line = with->body.data;
    size_t len = min_u64(with->body.len, SAID_MAX);

    for (size_t i = 0; i < len; i++)
        if (line[i] == '\n' || line[i] == '\0')
            len = i;
    (void)snprintf(text, size, "answers with status %d and no JSON, unlike an etcd%s%.*s",
                   with->status, len > 0 ? ": " : "", (int)len, len > 0 ? (const char *)line : "");
}

bool etcd_client_failed(const struct http_answer *with, int *ret_code, char *text, size_t size)
{
    char said[256];

    *ret_code = -1;
    if (with->status == 200)
        return false;
    if (with->status == 0) {
        (void)snprintf(text, size, "%s", with->why);
        return true;
    }
    *ret_code = etcd_read_error(with->body, said, sizeof said);
    if (*ret_code >= 0)
        (void)snprintf(text, size, "%s", said);
    else
        etcd_client_say_strange(with, text, size);
    return true;
}

bool etcd_client_may_turn(const struct http_answer *with, int code)
{
    return with->status == 0 || with->status >= 500 || code == ETCD_UNAVAILABLE || code < 0;
}

bool etcd_client_token_lost(const struct etcd_client *client, int code, const char *text)
{
    return client->user && (code == ETCD_UNAUTHENTICATED ||
                            (code == ETCD_INVALID && strstr(text, "user name is empty")));
}
