/* What etcd is asked for besides calls: a token, the run's lease, and to forget old history. */
#include "daemon/cluster/store/etcd_private.h"

#include <errno.h>
#include <stdio.h>

/* Between a login or a grant that could not be asked for and the next. */
enum { KEEP_AGAIN_MS = 500 };

/* History that others than this daemon may need: a watch that has to begin again, say. */
enum { HISTORY_MS = 600000 };

/* ---- history ----------------------------------------------------------------------------------
 */

static void etcd_keep_on_compacted(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;

    (void)with; /* another node may have asked first; or it is asked again */
    etcd->compacting = NULL;
}

void etcd_keep_history_short(struct etcd *etcd, uint64_t revision)
{
    struct http_request request = {
        .timeout_ns = etcd->patience.now_ns, .done = etcd_keep_on_compacted, .owner = etcd};
    uint64_t now = uv_now(etcd->loop);

    if (etcd->history > 0 && now - etcd->history_ms < HISTORY_MS)
        return;
    if (etcd->history > 0 && !etcd->compacting)
        (void)!etcd_client_post(&etcd->client, "kv/compaction", etcd_compact_body(etcd->history),
                                request, &etcd->compacting);
    etcd->history = revision;
    etcd->history_ms = now;
}

/* ---- the token and the lease ---------------------------------------------------------------- */

static void etcd_keep_on_answer(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;
    bool alive;

    etcd->keeping = NULL;
    if (with->status == 200 && etcd_read_keepalive(with->body, &alive) == 0)
        etcd->has_lease = alive; /* if not, the next that writes sees to it */
}

void etcd_keep_lease(uv_timer_t *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, keep);
    struct http_request request = {
        .timeout_ns = etcd->patience.now_ns, .done = etcd_keep_on_answer, .owner = etcd};

    if (!etcd->keeping)
        (void)!etcd_client_post(&etcd->client, "lease/keepalive", etcd_keepalive_body(etcd->lease),
                                request, &etcd->keeping);
}

/* Nobody gets on without: the first call says why, and whether another endpoint is to be tried. The
 * calls run again soon. */
static void etcd_keep_renewal_failed(struct etcd *etcd, const struct http_answer *with, int code,
                                     const char *why)
{
    struct etcd_call *call = etcd_first_waiting(etcd);
    char text[400];

    (void)snprintf(text, sizeof text, "%s: %s", etcd->renews_token ? "logging in" : "a lease", why);
    if (!call)
        return;
    if (!etcd->renews_token && etcd_client_token_lost(&etcd->client, code, why) &&
        call->renewals++ < RENEWALS_MAX) {
        free(steal_ptr(etcd->client.token));
        return;
    }
    if (etcd_try_next(call, text, etcd_client_may_turn(with, code)))
        etcd_at_soon(etcd, 0);
    else
        etcd_answer_error(call, with->status == 0 ? ETIMEDOUT : EACCES, call->tried);
}

static void etcd_keep_on_renewed(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;
    char why[320];
    int code, r;

    etcd->renewing = NULL;
    bool failed = etcd_client_failed(with, &code, why, sizeof why);
    if (!failed) {
        r = etcd->renews_token ? etcd_read_user(with->body, &etcd->client.token)
                               : etcd_read_grant(with->body);
        failed = r < 0;
        (void)snprintf(why, sizeof why, "%s", "answers nonsense");
    } else if (!etcd->renews_token && code == ETCD_PRECONDITION && strstr(why, "exists")) {
        failed = false; /* another node was first, and may be gone */
        etcd_keep_lease(&etcd->keep);
    }
    if (!failed && !etcd->renews_token)
        etcd->has_lease = true;
    etcd_at_soon(etcd, 0); /* the others, after the owner of the first may have freed all */
    if (failed)
        etcd_keep_renewal_failed(etcd, with, code, why);
}

bool etcd_keep_renew(struct etcd *etcd, bool sets)
{
    struct http_request request = {
        .timeout_ns = etcd_try_ns(etcd), .done = etcd_keep_on_renewed, .owner = etcd};
    char *body;

    if (etcd->renewing)
        return true;
    etcd->renews_token = etcd->client.user && !etcd->client.token;
    if (!etcd->renews_token && !(sets && etcd->lease > 0 && !etcd->has_lease))
        return false;
    body = etcd->renews_token ? etcd_user_body(etcd->client.user, etcd->client.password)
                              : etcd_grant_body(etcd->lease, etcd->keep_s);
    if (etcd_client_post(&etcd->client, etcd->renews_token ? "auth/authenticate" : "lease/grant",
                         body, request, &etcd->renewing) < 0)
        etcd_at_soon(etcd, KEEP_AGAIN_MS);
    return true;
}
