/* The pump: what is done is collected, what is due is delivered, and what can be is begun, until
 * nothing more follows from it. */
#include "daemon/serve/loader/loader_private.h"

#include <utlist.h>

static void turn(struct loader *loader)
{
    struct stream *stream;
    struct stream *next;

    loader_expire_parked(loader);
    DL_FOREACH_SAFE (loader->streams, stream, next) {
        loader_plan(loader, stream);
    }
    DL_FOREACH (loader->streams, stream) {
        loader_deliver(loader, stream);
    }
    DL_FOREACH (loader->streams, stream) {
        loader_expect_next(loader, stream);
    }
    loader->faulted = false;
    if (loader->state == LOADER_OPEN)
        loader_schedule(loader);
}

void loader_pump(struct loader *loader)
{
    if (loader->pumping || loader->halted || (loader->state != LOADER_OPEN && !loader->measuring))
        return;
    loader->pumping = true;
    loader_note_time(loader);
    pool_collect(loader->pool);
    if (loader->measuring)
        loader_measure_pump(loader);
    while (loader->state == LOADER_OPEN) {
        turn(loader);
        bool again = loader->headspace && loader_headspace_look(loader);
        if (!again && !loader->faulted)
            break;
    }
    loader_note_starving(loader);
    loader->pumping = false;
}

void loader_go_on(void *loader)
{
    loader_pump(loader);
}
