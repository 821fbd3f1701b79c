/* The verb that shows the daemon's views to Prometheus. */
#include "proto/metrics.h"
#include "client/dlclient.h"
#include "client/dlctl/report.h"
#include "client/dlctl/verbs.h"

#include <errno.h>
#include <stdio.h>

static void client_closep(struct dl_client **client)
{
    *client = dl_client_close(*client);
}

static void views_deinit(struct value (*views)[METRICS_VIEWS])
{
    for (size_t i = 0; i < METRICS_VIEWS; i++)
        value_deinit(&(*views)[i]);
}

/* 1: an answer is malformed. */
static int ask(struct dl_client *client, struct value *views)
{
    struct dl_error err = {0};
    const void *data = NULL;
    size_t len = 0;
    int r = 0;

    for (size_t i = 0; i < METRICS_VIEWS && r == 0; i++) {
        r = dl_client_query(client, metrics_views[i], &data, &len);
        if (r == 0 && value_unpack(data, len, &views[i], &err) < 0)
            return 1;
    }
    return r;
}

static int print(const struct options *o, const struct dl_buffer *text)
{
    if (o->json)
        return report_json(o, json_pack("{s:s%}", "text", (const char *)text->data, text->len));
    fwrite(text->data, 1, text->len, stdout);
    return STATUS_DONE;
}

int verb_metrics(const struct options *o)
{
    _cleanup_(client_closep)
    struct dl_client *client = NULL;
    _cleanup_(views_deinit)
    struct value views[METRICS_VIEWS] = {0};
    _cleanup_(buffer_deinit)
    struct dl_buffer text = {0};
    int r;

    r = dl_client_connect(&client, o->socket, "dlctl " DLOADER_VERSION);
    if (r == 0)
        r = ask(client, views);
    if (r < 0)
        return report_client(o, client, r);
    if (r > 0)
        return report_errno(o, -EBADMSG, "the daemon's answer");
    r = metrics_write(views, &text);
    return r < 0 ? report_errno(o, r, o->verb->name) : print(o, &text);
}
