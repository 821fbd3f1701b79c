/*
 * What the daemon answers by HTTP, driven by its loop: the metrics for a Prometheus, health and
 * readiness, and a live page for people; answers.h says what, and who gets it. It is at a loopback
 * address or a Unix socket, or with a token anywhere. A visitor who is slow, or never says what
 * they want, is dropped in time, or when others want the place.
 */
#ifndef DL_METRICS_HTTP_H
#define DL_METRICS_HTTP_H

#include "daemon/serve/base/config.h"
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
