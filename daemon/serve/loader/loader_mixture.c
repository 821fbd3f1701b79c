/* What a mixture's datasets have of the samples that were delivered. */
#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"

/* Once sizes and lengths are known: as soon as the first batch is delivered. */
static const struct mix_ruler *loader_mixture_ruler(struct loader *loader)
{
    struct plan_params params = loader_plan_params(loader);

    if (loader->ruler.ends || mix_ruler_init(&loader->ruler, &params) == 0)
        return &loader->ruler;
    return NULL;
}

void loader_count_mixture(struct loader *loader, struct stream *stream, const struct step *step)
{
    if (!loader->sizes || !stream->plan || !step->segment)
        return;
    const struct mix_ruler *ruler = loader_mixture_ruler(loader);

    if (!ruler)
        return; /* for want of memory */
    if (!stream->mixture) {
        stream->n_mixture = ruler->course.n;
        stream->mixture = must_alloc(stream->n_mixture * sizeof *stream->mixture);
    }
    struct mix_batch batch = {
        .epoch = stream->params.epoch,
        .position = plan_position(stream->plan, stream->params.rank, step->number),
        .indices = slot_indices(segment_slot(step->segment, step->slot)) + step->first,
        .n = step->samples,
    };
    mix_tally_add(ruler, &batch, stream->mixture);
}

void loader_mixture_deinit(struct loader *loader)
{
    mix_ruler_deinit(&loader->ruler);
    loader->changes = mix_changes_unref(loader->changes);
    free(loader->sizes);
    loader->sizes = NULL;
}
