#include "daemon/cluster/progress/given.h"

#include <assert.h>

static void given_set(struct given *given, struct mix_changes *list)
{
    mix_changes_ref(list);
    mix_changes_unref(given->list);
    given->list = list;
}

static void given_drop(struct given *given)
{
    given->wanted = mix_changes_unref(given->wanted);
    given->released = false;
}

void given_deinit(struct given *given)
{
    given_drop(given);
    given->list = mix_changes_unref(given->list);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void given_bring(struct given *given, struct mix_changes *list)
{
    if (!given->has)
        given_set(given, list);
}

struct mix_changes *given_report(const struct given *given)
{
    return given->wanted && !given->released ? given->wanted : given->list;
}

struct mix_changes *given_choose(struct mix_changes *const *reports, uint32_t n)
{
    struct mix_changes *chosen = n > 0 ? reports[0] : NULL;

    for (uint32_t i = 1; i < n; i++)
        if (mix_changes_within(chosen, reports[i]))
            chosen = reports[i];
    return chosen;
}

bool given_begin(struct given *given, struct mix_changes *list)
{
    bool lacks = given->has && !mix_changes_within(given_report(given), list);

    given->in = given->has = true;
    given->compared = 0;
    given_set(given, list);
    given_drop(given);
    return !lacks;
}

void given_leave(struct given *given)
{
    given->in = false;
}

/* ---- changes --------------------------------------------------------------------------------- */

struct mix_changes *given_latest(const struct given *given)
{
    return given->wanted ? given->wanted : given->list;
}

uint64_t given_hold(const struct given *given)
{
    return given->wanted && !given->released ? mix_changes_differ_at(given->wanted, given->list)
                                             : UINT64_MAX;
}

void given_give(struct given *given, struct mix_changes *list)
{
    assert(given->in && !given->wanted && list);
    given->wanted = mix_changes_ref(list);
}

void given_release(struct given *given, bool released)
{
    if (given->in)
        given->released = released && given->wanted;
}

void given_agree(struct given *given)
{
    assert(given->in && given->wanted);
    given_set(given, given->wanted);
    given_drop(given);
    given->compared++;
}

void given_refuse(struct given *given)
{
    assert(given->in && given->wanted);
    given_drop(given);
    given->compared++;
}
