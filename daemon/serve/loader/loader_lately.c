/* The last ten minutes: what core/lately.h keeps of them is fed from here. */
#include "daemon/serve/loader/loader_private.h"

#include <utlist.h>

/* It waits, though it says so when that is over: there is nothing for it, and there will be. */
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

void loader_lately_look(struct loader *loader)
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
