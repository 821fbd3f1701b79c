/*
 * Where the time went: the verdict on the last while, and the last ten minutes, kept in
 * core/lately.h and fed from here.
 */
#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "daemon/serve/pool/remotes.h"

#include <stdio.h>

#include <utlist.h>

/* ---- the last ten minutes -------------------------------------------------------------------- */

/* It waits, which its client reports only afterwards: it has no batch, and more will come. */
static bool lately_is_empty(const struct stream *stream)
{
    return stream->in_state[STEP_LEASED] == 0 && stream->in_state[STEP_READY] == 0 &&
           (stream_undelivered(stream) > 0 || stream->source || stream_starves(stream));
}

static struct lately_look lately_look_at(const struct stream *stream, uint64_t now)
{
    return (struct lately_look){.begun_ns = stream->begun_ns,
                                .now = now,
                                .waited_ns = stream->waited_ns,
                                .delivered = stream->delivered.batches,
                                .empty = lately_is_empty(stream)};
}

static void lately_look_stream(struct stream *stream, uint64_t now)
{
    const struct lately_look look = lately_look_at(stream, now);

    lately_line_look(&stream->lately->line, &stream->looked, &look);
    stream->lately->at_ns = now;
}

static bool lately_is_read(const struct stream *stream)
{
    return stream->lately && stream_rules[stream->phase].is_read;
}

void loader_lately_begin(struct loader *loader, struct stream *stream)
{
    const struct stream_params *params = &stream->params;
    struct lately_key key;

    memset(&key, 0, sizeof key); /* its padding is compared, too */
    memcpy(key.job, params->job, sizeof key.job);
    key.owner = *params->job ? NULL : params->owner;
    key.rank = params->rank;
    key.world = params->world;
    key.sharer = params->sharer;
    stream->lately = lately_book_join(&loader->lately, &key, stream, stream->begun_ns);
}

/* Once in a while, and when a stream is about to end: what was until now. */
static void lately_look(struct loader *loader)
{
    const struct delivered *all = &loader->core.totals.delivered;
    struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (lately_is_read(stream))
            lately_look_stream(stream, loader->now);
    }
    lately_totals_look(&loader->lately.totals, loader->now, all->batches, all->bytes);
    lately_book_tidy(&loader->lately, loader->now);
}

void loader_lately_end(struct loader *loader, struct stream *stream)
{
    if (!stream->lately)
        return;
    lately_look_stream(stream, uv_hrtime());
    lately_rank_leave(stream->lately, stream);
    stream->lately = NULL;
    (void)loader;
}

const struct lately_book *loader_lately(const struct loader *loader)
{
    return &loader->lately;
}

uint64_t loader_lately_until(const struct loader *loader, uint64_t now)
{
    const struct lately_rank *rank;
    uint64_t until = loader->lately.totals.at_ns;

    for (rank = loader->lately.ranks; rank; rank = rank->hh.next)
        until = max_u64(until, rank->stream && lately_is_read(rank->stream) ? now : rank->at_ns);
    return until;
}

void loader_lately_line(const struct lately_rank *rank, uint64_t until, struct lately_line *ret)
{
    *ret = rank->line;
    if (!rank->stream || !lately_is_read(rank->stream))
        return;
    struct lately_mark looked = rank->stream->looked;
    const struct lately_look look = lately_look_at(rank->stream, until);

    lately_line_look(ret, &looked, &look);
}

void loader_lately_totals(const struct loader *loader, uint64_t until, struct lately_totals *ret)
{
    const struct delivered *all = &loader->core.totals.delivered;

    *ret = loader->lately.totals;
    lately_totals_look(ret, until, all->batches, all->bytes);
}

/* ---- the last while -------------------------------------------------------------------------- */

/* False: none of its files is remote. */
static bool loader_look_remote(const struct loader *loader, uint64_t ret[static REMOTE_COUNTS])
{
    const struct remotes *remotes = pool_remotes(loader->pool);
    int pid;

    if (remotes)
        remotes_look(remotes, ret, &pid);
    return remotes;
}

static void loader_mark_remote(struct loader *loader)
{
    uint64_t counts[REMOTE_COUNTS];

    if (!loader_look_remote(loader, counts))
        return;
    for (int i = 0; i < REMOTE_COUNTS; i++)
        recent_mark(&loader->recently_remote[i], counts[i]);
}

/* Since the mark before the last one, or the first. */
uint64_t loader_bandwidth(const struct loader *loader, uint64_t now)
{
    const uint64_t *was = loader->marked.was;
    uint64_t from = was[0] ? was[0] : was[1];
    uint64_t bytes = recent_since(&loader->recently_bytes, loader->core.totals.delivered.bytes);

    if (from == 0)
        return 0;
    return (uint64_t)((double)bytes * 1e9 / (double)max_u64(now - min_u64(now, from), 1000000000));
}

static struct verdict_store verdict_store_of(const struct loader *loader, uint64_t now)
{
    struct verdict_store store = {.span_ns = now - min_u64(loader->marked.was[0], now)};
    const struct recent *recently = loader->recently_remote;
    uint64_t n[REMOTE_COUNTS];

    if (!loader_look_remote(loader, n))
        return store;
    store.bytes = recent_since(&recently[REMOTE_RECEIVED], n[REMOTE_RECEIVED]);
    store.requests = recent_since(&recently[REMOTE_REQUESTS], n[REMOTE_REQUESTS]);
    store.throttled = recent_since(&recently[REMOTE_THROTTLED], n[REMOTE_THROTTLED]);
    store.held_back = recent_since(&recently[REMOTE_HELD_BACK], n[REMOTE_HELD_BACK]);
    store.given = recent_since(&recently[REMOTE_FROM_STORE], n[REMOTE_FROM_STORE]) +
                  recent_since(&recently[REMOTE_FROM_PEERS], n[REMOTE_FROM_PEERS]) +
                  recent_since(&recently[REMOTE_FROM_DISK], n[REMOTE_FROM_DISK]) +
                  recent_since(&recently[REMOTE_FROM_MEMORY], n[REMOTE_FROM_MEMORY]);
    return store;
}

void loader_mark(struct loader *loader)
{
    struct core *core = &loader->core;
    struct stream *stream;

    recent_mark(&loader->marked, loader->now);
    recent_mark(&loader->recently_delivered, core->totals.delivered.batches);
    recent_mark(&loader->recently_bytes, core->totals.delivered.bytes);
    for (int stage = 0; stage < STAGES; stage++)
        recent_mark(&loader->recently[stage], core->timing.ns[stage]);
    DL_FOREACH (core->streams, stream) {
        recent_mark(&stream->recently_waited, stream->waited_ns);
        recent_mark(&stream->recently_delivered, stream->delivered.batches);
    }
    pool_mark(loader->pool);
    loader_mark_remote(loader);
    lately_look(loader);
}

/* It has a reader that has not received its last batch. */
static bool verdict_is_read(const struct stream *stream)
{
    return stream->sink && stream_rules[stream->phase].is_read;
}

uint64_t loader_lately_since(const struct loader *loader)
{
    return loader->marked.was[0];
}

void loader_mark_anew(struct loader *loader)
{
    loader->now = uv_hrtime();
    loader_mark(loader);
    loader_mark(loader);
}

void loader_mark_start(struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (verdict_is_read(stream))
            return;
    }
    loader_mark_anew(loader);
}

/* And the one that has just had its last. */
static size_t verdict_add_ranks(const struct loader *loader, const struct stream *last,
                                uint64_t now, struct verdict_rank *ranks)
{
    const struct stream *stream;
    size_t n = 0;

    DL_FOREACH (loader->core.streams, stream) {
        if (!verdict_is_read(stream) && stream != last)
            continue;
        uint64_t since = max_u64(loader->marked.was[0], stream->begun_ns);
        ranks[n++] = (struct verdict_rank){
            .rank = stream->params.rank,
            .span_ns = now - min_u64(since, now),
            .waited_ns = recent_since(&stream->recently_waited, stream->waited_ns),
            .batches = recent_since(&stream->recently_delivered, stream->delivered.batches)};
    }
    return n;
}

bool loader_is_starving(const struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (verdict_is_read(stream) && stream_starves(stream))
            return true;
    }
    return false;
}

/* When the first of the present readers began: before, workers had nothing to do. */
static uint64_t verdict_reading_since(const struct loader *loader, const struct stream *last)
{
    const struct stream *stream;
    uint64_t since = UINT64_MAX;

    DL_FOREACH (loader->core.streams, stream) {
        if (verdict_is_read(stream) || stream == last)
            since = min_u64(since, stream->begun_ns);
    }
    return max_u64(since, loader->marked.was[0]);
}

static void verdict_find_since(const struct loader *loader, const struct stream *last,
                               struct verdict *ret)
{
    const struct core *core = &loader->core;
    const struct stream *stream;
    uint64_t now = uv_hrtime();
    size_t streams = 0;

    DL_COUNT(core->streams, stream, streams);
    _cleanup_free_ struct verdict_rank *ranks = must_alloc(max_u64(streams, 1) * sizeof *ranks);
    _cleanup_free_ struct verdict_worker *workers =
        must_alloc(max_u64(pool_workers(loader->pool), 1) * sizeof *workers);
    size_t n_workers = 0;
    for (uint32_t i = 0; i < pool_workers(loader->pool); i++)
        if (!pool_rests(loader->pool, i))
            pool_recent(loader->pool, i, &workers[n_workers++]);
    struct verdict_case c = {
        .ranks = ranks,
        .n_ranks = verdict_add_ranks(loader, last, now, ranks),
        .workers = workers,
        .n_workers = n_workers,
        .own_shares = core->iterable,
        .span_ns = now - min_u64(verdict_reading_since(loader, last), now),
        .batches = recent_since(&loader->recently_delivered, core->totals.delivered.batches),
        .starving = loader_is_starving(loader) ? core->starving.path : NULL,
        .store = verdict_store_of(loader, now)};
    for (int stage = 0; stage < STAGES; stage++)
        c.ns[stage] = recent_since(&loader->recently[stage], core->timing.ns[stage]);
    verdict_find(&c, ret);
}

void loader_note_verdict(struct loader *loader, const struct stream *stream)
{
    struct verdict verdict;

    verdict_find_since(loader, stream, &verdict);
    if (verdict.kind != VERDICT_IDLE && verdict.kind != VERDICT_EARLY)
        (void)snprintf(loader->verdict, sizeof loader->verdict, "%.*s", VERDICT_LATEST_MAX - 1,
                       verdict.text);
}

/* Where this epoch says nothing yet, or is over, the one before does. */
void loader_verdict(const struct loader *loader, struct verdict *ret)
{
    size_t len;

    verdict_find_since(loader, NULL, ret);
    if (!*loader->verdict || (ret->kind != VERDICT_IDLE && ret->kind != VERDICT_EARLY))
        return;
    len = ret->kind == VERDICT_IDLE ? strlen("idle") : strlen(ret->text);
    (void)snprintf(ret->text + len, sizeof ret->text - len,
                   "; at the end of the last epoch it was %s", loader->verdict);
}

const char *loader_last_verdict(const struct loader *loader)
{
    return loader->verdict;
}

void loader_was(struct loader *loader, const char *verdict)
{
    (void)snprintf(loader->verdict, sizeof loader->verdict, "%s", verdict);
}
