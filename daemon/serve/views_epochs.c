/* The view `epochs`: how far each rank has come. */
#include "daemon/serve/views_private.h"

#include "daemon/serve/registry.h"

#include <math.h>
#include <utlist.h>

enum { BUCKETS_SHOWN = 512 };

/* The rank that the stream waits for, where batches are dispatched, and why; else null. */
static void views_epochs_add_waiting(struct row *row, const struct stream *stream)
{
    bool started = false;
    uint64_t rank = core_waits_for(stream, &started);
    bool waits = rank != UINT64_MAX;

    row_uint_if(row, "waits_for", waits, rank);
    row_string(row, "waits_why", !waits ? NULL : started ? "behind" : "not started");
}

/* How many jobs read its batches with it, itself included; null where none may. */
static void views_epochs_add_companions(struct row *row, const struct stream *s)
{
    const struct stream *one;
    uint64_t n = 1;

    if (s->source)
        DL_COUNT2(s->source->dispatch->ranks, one, n, peer_next);
    row_uint_if(row, "companions", s->params.companion, n);
}

/* The stream's own, and what of its source's it has yet to take. */
static uint32_t views_epochs_count_all(const struct stream *stream, enum step_state state)
{
    const struct stream *source = stream->source;
    uint32_t n = stream->in_state[state];

    for (const struct step *step = source ? source->steps : NULL; step; step = step->hh.next)
        n += step->state == state && step->number >= stream->to_plan;
    return n;
}

/* The buckets of a plan, unless there are too many to read. */
static void views_epochs_add_buckets(struct row *row, const struct plan *plan)
{
    uint32_t n = plan ? plan_buckets(plan) : 0;

    if (n == 0 || n > BUCKETS_SHOWN) {
        row_null(row, "buckets");
        return;
    }
    struct value *buckets = row_list(row, "buckets");
    for (uint32_t i = 0; i < n && row->r == 0; i++) {
        struct plan_bucket bucket = plan_bucket_at(plan, i);
        struct row inner = row_push(buckets);

        row_uint(&inner, "upper", bucket.upper);
        row_uint(&inner, "members", bucket.members);
        row_uint(&inner, "full", bucket.full);
        row_uint(&inner, "leftover", bucket.leftover);
        row->r = inner.r;
    }
}

/*
 * Of batches of tokens: what was delivered of them, in `age_ns`, and what becomes of the epoch's
 * samples.
 */
static void views_epochs_add_tokens(struct row *row, const struct stream *s, uint64_t age_ns)
{
    const struct plan *plan = stream_is_settled(s) ? s->plan : NULL;
    const struct plan_totals *totals = plan ? plan_totals(plan) : NULL;
    const struct {
        const char *key;
        uint64_t n;
    } all[] = {
        {"tokens", s->delivered.tokens},
        {"padded", s->delivered.padded},
        {"overlong", totals ? totals->overlong : 0},
        {"empty", totals ? totals->empty : 0},
        {"leftover", totals ? totals->leftover : 0},
        {"carried", totals ? totals->carried : 0},
        {"repeated", totals ? totals->repeated : 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        row_uint_if(row, all[i].key, totals, all[i].n);
    row_real(row, "tokens_per_s",
             totals ? (double)s->delivered.tokens * 1e9 / (double)max_u64(age_ns, 1) : NAN);
    views_epochs_add_buckets(row, totals ? plan : NULL);
}

/* What other numbers of ranks have had of the epoch, first things first; the steps count from
 * there. */
static void views_epochs_add_before(struct row *row, const struct history *before)
{
    struct value *stretches = row_list(row, "before");

    for (uint32_t i = 0; i < before->n && row->r == 0; i++) {
        struct row inner = row_push(stretches);

        row_uint(&inner, "world", before->stretches[i].world);
        row_uint(&inner, "steps", before->stretches[i].steps);
        row->r = inner.r;
    }
}

static const char *views_epochs_state_of(const struct stream *s)
{
    return s->phase == STREAM_PARKED    ? "parked"
           : !s->sink                   ? "expected"
           : s->phase == STREAM_STOPPED ? "stopped"
           : stream_finished(s)         ? "finished"
           : stream_starves(s)          ? "starving"
                                        : "running";
}

static const char *const views_priorities[] = {
    [PRIORITY_NORMAL] = "normal", [PRIORITY_HIGH] = "high", [PRIORITY_LOW] = "low"};

/* The next step, how many there are, and how long they take at the mean pace until now. */
static void views_epochs_add_progress(struct row *row, const struct loader *l,
                                      const struct stream *s, uint64_t age_ns)
{
    uint64_t steps = stream_steps(s, loader_expected_steps(l, s)), step = stream_step(s);
    uint64_t left = steps > step ? steps - step : 0;
    bool known = steps != STEPS_UNKNOWN;

    row_uint(row, "step", step);
    row_uint_if(row, "steps", known, steps);
    row_real(row, "progress", !known ? NAN : left ? (double)step / (double)steps : 1);
    if (known && left > 0 && s->sink && s->phase != STREAM_STOPPED && s->handed > 0)
        row_real(row, "left_s", (double)age_ns / 1e9 * (double)left / (double)s->handed);
    else
        row_real(row, "left_s", known && left == 0 ? 0 : NAN);
}

static void views_epochs_add_epoch(struct row *row, const struct loader *l, const struct stream *s)
{
    uint64_t age_ns = s->sink ? uv_hrtime() - s->begun_ns : 0; /* its client has not begun it */

    row_string(row, "loader", views_name(l));
    row_uint(row, "uid", loader_uid(l));
    row_uint_if(row, "session", s->sink, s->sink ? session_id(stream_session(s)) : 0);
    row_string(row, "job", s->params.job);
    row_uint(row, "epoch", s->params.epoch);
    row_uint(row, "rank", s->params.rank);
    row_uint(row, "world", s->params.world);
    views_epochs_add_progress(row, l, s, age_ns);
    views_epochs_add_before(row, &s->params.before);
    row_uint(row, "running", views_epochs_count_all(s, STEP_RUNNING));
    row_uint(row, "ready", views_epochs_count_all(s, STEP_READY));
    row_uint(row, "leased", s->in_state[STEP_LEASED]);
    row_uint(row, "pinned", s->in_state[STEP_PINNED]);
    row_uint(row, "credits", s->params.credits);
    row_string(row, "priority", views_priorities[s->params.priority]);
    row_uint(row, "samples", s->delivered.samples);
    row_uint(row, "left_out", session_left_out(s));
    views_epochs_add_tokens(row, s, age_ns);
    view_add_mixture(row, l, s);
    views_epochs_add_waiting(row, s);
    views_epochs_add_companions(row, s);
    row_seconds_if(row, "age_s", s->sink, age_ns);
    row_seconds(row, "waited_s", s->waited_ns);
    row_string(row, "state", views_epochs_state_of(s));
}

int view_epochs(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        for (const struct stream *s = loader_core(l)->streams; s; s = s->next) {
            if (stream_is_source(s)) /* its ranks' streams are there */
                continue;
            struct row row = row_push(ret);

            views_epochs_add_epoch(&row, l, s);
            if (row.r < 0)
                return row.r;
        }
    }
    return 0;
}
