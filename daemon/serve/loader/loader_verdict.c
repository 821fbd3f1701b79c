#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"

#include <stdio.h>

#include <utlist.h>

void loader_mark(struct loader *loader)
{
    struct core *core = &loader->core;
    struct stream *stream;

    recent_mark(&loader->marked, loader->now);
    recent_mark(&loader->recently_delivered, core->totals.delivered.batches);
    for (int stage = 0; stage < STAGES; stage++)
        recent_mark(&loader->recently[stage], core->timing.ns[stage]);
    DL_FOREACH (core->streams, stream) {
        recent_mark(&stream->recently_waited, stream->waited_ns);
        recent_mark(&stream->recently_delivered, stream->delivered.batches);
    }
    pool_mark(loader->pool);
    loader_lately_look(loader);
}

/* Somebody reads it, and has not had the last of it. */
static bool verdict_is_read(const struct stream *stream)
{
    return stream->sink && stream_rules[stream->phase].is_read;
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

/* The earliest that anybody who reads has begun: before, workers had nothing to do. */
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

static void loader_verdict_find(const struct loader *loader, const struct stream *last,
                                struct verdict *ret)
{
    const struct core *core = &loader->core;
    const struct stream *stream;
    uint64_t now = uv_hrtime();
    size_t streams = 0;

    DL_COUNT(core->streams, stream, streams);
    _cleanup_free_ struct verdict_rank *ranks = must_alloc(max_u64(streams, 1) * sizeof *ranks);
    _cleanup_free_ struct verdict_worker *workers =
        must_alloc(pool_workers(loader->pool) * sizeof *workers);
    for (uint32_t i = 0; i < pool_workers(loader->pool); i++)
        pool_recent(loader->pool, i, &workers[i]);
    struct verdict_case c = {
        .ranks = ranks,
        .n_ranks = verdict_add_ranks(loader, last, now, ranks),
        .workers = workers,
        .n_workers = pool_workers(loader->pool),
        .span_ns = now - min_u64(verdict_reading_since(loader, last), now),
        .batches = recent_since(&loader->recently_delivered, core->totals.delivered.batches),
        .starving = loader_is_starving(loader) ? core->starving.path : NULL};
    for (int stage = 0; stage < STAGES; stage++)
        c.ns[stage] = recent_since(&loader->recently[stage], core->timing.ns[stage]);
    verdict_find(&c, ret);
}

void loader_note_verdict(struct loader *loader, const struct stream *stream)
{
    struct verdict verdict;

    loader_verdict_find(loader, stream, &verdict);
    if (verdict.kind != VERDICT_IDLE && verdict.kind != VERDICT_EARLY)
        (void)snprintf(loader->verdict, sizeof loader->verdict, "%.*s", VERDICT_LATEST_MAX - 1,
                       verdict.text);
}

/* Where this epoch says nothing yet, or is over, the one before does. */
void loader_verdict(const struct loader *loader, struct verdict *ret)
{
    size_t len;

    loader_verdict_find(loader, NULL, ret);
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
