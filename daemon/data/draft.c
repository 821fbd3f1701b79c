#include "daemon/data/draft.h"

#include <errno.h>

enum { DRAFT_LEAST = 16 };

static bool draft_grow(struct draft *draft)
{
    size_t room = draft->room ? 2 * draft->room : DRAFT_LEAST;
    struct sample *samples = realloc(draft->samples, room * sizeof *samples);

    if (!samples)
        return false;
    draft->samples = samples;
    uint64_t *numbers = realloc(draft->numbers, room * sizeof *numbers);
    if (!numbers)
        return false;
    draft->numbers = numbers;
    memset(samples + draft->room, 0, (room - draft->room) * sizeof *samples);
    draft->room = room;
    return true;
}

struct sample *draft_add(struct draft *draft, uint64_t number)
{
    if (draft->n == draft->room && !draft_grow(draft))
        return NULL;
    struct sample *sample = &draft->samples[draft->n];
    sample_clear(sample);
    sample->arena = &draft->arena;
    draft->numbers[draft->n] = number;
    return sample;
}

void draft_keep(struct draft *draft)
{
    draft->n++;
}

void draft_clear(struct draft *draft)
{
    /* Also the one that was added and not kept. */
    for (size_t i = 0; i < draft->room && i <= draft->n; i++)
        if (draft->samples[i].object)
            sample_clear(&draft->samples[i]);
    draft->n = 0;
    draft->repeated = 0;
    bad_list_clear(&draft->bad);
    arena_clear(&draft->arena);
}

void draft_deinit(struct draft *draft)
{
    for (size_t i = 0; i < draft->room; i++)
        sample_deinit(&draft->samples[i]);
    free(draft->samples);
    free(draft->numbers);
    bad_list_deinit(&draft->bad);
    arena_deinit(&draft->arena);
    *draft = (struct draft){0};
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
                        "nothing is left of this batch: all that could be in it is bad (%s)",
                        words);
}
