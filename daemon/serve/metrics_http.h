/*
 * What the daemon answers by HTTP, driven by its loop: the metrics for a Prometheus, health and
 * readiness, and a live page for people; see answers.h for what is served, and to whom. It listens
 * at a loopback address or a Unix socket, or with a token anywhere. Visitors that are slow or send
 * no request are dropped after a time, or when others need the place.
 */
#ifndef DL_METRICS_HTTP_H
#define DL_METRICS_HTTP_H

#include "daemon/base/config.h"
#include "daemon/serve/page/page.h"

#include <uv.h>

struct metrics_http;

/* `metrics` of the configuration, which is borrowed, with the socket's permissions; listening
 * nowhere gives NULL. Errors name the setting. */
int _nodiscard_ metrics_http_new(uv_loop_t *loop, const struct config *config, page_view view,
                                 void *context, struct metrics_http **ret, struct dl_error *err);

/* Another token from now on; NULL for either is fine. */
void metrics_http_set_token(struct metrics_http *http, const char *token);

/* Hangs up. NULL is fine; its handles end with the loop's next turns. */
struct metrics_http *metrics_http_free(struct metrics_http *http);

#endif
