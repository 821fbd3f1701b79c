#include "daemon/serve/loader/loader_private.h"

#include <stdio.h>

#include <utlist.h>

/* How many batches of the loader the stream's client has in hand, in this epoch and others. */
static uint32_t count_held(const struct loader *loader, const struct stream *by)
{
    const struct stream *stream;
    uint32_t n = 0;

    DL_FOREACH (loader->streams, stream) {
        if (stream->sink && stream->params.owner == by->params.owner)
            n += stream->leased + stream->pinned;
    }
    return n;
}

/*
 * A client that holds all there is, pinned or in an epoch that it does not read on, would wait for
 * ever: it is told to let go. One that holds nothing waits for what others release, and only hears
 * why.
 */
void loader_tell_starving(struct loader *loader, const struct dl_error *err)
{
    struct stream *stream;
    char text[sizeof err->path + sizeof err->message + 64];

    if (!pool_idle(loader->pool))
        return;
    (void)snprintf(loader->starving, sizeof loader->starving, "%s", err->path);
    loader->starved = true;
    if (loader->headspace && loader_holds(loader)) /* what is there comes soon */
        return;
    DL_FOREACH (loader->streams, stream) {
        if (!stream->sink || !stream_has_room(stream) || stream->window > 0)
            continue;
        uint32_t held = count_held(loader, stream);
        if (held > 0 && held != stream->starving_told) {
            stream->starving_told = held;
            loader->o.events->fault(stream, UINT64_MAX, err, NULL, false);
        } else if (held == 0 && !stream->starving_warned) {
            stream->starving_warned = true;
            snprintf(text, sizeof text, "waiting for what others hold: %s: %s", err->path,
                     err->message);
            loader->o.events->warning(stream, text);
        }
    }
}
