/* `dlctl top`: on a screen, or as text or JSON that comes again and again. */
#include "client/dlctl/top/top.h"

#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/text.h"
#include "proto/common/clock.h"
#include "proto/pages.h"
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <time.h>

/* How wide text is that goes to no terminal, if $COLUMNS does not say. */
enum { TEXT_WIDTH_MIN = 20, TEXT_WIDTH_MAX = 1000, FIRST_MS = 300 };

static void top_session_deinit(struct top_session *s)
{
    top_state_deinit(&s->state);
    dl_client_close(s->client);
    s->model = top_model_free(s->model);
}

/* A daemon that ends is said to have ended: it is not waited for. */
static int top_connect(struct top_session *s)
{
    int r = s->client ? 0 : dl_client_connect(&s->client, s->o->socket, "dlctl " DLOADER_VERSION);

    if (r == 0)
        dl_client_set_reconnect(s->client, 0);
    return r;
}

static int top_query(struct top_session *s, struct value views[static TOP_VIEWS],
                     struct dl_error *err)
{
    int r = top_connect(s);

    for (size_t i = 0; i < TOP_VIEWS && r == 0; i++) {
        const void *data;
        size_t len;

        r = dl_client_query(s->client, top_views[i], &data, &len);
        if (r == 0 && pages_unpack(data, len, &views[i], err) < 0)
            return dl_error_set(err, EBADMSG, "", "the daemon's answer is malformed");
    }
    if (r < 0) {
        const char *text = s->client ? dl_client_error(s->client) : "";

        dl_error_set(err, -r, "", "%s", *text ? text : strerror(-r));
    }
    return r;
}

int top_session_look(struct top_session *s, struct dl_error *err)
{
    struct value views[TOP_VIEWS] = {0};
    struct top_model *model = NULL;
    double at_s = (double)clock_ns() / 1e9;
    int r = top_query(s, views, err);

    if (r == 0 && top_model_make(views, at_s, s->model, &model) < 0)
        r = dl_error_set(err, ENOMEM, "", "%s", strerror(ENOMEM));
    for (size_t i = 0; i < TOP_VIEWS; i++)
        value_deinit(&views[i]);
    if (r < 0) {
        s->client = dl_client_close(s->client);
        snprintf(s->notice, sizeof s->notice, "trying again: %.400s", err->message);
        return r;
    }
    top_model_free(s->model);
    s->model = model;
    s->notice[0] = '\0';
    return 0;
}

int top_session_layout(const struct top_session *s, struct top_screen *screen)
{
    screen->unicode = s->unicode;
    if (s->model)
        top_model_sort(s->model, s->state.sort, s->state.reverse);
    return top_layout(s->model, &s->state, *s->notice ? s->notice : NULL, screen);
}

bool top_session_done(const struct top_session *s)
{
    return s->o->count > 0 && s->shown >= s->o->count;
}

uint64_t top_session_first_ms(const struct top_session *s)
{
    return min_u64(s->o->interval_ms, FIRST_MS);
}

/* ---- text ----------------------------------------------------------------------------------- */

static void top_wait_ms(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000),
                            .tv_nsec = (long)(ms % 1000) * 1000 * 1000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static int top_text_width(void)
{
    const char *columns = getenv("COLUMNS");
    long n = columns ? strtol(columns, NULL, 10) : TEXT_WIDTH;

    return n < TEXT_WIDTH_MIN || n > TEXT_WIDTH_MAX ? TEXT_WIDTH : (int)n;
}

static int top_print_text(const struct top_session *s)
{
    _cleanup_(top_screen_deinit)
    struct top_screen screen = {.width = top_text_width()};
    int r = top_session_layout(s, &screen);

    if (r < 0)
        return report_errno(s->o, r, s->o->verb->name);
    if (s->shown > 0)
        fputc('\n', stdout);
    top_screen_print(&screen, stdout);
    return STATUS_DONE;
}

static int top_print_json(const struct top_session *s)
{
    _cleanup_(value_deinit)
    struct value value = {0};
    struct timespec now;
    int r = top_model_value(s->model, s->state.picked, &value);

    clock_gettime(CLOCK_REALTIME, &now);
    if (r == 0)
        r = value_set_float(&value, "time_s", (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    return r < 0 ? report_errno(s->o, r, s->o->verb->name) : report_json(s->o, render_json(&value));
}

/* What is seen is printed, what is not is said once: until it is seen again, or otherwise. */
static int top_show(struct top_session *s, char *said)
{
    int status;

    if (*s->notice) {
        if (strcmp(said, s->notice) != 0)
            report_warning(s->o, s->notice);
        snprintf(said, TOP_NOTICE_MAX, "%s", s->notice);
        return STATUS_DONE;
    }
    *said = '\0';
    status = s->o->json ? top_print_json(s) : top_print_text(s);
    s->shown++;
    return status == STATUS_DONE ? report_flush(s->o, status) : status;
}

static int top_text(struct top_session *s)
{
    char said[TOP_NOTICE_MAX] = "";
    int status = STATUS_DONE;

    for (uint64_t ms = top_session_first_ms(s); status == STATUS_DONE && !top_session_done(s);
         ms = s->o->interval_ms) {
        struct dl_error err = {0};

        top_wait_ms(ms);
        (void)!top_session_look(s, &err); /* the notice says why it failed */
        status = top_show(s, said);
    }
    return status;
}

int verb_top(const struct options *o)
{
    _cleanup_(top_session_deinit)
    struct top_session s = {.o = o};
    struct dl_error err = {0};
    int status = -ENOTTY;

    (void)setlocale(LC_CTYPE, "");
    s.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (o->operand && !(s.state.picked = strdup(o->operand)))
        return report_errno(o, -ENOMEM, o->verb->name);
    if (top_session_look(&s, &err) < 0)
        return report_error(o, &err);
#if HAVE_NCURSES
    if (!o->json)
        status = top_terminal(&s);
#endif
    return status == -ENOTTY ? top_text(&s) : status;
}
