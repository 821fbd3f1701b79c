/* The result of `run` and `check` for people and programs: see outcome.h. */
#include "client/dlctl/run/outcome.h"

#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/text.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum { PATH_COLUMNS = 60 }; /* longer paths break the alignment instead of the line */

void outcome_deinit(struct outcome *outcome)
{
    for (size_t i = 0; i < outcome->n_leaves; i++)
        free(outcome->leaves[i].path);
    free(outcome->leaves);
    value_deinit(&outcome->bad);
    free(outcome->epochs);
    value_deinit(&outcome->plan);
    free(outcome->name);
    *outcome = (struct outcome){0};
}

int outcome_set_name(struct outcome *outcome, const char *name)
{
    outcome->name = strdup(name);
    return outcome->name ? 0 : -ENOMEM;
}

int outcome_add_leaf(struct outcome *outcome, const char *path, const struct leaf *leaf)
{
    char *copy = strdup(path);
    struct leaf *more =
        copy ? realloc(outcome->leaves, (outcome->n_leaves + 1) * sizeof *more) : NULL;

    if (!more) {
        free(copy);
        return -ENOMEM;
    }
    outcome->leaves = more;
    more[outcome->n_leaves] = *leaf;
    more[outcome->n_leaves++].path = copy;
    return 0;
}

int outcome_add_epoch(struct outcome *outcome, const struct epoch_outcome *epoch)
{
    struct epoch_outcome *more = realloc(outcome->epochs, (outcome->n_epochs + 1) * sizeof *more);

    if (!more)
        return -ENOMEM;
    outcome->epochs = more;
    more[outcome->n_epochs++] = *epoch;
    return 0;
}

static double outcome_per_second(uint64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* The share of the padded tokens, of which there are some, that is padding. */
static double outcome_padding_of(const struct tally *tally)
{
    return 1 - (double)tally->tokens / (double)tally->padded;
}

static json_t *outcome_seconds_or_null(double seconds)
{
    return seconds < 0 ? json_null() : render_json_real(seconds);
}

static json_t *outcome_stat_json(const struct leaf *leaf, double stat)
{
    return leaf->has_stats ? render_json_real(stat) : json_null();
}

static json_t *outcome_shape_json(const struct leaf *leaf)
{
    json_t *shape = json_array();

    for (uint32_t d = 0; d < leaf->ndim && shape; d++) {
        if (json_array_append_new(shape, render_json_u64(leaf->shape[d])) < 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    return shape;
}

static json_t *outcome_leaf_json(const struct leaf *leaf)
{
    if (leaf->is_text)
        return json_pack("{s:o, s:s, s:o}", "path", render_json_text(leaf->path), "kind",
                         leaf->dtype, "shape", outcome_shape_json(leaf));
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "path", render_json_text(leaf->path),
                     "dtype", leaf->dtype, "shape", outcome_shape_json(leaf), "min",
                     outcome_stat_json(leaf, leaf->stats.min), "max",
                     outcome_stat_json(leaf, leaf->stats.max), "mean",
                     outcome_stat_json(leaf, leaf->stats.mean));
}

static json_t *outcome_epoch_json(const struct epoch_outcome *e)
{
    return json_pack("{s:o, s:o, s:f, s:o, s:f}", "epoch", render_json_u64(e->epoch), "batches",
                     render_json_u64(e->batches), "seconds", e->seconds, "first_batch_s",
                     outcome_seconds_or_null(e->first_batch_s), "wait_s", e->wait_s);
}

/* The first batch's leaves, or the epochs; NULL when out of memory. */
static json_t *outcome_details_json(const struct outcome *outcome, bool run)
{
    json_t *array = json_array();
    size_t n = run ? outcome->n_epochs : outcome->n_leaves;

    for (size_t i = 0; i < n && array; i++) {
        json_t *item =
            run ? outcome_epoch_json(&outcome->epochs[i]) : outcome_leaf_json(&outcome->leaves[i]);
        if (json_array_append_new(array, item) < 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* Its kind is how its text begins. */
static json_t *outcome_verdict_json(const struct outcome *outcome)
{
    const struct verdict *v = &outcome->verdict;
    bool loader = v->kind == VERDICT_LOADER;

    if (!outcome->has_verdict)
        return json_null();
    return json_pack(
        "{s:o, s:o, s:o, s:b, s:f, s:s}", "kind", json_stringn(v->text, strcspn(v->text, ":")),
        "stage", loader ? json_string(stage_name(v->stage)) : json_null(), "worker",
        loader && v->worker != VERDICT_NO_WORKER ? json_integer(v->worker) : json_null(),
        "cores_short", v->cores_short, "lost_s", (double)v->lost_ns / 1e9, "text", v->text);
}

static int outcome_add_run_keys(json_t *json, const struct outcome *outcome)
{
    double first = outcome->n_epochs ? outcome->epochs[0].first_batch_s : -1;
    int r = json_object_set_new(json, "first_batch_s", outcome_seconds_or_null(first));

    if (r == 0)
        r = json_object_set_new(json, "open_s", json_real(outcome->open_s));
    if (r == 0)
        r = json_object_set_new(json, "verdict", outcome_verdict_json(outcome));
    return r < 0 ? r : json_object_set_new(json, "epochs", outcome_details_json(outcome, true));
}

/* What becomes of an epoch's samples, as the daemon planned it. */
static const struct {
    const char *key, *words;
} plan_keys[] = {
    {"overlong", "too long"},          {"empty", "without tokens"}, {"leftover", "left over"},
    {"carried", "from epochs before"}, {"repeated", "repeated"},
};

static int outcome_add_plan_keys(json_t *json, const struct value *plan)
{
    const struct value *buckets = value_get(plan, "buckets");
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(plan_keys) && r == 0; i++) {
        const struct value *v = value_get(plan, plan_keys[i].key);
        r = json_object_set_new(json, plan_keys[i].key, v ? render_json(v) : json_null());
    }
    return r < 0
               ? r
               : json_object_set_new(json, "buckets", buckets ? render_json(buckets) : json_null());
}

/* Of batches that are measured in tokens, what they are in tokens; the others have no such keys. */
static int outcome_add_token_keys(json_t *json, const struct outcome *outcome)
{
    const struct tally *t = &outcome->tally;
    int r;

    if (t->padded == 0)
        return 0;
    r = json_object_set_new(json, "tokens", render_json_u64(t->tokens));
    if (r == 0)
        r = json_object_set_new(json, "padded", render_json_u64(t->padded));
    if (r == 0)
        r = json_object_set_new(json, "padding", json_real(outcome_padding_of(t)));
    if (r == 0 && outcome->plan.type == VALUE_MAP)
        r = outcome_add_plan_keys(json, &outcome->plan);
    return r < 0 ? r
                 : json_object_set_new(json, "tokens_per_s",
                                       json_real(outcome_per_second(t->tokens, outcome->seconds)));
}

static json_t *outcome_count_or_null(uint64_t n)
{
    return n == OUTCOME_UNKNOWN ? json_null() : render_json_u64(n);
}

static int outcome_add_check_keys(json_t *json, const struct outcome *outcome)
{
    int r = json_object_set_new(json, "tree", outcome_details_json(outcome, false));

    if (r == 0 && outcome->bad.type == VALUE_ARRAY)
        r = json_object_set_new(json, "bad", render_json(&outcome->bad));
    return r;
}

static json_t *outcome_json(const struct outcome *outcome, bool run)
{
    const struct tally *t = &outcome->tally;
    json_t *json = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "name",
        render_json_text(outcome->name), "batches", render_json_u64(t->batches), "samples",
        render_json_u64(t->samples), "repeated", render_json_u64(t->repeated), "bytes",
        render_json_u64(t->bytes), "seconds", outcome->seconds, "batches_per_s",
        outcome_per_second(t->batches, outcome->seconds), "samples_per_s",
        outcome_per_second(t->samples, outcome->seconds), "bytes_per_s",
        outcome_per_second(t->bytes, outcome->seconds), "wait_s", (double)t->wait_ns / 1e9,
        "digest", *outcome->digest ? json_string(outcome->digest) : json_null(), "length",
        outcome_count_or_null(outcome->length), "steps", outcome_count_or_null(outcome->steps),
        "seed", render_json_u64(outcome->seed));

    if (json &&
        (outcome_add_token_keys(json, outcome) < 0 ||
         (run ? outcome_add_run_keys(json, outcome) : outcome_add_check_keys(json, outcome)) < 0)) {
        json_decref(json);
        json = NULL;
    }
    return json;
}

static void outcome_print_leaf(const struct leaf *leaf, int width, bool first)
{
    const char *lone = leaf->is_text ? "(text)" : "(tensor)";

    printf("%-10s%-*s %-10s [", first ? "tree" : "", width, *leaf->path ? leaf->path : lone,
           leaf->dtype);
    for (uint32_t d = 0; d < leaf->ndim; d++)
        printf("%s%" PRIu64, d ? ", " : "", leaf->shape[d]);
    printf("]");
    if (leaf->has_stats)
        printf("  min %.6g  max %.6g  mean %.6g", leaf->stats.min, leaf->stats.max,
               leaf->stats.mean);
    if (*leaf->quoted)
        printf("  %s", leaf->quoted);
    putchar('\n');
}

static void outcome_print_count(const char *before, uint64_t n, const char *after)
{
    if (n == OUTCOME_UNKNOWN)
        printf("%sunknown%s", before, after);
    else
        printf("%s%" PRIu64 "%s", before, n, after);
}

static void outcome_print_tokens(const struct tally *tally, double seconds)
{
    char rate[UNITS_MAX], padding[UNITS_MAX];

    format_count(outcome_per_second(tally->tokens, seconds), rate, sizeof rate);
    format_percent(outcome_padding_of(tally), padding, sizeof padding);
    printf("tokens    %" PRIu64 ", %s tokens/s, %s of %" PRIu64 " padded\n", tally->tokens, rate,
           padding, tally->padded);
}

/* The samples of the last epoch that do not come just once. */
static void outcome_print_plan(const struct value *plan)
{
    const char *before = "epoch     ";

    for (size_t i = 0; i < ARRAY_SIZE(plan_keys); i++) {
        const struct value *v = value_get(plan, plan_keys[i].key);
        uint64_t n = !v                      ? 0
                     : v->type == VALUE_UINT ? v->uinteger
                     : v->type == VALUE_INT  ? (uint64_t)v->integer
                                             : 0;
        if (n == 0)
            continue;
        printf("%s%" PRIu64 " %s", before, n, plan_keys[i].words);
        before = ", ";
    }
    if (*before == ',')
        printf(" samples\n");
}

static uint64_t outcome_count_of(const struct value *row, const char *key)
{
    return value_count(value_get(row, key));
}

static void outcome_print_bad(const struct value *bad)
{
    for (uint32_t i = 0; bad->type == VALUE_ARRAY && i < bad->count; i++) {
        const struct value *row = &bad->items[i], *done = value_get(row, "done");
        const struct value *message = value_get(row, "message");
        const struct value *worker = value_get(row, "worker");

        printf("%-10ssample %" PRIu64, i ? "" : "bad", outcome_count_of(row, "sample"));
        if (worker && worker->type != VALUE_NULL)
            printf(" of worker %" PRIu64 ", rank %" PRIu64, outcome_count_of(row, "worker"),
                   outcome_count_of(row, "rank"));
        printf(" was %s%s%s\n", done && done->type == VALUE_STRING ? done->string : "bad",
               message && message->type == VALUE_STRING ? ": " : "",
               message && message->type == VALUE_STRING ? message->string : "");
    }
}

static void outcome_print_outcome(const struct outcome *outcome, bool run)
{
    const struct tally *t = &outcome->tally;
    char bytes[UNITS_MAX], rate[UNITS_MAX], seconds[UNITS_MAX];
    uint64_t width = 8;
    enum { LEFT = 10 };

    printf("loader    %s, seed %" PRIu64 "\n", outcome->name, outcome->seed);
    outcome_print_count("dataset   ", outcome->length, " samples, ");
    outcome_print_count("", outcome->steps, " steps an epoch\n");
    for (size_t i = 0; i < outcome->n_leaves; i++)
        width = max_u64(width, strlen(outcome->leaves[i].path));
    width = min_u64(width, PATH_COLUMNS);
    for (size_t i = 0; i < outcome->n_leaves; i++)
        outcome_print_leaf(&outcome->leaves[i], (int)width, i == 0);
    format_bytes((double)t->bytes, bytes, sizeof bytes);
    format_seconds(outcome->seconds, seconds, sizeof seconds);
    printf("loaded    %" PRIu64 " batches, %" PRIu64 " samples", t->batches, t->samples);
    if (t->repeated)
        printf(" (%" PRIu64 " repeated)", t->repeated);
    printf(", %s in %s\n", bytes, seconds);
    format_bytes(outcome_per_second(t->bytes, outcome->seconds), bytes, sizeof bytes);
    format_count(outcome_per_second(t->batches, outcome->seconds), rate, sizeof rate);
    printf("speed     %s batches/s, ", rate);
    format_count(outcome_per_second(t->samples, outcome->seconds), rate, sizeof rate);
    printf("%s samples/s, %s/s\n", rate, bytes);
    if (t->padded)
        outcome_print_tokens(t, outcome->seconds);
    if (outcome->plan.type == VALUE_MAP)
        outcome_print_plan(&outcome->plan);
    if (run) {
        format_seconds((double)t->wait_ns / 1e9, seconds, sizeof seconds);
        format_percent(outcome_per_second(t->wait_ns, outcome->seconds * 1e9), rate, sizeof rate);
        printf("wait      %s, %s of the time\n", seconds, rate);
        if (outcome->n_epochs && outcome->epochs[0].first_batch_s >= 0) {
            format_seconds(outcome->epochs[0].first_batch_s, seconds, sizeof seconds);
            printf("start     first batch after %s\n", seconds);
        }
        if (outcome->has_verdict) {
            printf("%-*s", LEFT, "verdict");
            text_wrap(stdout, outcome->verdict.text, LEFT, LEFT, text_screen_width());
        }
    }
    outcome_print_bad(&outcome->bad);
    if (*outcome->digest)
        printf("digest    %s\n", outcome->digest);
}

int outcome_report(const struct options *o, const struct outcome *outcome)
{
    bool run = strcmp(o->verb->name, "run") == 0;

    if (o->json)
        return report_json(o, outcome_json(outcome, run));
    outcome_print_outcome(outcome, run);
    return STATUS_DONE;
}
