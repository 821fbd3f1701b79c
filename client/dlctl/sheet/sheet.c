/* The verb that writes a report of one loader, to be sent to a colleague: see sheet.h. */
#include "client/dlctl/sheet/sheet.h"

#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/spec.h"
#include "client/dlctl/text.h"
#include "proto/common/url.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sys/utsname.h>
#include <time.h>

enum {
    SHEET_STATUS,
    SHEET_LOADERS,
    SHEET_EPOCHS,
    SHEET_WORKERS,
    SHEET_RING,
    SHEET_TIMES,
    SHEET_QUARANTINE,
    SHEET_MEMBERS,
    SHEET_TRACE,
    SHEET_LATELY,
    SHEET_SLOW,
    SHEET_VIEWS
};
static const char *const sheet_views[SHEET_VIEWS] = {"status", "loaders", "epochs",     "workers",
                                                     "ring",   "times",   "quarantine", "members",
                                                     "trace",  "lately",  "slowest"};

enum { SLOWEST = 10, SPEC_MAX = 1024 * 1024 };

struct sheet {
    const struct options *o;
    struct value views[SHEET_VIEWS];
    const struct value *loader; /* its row of SHEET_LOADERS */
    struct sheet_batches batches;
    char *spec; /* owned; NULL: there is none to show */
    const char *why_no_spec;
    uint64_t replicas; /* shard.replicas; 1: none, or nobody says it */
};

static void sheet_deinit(struct sheet *s)
{
    for (size_t i = 0; i < SHEET_VIEWS; i++)
        value_deinit(&s->views[i]);
    sheet_batches_deinit(&s->batches);
    free(s->spec);
}

static const char *sheet_text(const struct value *map, const char *key)
{
    const struct value *v = value_get(map, key);

    return v && v->type == VALUE_STRING ? v->string : "";
}

/* ---- the parts ------------------------------------------------------------------------------ */

static void sheet_write_summary(const struct sheet *s, FILE *file)
{
    static const char *const keys[] = {"state",   "dataset",         "length",       "batch",
                                       "seed",    "users",           "workers",      "batches",
                                       "samples", "delivered_bytes", "memory_bytes", NULL};
    struct value row = {
        .type = VALUE_ARRAY, .items = (struct value *)(uintptr_t)s->loader, .count = 1};
    time_t now = time(NULL);
    struct tm local = {0};
    char text[128] = "";

    localtime_r(&now, &local);
    (void)strftime(text, sizeof text, "Written at %F %T %z, by dlctl " DLOADER_VERSION ".", &local);
    sheet_paragraph(file, text);
    sheet_paragraph(file, sheet_text(s->loader, "verdict"));
    sheet_table(file, "The loader, since it was opened", &row, NULL, keys);
}

static void sheet_write_series(const struct sheet *s, FILE *file)
{
    double values[SHEET_BINS], seconds = (double)(s->batches.to - s->batches.from) / 1e9;
    char text[160], caption[96];
    const char *stage;

    sheet_heading(file, "Throughput and waiting of the last batches");
    if (s->batches.n == 0) {
        sheet_paragraph(file, "None of its batches has been released yet.");
        return;
    }
    (void)snprintf(text, sizeof text,
                   "Of the last %zu batches that were released, of %zu rank%s. A rank without a "
                   "batch waits for one, or has not requested one.",
                   s->batches.n, s->batches.ranks, s->batches.ranks == 1 ? "" : "s");
    sheet_paragraph(file, text);
    sheet_rate(&s->batches, values);
    sheet_chart(file, "Batches a second", "batches_per_s", values, seconds);
    sheet_waiting(&s->batches, values);
    sheet_chart(file, "Share of the ranks' time without a batch", "fill", values, seconds);
    sheet_heading(file, "Stages of the last batches");
    for (size_t i = 0; (stage = sheet_stage(&s->batches, i, values)); i++) {
        (void)snprintf(caption, sizeof caption, "Mean time in the stage %s", stage);
        sheet_chart(file, caption, "mean_s", values, seconds);
    }
}

/* The rows of the loader as a whole alone: a thousand ranks would say the same a thousand times. */
static int sheet_write_stages(const struct sheet *s, FILE *file, const char *name)
{
    static const char *const keys[] = {"stage",    "batches", "total_s", "mean_s",
                                       "python_s", "half_s",  "p99_s",   NULL};
    _cleanup_(value_deinit)
    struct value whole = {.type = VALUE_ARRAY};
    const struct value *times = &s->views[SHEET_TIMES];
    int r = 0;

    for (uint32_t i = 0; times->type == VALUE_ARRAY && i < times->count && r == 0; i++) {
        const struct value *rank = value_get(&times->items[i], "rank");
        struct value *row;

        if (strcmp(sheet_text(&times->items[i], "loader"), name) != 0 ||
            (rank && rank->type != VALUE_NULL))
            continue;
        r = value_push(&whole, &row);
        if (r == 0)
            r = value_copy(&times->items[i], row);
    }
    if (r == 0)
        sheet_table(file, "Stages since the loader was opened", &whole, NULL, keys);
    return r;
}

/* How many ranks there are of the batch's epoch; 0: nobody knows any more. */
static uint64_t sheet_world_of(const struct sheet *s, const char *name, const struct sheet_batch *b)
{
    const struct value *epochs = &s->views[SHEET_EPOCHS];

    for (uint32_t i = 0; epochs->type == VALUE_ARRAY && i < epochs->count; i++) {
        const struct value *row = &epochs->items[i];

        if (strcmp(sheet_text(row, "loader"), name) == 0 &&
            value_count(value_get(row, "epoch")) == b->epoch)
            return value_count(value_get(row, "world"));
    }
    return 0;
}

/* The command that shows the samples of a batch. Its ranks are all that read, those of the batch
 * and of views only those that have samples of their own. */
static int sheet_set_command(const struct sheet *s, const char *name, const struct sheet_batch *b,
                             struct value *row)
{
    uint64_t world = sheet_world_of(s, name, b);
    char text[512], number[24] = "WORLD";

    if (!world && b->rank == 0 && s->batches.ranks == 1)
        world = 1;
    if (world)
        (void)snprintf(number, sizeof number, "%" PRIu64, world * s->replicas);
    (void)snprintf(text, sizeof text,
                   "dlctl peek '%s' --epoch %" PRIu64 " --world %s --rank %" PRIu64
                   " --step %" PRIu64,
                   name, b->epoch, number, b->rank * s->replicas, b->step);
    return value_set_string(row, "what_is_in_it", text);
}

static int sheet_add_slow(const struct sheet *s, const char *name, const struct sheet_batch *b,
                          struct value *rows)
{
    const struct {
        const char *key;
        uint64_t n;
    } counts[] = {{"epoch", b->epoch}, {"rank", b->rank}, {"step", b->step}, {"worker", b->worker}};
    struct value *row;
    int r = value_push(rows, &row);

    for (size_t i = 0; i < ARRAY_SIZE(counts) && r == 0; i++)
        r = value_set_uint(row, counts[i].key, counts[i].n);
    if (r == 0)
        r = value_set_float(row, "fetch_s", (double)(b->fetched - b->begun) / 1e9);
    if (r == 0)
        r = value_set_float(row, "collate_s", (double)(b->made - b->fetched) / 1e9);
    return r < 0 ? r : sheet_set_command(s, name, b, row);
}

static int sheet_write_slowest(const struct sheet *s, FILE *file, const char *name)
{
    const struct sheet_batch *slowest[SLOWEST];
    size_t n = sheet_slowest(&s->batches, SLOWEST, slowest);
    _cleanup_(value_deinit)
    struct value rows = {.type = VALUE_ARRAY};
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = sheet_add_slow(s, name, slowest[i], &rows);
    if (r == 0 && n > 0) {
        sheet_heading(file, "Slowest batches");
        sheet_table(file, "Of these, the ones that took longest to make", &rows, NULL, NULL);
    }
    return r;
}

/* Why samples have no names. One reason is all of them: they are of one dataset. */
static void sheet_write_nameless(const struct value *slow, FILE *file, const char *name)
{
    char text[256];

    for (uint32_t i = 0; slow->type == VALUE_ARRAY && i < slow->count; i++) {
        const struct value *row = &slow->items[i];

        if (strcmp(sheet_text(row, "loader"), name) != 0 || !*sheet_text(row, "why_not"))
            continue;
        (void)snprintf(text, sizeof text, "Sample %" PRIu64 " has no name: %.150s.",
                       value_count(value_get(row, "sample")), sheet_text(row, "why_not"));
        sheet_paragraph(file, text);
        return;
    }
}

static const char *sheet_why_no_slow(const struct sheet *s)
{
    if (value_count(value_get(s->loader, "batches")) == 0)
        return "None has been made yet.";
    if (strcmp(sheet_text(s->loader, "style"), "iterable") == 0)
        return "None was recorded: of an iterable dataset, only samples with names, as in tar "
               "shards, that take 10 µs or more on average are recorded.";
    return "None was recorded: they take less than 10 µs each on average.";
}

static void sheet_write_slow_samples(const struct sheet *s, FILE *file, const char *name)
{
    static const char *const keys[] = {"sample",   "took_s", "name", "epoch",
                                       "together", "seen",   NULL};

    sheet_heading(file, "Slowest samples");
    if (!sheet_table(file, "The samples that took longest to make since the loader was opened",
                     &s->views[SHEET_SLOW], name, keys))
        sheet_paragraph(file, sheet_why_no_slow(s));
    sheet_write_nameless(&s->views[SHEET_SLOW], file, name);
}

/* Of the loader as a whole, or of a rank. */
static void sheet_write_padding(const struct value *row, FILE *file)
{
    double tokens = value_real(value_get(row, "tokens"));
    double padded = value_real(value_get(row, "padded"));
    const struct value *rank = value_get(row, "rank");
    char text[128], who[40] = "In all delivered batches", padding[UNITS_MAX];

    if (!(padded > 0))
        return;
    if (rank)
        (void)snprintf(who, sizeof who, "Rank %" PRIu64, value_count(rank));
    format_percent((padded - tokens) / padded, padding, sizeof padding);
    (void)snprintf(text, sizeof text, "%s: %.0f tokens, %s of the batches padding.", who, tokens,
                   padding);
    sheet_paragraph(file, text);
}

static void sheet_write_epochs(const struct sheet *s, FILE *file, const char *name)
{
    static const char *const keys[] = {"job",      "epoch",  "rank",         "world",    "step",
                                       "steps",    "state",  "samples",      "left_out", "age_s",
                                       "waited_s", "tokens", "tokens_per_s", NULL};
    const struct value *epochs = &s->views[SHEET_EPOCHS];
    bool listed = false;

    sheet_heading(file, "Epochs");
    if (!sheet_table(file, "In progress", epochs, name, keys))
        sheet_paragraph(file, "None is in progress.");
    for (uint32_t i = 0; epochs->type == VALUE_ARRAY && i < epochs->count; i++) {
        const struct value *row = &epochs->items[i];

        if (strcmp(sheet_text(row, "loader"), name) != 0)
            continue;
        sheet_write_padding(row, file);
        if (!listed)
            sheet_write_lists(row, file);
        listed = true;
    }
    sheet_write_padding(s->loader, file);
    sheet_write_lists(s->loader, file);
}

static void sheet_write_errors(const struct sheet *s, FILE *file, const char *name)
{
    static const char *const bad[] = {"sample", "dataset", "rank", "done", "seen", "message", NULL};
    char text[160];

    (void)snprintf(text, sizeof text,
                   "%" PRIu64 " tasks were tried again, %" PRIu64 " steps failed, %" PRIu64
                   " samples are bad.",
                   value_count(value_get(s->loader, "retries")),
                   value_count(value_get(s->loader, "faults")),
                   value_count(value_get(s->loader, "bad")));
    sheet_heading(file, "Errors");
    sheet_paragraph(file, text);
    sheet_table(file, "Bad samples", &s->views[SHEET_QUARANTINE], name, bad);
}

static void sheet_write_workers(const struct sheet *s, FILE *file, const char *name)
{
    static const char *const workers[] = {
        "worker", "state",      "tasks",        "restarts",    "stuck",   "fetch_s", "collate_s",
        "cpu_s",  "cpu_wait_s", "memory_bytes", "interpreter", "sandbox", NULL};
    static const char *const ring[] = {"segment", "state", "slot_bytes", "slots",        "free",
                                       "filling", "ready", "leased",     "memory_bytes", NULL};
    static const char *const nodes[] = {"node",       "state",       "node_rank",
                                        "first_rank", "local_ranks", NULL};
    const struct value *list = value_get(&s->views[SHEET_MEMBERS], "nodes");

    sheet_heading(file, "Workers and memory");
    sheet_table(file, "Workers", &s->views[SHEET_WORKERS], name, workers);
    sheet_table(file, "Segments of the ring", &s->views[SHEET_RING], name, ring);
    if (list)
        sheet_table(file, "Nodes of the cluster", list, NULL, nodes);
}

static void sheet_write_machine(const struct sheet *s, FILE *file)
{
    struct utsname names = {0};
    char memory[UNITS_MAX], up[UNITS_MAX], text[512];
    double pages = (double)sysconf(_SC_PHYS_PAGES);

    (void)uname(&names);
    format_bytes(pages * (double)sysconf(_SC_PAGESIZE), memory, sizeof memory);
    format_seconds(value_real(value_get(&s->views[SHEET_STATUS], "uptime_s")), up, sizeof up);
    (void)snprintf(text, sizeof text,
                   "%s %s on %s: %ld processors, %s of memory; dloaderd %s, up %s.", names.sysname,
                   names.release, names.machine, sysconf(_SC_NPROCESSORS_ONLN), memory,
                   sheet_text(&s->views[SHEET_STATUS], "version"), up);
    sheet_heading(file, "Machine");
    sheet_paragraph(file, text);
    sheet_heading(file, "Spec");
    if (s->spec)
        sheet_preformatted(file, s->spec);
    else
        sheet_paragraph(file, s->why_no_spec);
}

static int sheet_write(const struct sheet *s, FILE *file)
{
    const char *name = s->o->operand;
    char title[200];

    (void)snprintf(title, sizeof title, "Loader %.150s", name);
    sheet_begin(file, title);
    sheet_write_summary(s, file);
    int r = sheet_write_lately(file, &s->views[SHEET_LATELY], name);
    if (r == 0)
        sheet_write_series(s, file);
    if (r == 0)
        r = sheet_write_stages(s, file, name);
    if (r == 0)
        r = sheet_write_slowest(s, file, name);
    sheet_write_slow_samples(s, file, name);
    sheet_write_epochs(s, file, name);
    sheet_write_errors(s, file, name);
    sheet_write_workers(s, file, name);
    sheet_write_machine(s, file);
    sheet_end(file);
    return r;
}

/* ---- the verb ------------------------------------------------------------------------------- */

static int sheet_read_spec(const char *path, char **ret)
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

/* What the daemon says that it was opened with; a daemon of before may know of no such view. */
static int sheet_ask_spec(struct dl_client *client, const char *name, struct sheet *s)
{
    _cleanup_(value_deinit)
    struct value specs = {0};
    json_t *spec = NULL;
    int r = ask_view(client, "specs", &specs);

    if (r < 0 && r != -EINVAL)
        return r;
    const struct value *row = r < 0 ? NULL : spec_find_row(&specs, "loader", name);
    r = row ? spec_read_row(row, &spec) : -ENOENT;
    if (r == -ENOMEM || r == -EBADMSG)
        return r;
    s->why_no_spec = r == -EACCES  ? "It is another user's, and not shown."
                     : r == -EFBIG ? "It is too long to be shown."
                                   : "The daemon does not report it.";
    if (r < 0)
        return 0;
    json_int_t replicas =
        json_integer_value(json_object_get(json_object_get(spec, "shard"), "replicas"));
    s->replicas = replicas > 0 ? (uint64_t)replicas : 1;
    if (!s->spec)
        s->spec = json_dumps(spec, JSON_INDENT(2));
    json_decref(spec);
    return s->spec ? 0 : -ENOMEM;
}

/* Another user may have a loader of the same name: what is not of this one's user goes. */
static void sheet_drop_others(struct sheet *s, const char *name)
{
    const struct value *own = value_get(s->loader, "uid");

    for (size_t v = SHEET_EPOCHS; v < SHEET_VIEWS; v++) {
        struct value *view = &s->views[v];

        for (uint32_t i = 0; view->type == VALUE_ARRAY && i < view->count; i++) {
            const struct value *uid = value_get(&view->items[i], "uid");

            if (strcmp(sheet_text(&view->items[i], "loader"), name) == 0 && uid && own &&
                !value_equal(uid, own))
                value_deinit(&view->items[i]);
        }
    }
}

static int sheet_write_out(const struct sheet *s)
{
    const struct options *o = s->o;
    FILE *file = o->output ? fopen(o->output, "we") : stdout;

    if (!file)
        return report_errno(o, -errno, o->output);
    int r = sheet_write(s, file);
    if (r == 0)
        r = report_flush_file(file);
    if (o->output && fclose(file) == EOF && r == 0)
        r = -errno;
    return r < 0 ? report_errno(o, r, o->output ? o->output : "standard output") : STATUS_DONE;
}

int verb_report(const struct options *o)
{
    _cleanup_(sheet_deinit)
    struct sheet s = {.o = o, .replicas = 1};
    _cleanup_(ask_end)
    struct dl_client *client = NULL;
    struct dl_error err = {0};
    int r = o->spec ? sheet_read_spec(o->spec, &s.spec) : 0;

    if (r < 0)
        return report_errno(o, r, o->spec);
    r = ask_connect(o, &client);
    for (size_t i = 0; i < SHEET_VIEWS && r == 0; i++)
        r = ask_view(client, sheet_views[i], &s.views[i]);
    if (r == 0)
        r = sheet_ask_spec(client, o->operand, &s);
    if (r == 0)
        r = sheet_batches_read(&s.views[SHEET_TRACE], o->operand, &s.batches);
    if (r < 0)
        return report_client(o, client, r);
    s.loader = spec_find_row(&s.views[SHEET_LOADERS], "name", o->operand);
    if (!s.loader) {
        dl_error_set(&err, ENOENT, o->operand, "no loader of that name is open; see dlctl loaders");
        return report_error(o, &err);
    }
    sheet_drop_others(&s, o->operand);
    return sheet_write_out(&s);
}
