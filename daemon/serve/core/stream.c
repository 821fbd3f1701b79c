#include "daemon/serve/core/stream.h"

#include "daemon/base/memory.h"
#include "daemon/serve/core/roster.h"

#include <assert.h>
#include <utlist.h>

struct step *stream_find(const struct stream *stream, uint64_t number)
{
    struct step *step;

    HASH_FIND(hh, stream->steps, &number, sizeof number, step);
    return step;
}

/* A step that the client has fed. */
struct feed {
    struct feed *prev, *next;
    uint32_t n;
    uint64_t indices[];
};

struct stream *stream_new(const struct stream_params *params, struct epoch *epoch,
                          const struct plan *plan)
{
    struct stream *stream = must_alloc(sizeof *stream);

    assert((params->rank < params->world || params->rank == PLAN_ALL) && params->credits > 0);
    stream->params = *params;
    stream->window_most = params->credits;
    stream->epoch = epoch;
    stream->plan = plan;
    stream->former_lease = stream->limit = stream->hold = UINT64_MAX;
    stream->wanted = STEPS_UNKNOWN;
    stream->to_plan = stream->to_deliver = stream->fed =
        params->first < params->steps ? params->first : params->steps;
    stream->phase = stream_is_settled(stream) ? STREAM_EXPECTED : STREAM_SETTLING;
    if (params->replicas == 0)
        return stream;
    stream->ends = must_alloc(params->replicas * sizeof *stream->ends);
    stream->settled = must_alloc(params->replicas * sizeof *stream->settled);
    for (uint32_t i = 0; i < params->replicas; i++) {
        stream->ends[i] = UINT64_MAX;
        /* The first step of replica i that is not before `first`. */
        stream->settled[i] =
            stream->to_plan +
            (i + params->replicas - step_replica(stream, stream->to_plan)) % params->replicas;
    }
    return stream;
}

struct stream *stream_free(struct stream *stream)
{
    struct step *step;
    struct feed *feed, *next;

    if (!stream)
        return NULL;
    assert(!stream->steps && stream_client_has(stream) == 0 && stream->faults_told == 0);
    assert(!stream->queue && !stream->touched_in && !stream->source);
    while ((step = stream->spare)) {
        stream->spare = step->next;
        free(step);
    }
    DL_FOREACH_SAFE (stream->feed, feed, next)
        free(feed);
    if (stream->dispatch) {
        assert(!stream->dispatch->ranks);
        free(stream->dispatch->roster);
        free(stream->dispatch);
    }
    lately_rank_leave(stream->lately, stream);
    dataset_states_deinit(&stream->states);
    free(stream->refusal);
    free(stream->mixture);
    free(stream->ends);
    free(stream->settled);
    free(stream->journal);
    free(stream);
    return NULL;
}

void stream_become(struct stream *stream, enum stream_phase phase)
{
    assert(stream_rules[stream->phase].next & 1U << phase);
    stream->phase = phase;
}

uint64_t stream_cost(const struct stream *stream)
{
    return sizeof *stream + stream->fed_bytes + stream->states.bytes +
           (uint64_t)HASH_COUNT(stream->steps) * sizeof(struct step) +
           (uint64_t)stream->params.replicas * 2 * sizeof *stream->ends +
           (stream->dispatch ? sizeof *stream->dispatch + roster_bytes(stream->dispatch->roster)
                             : 0) +
           stream->n_mixture * sizeof *stream->mixture + stream->journal_len;
}

/* ---- which steps there are ------------------------------------------------------------------ */

uint32_t step_replica(const struct stream *stream, uint64_t number)
{
    return (uint32_t)(number % stream->params.replicas);
}

bool stream_exists(const struct stream *stream, uint64_t number)
{
    if (stream->ends)
        return number / stream->params.replicas < stream->ends[step_replica(stream, number)];
    return !stream->params.any_order || number < stream->params.passed.head ||
           !passed_has(&stream->params.passed, number);
}

/* The first existing step from `number` on; params.steps or more if no such step exists. */
static uint64_t stream_next_existing(const struct stream *stream, uint64_t number)
{
    /* Terminates: either a replica has no end yet, or the steps are known. */
    while (number < stream->params.steps && !stream_exists(stream, number))
        number++;
    return number;
}

/* Once all replicas have ended, how far the steps go is known. */
static void stream_count_steps(struct stream *stream)
{
    uint32_t n = stream->params.replicas;
    uint64_t steps = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (stream->ends[i] == UINT64_MAX)
            return;
        if (stream->ends[i] > 0 && (stream->ends[i] - 1) * n + i + 1 > steps)
            steps = (stream->ends[i] - 1) * n + i + 1;
    }
    stream->params.steps = steps;
}

void stream_end_replica(struct stream *stream, uint64_t number)
{
    uint64_t *end = &stream->ends[step_replica(stream, number)];

    *end = min_u64(*end, number / stream->params.replicas);
    stream_count_steps(stream);
}

void stream_learn_ends(struct stream *stream, const struct stream *source)
{
    for (uint32_t i = 0; i < stream->params.replicas; i++)
        stream->ends[i] = min_u64(stream->ends[i], source->ends[i]);
    stream_count_steps(stream);
}

uint64_t stream_settled(struct stream *stream, uint32_t replica)
{
    uint64_t *settled = &stream->settled[replica];
    struct step *step;

    while (*settled < stream->to_plan &&
           (!(step = stream_find(stream, *settled)) ||
            (step->state != STEP_WAITING && step->state != STEP_RUNNING)))
        *settled += stream->params.replicas;
    return *settled;
}

static uint64_t step_fed_bytes(const struct step *step)
{
    return step->fed ? step->n_fed * sizeof *step->fed : 0;
}

bool stream_feed(struct stream *stream, const uint8_t *indices, uint32_t n)
{
    uint64_t ahead = stream->fed - stream->params.first - stream->handed;

    if (stream->params.steps != STEPS_UNKNOWN ||
        ahead >= DL_MAX_FEED_AHEAD * stream->params.credits)
        return false;
    struct feed *feed = must_alloc(sizeof *feed + n * sizeof feed->indices[0]);
    feed->n = n;
    memcpy(feed->indices, indices, n * sizeof feed->indices[0]);
    DL_APPEND(stream->feed, feed);
    stream->fed++;
    stream->fed_bytes += sizeof *feed + n * sizeof feed->indices[0];
    return true;
}

bool stream_feed_end(struct stream *stream)
{
    if (stream->params.steps != STEPS_UNKNOWN)
        return false;
    stream->params.steps = stream->fed;
    return true;
}

/* ---- states --------------------------------------------------------------------------------- */

/* Which may follow, a bit each. */
#define STEP_BIT(state) (1U << STEP_##state)
static const unsigned step_next[STEP_STATES] = {
    [STEP_WAITING] = STEP_BIT(RUNNING) | STEP_BIT(FAULTED),
    [STEP_RUNNING] = STEP_BIT(WAITING) | STEP_BIT(READY) | STEP_BIT(FAULTED),
    [STEP_READY] = STEP_BIT(WAITING) | STEP_BIT(FAULTED) | STEP_BIT(LEASED),
    [STEP_FAULTED] = STEP_BIT(LEASED),
    [STEP_LEASED] = STEP_BIT(READY) | STEP_BIT(FAULTED) | STEP_BIT(PINNED),
    [STEP_PINNED] = STEP_BIT(READY),
};

/* The stream may deliver it before others. */
static bool step_is_due(const struct step *step)
{
    return step->stream->params.any_order &&
           (step->state == STEP_READY || step->state == STEP_FAULTED);
}

/* Behind those of lower numbers: mostly it is the last. */
static void step_insert_due(struct step *step)
{
    struct step **due = &step->stream->due, *at = *due ? (*due)->prev : NULL;

    while (at && at->number > step->number)
        at = at == *due ? NULL : at->prev;
    DL_APPEND_ELEM(*due, at, step);
}

static void step_enter(struct step *step, enum step_state state)
{
    step->state = state;
    step->stream->in_state[state]++;
    step->stream->faults_told += state == STEP_LEASED && step->error;
    if (step_is_due(step))
        step_insert_due(step);
}

static void step_leave(struct step *step)
{
    assert(step->stream->in_state[step->state] > 0);
    step->stream->in_state[step->state]--;
    step->stream->faults_told -= step->state == STEP_LEASED && step->error;
    if (step_is_due(step))
        DL_DELETE(step->stream->due, step);
}

static void step_become(struct step *step, enum step_state state)
{
    assert(step_next[step->state] & 1U << state);
    step_leave(step);
    step_enter(step, state);
}

/* ---- planning ------------------------------------------------------------------------------- */

uint64_t stream_next(const struct stream *stream)
{
    return stream_next_existing(stream, stream->to_plan);
}

/* Of a stream that was rewound: steps that are there already are not planned again. They are passed
 * over at once, since they can be delivered and released before the next one is planned. */
static void stream_pass_over(struct stream *stream)
{
    while (stream->rewound && stream_find(stream, stream_next(stream)))
        stream->to_plan = stream_next(stream) + 1;
}

/* It was planned, and its client did not get it. */
static bool stream_has_undelivered(const struct stream *stream, uint64_t number)
{
    const struct step *step = stream_find(stream, number);

    return step && step->state != STEP_LEASED && step->state != STEP_PINNED;
}

/* The first step from `number` on that its client did not get, if it exists. */
static uint64_t stream_next_undelivered(const struct stream *stream, uint64_t number)
{
    while (number < stream->to_plan &&
           !(stream_exists(stream, number) && stream_has_undelivered(stream, number)))
        number++;
    return stream_next_existing(stream, number);
}

/* Steps before to_deliver have all come; the next one by the journal is of those behind it. */
static void stream_look_for_wanted(struct stream *stream)
{
    uint64_t place, at = stream_next_undelivered(stream, stream->to_deliver);

    stream->to_deliver = at;
    stream->wanted = STEPS_UNKNOWN;
    if (!journal_peek(&stream->order, &place))
        return;
    for (; place > 0; place--)
        at = stream_next_undelivered(stream, at + 1);
    stream->wanted = at;
}

/* A journal that names a step which is none, being of another plan, says nothing. */
static bool stream_has_wanted(const struct stream *stream)
{
    return stream->wanted < stream->params.steps;
}

/* The next one to be planned is what all others wait for, which can fill the window: where the
 * stream was rewound, or has a journal of one with a larger window. */
static bool stream_is_next_due(const struct stream *stream)
{
    if (stream->params.any_order)
        return stream_has_wanted(stream) && stream_next(stream) <= stream->wanted;
    return stream->rewound &&
           stream_next_existing(stream, stream->to_deliver) == stream_next(stream);
}

bool stream_has_room(const struct stream *stream)
{
    return stream_rules[stream->phase].plans && stream_next(stream) < stream->limit &&
           stream_next(stream) < stream->hold &&
           (stream_window(stream) < stream->window_most || stream_is_next_due(stream)) &&
           stream_next(stream) < stream->params.steps && (!stream->params.fed || stream->feed);
}

static void stream_take_feed(struct stream *stream, struct step *step)
{
    struct feed *feed = stream->feed;

    DL_DELETE(stream->feed, feed);
    stream->fed_bytes -= sizeof *feed; /* the indices become the step's */
    step->samples = step->n_fed = step->n_indices = feed->n;
    step->fed = must_alloc(feed->n * sizeof *step->fed);
    memcpy(step->fed, feed->indices, feed->n * sizeof *step->fed);
    memcpy(step->named, feed->indices, min_u64(feed->n, STEP_NAMED) * sizeof *step->named);
    free(feed);
}

struct step *stream_plan(struct stream *stream)
{
    struct step *step = stream->spare;

    assert(stream_has_room(stream));
    if (step)
        stream->spare = step->next;
    else
        step = must_alloc(sizeof *step);
    *step = (struct step){.stream = stream, .number = stream_next(stream)};
    stream->to_plan = step->number + 1;
    assert(!stream_find(stream, step->number));
    if (stream->params.fed)
        stream_take_feed(stream, step);
    HASH_ADD(hh, stream->steps, number, sizeof step->number, step);
    step_enter(step, STEP_WAITING);
    stream_pass_over(stream);
    return step;
}

uint64_t stream_foresees(const struct stream *stream, uint64_t most, uint64_t *ret_first)
{
    const struct stream_params *params = &stream->params;
    uint32_t unmade = stream->in_state[STEP_WAITING] + stream->in_state[STEP_RUNNING];
    uint64_t end = min_u64(min_u64(params->steps, stream->limit), stream->hold);

    *ret_first = max_u64(stream->foreseen, stream->to_plan);
    if (params->replicas || params->fed || !stream_rules[stream->phase].plans ||
        (stream->to_plan - params->first == unmade && !stream->predecessor))
        return 0;
    end = stream->to_plan + min_u64(most, end - min_u64(stream->to_plan, end));
    return end - min_u64(*ret_first, end);
}

void stream_skip(struct stream *stream, uint64_t number)
{
    assert(stream_is_source(stream));
    stream->to_plan = max_u64(stream->to_plan, number);
}

/* ---- what becomes of a step ----------------------------------------------------------------- */

void step_run(struct step *step, struct segment *segment, uint32_t slot, uint32_t samples)
{
    step_become(step, STEP_RUNNING);
    step->kept_by = 0;
    step->segment = segment;
    step->slot = slot;
    step->samples = samples;
}

void step_ready(struct step *step, uint32_t samples, uint64_t bytes)
{
    assert(step->state == STEP_RUNNING);
    step_become(step, STEP_READY);
    step->samples = step->all = samples;
    step->repeated = (uint32_t)min_u64(step->repeated, samples);
    step->bytes = bytes;
}

void step_lost(struct step *step)
{
    struct stream *stream = step->stream;

    step_become(step, STEP_WAITING);
    bad_list_deinit(&step->bad);
    step->segment = NULL;
    step->own_lease = false;
    step->first = 0;
    stream->foreseen = 0; /* what its worker had heard of may be lost, too */
    if (stream->settled) {
        uint64_t *settled = &stream->settled[step_replica(stream, step->number)];
        if (step->number < *settled)
            *settled = step->number;
    }
}

void step_fault(struct step *step, const struct dl_error *err, char *detail)
{
    assert(!step->error && (step->state != STEP_READY || step->bad.n > 0));
    step_become(step, STEP_FAULTED);
    step->segment = NULL;
    step->error = must_alloc(sizeof *step->error);
    *step->error = *err;
    step->detail = detail;
}

/* ---- delivery ------------------------------------------------------------------------------- */

/* The lowest that is ready may pass as many as are between it and the first that is not. */
static struct step *stream_next_passing(const struct stream *stream)
{
    struct step *step = stream->due;

    if (stream_has_wanted(stream))
        return stream_find(stream, stream->wanted);
    return step && step->number - stream->to_deliver <= stream->params.bypass ? step : NULL;
}

static struct step *stream_next_due(struct stream *stream)
{
    if (stream->params.any_order)
        return stream_next_passing(stream);
    stream->to_deliver = stream_next_existing(stream, stream->to_deliver);
    return stream_find(stream, stream->to_deliver);
}

struct step *stream_deliverable(struct stream *stream)
{
    struct step *step = stream_rules[stream->phase].delivers ? stream_next_due(stream) : NULL;

    return step && step->number < stream->limit &&
                   (step->state == STEP_READY || step->state == STEP_FAULTED)
               ? step
               : NULL;
}

void delivered_add(struct delivered *delivered, const struct step *step)
{
    delivered->batches++;
    delivered->samples += step->samples;
    delivered->repeated += step->repeated;
    delivered->bytes += step_bytes(step);
    delivered->tokens += step->tokens;
    delivered->padded += step->padded;
}

static void stream_came(struct stream *stream)
{
    if (stream_has_wanted(stream))
        journal_take(&stream->order);
    if (stream->params.replicas == 0)
        stream_look_for_wanted(stream);
}

void stream_follow(struct stream *stream, struct dl_span journal)
{
    assert(stream->params.any_order && stream->params.replicas == 0 && !stream->journal);
    if (journal.len == 0)
        return;
    stream->journal = must_alloc(journal.len);
    stream->journal_len = journal.len;
    memcpy(stream->journal, journal.data, journal.len);
    stream->order.rest = (struct dl_span){stream->journal, journal.len};
    stream_look_for_wanted(stream);
}

void stream_deliver(struct stream *stream, struct step *step)
{
    assert(step == stream_next_due(stream));
    stream->handed++;
    step_become(step, STEP_LEASED);
    if (stream->params.any_order)
        stream_came(stream);
    else
        stream->to_deliver++;
    if (!step->error)
        delivered_add(&stream->delivered, step);
}

bool stream_finished(const struct stream *stream)
{
    return stream_undelivered(stream) == 0 && stream_is_settled(stream) &&
           stream_next(stream) >= stream->params.steps;
}

uint64_t stream_step(const struct stream *stream)
{
    const struct stream_params *p = &stream->params;

    return min_u64(p->any_order ? p->first + passed_count(&p->passed) + stream->handed
                                : stream->to_deliver,
                   p->steps);
}

uint64_t stream_steps(const struct stream *stream, uint64_t estimate)
{
    uint64_t had = stream->params.first + stream->handed, at = stream_step(stream), steps;

    if (stream->params.steps != STEPS_UNKNOWN)
        return stream->params.steps;
    if (max_u64(had, stream->params.fed ? stream->fed : 0) > estimate)
        return STEPS_UNKNOWN;
    /* Steps left out because replicas had ended are not to come. */
    return add_overflows(estimate, at - min_u64(had, at), &steps) ? STEPS_UNKNOWN : steps;
}

bool stream_at_limit(struct stream *stream)
{
    if (!stream_is_settled(stream) || stream->limit >= stream->params.steps)
        return false;
    if (stream->params.any_order)
        return stream_undelivered(stream) == 0 && stream_next(stream) >= stream->limit;
    return stream_next_existing(stream, stream->to_deliver) >= stream->limit;
}

uint64_t stream_given(const struct stream *stream)
{
    return stream->params.any_order ? stream->to_plan : stream->to_deliver;
}

struct step *stream_lease(struct stream *stream, uint64_t number)
{
    struct step *step = stream_find(stream, number);

    return step && (step->state == STEP_LEASED || step->state == STEP_PINNED) ? step : NULL;
}

void stream_pin(struct stream *stream, struct step *step)
{
    assert(step->stream == stream && !step->error);
    if (step->state != STEP_PINNED)
        step_become(step, STEP_PINNED);
}

/* What it owns; the rest is set anew when it is used again. */
static void step_deinit(struct step *step)
{
    free(step->error);
    free(step->detail);
    free(step->fed);
    bad_list_deinit(&step->bad);
}

void stream_forget(struct stream *stream, struct step *step)
{
    step_leave(step);
    stream->starving_told = 0;
    HASH_DEL(stream->steps, step);
    stream->fed_bytes -= step_fed_bytes(step);
    step_deinit(step);
    step->next = stream->spare;
    stream->spare = step;
}

void stream_abandon(struct stream *stream, struct step *step)
{
    assert(step->stream == stream && step->state == STEP_RUNNING);
    step_leave(step);
    HASH_DEL(stream->steps, step);
    stream->fed_bytes -= step_fed_bytes(step);
    step->stream = NULL;
}

void step_free(struct step *step)
{
    step_deinit(step);
    free(step);
}

/* ---- resuming where a client left off -------------------------------------------------------- */

static uint64_t stream_find_lowest(const struct stream *stream, bool pinned)
{
    uint64_t lowest = min_u64(stream_next(stream), stream->former_lease);

    for (const struct step *step = stream->steps; step; step = step->hh.next)
        if (pinned || step->state != STEP_PINNED)
            lowest = min_u64(lowest, step->number);
    return lowest;
}

uint64_t stream_position(const struct stream *stream)
{
    return stream_find_lowest(stream, true);
}

uint64_t stream_used(const struct stream *stream, bool *ret_all)
{
    *ret_all = stream_finished(stream) && stream->in_state[STEP_LEASED] == 0 &&
               stream->former_lease == UINT64_MAX;
    return stream_find_lowest(stream, false);
}

bool stream_done(const struct stream *stream)
{
    return stream_finished(stream) && stream_client_has(stream) == 0 &&
           stream->former_lease == UINT64_MAX;
}

bool stream_has_gaps(const struct stream *stream)
{
    uint64_t at = stream_position(stream);

    for (uint64_t n = HASH_COUNT(stream->steps); n > 0; n--) {
        if (!stream_find(stream, at))
            return true;
        at = stream_next_existing(stream, at + 1);
    }
    return at < stream->to_plan;
}

void stream_waited(struct stream *stream, uint64_t ns, uint64_t now)
{
    uint64_t most = now - min_u64(stream->begun_ns, now);

    stream->waited_ns += min_u64(ns, most - min_u64(stream->waited_ns, most));
}

void stream_recall(struct stream *stream, struct step *step)
{
    assert(step->stream == stream && stream_lease(stream, step->number) == step);
    step_become(step, step->error ? STEP_FAULTED : STEP_READY);
}

void stream_rewind(struct stream *stream)
{
    assert(stream_client_has(stream) == 0);
    stream->params.first = stream->to_deliver = stream_position(stream);
    stream->rewound = stream->rewound || stream_has_gaps(stream);
    if (stream->rewound)
        stream->to_plan = stream->params.first;
    stream_pass_over(stream);
    stream->former_lease = UINT64_MAX; /* its holder is gone */
    free(stream->journal);             /* as the one who wanted that order */
    stream->journal = NULL;
    stream->journal_len = 0;
    stream->order = (struct journal_reader){0};
    stream->wanted = STEPS_UNKNOWN;
    stream->handed = 0;
    stream->told &= ~(unsigned)TOLD_END;
    stream->starving_told = 0;
}
