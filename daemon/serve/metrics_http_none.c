/* Built without libmicrohttpd. */
#include "daemon/serve/metrics_http.h"

#include <errno.h>

int metrics_http_new(uv_loop_t *loop, const struct config *config, page_view view, void *context,
                     struct metrics_http **ret, struct dl_error *err)
{
    (void)loop, (void)view, (void)context;
    *ret = NULL;
    if (!*config->metrics.listen)
        return 0;
    return dl_error_set(err, ENOTSUP, "metrics.listen",
                        "this dloaderd was built without libmicrohttpd; leave the setting out and "
                        "read the metrics with \"dlctl metrics\"");
}

void metrics_http_set_token(struct metrics_http *http, const char *token)
{
    (void)http, (void)token;
}

struct metrics_http *metrics_http_free(struct metrics_http *http)
{
    (void)http;
    return NULL;
}
