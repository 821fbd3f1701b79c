/*
 * The metrics by HTTP, for a Prometheus on this machine: GET /metrics at a loopback address, driven
 * by the daemon's loop. Beside them /healthz, which the loop answers as long as it runs, and
 * /readyz, which says whether clients are served (200) or why not (503). Whoever is on the machine
 * may ask; a visitor who is slow, or never says what they want, is dropped in time, or when others
 * want the place.
 */
#ifndef DL_METRICS_HTTP_H
#define DL_METRICS_HTTP_H

#include "proto/common/error.h"
#include "proto/value.h"

#include <uv.h>

struct metrics_http;

/* Makes one of the views that the text is written from. */
typedef int (*metrics_http_view)(void *context, const char *name, struct value *ret,
                                 struct dl_error *err);

/* `listen`: see loopback.h; "" gives NULL. Errors name the setting. */
int _nodiscard_ metrics_http_new(uv_loop_t *loop, const char *listen, metrics_http_view view,
                                 void *context, struct metrics_http **ret, struct dl_error *err);

/* Hangs up. NULL is fine; its handles end with the loop's next turns. */
struct metrics_http *metrics_http_free(struct metrics_http *http);

#endif
