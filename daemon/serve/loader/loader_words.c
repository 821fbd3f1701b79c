/* How a loader's steps are told to people: in faults, and in the views. */
#include "daemon/serve/loader/loader_private.h"
#include "proto/words.h"

#include <stdio.h>

/*
 * Keys that are no integers come as words, of which the first is this, that no index is, and the
 * second the number of bytes in the rest, which only the worker can read.
 */
#define KEYS_MARK 0x80646c6b65797300U

/* Python's indices may be below 0. */
static void name_integers(const uint64_t *indices, uint32_t n, char *text, size_t len)
{
    enum { NAMED = 8 };
    int at = snprintf(text, len, "(sample%s", n == 1 ? "" : "s");

    for (uint32_t i = 0; i < n && i < NAMED; i++)
        at += snprintf(text + at, len - (size_t)at, "%s %lld", i ? "," : "", (long long)indices[i]);
    if (n > NAMED)
        at += snprintf(text + at, len - (size_t)at, ", … %u in all", n);
    snprintf(text + at, len - (size_t)at, ")");
}

/* The indices are from the slot where the plan may be in use. */
static void name_samples(const struct loader *loader, const struct step *step, char *text,
                         size_t len)
{
    const struct stream *stream = step->stream;
    const uint64_t *indices = step->fed;
    uint32_t n = step->fed ? step->n_fed : step->samples;

    if (stream->params.replicas) {
        snprintf(text, len, "(batch %llu of worker %u)",
                 (unsigned long long)(step->number / stream->params.replicas),
                 step_replica(stream, step->number));
        return;
    }
    if (!indices && !step->segment) { /* it was given up before it had a slot */
        snprintf(text, len, "(no slot)");
        return;
    }
    if (!indices)
        indices = slot_indices(segment_slot(step->segment, step->slot));
    if (loader->spec.dataset.kind != DATASET_PYTHON)
        words_samples(indices, n, text, len);
    else if (step->fed && indices[0] == KEYS_MARK)
        snprintf(text, len, "(samples by keys that are no integers)");
    else
        name_integers(indices, n, text, len);
}

bool loader_name_task(const struct loader *loader, const void *tag, const struct step **ret_step,
                      char *text, size_t len)
{
    const struct step *step = tag;
    char name[384];

    *ret_step = NULL;
    if (loader->measuring) {
        measuring_name(tag, text, len);
        return true;
    }
    if (!step->stream)
        return false;
    *ret_step = step;
    name_samples(loader, step, name, sizeof name);
    snprintf(text, len, "%.*s", (int)strlen(name) - 2, name + 1);
    return true;
}

void loader_name_step(const struct loader *loader, const struct step *step, char *text, size_t len)
{
    size_t at = words_step(step->number, step->stream->params.epoch, text, len);

    name_samples(loader, step, text + at, len - at);
}
