/*
 * Which steps have come where batches may pass others, and in which order: for states, journals,
 * and the daemon that follows one that is gone. Not of an iterable dataset, of which only workers
 * know what steps there are, nor where the client feeds.
 */
#include "client/core/core.h"

#include <assert.h>

bool came_is_kept(const struct dl_epoch *epoch)
{
    return !epoch->loader->in_order && !epoch->loader->iterable &&
           epoch->loader->identity.order != STATE_CLIENT;
}

void came_deinit(struct came *came)
{
    journal_deinit(&came->journal);
    buffer_deinit(&came->led);
    *came = (struct came){0};
}

static int came_add_arrived(struct dl_epoch *epoch, const struct passed *passed)
{
    int r = 0;

    for (uint64_t i = 1; i <= DL_BOUND_BYPASS && r == 0; i++)
        if (passed_has(passed, passed->head + i))
            r = step_set_add(&epoch->arrived, passed->head + i);
    return r;
}

int came_begin(struct dl_epoch *epoch, uint64_t count, const struct passed *passed)
{
    assert(epoch->count == 0 && !passed_has(passed, passed->head));
    came_deinit(&epoch->came);
    step_set_deinit(&epoch->arrived);
    epoch->first = epoch->expected = passed->head;
    epoch->position = epoch->begun = count;
    epoch->delivered = passed_count(passed);
    epoch->resumed = epoch->delivered > 0;
    epoch->came.from = epoch->came.led_from = epoch->came.count = count;
    epoch->came.begin = epoch->came.now = *passed;
    return came_add_arrived(epoch, passed);
}

void came_note(struct dl_epoch *epoch, uint64_t step)
{
    struct came *came = &epoch->came;

    if (!came_is_kept(epoch) || came->lost)
        return;
    assert(came->count >= came->from && step >= epoch->first);
    uint64_t place = passed_place(&came->now, step);
    came->lost = !passed_add(&came->now, step) || journal_add(&came->journal, place) < 0;
    came->count++;
}

bool came_at(const struct dl_epoch *epoch, uint64_t count, struct passed *ret)
{
    const struct came *came = &epoch->came;
    struct journal_reader last = {.place = came->journal.place, .repeat = came->journal.repeat};
    struct journal_reader over = {.rest = {came->journal.runs.data, came->journal.runs.len}};
    uint64_t left = count - came->from;

    *ret = came->begin;
    return !came->lost && count >= came->from && count <= came->count &&
           journal_pass(&over, &left, ret) && journal_pass(&last, &left, ret) && left == 0;
}

/* What had come before the epoch began stands in its own journal, too. */
static int came_copy(struct came *came, uint64_t n, struct dl_span runs)
{
    struct journal_reader reader = {.rest = runs};
    uint64_t place;
    int r = 0;

    for (; r == 0 && n > 0 && journal_peek(&reader, &place); n--) {
        journal_take(&reader);
        r = journal_add(&came->journal, place);
    }
    return r;
}

int came_lead(struct dl_epoch *epoch, uint64_t from, const struct passed *begin,
              struct dl_span runs)
{
    struct came *came = &epoch->came;
    uint64_t had = epoch->begun - from;
    int r = came_copy(came, had, runs);

    came->from = from;
    came->begin = *begin;
    return r < 0 ? r : journal_cut(runs, had, &came->led);
}

int came_follow_on(struct dl_epoch *epoch)
{
    struct came *came = &epoch->came;
    struct dl_buffer rest = {0};

    if (came->led.len == 0 || came->count == came->led_from)
        return 0;
    int r = journal_cut((struct dl_span){came->led.data, came->led.len},
                        came->count - came->led_from, &rest);
    if (r < 0) {
        buffer_deinit(&rest);
        return r;
    }
    buffer_deinit(&came->led);
    came->led = rest;
    came->led_from = came->count;
    return 0;
}
