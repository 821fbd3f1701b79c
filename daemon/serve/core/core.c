/* Streams and commands: how they begin, change and end. */
#include "daemon/serve/core/core_private.h"

#include <stdio.h>

/* ---- commands -------------------------------------------------------------------------------- */

struct core_command *core_command(struct core *core, enum core_command_kind kind,
                                  struct stream *stream)
{
    struct core_commands *c = &core->commands;

    if (c->begin == c->end)
        c->begin = c->end = 0;
    must_reserve(c->items, c->room, c->end + UINT64_C(1));
    c->items[c->end] = (struct core_command){.kind = kind, .stream = stream};
    return &c->items[c->end++];
}

void core_slot(struct core *core, struct segment *segment, uint32_t slot, enum slot_event event)
{
    struct core_command *command = core_command(core, CORE_SLOT, NULL);

    command->segment = segment;
    command->slot = slot;
    command->event = event;
}

void core_give_up_slot(struct core *core, const struct step *step)
{
    assert(step->state == STEP_READY && step->segment);
    core_slot(core, step->segment, step->slot, step->own_lease ? SLOT_RELEASE : SLOT_DISCARD);
}

void core_say(struct core *core, enum core_command_kind kind, struct stream *stream,
              const char *text)
{
    core_command(core, kind, stream)->text = must_strdup(text);
}

bool core_next_command(struct core *core, struct core_command *ret)
{
    struct core_commands *c = &core->commands;

    if (c->begin == c->end)
        return false;
    *ret = c->items[c->begin++];
    return true;
}

void core_cancel(struct core *core, const struct stream *stream, const struct step *step)
{
    struct core_commands *c = &core->commands;
    size_t kept = c->begin;

    for (size_t i = c->begin; i < c->end; i++) {
        struct core_command *command = &c->items[i];

        if (step ? command->step == step : command->stream == stream && command->kind != CORE_RUN)
            free(command->text);
        else
            c->items[kept++] = *command;
    }
    c->end = kept;
}

/* ---- the core's life ------------------------------------------------------------------------- */

void core_init(struct core *core, const struct core_options *options)
{
    core->o = *options;
    core->workers = core_n_workers(core);
    core->prefetch = core->o.spec->prefetch;
    core->positions.account = options->account;
    /* Python code that keeps state between samples must not be run for an epoch that was not
     * requested. */
    core->expecting = options->spec->dataset.kind != DATASET_PYTHON;
    core->wanting = must_alloc(core_n_queues(core, BANDS) * sizeof *core->wanting);
}

void core_deinit(struct core *core)
{
    struct core_command command;

    while (core_next_command(core, &command))
        free(command.text);
    assert(!core->streams && !core->touched && !core->later && !core->parked && !core->sources);
    assert(!core->waiting && !core->readers);
    free(core->wanting);
    free(core->commands.items);
    positions_deinit(&core->positions);
    roster_book_deinit(&core->rosters);
    core_pay_for_rosters(core);
    quarantine_deinit(&core->quarantine);
    trace_deinit(&core->trace);
    free(core->mixture);
    *core = (struct core){0};
}

/* Steps that the stream may have in its window: more than its credits wait here, READY. */
static uint32_t core_window_of(const struct core *core, const struct stream_params *params)
{
    const struct dl_spec *spec = core->o.spec;
    uint64_t at_first = spec_credits(spec, spec->prefetch, spec->workers);
    uint64_t now = spec_credits(spec, core->prefetch, core->workers - core->resting);
    uint32_t apart =
        params->companion && params->source ? (uint32_t)spec->share_window + params->credits : 0;

    return apart +
           (params->credits < at_first ? params->credits : (uint32_t)max_u64(params->credits, now));
}

void core_resize(struct core *core, uint32_t workers, uint32_t prefetch)
{
    struct stream *stream;

    assert(prefetch >= core->o.spec->prefetch);
    assert(!core->o.in_turn || workers == core->workers);
    core->workers = workers;
    core->prefetch = prefetch;
    core->again = true;
    DL_FOREACH (core->streams, stream) {
        assert(stream->params.replicas == 0);
        stream->window_most = core_window_of(core, &stream->params);
        core_requeue(core, stream);
    }
}

void core_rest(struct core *core, uint32_t resting)
{
    core->resting = resting;
    core_resize(core, core->workers, core->prefetch);
}

bool core_has_work(const struct core *core)
{
    return core->touched || core->again;
}

/* Until when the source waits for ranks that have not come, or companions that are behind;
 * UINT64_MAX: for ever. */
static uint64_t core_patience_of(const struct core *core, const struct stream *source)
{
    const struct dispatch *d = source->dispatch;

    if (source->params.companion)
        return !d->waited_since ? UINT64_MAX
                                : d->waited_since + core->o.spec->share_wait_ns -
                                      min_u64(d->waited_ns, core->o.spec->share_wait_ns);
    uint64_t wait_ends = d->waited_since ? d->waited_since + CORE_WAIT_NS : UINT64_MAX;

    return d->patience_ends ? min_u64(d->patience_ends, wait_ends) : UINT64_MAX;
}

uint64_t core_deadline(const struct core *core)
{
    uint64_t deadline = core->parked ? core->parked->parked_ns + core->o.linger_ns : UINT64_MAX;
    const struct stream *source;

    DL_FOREACH2 (core->sources, source, peer_next) {
        bool waited = core_is_waited_at(core, source), known = source->dispatch->waited_since > 0;

        deadline = min_u64(deadline, core_patience_of(core, source));
        if (waited != known && (waited || source->params.companion))
            return 0;
    }
    return deadline;
}

void core_tick(struct core *core, uint64_t now)
{
    struct stream *source;

    while (core->parked && now >= core->parked->parked_ns + core->o.linger_ns)
        core_drop_oldest(core);
    DL_FOREACH2 (core->sources, source, peer_next) {
        struct dispatch *d = source->dispatch;

        if (!core_is_waited_at(core, source)) {
            d->waited_ns += d->waited_since ? now - d->waited_since : 0;
            d->waited_since = 0;
        } else if (!d->waited_since) {
            d->waited_since = now;
        }
        if (now >= core_patience_of(core, source))
            core_lose_patience(core, source);
    }
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void core_put_touched(struct stream *stream, struct stream **list)
{
    if (stream->touched_in)
        DL_DELETE2(*stream->touched_in, stream, touched_prev, touched_next);
    if (list)
        DL_APPEND2(*list, stream, touched_prev, touched_next);
    stream->touched_in = list;
}

void core_touch(struct core *core, struct stream *stream)
{
    if (stream->touched_in != &core->touched)
        core_put_touched(stream, &core->touched);
}

void core_untouch(struct stream *stream)
{
    core_put_touched(stream, NULL);
}

void core_touch_later(struct core *core, struct stream *stream)
{
    core_put_touched(stream, &core->later);
}

void core_enqueue(struct stream *stream, struct stream **queue, bool at_front)
{
    if (stream->queue)
        DL_DELETE2(*stream->queue, stream, queue_prev, queue_next);
    if (queue && at_front)
        DL_PREPEND2(*queue, stream, queue_prev, queue_next);
    else if (queue)
        DL_APPEND2(*queue, stream, queue_prev, queue_next);
    stream->queue = queue;
}

static struct reader *core_find_reader(const struct core *core, const void *owner)
{
    struct reader *reader;

    HASH_FIND_PTR(core->readers, &owner, reader);
    return reader;
}

void core_count_lease(struct core *core, const struct stream *stream, int n)
{
    if (stream->sink)
        core_find_reader(core, stream->params.owner)->leases += (uint32_t)n;
}

uint32_t core_leases(const struct core *core, const struct stream *stream)
{
    return core_find_reader(core, stream->params.owner)->leases;
}

void core_set_sink(struct core *core, struct stream *stream, void *sink)
{
    const void *owner = stream->params.owner;
    struct reader *reader = core_find_reader(core, owner);

    assert(!stream->sink != !sink && stream_client_has(stream) == 0);
    if (!reader) {
        reader = must_alloc(sizeof *reader);
        reader->owner = owner;
        HASH_ADD_PTR(core->readers, owner, reader);
    }
    stream->sink = sink;
    reader->streams += sink ? 1 : -1U;
    if (reader->streams > 0)
        return;
    assert(reader->leases == 0);
    HASH_DEL(core->readers, reader);
    free(reader);
}

/* ---- streams begin --------------------------------------------------------------------------- */

struct stream *core_find(const struct core *core, const struct stream_params *params,
                         uint64_t epoch, bool expected)
{
    struct stream *stream;

    DL_FOREACH (core->streams, stream) {
        const struct stream_params *p = &stream->params;

        if (p->epoch == epoch && p->rank == params->rank && p->world == params->world &&
            p->source == params->source && p->sharers == params->sharers &&
            p->sharer == params->sharer && stream_is_expected(stream) == expected &&
            stream->phase != STREAM_PARKED &&
            (!stream_is_source(stream) || strcmp(p->job, params->job) == 0))
            return stream;
    }
    return NULL;
}

struct stream *core_add(struct core *core, const struct stream_params *params, struct epoch *epoch,
                        const struct plan *plan)
{
    struct stream *stream = stream_new(params, epoch, plan);

    stream->window_most = core_window_of(core, params);
    stream->number = ++core->streams_made;
    DL_APPEND(core->streams, stream);
    core_touch(core, stream);
    return stream;
}

/* Its plan is there. */
static void core_enter(struct core *core, struct stream *stream)
{
    core_touch(core, stream);
    if (stream->phase == STREAM_PAUSED)
        return;
    if (stream->dispatch && stream->dispatch->ranks)
        stream_become(stream, STREAM_SOURCE);
    else
        stream_become(stream, stream->sink ? STREAM_ACTIVE : STREAM_EXPECTED);
}

int core_settle(struct core *core, struct stream *stream, uint64_t steps, struct dl_error *err)
{
    struct stream_params *params = &stream->params;

    assert(steps != STEPS_UNKNOWN && !stream_is_settled(stream));
    params->steps = steps;
    if (params->round > 0)
        params->first = min_u64(params->first, steps);
    if (params->first > steps)
        return dl_error_set(err, EINVAL, "step",
                            "step %llu is past the end: rank %llu of %llu has %llu steps",
                            (ull)params->first, (ull)params->rank, (ull)params->world, (ull)steps);
    core_enter(core, stream);
    return 0;
}

void core_settle_by_windows(struct core *core, struct stream *stream)
{
    assert(!stream_is_settled(stream));
    stream->by_windows = true;
    stream->hold = 0;
    core_enter(core, stream);
}

void core_learn_steps(struct core *core, struct stream *stream, uint64_t steps)
{
    assert(stream->by_windows && steps != STEPS_UNKNOWN);
    stream->params.steps = steps;
    core_hold(core, stream, UINT64_MAX);
}

void core_refuse(struct core *core, struct stream *stream, const struct dl_error *err)
{
    assert(stream->sink && !stream->refusal);
    stream->refusal = must_alloc(sizeof *err);
    *stream->refusal = *err;
    core_command(core, CORE_REFUSE, stream)->err = stream->refusal;
}

/* If this epoch follows the last one, so will others. */
static void core_note_last(struct core *core, const struct stream_params *params)
{
    const struct stream_params *last = &core->last;

    if (core->o.spec->dataset.kind != DATASET_PYTHON && params->epoch == last->epoch + 1 &&
        params->rank == last->rank && params->world == last->world)
        core->expecting = true;
    core->last = *params;
}

void core_unlink_expected(struct core *core, struct stream *stream)
{
    if (stream->predecessor)
        stream->predecessor->successor = NULL;
    if (stream->successor) {
        stream->successor->predecessor = NULL;
        core_touch(core, stream->successor); /* all of the window is its own */
    }
    stream->predecessor = stream->successor = NULL;
}

void core_begin(struct core *core, struct stream *stream, const struct stream_params *params,
                void *sink, uint64_t now)
{
    uint64_t first = stream->params.first, steps = stream->params.steps;

    assert(!stream_is_source(stream));
    core_note_start(core, params);
    core_note_last(core, params);
    core_unlink_expected(core, stream);
    stream->params = *params;
    stream->params.first = first;
    stream->params.steps = steps;
    stream->window_most = core_window_of(core, params);
    core_set_sink(core, stream, sink);
    if (stream->phase != STREAM_SETTLING)
        stream_become(stream, STREAM_ACTIVE);
    stream->begun_ns = now;
    core_touch(core, stream);
}

/* ---- looking ahead --------------------------------------------------------------------------- */

struct stream_params core_next_params(const struct stream *stream)
{
    struct stream_params params = stream->params;

    params.epoch++;
    params.first = 0;
    params.before.n = 0;
    params.mark = (struct lazy_mark){0};
    params.passed = (struct passed){0};
    params.steps = STEPS_UNKNOWN;
    params.expected = 0;
    /* What a companion that is alone foresees is for all. */
    return params.companion && !params.source ? core_source_params(&params, params.credits)
                                              : params;
}

/* It is read, and what it has yet to load is on its way. */
static bool core_is_at_end(const struct stream *stream)
{
    const struct stream_params *params = &stream->params;

    return !stream_is_expected(stream) && stream_is_settled(stream) && !stream->source &&
           !params->fed && params->steps > 0 && stream_next(stream) >= params->steps &&
           params->epoch + 1 > 0;
}

void core_look_ahead(struct core *core, struct stream *stream)
{
    struct stream_params next = core_next_params(stream);

    if (!core->expecting || stream->expected_next || stream->phase == STREAM_STOPPED ||
        stream->phase == STREAM_PARKED || !core_is_at_end(stream))
        return;
    stream->expected_next = true;
    if (!core_find(core, &next, next.epoch, true) && !core_find(core, &next, next.epoch, false))
        core_command(core, CORE_EXPECT, stream);
}

void core_expect(struct core *core, struct stream *stream, struct stream *next)
{
    assert(!stream->successor && !next->predecessor);
    stream->successor = next;
    next->predecessor = stream;
    core_touch(core, next);
}

/* Whether a start proves that the stream was expected in vain. A source belongs to all ranks. */
static bool core_is_instead(const struct stream *stream, const struct stream_params *started)
{
    if (stream->params.world != started->world)
        return false;
    if (stream->params.companion) /* other jobs may be there, or come */
        return stream->params.rank == started->rank && stream->params.epoch < started->epoch;
    if (stream_is_source(stream))
        return strcmp(stream->params.job, started->job) == 0 &&
               (stream_is_for_all(stream) || stream->params.rank == started->rank) &&
               (stream->params.epoch != started->epoch || started->first != 0 ||
                started->before.n > 0);
    return stream->params.rank == started->rank;
}

bool core_drop_expected(struct core *core, const struct stream_params *instead)
{
    struct stream *stream, *next;
    bool any = false;

    DL_FOREACH_SAFE (core->streams, stream, next) {
        if (!stream_is_expected(stream) || stream->phase == STREAM_PARKED ||
            (instead && !core_is_instead(stream, instead)))
            continue;
        core->expecting = core->expecting && !instead;
        core_end(core, stream); /* which ends no other stream: it has no source and no ranks */
        any = true;
    }
    return any;
}

struct stream *core_take(struct core *core, const struct stream_params *params)
{
    struct stream *stream = core_take_parked(core, params);

    if (stream)
        return stream;
    if (params->first == 0 && params->before.n == 0)
        stream = core_find(core, params, params->epoch, true);
    if (stream && stream_window(stream) <= core_window_of(core, params))
        return stream;
    core_drop_expected(core, params);
    return NULL;
}

bool core_make_way(struct core *core)
{
    if (core_drop_expected(core, NULL) || core_keep_less(core))
        return true;
    if (!core->parked)
        return false;
    core_drop_oldest(core);
    return true;
}

void core_drop_parked(struct core *core)
{
    while (core->parked)
        core_drop_oldest(core);
}

/* ---- what clients do ------------------------------------------------------------------------- */

/* By whole pages: small change is what limits.epochs is for. */
int core_pay_for(struct core *core, uint64_t bytes, uint64_t *paid, struct dl_error *err)
{
    enum { PAGE = 4096 };
    uint64_t due = bytes / PAGE * PAGE;

    if (due > *paid && quota_charge(core->o.account, QUOTA_OVERHEAD, due - *paid, err) < 0)
        return -EDQUOT;
    if (due < *paid)
        quota_return(core->o.account, QUOTA_OVERHEAD, *paid - due);
    *paid = due;
    return 0;
}

int core_pay(struct core *core, struct stream *stream, struct dl_error *err)
{
    return core_pay_for(core, stream_cost(stream), &stream->paid_bytes, err);
}

int core_pay_for_source(struct core *core, struct stream *source, struct dl_error *err)
{
    int r = core_pay(core, source, err);

    /* Small ones, which cost nothing, stay: ranks may have to know what they say. */
    while (r < 0 && core->paid_rosters > 0) {
        (void)roster_book_forget(&core->rosters);
        core_pay_for_rosters(core);
        r = core_pay(core, source, err);
    }
    return r;
}

void core_pay_for_rosters(struct core *core)
{
    while (core_pay_for(core, core->rosters.bytes, &core->paid_rosters, NULL) < 0)
        (void)roster_book_forget(&core->rosters);
}

int core_feed(struct core *core, struct stream *stream, const uint8_t *indices, uint32_t n,
              bool end, struct dl_error *err)
{
    core_touch(core, stream);
    if ((n > 0 && !stream_feed(stream, indices, n)) || (end && !stream_feed_end(stream)))
        return -EPROTO;
    return core_pay(core, stream, err);
}

void core_pause(struct core *core, struct stream *stream)
{
    stream_become(stream, STREAM_PAUSED);
    core_touch(core, stream);
}

void core_go_on(struct core *core, struct stream *stream, uint64_t limit)
{
    stream->limit = limit;
    if (stream->phase == STREAM_PAUSED)
        stream_become(stream, stream_is_settled(stream) ? STREAM_ACTIVE : STREAM_SETTLING);
    core_touch(core, stream);
}

void core_hold(struct core *core, struct stream *stream, uint64_t step)
{
    stream->hold = step;
    core_touch(core, stream);
}

/* ---- streams end ----------------------------------------------------------------------------- */

void core_drop_step(struct core *core, struct stream *stream, struct step *step)
{
    switch (step->state) {
    case STEP_LEASED:
    case STEP_PINNED:
        break;
    case STEP_RUNNING: /* the worker is writing */
        stream_abandon(stream, step);
        break;
    case STEP_READY:
        core_give_up_slot(core, step);
        stream_forget(stream, step);
        break;
    case STEP_WAITING:
        if (!core_wait_no_more(core, step))
            core_cancel(core, NULL, step);
        stream_forget(stream, step);
        break;
    case STEP_FAULTED:
        stream_forget(stream, step);
        break;
    }
}

void core_drop_steps(struct core *core, struct stream *stream)
{
    struct step *step, *next;

    HASH_ITER (hh, stream->steps, step, next) {
        core_drop_step(core, stream, step);
    }
}

static void core_stop_as(struct core *core, struct stream *stream, bool willed, bool lost)
{
    if (willed)
        core_note_stop(core, stream);
    core_leave(core, stream, lost);
    core_drop_steps(core, stream);
    core_enqueue(stream, NULL, false);
    stream_become(stream, STREAM_STOPPED);
}

void core_stop(struct core *core, struct stream *stream)
{
    if (stream->phase != STREAM_STOPPED)
        core_stop_as(core, stream, true, false);
}

/* What it was given of a mixture is the loader's from now on. */
static void core_keep_mixture(struct core *core, const struct stream *stream)
{
    if (stream->n_mixture > 0 && !core->mixture) {
        core->mixture = must_alloc(stream->n_mixture * sizeof *core->mixture);
        core->n_mixture = stream->n_mixture;
    }
    mix_tally_merge(core->mixture, stream->mixture, stream->n_mixture);
}

void core_end_as(struct core *core, struct stream *stream, bool willed, bool lost)
{
    struct core_command *drop;
    struct step *step, *next;

    if (stream->phase != STREAM_STOPPED)
        core_stop_as(core, stream, willed, lost);
    HASH_ITER (hh, stream->steps, step, next) {
        core_end_lease(core, stream, step);
    }
    core_cancel(core, stream, NULL);
    core_unlink_expected(core, stream);
    core_untouch(stream);
    if (stream->sink)
        core_set_sink(core, stream, NULL);
    if (stream->dispatch) {
        DL_DELETE2(core->sources, stream, peer_prev, peer_next);
        /* The ranks that have read the epoch to its end are remembered for a while. */
        roster_book_keep(&core->rosters, &stream->params, steal_ptr(stream->dispatch->roster));
    }
    DL_DELETE(core->streams, stream);
    drop = core_command(core, CORE_DROP, NULL);
    drop->epoch = stream->epoch;
    drop->number = stream->params.replicas ? stream->number : 0;
    drop->final = stream->foreseen > stream->to_plan;
    quota_return(core->o.account, QUOTA_OVERHEAD, stream->paid_bytes);
    core_pay_for_rosters(core);
    core_keep_mixture(core, stream);
    stream_free(stream);
}

void core_end(struct core *core, struct stream *stream)
{
    core_end_as(core, stream, true, false);
}

/* A stream that has begun and not ended; or NULL. */
static struct stream *core_find_unstopped(const struct core *core)
{
    struct stream *stream;

    DL_FOREACH (core->streams, stream) {
        if (stream->phase != STREAM_STOPPED)
            return stream;
    }
    return NULL;
}

void core_break(struct core *core, const struct dl_error *err)
{
    struct stream *stream;

    while ((stream = core_find_unstopped(core))) {
        bool settling = stream->phase == STREAM_SETTLING;
        bool had_all = stream->told & TOLD_END;

        if (stream_is_expected(stream)) { /* or parked */
            core_end(core, stream);       /* no client will end it */
            continue;
        }
        core_stop(core, stream);
        if (stream->sink && !had_all) {
            struct core_command *c =
                core_command(core, settling ? CORE_REFUSE : CORE_FAULT, stream);
            c->err = err;
            c->final = true;
        }
    }
}
