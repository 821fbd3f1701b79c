/* Which batch is due, and what its client is told with it. */
#include "daemon/serve/loader/loader_private.h"
#include "proto/words.h"

enum { DELIVER_AT_ONCE = 256 }; /* steps handed to the sink in one call */

/* Whose bad samples they are. */
struct telling {
    struct loader *loader;
    struct stream *stream;
};

static void tell_bad(void *owner, const struct bad_sample *sample)
{
    const struct telling *telling = owner;
    struct loader *loader = telling->loader;
    char text[DL_ERROR_MESSAGE_MAX];

    words_bad(sample, &loader->quarantine, loader->spec.on_error == ON_ERROR_SKIP, text,
              sizeof text);
    log_about(LOG_WARNING,
              &(struct log_fields){LOG_EVENT_BAD_SAMPLE, .loader = loader->spec.name,
                                   .epoch = LOG_N(telling->stream->params.epoch)},
              "%s: %s", loader->spec.name, text);
    loader->o.events->warning(telling->stream, text);
}

/* Where the sample's number counts: nowhere in particular if it is an index. The replicas of all
 * ranks are one and the same where the dataset does not divide the samples itself. */
static struct bad_place place_of_bad(const struct loader *loader, const struct step *step)
{
    const struct stream_params *params = &step->stream->params;
    bool apart = loader->spec.shard == SHARD_STRIDED;

    if (!params->replicas)
        return (struct bad_place){0};
    return (struct bad_place){.rank = apart ? (uint32_t)params->rank : 0,
                              .world = apart ? (uint32_t)params->world : 1,
                              .worker = step_replica(step->stream, step->number)};
}

bool loader_admit(struct loader *loader, struct stream *stream, struct step *step)
{
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;
    struct dl_error err = {0};

    if (step->bad.n == 0)
        return true;
    struct bad_place place = place_of_bad(loader, step);
    struct telling telling = {loader, stream};
    bool good = quarantine_take(&loader->quarantine, &place, &step->bad, tell_bad, &telling, &err);
    if (!good) {
        loader_fault(loader, step, err.code, err.message);
        pool_slot(loader->pool, segment, slot, SLOT_DISCARD);
    }
    bad_list_deinit(&step->bad);
    return good;
}

static void time_ready(const struct loader *loader, struct stream *stream, struct step *step)
{
    step->delivered_ns = max_u64(loader->now, step->made.now_ns);
    timing_add(&stream->timing, STAGE_READY, step->delivered_ns - step->made.now_ns);
}

static uint32_t lease_due(struct loader *loader, struct stream *stream, struct step **steps,
                          uint32_t max)
{
    struct step *step;
    uint32_t n = 0;

    /* One that was parked with pins can have more READY than its client has credits. */
    while (n < max && stream->leased < stream->params.credits &&
           (step = stream_deliverable(stream)) && step->state == STEP_READY) {
        if (!loader_admit(loader, stream, step))
            continue;
        /* Over the user's limit of leases: it waits until something is released. */
        if (quota_charge(loader->o.account, QUOTA_LEASES, 1, NULL) < 0)
            break;
        if (!step->held)
            pool_slot(loader->pool, step->segment, step->slot, SLOT_LEASE);
        stream_deliver(stream, step);
        time_ready(loader, stream, step);
        loader->totals.batches++;
        loader->totals.samples += step->samples;
        loader->totals.bytes += step_bytes(step);
        steps[n++] = step;
    }
    return n;
}

static void warn_of_length(struct loader *loader, struct stream *stream)
{
    uint64_t samples = stream->samples - stream->repeated;
    char text[512];

    if (!loader->iterable || stream->length_told || samples <= loader->length)
        return;
    stream->length_told = true;
    words_too_many(spec_dataset_label(&loader->spec.dataset), loader->length, samples, text,
                   sizeof text);
    loader->o.events->warning(stream, text);
}

static void warn_of_passing(struct loader *loader, struct stream *stream)
{
    char text[512];

    if (!loader->iterable || loader->leaps || stream->carried || stream->passing_told ||
        stream->params.first == 0)
        return;
    stream->passing_told = true;
    words_passing(spec_dataset_label(&loader->spec.dataset), stream->params.first,
                  loader->spec.batch_size, text, sizeof text);
    loader->o.events->warning(stream, text);
}

void loader_deliver(struct loader *loader, struct stream *stream)
{
    struct step *steps[DELIVER_AT_ONCE];
    struct step *step;
    uint32_t n;

    if (!stream->sink)
        return;
    warn_of_passing(loader, stream);
    loader_take(loader, stream);
    if (loader->headspace && loader_holds(loader))
        return;
    do {
        n = lease_due(loader, stream, steps, ARRAY_SIZE(steps));
        if (n > 0)
            loader->o.events->deliver(stream, steps, n);
        step = stream_deliverable(stream);
        if (step && step->state == STEP_FAULTED) {
            loader->o.events->fault(stream, step->number, step->error, step->detail, false);
            stream_deliver(stream, step);
            n = 1;
        }
    } while (n > 0);
    warn_of_length(loader, stream);
    if ((stream_finished(stream) || stream_at_limit(stream)) && !stream->finish_told &&
        !stream->stopped) {
        loader_note_verdict(loader);
        stream->finish_told = true;
        loader->o.events->finished(stream);
    }
}
