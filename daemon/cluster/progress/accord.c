#include "daemon/cluster/progress/accord.h"

#include <assert.h>
#include <errno.h>

void accord_deinit(struct accord *accord)
{
    accord_value_deinit(&accord->seen);
    accord->own = mix_changes_unref(accord->own);
    accord->before = mix_changes_unref(accord->before);
    accord->decided = mix_changes_unref(accord->decided);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void accord_enter(struct accord *accord, uint64_t round, bool fresh)
{
    assert(!accord->in || round >= accord->round);
    accord->in = true;
    accord->round = round;
    accord->read = false;
    if (fresh) {
        accord->fresh = true;
        accord->since = round;
        accord->brought = false;
        accord->own = mix_changes_unref(accord->own);
    }
    accord->entered++;
    accord->said = 0; /* the node that asks gets those of this round */
}

void accord_give_up(struct accord *accord)
{
    accord->fresh = true;
    accord->since = accord->round;
}

void accord_leave(struct accord *accord)
{
    accord->in = false;
}

/* What the store has is of an earlier run, which none of these nodes knows. */
static bool accord_is_stale(const struct accord *accord)
{
    return accord->fresh && (accord->seen.number == 0 || accord->seen.born < accord->since);
}

void accord_bring(struct accord *accord, struct mix_changes *list)
{
    if (accord->brought)
        return;
    accord->brought = true;
    accord->own = mix_changes_ref(list);
}

bool accord_is_known(const struct accord *accord)
{
    return accord->in && accord->read && accord->seen.number > 0 && !accord_is_stale(accord) &&
           !accord->lost;
}

uint64_t accord_hold(const struct accord *accord)
{
    return accord->seen.asker && !accord_is_stale(accord) ? accord->seen.asked : UINT64_MAX;
}

/* ---- a change of one's own ------------------------------------------------------------------- */

bool accord_may_ask(const struct accord *accord)
{
    return accord->mine == ACCORD_IDLE && accord_is_known(accord) &&
           accord->seen.asker != accord->self;
}

void accord_ask(struct accord *accord, uint64_t position)
{
    assert(accord_may_ask(accord));
    accord->mine = ACCORD_WANTED;
    accord->wanted = position;
    accord->wanted_at = accord->seen.number;
    accord->before = mix_changes_ref(accord->seen.list);
    accord->called_since = false;
    accord->rivalled = false;
}

void accord_hear(struct accord *accord, struct mix_changes *list)
{
    assert(accord->mine == ACCORD_ASKED && !accord->decided);
    accord->mine = ACCORD_HEARD;
    accord->decided = mix_changes_ref(list);
}

void accord_forget(struct accord *accord)
{
    accord->mine = ACCORD_IDLE;
    accord->before = mix_changes_unref(accord->before);
    accord->decided = mix_changes_unref(accord->decided);
}

/* The round may be another one. */
static void accord_hear_again(struct accord *accord)
{
    accord->mine = ACCORD_ASKED;
    accord->said = 0;
    accord->decided = mix_changes_unref(accord->decided);
}

/* Another node's request is in the way if it was in the store after this one was wanted, and
 * weights were changed meanwhile. Else what was over by then is news to this node alone: its wish
 * is LATE, as it may have been fulfilled, or may have to begin elsewhere. */
static void accord_judge_wanted(struct accord *accord)
{
    const struct accord_value *seen = &accord->seen;

    if (seen->asker == accord->self) {
        if (seen->number > accord->wanted_at && seen->asked == accord->wanted)
            accord->mine = ACCORD_ASKED;
    } else if (seen->asker) {
        accord->rivalled = accord->rivalled || accord->called_since;
    } else if (seen->number > accord->wanted_at) {
        bool same = mix_changes_equal(accord->before, seen->list);
        accord->mine = accord->rivalled && !same ? ACCORD_RACED : ACCORD_LATE;
    }
}

/* What has become of it, by what the store has. */
static void accord_judge_mine(struct accord *accord)
{
    const struct accord_value *seen = &accord->seen;
    bool open = seen->asker == accord->self;

    switch (accord->mine) {
    case ACCORD_WANTED:
        accord_judge_wanted(accord);
        break;
    case ACCORD_ASKED:
        if (!open)
            accord->mine = ACCORD_DROPPED;
        break;
    case ACCORD_HEARD: /* it is written at once: it was not */
        if (open)
            accord_hear_again(accord);
        else
            accord->mine =
                mix_changes_within(accord->decided, seen->list) ? ACCORD_DONE : ACCORD_DROPPED;
        break;
    default:
        break;
    }
}

/* ---- what is to be done ---------------------------------------------------------------------- */

static enum accord_do accord_write(const struct accord *accord, struct accord_value *ret,
                                   uint64_t asker, uint64_t asked, struct mix_changes *list)
{
    *ret = (struct accord_value){.number = accord->seen.number + 1,
                                 .born = accord->seen.born,
                                 .asker = asker,
                                 .asked = asked,
                                 .list = list};
    return ACCORD_WRITE;
}

static enum accord_do accord_begin(const struct accord *accord, struct accord_value *ret)
{
    if (!accord->brought)
        return ACCORD_NOTHING;
    (void)accord_write(accord, ret, 0, 0, accord->own);
    ret->born = accord->since;
    return ACCORD_WRITE;
}

/* Somebody has asked for a change, and it is not decided. */
static enum accord_do accord_follow(const struct accord *accord, bool asker_is_there,
                                    struct accord_value *ret)
{
    const struct accord_value *seen = &accord->seen;
    bool is_own = seen->asker == accord->self;

    if (is_own && accord->mine == ACCORD_HEARD)
        return accord_write(accord, ret, 0, 0, accord->decided);
    if (is_own ? accord->mine != ACCORD_ASKED : !asker_is_there)
        return accord_write(accord, ret, 0, 0, seen->list);
    return accord->said == seen->number ? ACCORD_NOTHING : ACCORD_SAY;
}

enum accord_do accord_next(const struct accord *accord, bool asker_is_there,
                           struct accord_value *ret)
{
    if (!accord->in)
        return ACCORD_NOTHING;
    if (!accord->read)
        return ACCORD_READ;
    if (accord_is_stale(accord))
        return accord_begin(accord, ret);
    if (accord->lost) {
        *ret = accord->seen;
        return ACCORD_WRITE;
    }
    if (accord->seen.number == 0)
        return ACCORD_NOTHING; /* who knows it puts it back */
    if (accord->seen.asker && accord->mine == ACCORD_WANTED && !accord->called_since)
        return ACCORD_READ; /* that may be over */
    if (accord->seen.asker)
        return accord_follow(accord, asker_is_there, ret);
    if (accord->mine == ACCORD_WANTED)
        return accord_write(accord, ret, accord->self, accord->wanted, accord->seen.list);
    return ACCORD_NOTHING;
}

/* ---- what the store says --------------------------------------------------------------------- */

void accord_call(struct accord *accord)
{
    accord->called = accord->entered;
    accord->called_since = true;
}

/* What is there tells what has become of a write, also of one that was answered by an error. */
void accord_seen(struct accord *accord, uint64_t token, struct accord_value *value)
{
    accord->token = token;
    accord->read = accord->read || accord->called == accord->entered;
    accord->lost = value->number < accord->seen.number;
    if (accord->lost) {
        accord_value_deinit(value);
        return;
    }
    accord_value_deinit(&accord->seen);
    accord->seen = *value;
    *value = (struct accord_value){0};
    accord_judge_mine(accord);
    assert(accord->mine != ACCORD_HEARD || accord->decided);
}

void accord_failed(struct accord *accord)
{
    accord->read = false;
}

void accord_said(struct accord *accord, uint64_t number)
{
    assert(number <= accord->seen.number);
    accord->said = number;
}
