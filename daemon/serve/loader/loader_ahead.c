/*
 * What the next steps read, told to a worker where files are far away: it knows which bytes of
 * which file a sample is, and the process that fetches gets these early, in the order of the plan.
 *
 * Where helpers make some of the steps, nothing is said: which ones shows when they are run, and a
 * helper reads them itself. What is in a worker's queue it fetches by itself.
 *
 * How far ahead that is, is the fetcher's business (daemon/fetcher/desk_ahead.c): it fetches as far
 * as its memory reaches. What is said here is only more than that.
 */
#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_private.h"

#include <endian.h>

#include <utlist.h>

enum {
    AHEAD_SAMPLES = 4096,  /* that are told of */
    AHEAD_TOGETHER = 64,   /* or of one step, at least: what a message has */
    AHEAD_MESSAGE = 65536, /* bytes that it takes */
};

static void ahead_tell(struct loader *loader, uint64_t *indices, size_t n)
{
    for (size_t i = 0; i < n; i++)
        indices[i] = htole64(indices[i]);
    for (size_t at = 0, bytes = n * sizeof *indices; at < bytes; at += AHEAD_MESSAGE)
        pool_expect(loader->pool, (struct dl_span){(const uint8_t *)indices + at,
                                                   min_u64(bytes - at, AHEAD_MESSAGE)});
}

/* The indices of `n` steps, how many there are in `ret`; how many steps that are: before the others
 * a thread has to work on the plan. */
static uint64_t ahead_fill(struct stream *stream, uint64_t first, uint64_t n, uint64_t *indices,
                           size_t *ret)
{
    uint64_t rank = stream->params.rank, step = first;

    *ret = 0;
    for (; step < first + n && epoch_is_near(stream->epoch, rank, step); step++)
        *ret += epoch_step(stream->epoch, rank, step, indices + *ret);
    return step - first;
}

void loader_look_ahead(struct loader *loader, struct stream *stream)
{
    if (!pool_remotes(loader->pool) || !stream->plan)
        return;
    bool helped = pool_is_helped(loader->pool);
    if (helped && !loader->looks_no_further)
        loader_look_ahead_anew(loader);
    loader->looks_no_further = helped;
    if (helped)
        return;
    if (pool_choose_told(loader->pool))
        loader_look_ahead_anew(loader);
    uint64_t each = max_u64(plan_most(stream->plan), 1), first;
    uint64_t together = max_u64(AHEAD_TOGETHER / each, 1);
    uint64_t n = stream_foresees(stream, max_u64(AHEAD_SAMPLES / each, together), &first);
    bool ends = first + n == stream->params.steps;
    _cleanup_free_ uint64_t *indices =
        n >= together || (ends && n > 0) ? must_alloc(together * each * sizeof *indices) : NULL;

    for (uint64_t some; indices && n > 0; n -= some, first += some) {
        size_t filled;

        some = min_u64(n, together);
        if (some < together && !ends)
            break;
        some = ahead_fill(stream, first, some, indices, &filled);
        if (some == 0)
            break;
        ahead_tell(loader, indices, filled);
        stream->foreseen = first + some;
    }
}

void loader_look_ahead_anew(struct loader *loader)
{
    struct stream *stream;

    if (!pool_remotes(loader->pool))
        return;
    pool_expect_anew(loader->pool);
    DL_FOREACH (loader->core.streams, stream)
        stream->foreseen = 0;
}
