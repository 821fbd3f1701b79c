#include "daemon/data/base/sample_batch.h"

#include <errno.h>

enum { SAMPLE_BATCH_LEAST = 16 };

static bool sample_batch_grow(struct sample_batch *batch)
{
    size_t room = batch->room ? 2 * batch->room : SAMPLE_BATCH_LEAST;
    struct sample *samples = realloc(batch->samples, room * sizeof *samples);

    if (!samples)
        return false;
    batch->samples = samples;
    uint64_t *numbers = realloc(batch->numbers, room * sizeof *numbers);
    if (!numbers)
        return false;
    batch->numbers = numbers;
    memset(samples + batch->room, 0, (room - batch->room) * sizeof *samples);
    batch->room = room;
    return true;
}

struct sample *sample_batch_add(struct sample_batch *batch, uint64_t number)
{
    if (batch->n == batch->room && !sample_batch_grow(batch))
        return NULL;
    struct sample *sample = &batch->samples[batch->n];
    sample_clear(sample);
    sample->arena = &batch->arena;
    batch->numbers[batch->n] = number;
    return sample;
}

void sample_batch_keep(struct sample_batch *batch)
{
    batch->n++;
}

void sample_batch_clear(struct sample_batch *batch)
{
    /* Also the sample that was added last, if it was not kept. */
    for (size_t i = 0; i < batch->room && i <= batch->n; i++)
        if (batch->samples[i].object)
            sample_clear(&batch->samples[i]);
    batch->n = 0;
    batch->repeated = 0;
    bad_list_clear(&batch->bad);
    arena_clear(&batch->arena);
}

void sample_batch_deinit(struct sample_batch *batch)
{
    for (size_t i = 0; i < batch->room; i++)
        sample_deinit(&batch->samples[i]);
    free(batch->samples);
    free(batch->numbers);
    bad_list_deinit(&batch->bad);
    arena_deinit(&batch->arena);
    *batch = (struct sample_batch){0};
}

/* ---- bad samples ---------------------------------------------------------------------------- */

bool bad_is_sample(const struct dl_error *err)
{
    switch (err->code) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ECANCELED: /* the dataset ends its process */
        return false;
    default:
        return true;
    }
}

int bad_nothing_left(const struct bad_list *list, struct dl_error *err)
{
    char words[DL_ERROR_MESSAGE_MAX - 128];

    bad_list_words(list, words, sizeof words);
    return dl_error_set(err, (int)list->items[0].code, "",
                        "no sample is left in this batch: all are bad (%s)", words);
}
