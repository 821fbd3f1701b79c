/* `dlctl top`: on a screen, or as text or JSON that comes again and again. */
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/text.h"
#include "client/dlctl/top/session.h"
#include "client/dlctl/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <time.h>

/* How wide text is that goes to no terminal, if $COLUMNS does not say. */
enum { TEXT_WIDTH_MIN = 20, TEXT_WIDTH_MAX = 1000, FIRST_MS = 300 };

void top_session_deinit(struct top_session *s)
{
    top_state_deinit(&s->state);
    s->model = top_model_free(s->model);
}

int top_session_take(struct top_session *s, struct top_seen *seen)
{
    struct top_model *model = NULL;
    int r;

    if (seen->failure.code) {
        snprintf(s->notice, sizeof s->notice, "trying again: %.400s", seen->failure.message);
        return 0;
    }
    r = top_model_make(seen->views, seen->at_s, s->model, &model);
    if (r < 0)
        return r;
    top_model_free(s->model);
    s->model = model;
    s->notice[0] = '\0';
    return 0;
}

int top_session_layout(const struct top_session *s, const struct top_shape *shape,
                       struct top_grid *ret)
{
    if (s->model)
        top_model_sort(s->model, s->state.sort, s->state.reverse);
    return top_layout(s->model, &s->state, *s->notice ? s->notice : NULL, shape, ret);
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

static void wait_ms(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000),
                            .tv_nsec = (long)(ms % 1000) * 1000 * 1000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static int text_width(void)
{
    const char *columns = getenv("COLUMNS");
    long n = columns ? strtol(columns, NULL, 10) : TEXT_WIDTH;

    return n < TEXT_WIDTH_MIN || n > TEXT_WIDTH_MAX ? TEXT_WIDTH : (int)n;
}

static int print_text(const struct top_session *s)
{
    const struct top_shape shape = {text_width(), 0, s->unicode, false};
    struct top_grid grid = {0};
    int r = top_session_layout(s, &shape, &grid);

    if (r < 0)
        return report_errno(s->o, r, s->o->verb->name);
    if (s->shown > 0)
        fputc('\n', stdout);
    top_grid_print(&grid, stdout);
    top_grid_deinit(&grid);
    return STATUS_DONE;
}

static int print_json(const struct top_session *s)
{
    _cleanup_(value_deinit)
    struct value value = {0};
    struct timespec now;
    json_t *json;

    if (top_model_value(s->model, s->state.picked, &value) < 0)
        return report_errno(s->o, -ENOMEM, s->o->verb->name);
    clock_gettime(CLOCK_REALTIME, &now);
    json = render_json(&value);
    if (json &&
        json_object_set_new(json, "time_s",
                            json_real((double)now.tv_sec + (double)now.tv_nsec / 1e9)) < 0) {
        json_decref(json);
        json = NULL;
    }
    return report_json(s->o, json);
}

/* What is seen is printed, what is not is said once: until it is seen again, or otherwise. */
static int show(struct top_session *s, char *said)
{
    int status;

    if (*s->notice) {
        if (strcmp(said, s->notice) != 0)
            report_warning(s->o, s->notice);
        snprintf(said, TOP_NOTICE_MAX, "%s", s->notice);
        return STATUS_DONE;
    }
    *said = '\0';
    status = s->o->json ? print_json(s) : print_text(s);
    s->shown++;
    return status == STATUS_DONE ? report_flush(s->o, status) : status;
}

static void buffer_empty(struct dl_buffer *buf)
{
    buf->len = 0;
}

/* One look, which is the first one if there is no model. */
static int look(struct top_session *s, struct top_looker *looker, struct dl_buffer *bytes)
{
    _cleanup_(top_seen_deinit)
    struct top_seen seen = {0};
    size_t len;
    int r;

    buffer_empty(bytes);
    r = top_look(looker, bytes);
    if (r == 0)
        r = top_seen_read(bytes->data, bytes->len, &seen, &len);
    if (r < 0)
        return report_errno(s->o, r, s->o->verb->name);
    if (seen.failure.code && !s->model)
        return report_error(s->o, &seen.failure);
    r = top_session_take(s, &seen);
    return r < 0 ? report_errno(s->o, r, s->o->verb->name) : STATUS_DONE;
}

static int run_text(struct top_session *s)
{
    _cleanup_(top_looker_deinit)
    struct top_looker looker = {.socket = s->o->socket};
    _cleanup_(buffer_deinit)
    struct dl_buffer bytes = {0};
    char said[TOP_NOTICE_MAX] = "";
    int status = look(s, &looker, &bytes);

    for (uint64_t ms = top_session_first_ms(s); status == STATUS_DONE && !top_session_done(s);
         ms = s->o->interval_ms) {
        wait_ms(ms);
        status = look(s, &looker, &bytes);
        if (status == STATUS_DONE)
            status = show(s, said);
    }
    return status;
}

int verb_top(const struct options *o)
{
    _cleanup_(top_session_deinit)
    struct top_session s = {.o = o};
    int status = -ENOTTY;

    (void)setlocale(LC_CTYPE, "");
    s.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (o->operand && !(s.state.picked = strdup(o->operand)))
        return report_errno(o, -ENOMEM, o->verb->name);
    if (!o->json)
        status = top_terminal(&s);
    return status == -ENOTTY ? run_text(&s) : status;
}
