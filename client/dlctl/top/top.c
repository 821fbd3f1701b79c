/* `dlctl top`: looks at the daemon, and what is seen as text and as JSON, again and again. */
#include "client/dlctl/top/top.h"

#include "client/dlctl/ask.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/shape.h"
#include "client/dlctl/text.h"
#include "proto/common/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

/* How wide text is that goes to no terminal, if $COLUMNS does not say. */
enum { TEXT_WIDTH_MIN = 20, TEXT_WIDTH_MAX = 1000, FIRST_MS = 300 };

static void top_deinit(struct top *top)
{
    dl_client_close(top->client);
    top_look_deinit(&top->look);
    value_deinit(&top->rows);
}

/* ---- looks ---------------------------------------------------------------------------------- */

/* A daemon that ends is said to have ended: it is not waited for. */
static int top_ask(struct top *top, struct top_look *look, struct dl_error *err)
{
    int r = top->client ? 0 : ask_connect(top->o, &top->client);

    if (r == 0)
        dl_client_set_reconnect(top->client, 0);
    for (size_t i = 0; i < TOP_VIEWS && r == 0; i++)
        r = ask_view(top->client, top_views[i], &look->views[i]);
    if (r < 0) {
        const char *text = top->client ? dl_client_error(top->client) : "";

        return dl_error_set(err, -r, "", "%s", *text ? text : strerror(-r));
    }
    return 0;
}

int top_take_look(struct top *top, struct dl_error *err)
{
    _cleanup_(top_look_deinit) struct top_look look = {.at_s = (double)clock_ns() / 1e9};
    int r = top_ask(top, &look, err);

    if (r == 0 && top_rows_make(&look, &top->look, &top->rows) < 0)
        r = dl_error_set(err, ENOMEM, "", "%s", strerror(ENOMEM));
    if (r < 0) {
        top->client = dl_client_close(top->client);
        snprintf(top->notice, sizeof top->notice, "trying again: %.400s", err->message);
        return r;
    }
    if (top->o->operand)
        ask_keep_loader(&top->rows, "name", top->o->operand, NULL);
    top_rows_sort(&top->rows, top->sort, top->reverse);
    const struct top_look before = top->look;
    top->look = look;
    look = before; /* which is freed */
    top->notice[0] = '\0';
    return 0;
}

bool top_is_done(const struct top *top)
{
    return top->o->count > 0 && top->shown >= top->o->count;
}

uint64_t top_first_ms(const struct top *top)
{
    return min_u64(top->o->interval_ms, FIRST_MS);
}

/* ---- text ----------------------------------------------------------------------------------- */

static const char *top_status_text(const struct value *status, const char *key)
{
    const struct value *v = value_get(status, key);

    return v && v->type == VALUE_STRING ? v->string : "";
}

static void top_write_title(const struct top *top, FILE *file)
{
    const struct value *status = &top->look.views[TOP_STATUS];
    uint64_t sessions = value_count(value_get(status, "sessions"));
    char up[UNITS_MAX], bytes[UNITS_MAX], text[256];

    format_seconds(value_real(value_get(status, "uptime_s")), up, sizeof up);
    format_bytes((double)value_count(value_get(status, "memory_bytes")), bytes, sizeof bytes);
    snprintf(text, sizeof text, "dloaderd %.32s %.32s, up %s, %" PRIu64 " session%s, %s, by %s%s",
             top_status_text(status, "version"),
             *top->notice ? "away" : top_status_text(status, "state"), up, sessions,
             sessions == 1 ? "" : "s", bytes, top->sort->name, top->reverse ? ", reversed" : "");
    text_put(file, text);
    fputc('\n', file);
    if (*top->notice) {
        text_put(file, top->notice);
        fputc('\n', file);
    }
}

static int top_write_table(const struct top *top, FILE *file, size_t width, bool verdicts)
{
    _cleanup_(value_deinit) struct value rows = {0};
    struct table_style style;
    int r = value_copy(&top->rows, &rows);

    if (r == 0 && rows.count == 0) {
        fputs(top->o->operand ? "that loader is not open\n" : "no loader is open\n", file);
        return 0;
    }
    if (r == 0)
        r = shape_view("top", &rows, &style);
    if (r < 0)
        return r;
    style.width = width;
    style.below = verdicts ? style.below : NULL;
    return render_view(file, &rows, "loaders", &style);
}

int top_make_text(const struct top *top, size_t width, bool verdicts, char **ret)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);
    int r;

    if (!file)
        return -ENOMEM;
    top_write_title(top, file);
    r = top_write_table(top, file, width, verdicts);
    if (fclose(file) == EOF || r < 0)
        return -ENOMEM;
    *ret = steal_ptr(text);
    return 0;
}

static size_t top_text_width(void)
{
    const char *columns = getenv("COLUMNS");
    long n = columns ? strtol(columns, NULL, 10) : TEXT_WIDTH;

    return n < TEXT_WIDTH_MIN || n > TEXT_WIDTH_MAX ? TEXT_WIDTH : (size_t)n;
}

static int top_print_text(const struct top *top)
{
    _cleanup_free_ char *text = NULL;
    int r = top_make_text(top, top_text_width(), true, &text);

    if (r < 0)
        return report_errno(top->o, r, top->o->verb->name);
    printf("%s%s", top->shown > 0 ? "\n" : "", text);
    return STATUS_DONE;
}

static int top_print_json(const struct top *top)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return report_json(top->o, json_pack("{s:f, s:o, s:o}", "time_s",
                                         (double)now.tv_sec + (double)now.tv_nsec / 1e9, "daemon",
                                         render_json(&top->look.views[TOP_STATUS]), "loaders",
                                         render_json(&top->rows)));
}

/* ---- again and again ------------------------------------------------------------------------ */

static void top_wait_ms(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000),
                            .tv_nsec = (long)(ms % 1000) * 1000 * 1000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

/* What is seen is printed, what is not is said once: until it is seen again, or otherwise. */
static int top_print(struct top *top, char *said)
{
    int status;

    if (*top->notice) {
        if (strcmp(said, top->notice) != 0)
            report_warning(top->o, top->notice);
        snprintf(said, TOP_NOTICE_MAX, "%s", top->notice);
        return STATUS_DONE;
    }
    *said = '\0';
    status = top->o->json ? top_print_json(top) : top_print_text(top);
    top->shown++;
    return status == STATUS_DONE ? report_flush(top->o, status) : status;
}

static int top_show_text(struct top *top)
{
    char said[TOP_NOTICE_MAX] = "";
    int status = STATUS_DONE;

    for (uint64_t ms = top_first_ms(top); status == STATUS_DONE && !top_is_done(top);
         ms = top->o->interval_ms) {
        struct dl_error err = {0};

        top_wait_ms(ms);
        (void)!top_take_look(top, &err); /* the notice says why it failed */
        status = top_print(top, said);
    }
    return status;
}

int verb_top(const struct options *o)
{
    _cleanup_(top_deinit) struct top top = {.o = o, .sort = top_sorts};
    struct dl_error err = {0};
    int status = -ENOTTY;

    if (top_take_look(&top, &err) < 0)
        return report_error(o, &err);
    if (!o->json)
        status = top_show_screen(&top);
    return status == -ENOTTY ? top_show_text(&top) : status;
}
