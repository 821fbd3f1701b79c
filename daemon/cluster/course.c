#include "daemon/cluster/course.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- points --------------------------------------------------------------------------------- */

static enum course_order order(uint64_t a, uint64_t b)
{
    return a < b ? COURSE_BEFORE : a > b ? COURSE_AFTER : COURSE_SAME;
}

static enum course_order compare_history(const struct history *a, const struct history *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n;

    for (uint32_t i = 0; i < n; i++) {
        enum course_order is = order(a->of[i].steps, b->of[i].steps);

        if (a->of[i].world != b->of[i].world)
            return COURSE_APART;
        if (is == COURSE_SAME)
            continue;
        /* Whoever has fewer steps of a stretch must be in the midst of it. */
        return (is == COURSE_BEFORE ? i + 1 == a->n : i + 1 == b->n) ? is : COURSE_APART;
    }
    return order(a->n, b->n);
}

enum course_order course_compare(const struct course_point *a, const struct course_point *b)
{
    if (a->pass != b->pass)
        return order(a->pass, b->pass);
    if (a->epoch != b->epoch)
        return order(a->epoch, b->epoch);
    return compare_history(&a->history, &b->history);
}

bool course_point_at(struct course_point *ret, uint64_t pass, uint64_t epoch,
                     const struct history *before, uint64_t world, uint64_t steps)
{
    struct course_point point = {.pass = pass, .epoch = epoch, .history = *before};

    if (!history_add(&point.history, world, steps))
        return false;
    *ret = point;
    return true;
}

uint64_t course_point_split(const struct course_point *point, uint64_t world,
                            struct history *ret_before)
{
    uint32_t n = point->history.n;

    *ret_before = point->history;
    if (n == 0 || point->history.of[n - 1].world != world)
        return 0;
    ret_before->n--;
    return point->history.of[n - 1].steps;
}

void course_point_text(const struct course_point *point, char ret[static COURSE_TEXT_MAX])
{
    size_t at = (size_t)snprintf(ret, COURSE_TEXT_MAX, "epoch %" PRIu64 "%s", point->epoch,
                                 point->history.n ? " behind" : " at its beginning");

    for (uint32_t i = 0; i < point->history.n && at < COURSE_TEXT_MAX; i++)
        at += (size_t)snprintf(ret + at, COURSE_TEXT_MAX - at,
                               i ? " and %" PRIu64 " of %" PRIu64
                                 : " %" PRIu64 " steps of %" PRIu64 " ranks",
                               point->history.of[i].steps, point->history.of[i].world);
}

/* ---- rounds --------------------------------------------------------------------------------- */

const struct course_round *course_find(const struct course *course, uint64_t round)
{
    for (uint32_t i = 0; i < course->n; i++)
        if (course->of[i].number == round)
            return &course->of[i];
    return NULL;
}

/* The entry of that round, new if need be; NULL: it is older than all, and there is no room. */
static struct course_round *need(struct course *course, uint64_t round)
{
    uint32_t at = course->n;

    while (at > 0 && course->of[at - 1].number >= round)
        at--;
    if (at < course->n && course->of[at].number == round)
        return &course->of[at];
    if (course->n == COURSE_ROUNDS) {
        if (at == 0)
            return NULL;
        memmove(course->of, course->of + 1, --at * sizeof course->of[0]);
    } else {
        memmove(course->of + at + 1, course->of + at, (course->n - at) * sizeof course->of[0]);
        course->n++;
    }
    course->of[at] = (struct course_round){.number = round};
    return &course->of[at];
}

void course_enter(struct course *course, uint64_t round, uint64_t first, uint64_t world)
{
    struct course_round *entry = need(course, round);

    if (!entry)
        return;
    entry->first = first;
    entry->world = world;
}

void course_learn(struct course *course, uint64_t round, const struct course_point *begin)
{
    struct course_round *entry = need(course, round);

    if (!entry || entry->known)
        return;
    entry->known = true;
    entry->begin = *begin;
}

const struct course_round *course_latest(const struct course *course)
{
    for (uint32_t i = course->n; i > 0; i--)
        if (course->of[i - 1].known)
            return &course->of[i - 1];
    return NULL;
}

const struct course_round *course_first(const struct course *course)
{
    for (uint32_t i = 0; i < course->n; i++) {
        const struct course_round *entry = &course->of[i];

        if (entry->known && entry->world > 0)
            return entry;
    }
    return NULL;
}

/* The round in whose world a rank at that point goes on: the last one that had begun there. NULL:
 * the point is before them all, or has nothing to do with them. */
static const struct course_round *round_at(const struct course *course,
                                           const struct course_point *at)
{
    for (uint32_t i = course->n; i > 0; i--) {
        const struct course_round *entry = &course->of[i - 1];
        enum course_order is;

        if (!entry->known)
            continue;
        is = course_compare(at, &entry->begin);
        if (is == COURSE_APART)
            return NULL;
        if (is != COURSE_BEFORE)
            return entry->world > 0 ? entry : NULL;
    }
    return NULL;
}

uint64_t course_limit(const struct course *course, uint64_t round, uint64_t pass, uint64_t epoch,
                      const struct history *before)
{
    for (uint32_t i = 0; i < course->n; i++) {
        const struct course_round *next = &course->of[i];
        const struct history *end = &next->begin.history;
        const struct course_round *of = course_find(course, round);

        if (next->number <= round || !next->known)
            continue;
        if (next->begin.pass != pass || next->begin.epoch != epoch)
            return UINT64_MAX; /* the others have done with this epoch */
        if (end->n <= before->n || (of && of->world != end->of[before->n].world))
            return 0; /* nobody had any of it */
        return end->of[before->n].steps;
    }
    return UINT64_MAX;
}

/* ---- where a rank goes on ------------------------------------------------------------------- */

/* Where it wants to go on. What it is behind for sure it asks for anew. */
static int wished_point(const struct course_rank *rank, const struct course_wish *wish,
                        const struct course_round *latest, struct course_point *ret,
                        struct dl_error *err)
{
    bool is_new = rank->entered == COURSE_NEW;
    uint64_t pass = is_new ? latest->begin.pass : rank->behind.pass;

    if (!course_point_at(ret, pass, wish->epoch, &wish->before, latest->world, wish->step))
        return dl_error_set(err, EINVAL, "before",
                            "the world has changed %" PRIu64 " times in this epoch; no more are "
                            "kept",
                            DL_MAX_HISTORY);
    if (is_new)
        return 0;
    enum course_order is = course_compare(ret, &rank->behind);
    ret->pass += is == COURSE_BEFORE || is == COURSE_APART;
    return 0;
}

/* A rank that is new here begins where the others are, or where they were when it was awaited. */
static int find_beginning(const struct course *course, const struct course_wish *wish,
                          struct course_point *ret, struct dl_error *err)
{
    char text[COURSE_TEXT_MAX];

    const struct course_round *round = course_first(course);
    *ret = round->begin;
    if (wish->epoch == COURSE_ANYWHERE || wish->epoch == ret->epoch)
        return 0;
    /* The same epoch is read again and again, and all have done with it. */
    if (ret->pass > 0 && wish->epoch + 1 == ret->epoch && ret->history.n == 0) {
        *ret = (struct course_point){.pass = ret->pass + 1, .epoch = wish->epoch};
        return 0;
    }
    course_point_text(ret, text);
    return dl_error_set(err, EINVAL, "epoch",
                        "%" PRIu64 " is asked for, and the other nodes are in %s; ask for that "
                        "one, or for wherever they are (DL_RESUME)",
                        wish->epoch, text);
}

/* Whether it leads on from there in that world, and does not leave it behind elsewhere. */
static bool leads_on(const struct course_point *from, const struct course_point *at, uint64_t world)
{
    struct history a, b;

    if (at->pass != from->pass || at->epoch != from->epoch)
        return true;
    (void)course_point_split(from, world, &a);
    (void)course_point_split(at, world, &b);
    return history_equal(&a, &b);
}

int course_place(const struct course *course, const struct course_rank *rank,
                 const struct course_wish *wish, struct course_place *ret, struct dl_error *err)
{
    const struct course_round *latest = course_latest(course), *round;
    bool is_new = rank->entered == COURSE_NEW, anywhere = wish->epoch == COURSE_ANYWHERE, moved;
    struct course_point at = {0};
    int r;

    if (is_new && (anywhere || (wish->before.n == 0 && wish->step == 0))) {
        r = find_beginning(course, wish, &at, err);
    } else {
        at = rank->behind;
        r = anywhere ? 0 : wished_point(rank, wish, latest, &at, err);
    }
    if (r < 0)
        return r;
    round = round_at(course, &at);
    if (is_new && round && !leads_on(&round->begin, &at, round->world))
        round = NULL;
    moved = !round;
    if (moved) {
        round = latest;
        at = latest->begin;
    }
    *ret = (struct course_place){.round = round->number,
                                 .first = round->first,
                                 .world = round->world,
                                 .pass = at.pass,
                                 .epoch = at.epoch,
                                 .moved = moved};
    ret->step = course_point_split(&at, round->world, &ret->before);
    ret->limit = course_limit(course, round->number, at.pass, at.epoch, &ret->before);
    return 0;
}

/* ---- what becomes of words ------------------------------------------------------------------ */

static int say_apart(const struct course_said *a, const struct course_said *b, struct dl_error *err)
{
    char first[COURSE_TEXT_MAX], second[COURSE_TEXT_MAX];

    course_point_text(&a->word->at, first);
    course_point_text(&b->word->at, second);
    return dl_error_set(err, EINVAL, "before",
                        "node %s stands at %s, and node %s at %s: neither leads to the other; "
                        "start all ranks from one state",
                        a->node, first, b->node, second);
}

int course_agree(const struct course_said *said, uint32_t n, struct course_point *ret,
                 struct dl_error *err)
{
    const struct course_said *furthest = NULL;
    uint64_t last = COURSE_NEW;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t is = said[i].word->last;

        if (is != COURSE_NEW && (last == COURSE_NEW || is > last))
            last = is;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct course_word *word = said[i].word;
        enum course_order is;

        if (!word->says || word->last != last)
            continue;
        is = furthest ? course_compare(&word->at, &furthest->word->at) : COURSE_AFTER;
        if (is == COURSE_APART)
            return say_apart(furthest, &said[i], err);
        if (is == COURSE_AFTER)
            furthest = &said[i];
    }
    if (!furthest)
        return 1;
    *ret = furthest->word->at;
    return 0;
}
