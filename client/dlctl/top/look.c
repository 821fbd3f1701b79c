#include "client/dlctl/top/look.h"

#include "client/dlclient.h"
#include "proto/clock.h"
#include "proto/pages.h"
#include <errno.h>

/* Views, or the failure alone, follow. It never leaves this program. */
struct head {
    uint64_t at_ns;
    uint64_t len[TOP_VIEWS];
    struct dl_error failure;
};

void top_looker_deinit(struct top_looker *looker)
{
    looker->client = dl_client_close(looker->client);
}

/* A daemon that ends is said to have ended: it is not waited for. */
static int connect_to(struct top_looker *looker, struct dl_client **ret)
{
    int r = dl_client_connect(ret, looker->socket, "dlctl " DLOADER_VERSION);

    if (r == 0)
        dl_client_set_reconnect(*ret, 0);
    return r;
}

static int ask(struct dl_client *client, struct head *head, struct dl_buffer *views)
{
    const void *data;
    size_t len;
    int r = 0;

    for (size_t i = 0; i < TOP_VIEWS && r == 0; i++) {
        r = dl_client_query(client, top_views[i], &data, &len);
        if (r < 0)
            return r;
        head->len[i] = len;
        r = buffer_append(views, data, len);
    }
    return r;
}

static void tell_failure(const struct dl_client *client, int code, struct dl_error *err)
{
    const char *text = client ? dl_client_error(client) : "";

    dl_error_set(err, -code, "", "%s", *text ? text : strerror(-code));
}

int top_look(struct top_looker *looker, struct dl_buffer *out)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer views = {0};
    struct head head;
    int r = 0;

    memset(&head, 0, sizeof head); /* its padding passes through the pipe, too */
    if (!looker->client)
        r = connect_to(looker, &looker->client);
    head.at_ns = clock_ns();
    if (r == 0)
        r = ask(looker->client, &head, &views);
    if (r < 0) {
        tell_failure(looker->client, r, &head.failure);
        top_looker_deinit(looker);
        memset(head.len, 0, sizeof head.len);
        views.len = 0;
    }
    r = buffer_append(out, &head, sizeof head);
    return r == 0 && views.len > 0 ? buffer_append(out, views.data, views.len) : r;
}

void top_seen_deinit(struct top_seen *seen)
{
    for (size_t i = 0; i < TOP_VIEWS; i++)
        value_deinit(&seen->views[i]);
}

int top_seen_read(const uint8_t *data, size_t len, struct top_seen *ret, size_t *ret_len)
{
    struct dl_error err = {0};
    struct head head;
    uint64_t sum = sizeof head;
    int r = 0;

    if (len < sizeof head)
        return 0;
    memcpy(&head, data, sizeof head);
    for (size_t i = 0; i < TOP_VIEWS; i++)
        if (add_overflows(sum, head.len[i], &sum))
            return -EBADMSG;
    if (len < sum)
        return 0;
    data += sizeof head;
    for (size_t i = 0; i < TOP_VIEWS && head.failure.code == 0 && r == 0; i++) {
        r = pages_unpack(data, head.len[i], &ret->views[i], &err);
        data += head.len[i];
    }
    if (r < 0) {
        top_seen_deinit(ret);
        if (r == -ENOMEM)
            return r;
        dl_error_set(&head.failure, EBADMSG, "", "the daemon's answer is malformed");
    }
    ret->at_s = (double)head.at_ns / 1e9;
    ret->failure = head.failure;
    *ret_len = sum;
    return 1;
}
