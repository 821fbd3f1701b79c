#include "daemon/serve/page/answers.h"

#include "daemon/base/memory.h"
#include "daemon/serve/page/page_html.h"
#include "daemon/serve/page/visitor.h"
#include "proto/shared/metrics.h"
#include "proto/shared/value_json.h"

#include <stdio.h>
#include <time.h>

enum {
    FRESH_MS = 100,       /* the metrics are made no more often than this */
    FRESH_VIEW_MS = 1000, /* and a view */
    COST_PER_MILLE = 4,   /* of the loop's time, the most that goes into one view */
};

/* The views that the page shows, also available to other programs. */
static const char *const views_shown[] = {"status",   "loaders", "epochs",     "workers", "ring",
                                          "sessions", "users",   "quarantine", "members", "times",
                                          "mixtures", "lately",  "specs",      "slowest", "remote"};

/* An answer kept for a while, for later requests. */
struct ready_answer {
    struct MHD_Response *response; /* owned; NULL until first made */
    uint64_t until_ms;
};

struct answers {
    uv_loop_t *loop;
    bool local;
    char *token; /* owned; may be NULL */
    page_view view;
    void *context;
    struct ready_answer metrics, totals, views[ARRAY_SIZE(views_shown)];
};

/* ---- answers in general --------------------------------------------------------------------- */

static void answers_add_header(struct MHD_Response *response, const char *name, const char *value)
{
    (void)!MHD_add_response_header(response, name, value);
}

/* `data` is on the heap and becomes the response's; or it is static. */
static struct MHD_Response *answers_make(const void *data, size_t len,
                                         enum MHD_ResponseMemoryMode mode, const char *type)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, mode);

    if (!response) {
        if (mode == MHD_RESPMEM_MUST_FREE)
            free((void *)(uintptr_t)data);
        return NULL;
    }
    /* Requests are too rare to keep a connection open. */
    answers_add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    answers_add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    answers_add_header(response, "X-Content-Type-Options", "nosniff");
    answers_add_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    return response;
}

static enum MHD_Result answers_say(struct MHD_Connection *connection, unsigned status,
                                   const char *why)
{
    char *text = must_strdup(why);
    struct MHD_Response *response =
        answers_make(text, strlen(text), MHD_RESPMEM_MUST_FREE, "text/plain; charset=utf-8");

    if (!response)
        return MHD_NO;
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        answers_add_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (status == MHD_HTTP_UNAUTHORIZED)
        answers_add_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answers_say_memory(struct MHD_Connection *connection)
{
    return answers_say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "Out of memory.\n");
}

/* ---- answers that are ready ------------------------------------------------------------------ */

static void answers_forget(struct ready_answer *answer)
{
    if (answer->response)
        MHD_destroy_response(answer->response); /* a visitor that is still reading it keeps it */
    *answer = (struct ready_answer){0};
}

/* When it was made, in seconds of a clock of the daemon's: what rates are worked out by. */
static void answers_add_clock(const struct answers *a, struct MHD_Response *response)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%.3f", (double)uv_now(a->loop) / 1e3);
    answers_add_header(response, "Dloader-Clock", text);
}

/* Takes the text, which is empty then. False: no memory. */
static bool answers_keep(const struct answers *a, struct ready_answer *answer,
                         struct dl_buffer *text, const char *type, uint64_t until_ms)
{
    size_t len = text->len;
    struct MHD_Response *response =
        answers_make(steal_ptr(text->data), len, MHD_RESPMEM_MUST_FREE, type);

    if (!response)
        return false;
    answers_add_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    answers_add_clock(a, response);
    answers_forget(answer);
    *answer = (struct ready_answer){.response = response, .until_ms = until_ms};
    return true;
}

static bool answers_is_fresh(const struct answers *a, const struct ready_answer *answer)
{
    return answer->response && uv_now(a->loop) < answer->until_ms;
}

/* Processor time of this thread, whatever else runs. */
static uint64_t answers_spent_us(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* A view that takes long to make is made seldom: what visitors cost has a bound. */
static uint64_t answers_fresh_until(const struct answers *a, uint64_t begun_us)
{
    uint64_t cost_us = answers_spent_us() - begun_us;

    return uv_now(a->loop) + max_u64(FRESH_VIEW_MS, cost_us / COST_PER_MILLE);
}

/* ---- metrics -------------------------------------------------------------------------------- */

static void answers_views_deinit(struct value (*views)[METRICS_VIEWS])
{
    for (size_t i = 0; i < METRICS_VIEWS; i++)
        value_deinit(&(*views)[i]);
}

static bool answers_make_metrics(struct answers *a)
{
    _cleanup_(answers_views_deinit) struct value views[METRICS_VIEWS] = {0};
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    struct dl_error err = {0};
    int r = 0;

    for (size_t i = 0; i < METRICS_VIEWS && r == 0; i++)
        r = a->view(a->context, metrics_views[i], &views[i], &err);
    if (r == 0)
        r = metrics_write(views, &text);
    return r == 0 && answers_keep(a, &a->metrics, &text, "text/plain; version=0.0.4; charset=utf-8",
                                  uv_now(a->loop) + FRESH_MS);
}

static enum MHD_Result answers_give_metrics(struct answers *a, struct MHD_Connection *connection)
{
    if (!answers_is_fresh(a, &a->metrics) && !answers_make_metrics(a))
        return answers_say_memory(connection);
    return MHD_queue_response(connection, MHD_HTTP_OK, a->metrics.response);
}

/* ---- health --------------------------------------------------------------------------------- */

static const char *answers_text_of(const struct value *view, const char *key)
{
    const struct value *v = value_get(view, key);

    return v && v->type == VALUE_STRING ? v->string : "";
}

/* Whether clients that come now are served. */
static enum MHD_Result answers_give_readiness(struct answers *a, struct MHD_Connection *connection)
{
    _cleanup_(value_deinit) struct value view = {0};
    struct dl_error err = {0};
    char text[1100];

    if (a->view(a->context, "status", &view, &err) < 0)
        return answers_say_memory(connection);
    if (strcmp(answers_text_of(&view, "ready"), "yes") == 0)
        return answers_say(connection, MHD_HTTP_OK, "ready\n");
    (void)snprintf(text, sizeof text, "not ready: %s\n", answers_text_of(&view, "not_ready"));
    return answers_say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

static enum MHD_Result answers_give_health(struct answers *a, struct MHD_Connection *connection)
{
    (void)a;
    return answers_say(connection, MHD_HTTP_OK, "ok\n");
}

/* ---- the page ------------------------------------------------------------------------------- */

static enum MHD_Result answers_give_page(struct answers *a, struct MHD_Connection *connection)
{
    struct MHD_Response *response =
        answers_make(page_html, page_html_len, MHD_RESPMEM_PERSISTENT, "text/html; charset=utf-8");

    (void)a;
    if (!response)
        return answers_say_memory(connection);
    answers_add_header(response, "Content-Security-Policy", page_policy);
    answers_add_header(response, "Referrer-Policy", "no-referrer");
    answers_add_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    answers_add_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

/* `unset`: keys to leave out, NULL-terminated. */
static bool answers_make_view(struct answers *a, struct ready_answer *answer, const char *name,
                              const char *const *unset)
{
    _cleanup_(value_deinit) struct value view = {0};
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    struct dl_error err = {0};
    uint64_t begun = answers_spent_us();

    if (a->view(a->context, name, &view, &err) < 0)
        return false;
    for (; *unset; unset++)
        value_unset(&view, *unset);
    return value_json_write(&view, &text) == 0 && buffer_append(&text, "\n", 1) == 0 &&
           answers_keep(a, answer, &text, "application/json", answers_fresh_until(a, begun));
}

/* Figures of the whole daemon, without anything that identifies loaders or their owners. */
static enum MHD_Result answers_give_totals(struct answers *a, struct MHD_Connection *connection)
{
    static const char *const private[] = {"verdicts", "not_ready", "socket", "pid", "uid", NULL};

    if (!answers_is_fresh(a, &a->totals) && !answers_make_view(a, &a->totals, "status", private))
        return answers_say_memory(connection);
    return MHD_queue_response(connection, MHD_HTTP_OK, a->totals.response);
}

static enum MHD_Result answers_give_view(struct answers *a, struct MHD_Connection *connection,
                                         const char *name)
{
    static const char *const nothing[] = {NULL};
    size_t i = 0;

    while (i < ARRAY_SIZE(views_shown) && strcmp(views_shown[i], name) != 0)
        i++;
    if (i == ARRAY_SIZE(views_shown))
        return answers_say(
            connection, MHD_HTTP_NOT_FOUND,
            "The views are status, loaders, epochs, workers, ring, sessions, users, "
            "quarantine, members, times, mixtures, lately, specs, slowest and remote.\n");
    if (!answers_is_fresh(a, &a->views[i]) && !answers_make_view(a, &a->views[i], name, nothing))
        return answers_say_memory(connection);
    return MHD_queue_response(connection, MHD_HTTP_OK, a->views[i].response);
}

/* ---- access --------------------------------------------------------------------------------- */

static bool answers_knows_token(const struct answers *a, struct MHD_Connection *connection)
{
    return visitor_has_token(
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION),
        a->token);
}

static bool answers_is_own(const struct answers *a, struct MHD_Connection *connection)
{
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;

    return a->local && visitor_means_here(host) && visitor_is_own(fd, geteuid());
}

static enum MHD_Result answers_refuse(const struct answers *a, struct MHD_Connection *connection)
{
    if (a->token)
        return answers_say(connection, MHD_HTTP_UNAUTHORIZED,
                           "Needs the token of metrics.token_file, as Authorization: Bearer TOKEN; "
                           "the page takes it as /#token=TOKEN.\n");
    return answers_say(
        connection, MHD_HTTP_FORBIDDEN,
        "Loaders are shown only to the daemon's own user, who connects from localhost, and to "
        "clients with the token of metrics.token_file, which is not set.\n");
}

static enum MHD_Result answers_give_private(struct answers *a, struct MHD_Connection *connection,
                                            const char *name)
{
    if (!answers_knows_token(a, connection) && !answers_is_own(a, connection))
        return answers_refuse(a, connection);
    return answers_give_view(a, connection, name);
}

static const struct {
    const char *path;
    enum MHD_Result (*give)(struct answers *a, struct MHD_Connection *connection);
    bool everywhere; /* other machines need no token */
} answers_paths[] = {
    {"/", answers_give_page, true},
    {"/healthz", answers_give_health, true},
    {"/readyz", answers_give_readiness, true},
    {"/metrics", answers_give_metrics, false},
    {"/totals", answers_give_totals, false},
};

enum MHD_Result answers_give(struct answers *a, struct MHD_Connection *connection, const char *path,
                             const char *method)
{
    static const char views[] = "/views/";
    bool view = strncmp(path, views, sizeof views - 1) == 0;
    size_t i = 0;

    while (i < ARRAY_SIZE(answers_paths) && strcmp(answers_paths[i].path, path) != 0)
        i++;
    if (!view && i == ARRAY_SIZE(answers_paths))
        return answers_say(connection, MHD_HTTP_NOT_FOUND,
                           "The metrics are at /metrics, a page is at /; there are /healthz and "
                           "/readyz.\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return answers_say(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                           "Only GET is allowed; nothing can be changed here.\n");
    if (view)
        return answers_give_private(a, connection, path + sizeof views - 1);
    if (!answers_paths[i].everywhere && !a->local && !answers_knows_token(a, connection))
        return answers_refuse(a, connection);
    return answers_paths[i].give(a, connection);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

struct answers *answers_new(uv_loop_t *loop, bool local, const char *token, page_view view,
                            void *context)
{
    struct answers *a = must_alloc(sizeof *a);

    a->loop = loop;
    a->local = local;
    a->view = view;
    a->context = context;
    answers_set_token(a, token);
    return a;
}

void answers_set_token(struct answers *a, const char *token)
{
    free(a->token);
    a->token = token ? must_strdup(token) : NULL;
}

struct answers *answers_free(struct answers *a)
{
    if (!a)
        return NULL;
    answers_forget(&a->metrics);
    answers_forget(&a->totals);
    for (size_t i = 0; i < ARRAY_SIZE(a->views); i++)
        answers_forget(&a->views[i]);
    free(a->token);
    free(a);
    return NULL;
}
