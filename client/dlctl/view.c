/* The verbs that ask the daemon one thing: its views, also as Prometheus reads them, and stop,
 * drain, reload, close-run. */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/shape.h"
#include "client/dlctl/text.h"
#include "proto/shared/metrics.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static const char *view_name(const struct options *o)
{
    return o->verb->view ? o->verb->view : o->verb->name;
}

static int view_print_view(const struct options *o, struct value *view)
{
    struct table_style style;
    int r;

    if (o->operand)
        ask_keep_loader(view, "loader", o->operand, NULL);
    if (o->json)
        return report_json(o, render_json(view));
    r = shape_view(view_name(o), view, &style);
    style.width = o->wide ? 0 : text_screen_width();
    if (r == 0)
        r = render_view(stdout, view, view_name(o), &style);
    return r < 0 ? report_errno(o, r, o->verb->name) : STATUS_DONE;
}

int verb_view(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(value_deinit) struct value view = {0};
    int r = ask_connect(o, &client);

    if (r == 0)
        r = ask_view(client, view_name(o), &view);
    return r < 0 ? report_client(o, client, r) : view_print_view(o, &view);
}

/* ---- for Prometheus ------------------------------------------------------------------------- */

static void view_metrics_deinit(struct value (*views)[METRICS_VIEWS])
{
    for (size_t i = 0; i < METRICS_VIEWS; i++)
        value_deinit(&(*views)[i]);
}

static int view_print_metrics(const struct options *o, const struct dl_buffer *text)
{
    if (o->json)
        return report_json(o, json_pack("{s:s%}", "text", (const char *)text->data, text->len));
    fwrite(text->data, 1, text->len, stdout);
    return STATUS_DONE;
}

int verb_metrics(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(view_metrics_deinit) struct value views[METRICS_VIEWS] = {0};
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    int r = ask_connect(o, &client);

    for (size_t i = 0; i < METRICS_VIEWS && r == 0; i++) {
        r = ask_view(client, metrics_views[i], &views[i]);
        if (r == -EINVAL) /* a daemon of the last release does not have it */
            r = 0;
    }
    if (r < 0)
        return report_client(o, client, r);
    r = metrics_write(views, &text);
    return r < 0 ? report_errno(o, r, o->verb->name) : view_print_metrics(o, &text);
}

/* ---- what changes the daemon ---------------------------------------------------------------- */

static int view_say_done(const struct options *o)
{
    if (o->json)
        return report_json(o, json_pack("{s:s, s:b}", "verb", o->verb->name, "done", 1));
    printf("%s: done\n", o->verb->name);
    return STATUS_DONE;
}

int verb_control(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    int r = ask_connect(o, &client);

    if (r == 0)
        r = dl_client_control(client, o->verb->name);
    return r < 0 ? report_client(o, client, r) : view_say_done(o);
}

static const char *view_text_of(const struct value *members, const char *key)
{
    const struct value *v = value_get(members, key);

    return v && v->type == VALUE_STRING ? v->string : "";
}

static bool view_is_state(const struct value *members, const char *state)
{
    return strcmp(view_text_of(members, "state"), state) == 0;
}

int verb_ready(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(value_deinit) struct value status = {0};
    struct dl_error err = {0};
    int r = ask_connect(o, &client);

    if (r == 0)
        r = ask_view(client, "status", &status);
    if (r < 0)
        return report_client(o, client, r);
    if (strcmp(view_text_of(&status, "ready"), "yes") == 0)
        return view_say_done(o);
    dl_error_set(&err, EAGAIN, "ready", "no: %s", view_text_of(&status, "not_ready"));
    return report_error(o, &err);
}

/* Until the store has it, or the daemon has given up on that; it is said by the view. */
static int view_wait_closed(struct dl_client *client, struct value *members)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    int r;

    for (;;) {
        value_deinit(members);
        r = ask_view(client, "members", members);
        if (r < 0 || view_is_state(members, "closed") || view_is_state(members, "failed"))
            return r;
        nanosleep(&pause, NULL);
    }
}

int verb_close_run(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(value_deinit) struct value members = {0};
    struct dl_error err = {0};
    int r = ask_connect(o, &client);

    if (r == 0)
        r = dl_client_control(client, o->verb->name);
    if (r == 0)
        r = view_wait_closed(client, &members);
    if (r < 0)
        return report_client(o, client, r);
    if (view_is_state(&members, "closed"))
        return view_say_done(o);
    dl_error_set(&err, EIO, "rendezvous.id", "the run could not be closed in the store at %s: %s",
                 view_text_of(&members, "endpoint"), view_text_of(&members, "failure"));
    return report_error(o, &err);
}
