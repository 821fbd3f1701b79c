/* What a mixture's datasets have of the samples that were delivered. */
#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "proto/slot_fill.h"

/* Once sizes and lengths are known: as soon as the first batch is delivered. */
static const struct mix_ruler *loader_mixture_ruler(struct loader *loader)
{
    struct plan_params params = loader_plan_params(loader);

    if (loader->ruler.nodes || mix_ruler_init(&loader->ruler, &params) == 0)
        return &loader->ruler;
    return NULL;
}

/* Whose each sample of a batch is, and about where in the order it begins: false: not known. Where
 * the datasets are iterable the worker says so, and all ranks' steps are equally long. */
static bool loader_mixture_look(const struct loader *loader, const struct stream *stream,
                                const struct step *step, struct mix_batch *ret)
{
    const struct stream_params *of = &stream->params;
    const void *slot = segment_slot(step->segment, step->slot);
    uint64_t all = max_u64(loader->spec.batch_size, 1) * max_u64(of->world, 1);

    *ret = (struct mix_batch){.epoch = of->epoch, .n = step->samples};
    if (!loader->core.iterable) {
        if (!loader->sizes || !stream->plan)
            return false;
        ret->indices = slot_indices((void *)slot) + step->first;
        ret->position = plan_position(stream->plan, of->rank, step->number);
        return true;
    }
    ret->origins =
        slot_read_origins(slot, step->segment->slot_bytes, (uint64_t)step->first + step->samples);
    if (!ret->origins)
        return false;
    ret->origins += step->first;
    if (mul_overflows(step->number, all, &ret->position))
        ret->position = MIX_POSITIONS;
    return true;
}

void loader_count_mixture(struct loader *loader, struct stream *stream, const struct step *step)
{
    struct mix_batch batch;

    if (!step->segment || !loader_mixture_look(loader, stream, step, &batch))
        return;
    const struct mix_ruler *ruler = loader_mixture_ruler(loader);

    if (!ruler)
        return; /* for want of memory */
    if (!stream->mixture) {
        stream->n_mixture = ruler->n_nodes;
        stream->mixture = must_alloc(stream->n_mixture * sizeof *stream->mixture);
    }
    mix_tally_add(ruler, &batch, stream->mixture);
}

void loader_mixture_deinit(struct loader *loader)
{
    mix_ruler_deinit(&loader->ruler);
    loader->changes = mix_changes_unref(loader->changes);
    free(loader->sizes);
    loader->sizes = NULL;
}
