/* A set of steps: step_set.h. */
#include "client/core/step_set.h"

#include <assert.h>
#include <errno.h>

enum { PLACES_MIN = 16 };

/* Where the search for `step` begins: the upper half of a product by 2^64 over the golden ratio. */
static size_t step_set_home(const struct step_set *set, uint64_t step)
{
    return (size_t)(step * 0x9E3779B97F4A7C15U >> 32) & (set->cap - 1);
}

/* The step's place, or the free one where it would stand. */
static size_t step_set_find(const struct step_set *set, uint64_t step)
{
    size_t at = step_set_home(set, step);

    while (set->places[at] != 0 && set->places[at] != step + 1)
        at = (at + 1) & (set->cap - 1);
    return at;
}

bool step_set_has(const struct step_set *set, uint64_t step)
{
    return set->cap > 0 && set->places[step_set_find(set, step)] != 0;
}

static int step_set_grow(struct step_set *set)
{
    struct step_set grown = {.count = set->count, .cap = set->cap ? set->cap * 2 : PLACES_MIN};

    grown.places = calloc(grown.cap, sizeof *grown.places);
    if (!grown.places)
        return -ENOMEM;
    for (size_t i = 0; i < set->cap; i++)
        if (set->places[i] != 0)
            grown.places[step_set_find(&grown, set->places[i] - 1)] = set->places[i];
    free(set->places);
    *set = grown;
    return 0;
}

int step_set_add(struct step_set *set, uint64_t step)
{
    assert(step < UINT64_MAX && !step_set_has(set, step));
    if (set->count >= set->cap / 2 && step_set_grow(set) < 0)
        return -ENOMEM;
    set->places[step_set_find(set, step)] = step + 1;
    set->count++;
    return 0;
}

void step_set_remove(struct step_set *set, uint64_t step)
{
    size_t mask = set->cap - 1, hole, at;

    if (!step_set_has(set, step))
        return;
    hole = step_set_find(set, step);
    set->count--;
    /* Those behind that would no longer be found across the hole move into it. */
    for (at = (hole + 1) & mask; set->places[at] != 0; at = (at + 1) & mask) {
        size_t from = step_set_home(set, set->places[at] - 1);

        if (((at - from) & mask) < ((at - hole) & mask))
            continue;
        set->places[hole] = set->places[at];
        hole = at;
    }
    set->places[hole] = 0;
}

void step_set_deinit(struct step_set *set)
{
    free(set->places);
    *set = (struct step_set){0};
}
