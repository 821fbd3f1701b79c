/*
 * `dlctl lengths`: how long the samples are, drawn, and what batches of tokens they would make.
 * The spec need not have any yet.
 */
#include "client/dlctl/form.h"
#include "client/dlctl/offline/choices.h"
#include "client/dlctl/offline/offline.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/run/histogram.h"
#include "client/dlctl/text.h"

#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>

enum { TOKENS_DEFAULT = 16384, WINDOW_DEFAULT = 256, COLUMNS_MAX = 120 };

/* All that is printed. */
struct told {
    struct dl_spec spec; /* owned; measured in tokens, whatever the file says */
    uint32_t *lengths;   /* owned; as the dataset has them */
    uint32_t *sorted;    /* owned */
    uint64_t n;
    uint32_t limit; /* the greatest length that is not too long */
    uint64_t overlong;
    uint64_t empty;
    struct spread spread;
    struct histogram histogram;
    struct choices choices;
};

static void lengths_told_deinit(struct told *t)
{
    spec_deinit(&t->spec);
    free(t->lengths);
    free(t->sorted);
}

/* What is missing for batches of tokens, and what would keep their samples from being looked at. */
static void lengths_complete_spec(struct dl_spec *spec, bool drawn)
{
    if (drawn)
        spec->seed = 0; /* the same each time: nothing but the choices depends on it */
    if (spec->sampler == SAMPLER_CLIENT) {
        spec->sampler = SAMPLER_RANDOM;
        spec->order = ORDER_NATIVE;
    }
    spec->batch.overlong = OVERLONG_DROP;
    if (spec->batch.tokens)
        return;
    spec->batch.tokens = TOKENS_DEFAULT;
    spec->batch.strategy = STRATEGY_SORTED;
    spec->batch.leftover = LEFTOVER_EMIT;
    spec->batch.window = WINDOW_DEFAULT;
    spec->batch.interval = 1;
}

static int lengths_compare(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int lengths_look(struct told *t, struct dl_error *err)
{
    struct plan_tokens tokens = plan_params_of(&t->spec, t->n).tokens;
    struct plan_lengths seen;

    if (t->n == 0)
        return dl_error_set(err, EINVAL, "dataset",
                            "has no samples, so there are no lengths to show");
    t->sorted = calloc(t->n, sizeof *t->sorted);
    if (!t->sorted)
        return dl_error_set(err, ENOMEM, "dataset", "%s", strerror(ENOMEM));
    memcpy(t->sorted, t->lengths, t->n * sizeof *t->sorted);
    qsort(t->sorted, t->n, sizeof *t->sorted, lengths_compare);
    tokens.lengths = t->lengths;
    plan_look_at_lengths(&tokens, t->n, &seen);
    t->limit = plan_tokens_limit(&tokens);
    t->overlong = seen.overlong;
    t->empty = seen.empty;
    spread_of(t->sorted, t->n, &t->spread);
    histogram_of(t->sorted, t->n, (uint32_t)t->spec.batch.max_length, &t->histogram);
    return choices_make(&t->spec, t->lengths, t->n, &t->choices, err);
}

/* ---- as values ------------------------------------------------------------------------------ */

static const char *lengths_strategy_name(const struct choice *choice)
{
    return choice->strategy == 0                 ? "pack"
           : choice->strategy == STRATEGY_BUCKET ? "bucket"
                                                 : "sorted";
}

static void lengths_form_interval(const struct form *form, uint64_t interval)
{
    if (interval)
        form_u64(form, "interval", interval);
    else
        (void)form_null(form, "interval");
}

static void lengths_form_choices(const struct form *form, struct value *array,
                                 const struct choices *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct choice *choice = &c->rows[i];
        const struct form row = form_row(form, array);

        form_text(&row, "strategy", lengths_strategy_name(choice));
        lengths_form_interval(&row, choice->interval);
        form_padding(&row, choice->totals.tokens, choice->totals.padded);
        form_real(&row, "fill", choice_fill(choice, c->batch_tokens));
        form_u64(&row, "steps", choice->totals.groups);
        form_u64(&row, "padded_per_step", choice->totals.padded / choice->totals.groups);
    }
}

/* Null where no sample fits a batch. */
static void lengths_form_suggest(const struct form *form, const struct choices *c)
{
    if (c->n == 0) {
        (void)form_null(form, "suggest");
        return;
    }
    const struct form suggest = form_map(form, "suggest");
    const struct choice *best = &c->rows[c->best];

    form_text(&suggest, "strategy", lengths_strategy_name(best));
    lengths_form_interval(&suggest, c->wide == UINT32_MAX ? 0 : c->rows[c->wide].interval);
    form_padding(&suggest, best->totals.tokens, best->totals.padded);
    form_real(&suggest, "fill", choice_fill(best, c->batch_tokens));
}

static int lengths_told_value(const struct told *t, struct value *ret)
{
    int error = 0;
    const struct form form = {.map = ret, .error = &error};
    struct value *rows;

    form_u64(&form, "samples", t->n);
    form_u64(&form, "tokens", t->spread.tokens);
    form_u64(&form, "min", t->spread.min);
    form_u64(&form, "median", t->spread.median);
    form_real(&form, "mean", t->spread.mean);
    form_u64(&form, "p95", t->spread.p95);
    form_u64(&form, "p99", t->spread.p99);
    form_u64(&form, "max", t->spread.max);
    form_u64(&form, "limit", t->limit);
    form_u64(&form, "overlong", t->overlong);
    form_u64(&form, "empty", t->empty);
    rows = form_array(&form, "histogram");
    for (uint32_t i = 0; i < t->histogram.n_rows; i++) {
        const struct form row = form_row(&form, rows);

        form_u64(&row, "from", t->histogram.rows[i].from);
        form_u64(&row, "to", t->histogram.rows[i].to);
        form_u64(&row, "count", t->histogram.rows[i].count);
    }
    form_u64(&form, "batch_tokens", t->spec.batch.tokens);
    form_u64(&form, "planned", t->choices.planned);
    lengths_form_choices(&form, form_array(&form, "choices"), &t->choices);
    lengths_form_suggest(&form, &t->choices);
    return error;
}

/* ---- for people ----------------------------------------------------------------------------- */

/* By the user's locale, which is not made the program's. */
static bool lengths_wants_utf8(void)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    bool utf8;

    if (!locale)
        return false;
    utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return utf8;
}

static void lengths_print_spread(const struct told *t)
{
    const struct spread *s = &t->spread;

    printf("\nsamples   %" PRIu64 ", %" PRIu64 " tokens\n", t->n, s->tokens);
    printf("length    min %" PRIu32 ", median %" PRIu32 ", mean %.1f, 95 %% %" PRIu32
           ", 99 %% %" PRIu32 ", max %" PRIu32 "\n",
           s->min, s->median, s->mean, s->p95, s->p99, s->max);
    printf("overlong  %" PRIu64 ", of more than %" PRIu32 " tokens\n", t->overlong, t->limit);
    if (t->empty > 0)
        printf("empty     %" PRIu64 ", left out of batches of tokens, padding in others\n",
               t->empty);
}

static void lengths_print_suggestion(const struct choices *c)
{
    const struct choice *best = &c->rows[c->best];
    bool buckets = best->interval != 0;
    char fill[UNITS_MAX], padding[UNITS_MAX];

    format_percent(choice_fill(best, c->batch_tokens), fill, sizeof fill);
    format_percent(choice_padding(best), padding, sizeof padding);
    printf("\nsuggest   %s%s", best->strategy ? "strategy: " : "", lengths_strategy_name(best));
    if (buckets)
        printf(", interval: %" PRIu64, best->interval);
    printf(": batches are %s full of tokens, and pad %s\n", fill, padding);
    if (c->wide == UINT32_MAX)
        return;
    if (!buckets)
        printf("          for few shapes, strategy: bucket, interval: %" PRIu64
               ", the widest within one\n          point of the fullest\n",
               c->rows[c->wide].interval);
}

static int lengths_print_choices(const struct told *t)
{
    const struct choices *c = &t->choices;
    _cleanup_(value_deinit) struct value rows = {.type = VALUE_ARRAY};
    int error = 0;
    const struct form form = {.error = &error};

    printf("\nbatches   of %" PRIu64 " tokens, for one rank", t->spec.batch.tokens);
    if (c->planned < t->n)
        printf("; estimated from %" PRIu64 " samples, drawn at random", c->planned);
    printf("\n\n");
    lengths_form_choices(&form, &rows, c);
    if (error == 0)
        error = render_view(stdout, &rows, "choices: no sample fits a batch", NULL);
    if (error == 0 && c->n > 0)
        lengths_print_suggestion(c);
    return error;
}

static int lengths_print_told(const struct options *o, const struct told *t)
{
    _cleanup_(value_deinit) struct value value = {.type = VALUE_MAP};
    int r;

    if (o->json) {
        r = lengths_told_value(t, &value);
        return r < 0 ? report_errno(o, r, "") : report_json(o, render_json(&value));
    }
    histogram_draw(stdout, &t->histogram, (int)min_u64(text_screen_width(), COLUMNS_MAX),
                   lengths_wants_utf8());
    lengths_print_spread(t);
    r = lengths_print_choices(t);
    return r < 0 ? report_errno(o, r, "") : STATUS_DONE;
}

int verb_lengths(const struct options *o)
{
    _cleanup_(lengths_told_deinit) struct told t = {0};
    _cleanup_(offline_measures_deinit) struct offline_measures measures = {0};
    struct dl_error err = {0};
    bool drawn = false;
    int r;

    r = offline_spec(o, &t.spec, &drawn, &err);
    if (r == 0) {
        lengths_complete_spec(&t.spec, drawn);
        r = offline_measure(o, &t.spec, true, &measures, &err);
        t.n = measures.length;
        t.lengths = steal_ptr(measures.lengths);
    }
    if (r == 0)
        r = lengths_look(&t, &err);
    return r < 0 ? report_error(o, &err) : lengths_print_told(o, &t);
}
