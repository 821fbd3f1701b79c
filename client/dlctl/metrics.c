/* The verb that shows the daemon's views to Prometheus. */
#include "proto/metrics.h"
#include "client/dlctl/ask.h"
#include "client/dlctl/report.h"
#include "client/dlctl/verbs.h"

#include <errno.h>
#include <stdio.h>

static void views_deinit(struct value (*views)[METRICS_VIEWS])
{
    for (size_t i = 0; i < METRICS_VIEWS; i++)
        value_deinit(&(*views)[i]);
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
    _cleanup_(ask_end)
    struct dl_client *client = NULL;
    _cleanup_(views_deinit)
    struct value views[METRICS_VIEWS] = {0};
    _cleanup_(buffer_deinit)
    struct dl_buffer text = {0};
    int r = ask_connect(o, &client);

    for (size_t i = 0; i < METRICS_VIEWS && r == 0; i++)
        r = ask_view(client, metrics_views[i], &views[i]);
    if (r < 0)
        return report_client(o, client, r);
    r = metrics_write(views, &text);
    return r < 0 ? report_errno(o, r, o->verb->name) : print(o, &text);
}
