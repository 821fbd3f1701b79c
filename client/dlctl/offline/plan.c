/*
 * `dlctl plan`: the sample indices of each step, and of batches of tokens their lengths; or what
 * they are in all (--totals).
 *
 * Lines are formatted by hand into a fixed buffer and written as it fills: an epoch of any length
 * streams in constant memory.
 */
#include "daemon/plan/plan.h"
#include "client/dlctl/form.h"
#include "client/dlctl/offline/offline.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "proto/common/fd_io.h"
#include "proto/spec.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum { OUT_BYTES = 1 << 16, U64_DIGITS = 20 };

/* ---- lines ---------------------------------------------------------------------------------- */

struct out {
    size_t len;
    int error; /* negative errno of the first write that failed; later output is dropped */
    char data[OUT_BYTES];
};

static void plan_out_flush(struct out *out)
{
    if (out->error == 0)
        out->error = fd_write_all(STDOUT_FILENO, out->data, out->len);
    out->len = 0;
}

/* Makes room for a short text or one number. */
static inline char *plan_out_room(struct out *out, size_t len)
{
    assert(len <= OUT_BYTES);
    if (out->len + len > OUT_BYTES)
        plan_out_flush(out);
    return out->data + out->len;
}

static inline void plan_out_text(struct out *out, const char *text)
{
    size_t len = strlen(text);

    memcpy(plan_out_room(out, len), text, len);
    out->len += len;
}

static inline void plan_out_u64(struct out *out, uint64_t n)
{
    char digits[U64_DIGITS], *end = digits + U64_DIGITS, *p = end;

    do {
        *--p = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    memcpy(plan_out_room(out, U64_DIGITS), p, (size_t)(end - p));
    out->len += (size_t)(end - p);
}

/* What is printed of one step. */
struct shown {
    uint64_t step;
    uint64_t rank;
    uint64_t replicas; /* number of successive ranks that have the same steps */
    size_t n;
    uint64_t repeated;              /* of them, the last ones */
    uint64_t *indices;              /* owned; room for any step */
    uint32_t *lengths;              /* owned; then samples of each row; NULL without tokens */
    struct plan_step_tokens tokens; /* valid with `lengths` */
};

static void plan_out_field(struct out *out, const char *name, uint64_t n)
{
    plan_out_text(out, name);
    plan_out_u64(out, n);
}

static void plan_out_lengths(struct out *out, const char *name, const uint32_t *lengths, size_t n)
{
    plan_out_text(out, name);
    for (size_t i = 0; i < n; i++)
        plan_out_field(out, i ? "," : "", lengths[i]);
    plan_out_text(out, "]");
}

static void plan_out_json_rows(struct out *out, const struct shown *s)
{
    const uint32_t *rows = s->lengths + s->n;
    size_t at = 0;

    plan_out_text(out, ",\"rows\":[");
    for (uint32_t row = 0; row < s->tokens.rows; row++) {
        plan_out_text(out, row ? ",[" : "[");
        for (uint32_t i = 0; i < rows[row]; i++)
            plan_out_field(out, i ? "," : "", s->indices[at++]);
        plan_out_text(out, "]");
    }
    plan_out_text(out, "]");
}

static void plan_out_json(struct out *out, const struct shown *s)
{
    plan_out_field(out, "{\"step\":", s->step);
    plan_out_field(out, ",\"rank\":", s->rank);
    plan_out_text(out, ",\"indices\":[");
    for (size_t i = 0; i < s->n; i++)
        plan_out_field(out, i ? "," : "", s->indices[i]);
    plan_out_text(out, "]");
    plan_out_field(out, ",\"repeated\":", s->repeated);
    if (s->lengths) {
        plan_out_lengths(out, ",\"lengths\":[", s->lengths, s->n);
        plan_out_field(out, ",\"tokens\":", s->tokens.tokens);
        plan_out_field(out, ",\"padded\":", s->tokens.padded);
        if (s->tokens.bucket == UINT32_MAX)
            plan_out_text(out, ",\"bucket\":null");
        else
            plan_out_field(out, ",\"bucket\":", s->tokens.bucket);
        if (s->tokens.rows)
            plan_out_json_rows(out, s);
    }
    plan_out_text(out, "}\n");
}

static void plan_out_line(struct out *out, const struct options *o, const struct shown *s)
{
    const uint32_t *rows = s->lengths ? s->lengths + s->n : NULL;
    uint32_t row = 0, left = s->tokens.rows ? rows[0] : 0;

    plan_out_field(out, "step ", s->step);
    if (o->rank_all)
        plan_out_field(out, " rank ", s->rank);
    if (s->lengths) {
        if (s->tokens.bucket != UINT32_MAX)
            plan_out_field(out, " bucket ", s->tokens.bucket);
        if (s->tokens.rows)
            plan_out_field(out, " rows ", s->tokens.rows);
        plan_out_field(out, " tokens ", s->tokens.tokens);
        plan_out_field(out, "/", s->tokens.padded);
    }
    plan_out_text(out, ":");
    for (size_t i = 0; i < s->n; i++) {
        if (s->tokens.rows && left-- == 0) {
            plan_out_text(out, " |");
            left = rows[++row] - 1;
        }
        plan_out_field(out, " ", s->indices[i]);
    }
    plan_out_text(out, "\n");
}

/* Steps of the rank with the most of them, among those asked for. */
static uint64_t plan_most_steps(const struct options *o, const struct plan *plan, uint64_t replicas)
{
    uint64_t most = 0;

    if (!o->rank_all)
        return plan_steps(plan, o->rank / replicas);
    for (uint64_t rank = 0; rank < o->world / replicas; rank++)
        most = max_u64(most, plan_steps(plan, rank));
    return most;
}

static void plan_shown_deinit(struct shown *s)
{
    free(s->indices);
    free(s->lengths);
}

static int plan_shown_init(struct shown *s, const struct plan *plan)
{
    size_t most = max_u64(plan_most(plan), 1);

    s->indices = calloc(most, sizeof *s->indices);
    if (plan_totals(plan)) /* a row has one sample at least */
        s->lengths = calloc(2 * most, sizeof *s->lengths);
    return s->indices && (s->lengths || !plan_totals(plan)) ? 0 : -ENOMEM;
}

static void plan_write_step(struct out *out, const struct options *o, struct plan *plan,
                            struct shown *s)
{
    uint64_t rank = s->rank / s->replicas;

    s->n = plan_step(plan, rank, s->step, s->indices);
    s->repeated = plan_repeated(plan, rank, s->step);
    if (s->lengths) {
        s->tokens = plan_step_tokens(plan, rank, s->step);
        plan_step_lengths(plan, rank, s->step, s->lengths);
    }
    if (o->json)
        plan_out_json(out, s);
    else
        plan_out_line(out, o, s);
}

static int plan_write_steps(const struct options *o, struct plan *plan, uint64_t replicas)
{
    _cleanup_(plan_shown_deinit) struct shown s = {.replicas = replicas};
    _cleanup_free_ struct out *out = malloc(sizeof *out);
    uint64_t end = plan_most_steps(o, plan, replicas);
    uint64_t first = o->rank_all ? 0 : o->rank;
    uint64_t last = o->rank_all ? o->world - 1 : o->rank;

    if (plan_shown_init(&s, plan) < 0 || !out)
        return -ENOMEM;
    out->len = 0;
    out->error = 0;
    if (end > o->from && end - o->from > o->steps)
        end = o->from + o->steps;
    for (s.step = o->from; s.step < end && out->error == 0; s.step++)
        for (s.rank = first; s.rank <= last; s.rank++)
            if (s.step < plan_steps(plan, s.rank / replicas))
                plan_write_step(out, o, plan, &s);
    plan_out_flush(out);
    return out->error;
}

/* ---- totals --------------------------------------------------------------------------------- */

static void plan_form_buckets(const struct form *form, const struct plan *plan)
{
    struct value *buckets = form_array(form, "buckets");

    for (uint32_t i = 0; i < plan_buckets(plan); i++) {
        const struct plan_bucket bucket = plan_bucket_at(plan, i);

        if (bucket.members == 0)
            continue;
        const struct form row = form_row(form, buckets);
        form_u64(&row, "upper", bucket.upper);
        form_u64(&row, "members", bucket.members);
        form_u64(&row, "full", bucket.full);
        form_u64(&row, "leftover", bucket.leftover);
    }
}

/* As dloaderd's views: all keys, null where they do not apply. */
static int plan_form_totals(const struct dl_spec *spec, const struct plan *plan, struct value *ret)
{
    const struct plan_totals *totals = plan_totals(plan);
    int error = 0;
    const struct form form = {.map = ret, .error = &error};

    form_u64(&form, "groups", totals->groups);
    form_u64(&form, "samples", totals->samples);
    form_u64(&form, "tokens", totals->tokens);
    form_u64(&form, "padded", totals->padded);
    form_padding(&form, totals->tokens, totals->padded);
    form_u64(&form, "overlong", totals->overlong);
    form_u64(&form, "empty", totals->empty);
    form_u64(&form, "leftover", totals->leftover);
    form_u64(&form, "carried", totals->carried);
    form_u64(&form, "repeated", totals->repeated);
    if (spec->collate.kind == COLLATE_PACK)
        form_u64(&form, "rows", totals->rows);
    else
        (void)form_null(&form, "rows");
    if (plan_buckets(plan))
        plan_form_buckets(&form, plan);
    else
        (void)form_null(&form, "buckets");
    return error;
}

static int plan_print_totals(const struct options *o, const struct dl_spec *spec,
                             const struct plan *plan)
{
    _cleanup_(value_deinit) struct value totals = {.type = VALUE_MAP};
    int r = plan_form_totals(spec, plan, &totals);

    if (r == 0 && o->json)
        return report_json(o, render_json(&totals));
    if (r == 0)
        r = render_view(stdout, &totals, "totals", NULL);
    return r < 0 ? report_errno(o, r, "") : STATUS_DONE;
}

/* ---- the verb ------------------------------------------------------------------------------- */

static int plan_make_plan(const struct options *o, const struct dl_spec *spec, uint64_t replicas,
                          struct offline_measures *measures, struct plan **ret,
                          struct dl_error *err)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *changes = NULL;
    struct plan_params params;
    int r;

    if (o->totals && !spec->batch.tokens)
        return dl_error_set(err, EINVAL, "--totals",
                            "apply only to batches measured in tokens, and the spec has no "
                            "batch.tokens; leave the option out");
    r = offline_changes(o, spec, &changes, err);
    if (r == 0)
        r = offline_measure(o, spec, false, measures, err);
    if (r < 0)
        return r;
    params = plan_params_of(spec, measures->length);
    params.epoch = o->epoch;
    params.world = o->world / replicas;
    params.tokens.lengths = measures->lengths;
    params.mix.sizes = measures->sizes;
    plan_set_changes(&params, changes);
    return offline_plan(spec, &params, ret, err);
}

int verb_plan(const struct options *o)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(offline_measures_deinit) struct offline_measures measures = {0};
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct dl_error err = {0};
    uint64_t steps, replicas;
    bool drawn = false;
    int r;

    r = offline_spec(o, &spec, &drawn, &err);
    if (r == 0)
        r = offline_replicas(o, &spec, &replicas, &err);
    if (r == 0)
        r = plan_make_plan(o, &spec, replicas, &measures, &plan, &err);
    if (r < 0)
        return report_error(o, &err);
    steps = plan_most_steps(o, plan, replicas);
    if (o->from > steps) {
        dl_error_set(&err, EINVAL, "--from",
                     "%" PRIu64 " is past the end: this epoch has %" PRIu64 " steps", o->from,
                     steps);
        report_error(o, &err);
        return STATUS_USAGE;
    }
    if (drawn && spec.order != 0)
        report_seed(o, spec.seed);
    if (o->totals)
        return plan_print_totals(o, &spec, plan);
    r = plan_write_steps(o, plan, replicas);
    return r < 0 ? report_errno(o, r, "standard output") : STATUS_DONE;
}
