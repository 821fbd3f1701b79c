/* Whether its files have changed since it was opened, for the next client that opens it. */
#include "daemon/base/blame.h"
#include "daemon/serve/loader/loader_private.h"

#include <errno.h>

#include <utlist.h>

/* What has just been opened, or is about to be, was looked at for that. */
enum loader_files loader_files(struct loader *loader, uint64_t asked)
{
    if (loader->state != LOADER_OPEN || !pool_has_files(loader->pool))
        return LOADER_FILES_SAME;
    if (loader->look.changed)
        return LOADER_FILES_CHANGED;
    if (loader->look.same_ns >= asked)
        return LOADER_FILES_SAME;
    if (loader->look.begun_ns == 0) {
        loader->look.begun_ns = uv_hrtime();
        pool_look(loader->pool);
        loader_wake(loader);
    }
    return LOADER_FILES_ASKED;
}

/* An unused loader whose workers do not answer is given up; if it is in use, the next client shares
 * it. */
void loader_on_looked(void *owner, enum pool_files files)
{
    struct loader *loader = owner;
    BLAMING(loader->o.blame);
    bool others = loader_users(loader) > 0;

    if (files == POOL_FILES_CHANGED || (files == POOL_FILES_UNKNOWN && !others))
        loader->look.changed = true;
    else
        loader->look.same_ns = loader->look.begun_ns;
    loader->look.begun_ns = 0;
    loader->o.events->looked(loader->o.context);
}

bool loader_has_jobs(const struct loader *loader)
{
    const struct stream *stream;

    DL_FOREACH (loader->core.streams, stream) {
        if (stream->params.job[0] && stream->phase != STREAM_STOPPED)
            return true;
    }
    return false;
}

void loader_warn_of_files(struct loader *loader)
{
    struct dl_error what;

    (void)dl_error_set(&what, ESTALE, spec_dataset_label(&loader->spec.dataset),
                       "its files have changed since the loader was opened, and it goes on with "
                       "those of before, as ranks of a job read them; for the new ones open it by "
                       "another name");
    loader_pool_events.written(loader, &what);
}
