/*
 * The verb that writes a report of one loader, to be sent to a colleague: the daemon's live page
 * (daemon/serve/page/page.html), which finds here what it asks the daemon for otherwise. Texts of
 * other processes are in it as the text of one element alone.
 */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/spec.h"
#include "client/dlctl/text.h"
#include "daemon/serve/page/page_html.h"
#include "proto/common/url.h"

#include <assert.h>
#include <errno.h>
#include <sys/utsname.h>
#include <time.h>

/* What views the page has, and by which key a row says whose it is; NULL: a map, of all. */
static const struct {
    const char *name, *key;
} report_page_views[] = {{"status", NULL},         {"loaders", "name"},   {"epochs", "loader"},
                         {"ring", "loader"},       {"workers", "loader"}, {"times", "loader"},
                         {"members", NULL},        {"lately", "loader"},  {"trace", "loader"},
                         {"quarantine", "loader"}, {"slowest", "loader"}};

enum { REPORT_PAGE_VIEWS = ARRAY_SIZE(report_page_views), SPEC_MAX = 1024 * 1024 };

struct report_page {
    const struct options *o;
    struct value views[REPORT_PAGE_VIEWS];
    char *spec;        /* owned: text, or why it is missing */
    uint64_t replicas; /* shard.replicas; 1: none, or nobody says it */
};

static void report_page_deinit(struct report_page *p)
{
    for (size_t i = 0; i < REPORT_PAGE_VIEWS; i++)
        value_deinit(&p->views[i]);
    free(p->spec);
}

/* ---- what it says --------------------------------------------------------------------------- */

static int report_page_read_spec(const char *path, char **ret)
{
    FILE *file = fopen(path, "re");
    _cleanup_free_ char *text = calloc(1, SPEC_MAX + 1);
    int r = 0;

    if (!file || !text)
        r = file ? -ENOMEM : -errno;
    if (r == 0 && fread(text, 1, SPEC_MAX + 1, file) > SPEC_MAX)
        r = -EFBIG;
    if (r == 0 && ferror(file))
        r = -errno;
    if (file)
        (void)fclose(file);
    if (r < 0)
        return r;
    url_hide_secrets(text); /* the page is for others */
    *ret = steal_ptr(text);
    return 0;
}

/* What the daemon says that it was opened with; one of an earlier release may not have the view. */
static int report_page_ask_spec(struct dl_client *client, struct report_page *p)
{
    _cleanup_(value_deinit) struct value specs = {0};
    json_t *spec = NULL;
    int r = ask_view(client, "specs", &specs);

    if (r < 0 && r != -EINVAL)
        return r;
    const struct value *row = r < 0 ? NULL : spec_find_row(&specs, "loader", p->o->operand);
    r = row ? spec_read_row(row, &spec) : -ENOENT;
    if (r == -ENOMEM || r == -EBADMSG)
        return r;
    json_int_t replicas =
        json_integer_value(json_object_get(json_object_get(spec, "shard"), "replicas"));
    p->replicas = replicas > 0 ? (uint64_t)replicas : 1;
    if (!p->spec && spec)
        p->spec = json_dumps(spec, JSON_INDENT(2));
    else if (!p->spec)
        p->spec = strdup(r == -EACCES  ? "It is another user's, and not shown."
                         : r == -EFBIG ? "It is too long to be shown."
                                       : "The daemon does not report it.");
    json_decref(spec);
    return p->spec ? 0 : -ENOMEM;
}

static json_t *report_page_machine(void)
{
    struct utsname names = {0};
    double pages = (double)sysconf(_SC_PHYS_PAGES);
    char memory[UNITS_MAX], text[512];

    (void)uname(&names);
    format_bytes(pages * (double)sysconf(_SC_PAGESIZE), memory, sizeof memory);
    (void)snprintf(text, sizeof text, "%s %s on %s: %ld processors, %s of memory", names.sysname,
                   names.release, names.machine, sysconf(_SC_NPROCESSORS_ONLN), memory);
    return render_json_text(text);
}

static json_t *report_page_time(void)
{
    time_t now = time(NULL);
    struct tm local = {0};
    char text[128] = "";

    localtime_r(&now, &local);
    (void)strftime(text, sizeof text, "Written at %F %T %z by dlctl " DLOADER_VERSION, &local);
    return render_json_text(text);
}

/* `written` in page.html. NULL: memory ran out. */
static char *report_page_data(const struct report_page *p)
{
    json_t *views = json_object();
    int r = 0;

    for (size_t i = 0; i < REPORT_PAGE_VIEWS; i++)
        r |= json_object_set_new(views, report_page_views[i].name, render_json(&p->views[i]));
    json_t *all = json_pack("{s:o, s:o, s:o, s:I, s:o}", "at", report_page_time(), "machine",
                            report_page_machine(), "spec", render_json_text(p->spec), "replicas",
                            (json_int_t)p->replicas, "views", views);
    char *text = all && r == 0 ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(all);
    return text;
}

/* ---- the page ------------------------------------------------------------------------------- */

/* As the text of an element, or as the value of an attribute. */
static void report_page_put_text(const char *text, FILE *file)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '"')
            fputs("&quot;", file);
        else
            fputc(*text, file);
    }
}

/* The page up to that text, and with it. Returns where the rest begins. */
static size_t report_page_put_until(const char *mark, size_t at, FILE *file)
{
    const unsigned char *found = memmem(page_html + at, page_html_len - at, mark, strlen(mark));

    assert(found);
    size_t end = (size_t)(found - page_html) + strlen(mark);
    fwrite(page_html + at, 1, end - at, file);
    return end;
}

static int report_page_put(const struct report_page *p, FILE *file)
{
    _cleanup_free_ char *data = report_page_data(p);

    if (!data)
        return -ENOMEM;
    size_t at = report_page_put_until("<meta charset=\"utf-8\">\n", 0, file);
    fputs("<meta http-equiv=\"Content-Security-Policy\" content=\"", file);
    report_page_put_text(page_own_policy, file);
    fputs("\">\n", file);
    at = report_page_put_until("<pre id=\"views\" hidden>", at, file);
    report_page_put_text(data, file);
    fwrite(page_html + at, 1, page_html_len - at, file);
    return report_flush_file(file);
}

static int report_page_write(const struct report_page *p)
{
    const struct options *o = p->o;
    FILE *file = o->output ? fopen(o->output, "we") : stdout;

    if (!file)
        return report_errno(o, -errno, o->output);
    int r = report_page_put(p, file);
    if (o->output && fclose(file) == EOF && r == 0)
        r = -errno;
    return r < 0 ? report_errno(o, r, o->output ? o->output : "standard output") : STATUS_DONE;
}

/* Of what there is of all of the daemon and the cluster: what the page shows. */
static void report_page_keep_shown(struct value *map)
{
    static const char *const shown[] = {"version", "state", "uptime_s", "ready", "not_ready",
                                        "id",      "store", "trouble",  "nodes"};

    for (uint32_t i = map->count; i > 0; i--) {
        bool keep = false;

        for (size_t k = 0; k < ARRAY_SIZE(shown); k++)
            keep = keep || strcmp(map->items[i - 1].key, shown[k]) == 0;
        if (!keep)
            value_unset(map, map->items[i - 1].key);
    }
}

/* Another user may have a loader of the same name: only what is of this one's user stays. */
static bool report_page_keep_loader(struct report_page *p)
{
    const struct value *loader = spec_find_row(&p->views[1], "name", p->o->operand);
    _cleanup_(value_deinit) struct value uid = {0};

    if (!loader || value_copy(value_get(loader, "uid"), &uid) < 0)
        return false;
    for (size_t i = 0; i < REPORT_PAGE_VIEWS; i++) {
        struct value *view = &p->views[i];

        if (report_page_views[i].key)
            ask_keep_loader(view, report_page_views[i].key, p->o->operand, &uid);
        else if (view->type == VALUE_MAP)
            report_page_keep_shown(view);
    }
    return true;
}

int verb_report(const struct options *o)
{
    _cleanup_(report_page_deinit) struct report_page p = {.o = o};
    _cleanup_(ask_end) struct dl_client *client = NULL;
    struct dl_error err = {0};
    int r = o->spec ? report_page_read_spec(o->spec, &p.spec) : 0;

    if (r < 0)
        return report_errno(o, r, o->spec);
    r = ask_connect(o, &client);
    for (size_t i = 0; i < REPORT_PAGE_VIEWS && r == 0; i++)
        r = ask_view(client, report_page_views[i].name, &p.views[i]);
    if (r == 0)
        r = report_page_ask_spec(client, &p);
    if (r < 0)
        return report_client(o, client, r);
    if (!report_page_keep_loader(&p)) {
        dl_error_set(&err, ENOENT, o->operand, "no loader of that name is open; see dlctl loaders");
        return report_error(o, &err);
    }
    return report_page_write(&p);
}
