/*
 * What the daemon serves over HTTP: the metrics, health and readiness, the live page, and the views
 * that the page is made from, as JSON. Answers are kept for a while, so that many visitors cost
 * little more than one.
 *
 *   path             | who gets it
 *   -----------------+-----------------------------------------------------------------------
 *   /                | everyone: the page has no figures in it, it fetches them
 *   /healthz /readyz | everyone
 *   /metrics         | everyone on this machine; from elsewhere, who has the token
 *   /totals          | the same
 *   /views/NAME      | who has the token, or is the daemon's own user on this machine
 */
#ifndef DL_ANSWERS_H
#define DL_ANSWERS_H

#include "daemon/serve/page/page.h"

#include <microhttpd.h>
#include <uv.h>

struct answers;

/* `local`: reachable only from this machine. `token` is copied; may be NULL. */
struct answers *answers_new(uv_loop_t *loop, bool local, const char *token, page_view view,
                            void *context);
struct answers *answers_free(struct answers *answers); /* NULL is fine; NULL */

void answers_set_token(struct answers *answers, const char *token);

/* Answers a request whose headers are complete. */
enum MHD_Result answers_give(struct answers *answers, struct MHD_Connection *connection,
                             const char *path, const char *method);

#endif
