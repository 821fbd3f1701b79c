#include "daemon/cluster/progress/progress.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- points --------------------------------------------------------------------------------- */

static enum progress_order progress_compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? PROGRESS_BEFORE : a > b ? PROGRESS_AFTER : PROGRESS_SAME;
}

static enum progress_order progress_compare_history(const struct history *a,
                                                    const struct history *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n;

    for (uint32_t i = 0; i < n; i++) {
        enum progress_order order =
            progress_compare_numbers(a->stretches[i].steps, b->stretches[i].steps);

        if (a->stretches[i].world != b->stretches[i].world)
            return PROGRESS_UNRELATED;
        if (order == PROGRESS_SAME)
            continue;
        /* The point with fewer steps of a stretch must lie within that stretch. */
        return (order == PROGRESS_BEFORE ? i + 1 == a->n : i + 1 == b->n) ? order
                                                                          : PROGRESS_UNRELATED;
    }
    return progress_compare_numbers(a->n, b->n);
}

enum progress_order progress_compare(const struct progress_point *a, const struct progress_point *b)
{
    if (a->pass != b->pass)
        return progress_compare_numbers(a->pass, b->pass);
    if (a->epoch != b->epoch)
        return progress_compare_numbers(a->epoch, b->epoch);
    return progress_compare_history(&a->history, &b->history);
}

bool progress_point_after(struct progress_point *ret, uint64_t pass, uint64_t epoch,
                          const struct history *before, uint64_t world, uint64_t steps)
{
    struct progress_point point = {.pass = pass, .epoch = epoch, .history = *before};

    if (!history_add(&point.history, world, steps))
        return false;
    *ret = point;
    return true;
}

uint64_t progress_point_split(const struct progress_point *point, uint64_t world,
                              struct history *ret_before)
{
    uint32_t n = point->history.n;

    *ret_before = point->history;
    if (n == 0 || point->history.stretches[n - 1].world != world)
        return 0;
    ret_before->n--;
    return point->history.stretches[n - 1].steps;
}

void progress_point_text(const struct progress_point *point, char ret[static PROGRESS_TEXT_MAX])
{
    size_t at = (size_t)snprintf(ret, PROGRESS_TEXT_MAX, "epoch %" PRIu64 "%s", point->epoch,
                                 point->history.n ? " after" : " at its beginning");

    for (uint32_t i = 0; i < point->history.n && at < PROGRESS_TEXT_MAX; i++)
        at += (size_t)snprintf(
            ret + at, PROGRESS_TEXT_MAX - at,
            i ? " and %" PRIu64 " of %" PRIu64 : " %" PRIu64 " steps of %" PRIu64 " ranks",
            point->history.stretches[i].steps, point->history.stretches[i].world);
}

/* ---- rounds --------------------------------------------------------------------------------- */

const struct progress_round *progress_find(const struct progress *progress, uint64_t round)
{
    for (uint32_t i = 0; i < progress->n; i++)
        if (progress->rounds[i].number == round)
            return &progress->rounds[i];
    return NULL;
}

/* The entry of that round, new if need be; NULL: it is older than all, and there is no room. */
static struct progress_round *progress_need_round(struct progress *progress, uint64_t round)
{
    uint32_t at = progress->n;

    assert(progress->n <= PROGRESS_ROUNDS && round != PROGRESS_NO_ROUND);
    while (at > 0 && progress->rounds[at - 1].number >= round)
        at--;
    if (at < progress->n && progress->rounds[at].number == round)
        return &progress->rounds[at];
    if (progress->n == PROGRESS_ROUNDS) {
        if (at == 0)
            return NULL;
        memmove(progress->rounds, progress->rounds + 1, --at * sizeof progress->rounds[0]);
    } else {
        memmove(progress->rounds + at + 1, progress->rounds + at,
                (progress->n - at) * sizeof progress->rounds[0]);
        progress->n++;
    }
    progress->rounds[at] = (struct progress_round){.number = round};
    assert(at == 0 || progress->rounds[at - 1].number < round);
    assert(at + 1 == progress->n || progress->rounds[at + 1].number > round);
    return &progress->rounds[at];
}

void progress_enter(struct progress *progress, uint64_t round, uint64_t first, uint64_t world)
{
    struct progress_round *entry = progress_need_round(progress, round);

    assert(first < world);
    if (!entry)
        return;
    entry->first = first;
    entry->world = world;
}

void progress_learn(struct progress *progress, uint64_t round, const struct progress_point *begin)
{
    struct progress_round *entry = progress_need_round(progress, round);

    if (!entry || entry->known)
        return;
    entry->known = true;
    entry->begin = *begin;
}

const struct progress_round *progress_latest(const struct progress *progress)
{
    for (uint32_t i = progress->n; i > 0; i--)
        if (progress->rounds[i - 1].known)
            return &progress->rounds[i - 1];
    return NULL;
}

const struct progress_round *progress_first(const struct progress *progress)
{
    for (uint32_t i = 0; i < progress->n; i++) {
        const struct progress_round *entry = &progress->rounds[i];

        if (entry->known && entry->world > 0)
            return entry;
    }
    return NULL;
}

/* The round in whose world a rank at that point resumes: the last one that began there or before.
 * False: the point is before all of them, or unrelated. */
static bool progress_round_at(const struct progress *progress, const struct progress_point *point,
                              struct progress_round *ret)
{
    for (uint32_t i = progress->n; i > 0; i--) {
        const struct progress_round *entry = &progress->rounds[i - 1];
        enum progress_order order;

        if (!entry->known)
            continue;
        order = progress_compare(point, &entry->begin);
        *ret = *entry;
        if (order != PROGRESS_BEFORE)
            return order != PROGRESS_UNRELATED;
    }
    return false;
}

uint64_t progress_limit(const struct progress *progress, uint64_t round, uint64_t world,
                        uint64_t pass, uint64_t epoch, const struct history *before)
{
    uint64_t limit = UINT64_MAX;

    /* When ranks are lost on their way to the beginning of a round, the next one begins before it.
     */
    for (uint32_t i = 0; i < progress->n; i++) {
        const struct progress_round *next = &progress->rounds[i];
        const struct history *end = &next->begin.history;

        if (next->number <= round || !next->known || next->begin.pass != pass ||
            next->begin.epoch != epoch)
            continue; /* or it began behind this epoch */
        if (end->n <= before->n || end->stretches[before->n].world != world)
            return 0; /* no rank was given a step of it */
        limit = min_u64(limit, end->stretches[before->n].steps);
    }
    return limit;
}

static bool progress_take_place(const struct progress *progress, const struct progress_point *point,
                                uint64_t first, uint64_t world, struct progress_round *round)
{
    struct history before;
    uint64_t step = progress_point_split(point, world, &before);

    round->first = first;
    round->world = world;
    return step <
           progress_limit(progress, round->number, world, point->pass, point->epoch, &before);
}

/* The latest beginning of its epoch and pass that the point leads to; NULL: none. */
static const struct progress_point *progress_leads_to(const struct progress *progress,
                                                      const struct progress_point *point)
{
    for (uint32_t i = progress->n; i > 0; i--) {
        const struct progress_round *entry = &progress->rounds[i - 1];

        if (entry->known && entry->begin.epoch == point->epoch &&
            entry->begin.pass == point->pass &&
            progress_compare(point, &entry->begin) == PROGRESS_BEFORE)
            return &entry->begin;
    }
    return NULL;
}

/* How many ranks there were on the way from that point to where others have gone on since; 0: it
 * leads nowhere, or there is no step between. */
static uint64_t progress_next_world(const struct progress *progress,
                                    const struct progress_point *point)
{
    const struct progress_point *to = progress_leads_to(progress, point);
    uint32_t n = point->history.n;

    if (!to)
        return 0;
    if (n > 0 && to->history.stretches[n - 1].steps > point->history.stretches[n - 1].steps)
        n--;
    assert(n < to->history.n); /* else the point would not lead there */
    return to->history.stretches[n].world;
}

/* A node that was not in that world, to which ranks have gone back, knows it by what came of it. */
bool progress_next(const struct progress *progress, const struct progress_point *point,
                   struct progress_point *ret)
{
    struct progress_round round;
    struct history before;

    if (!progress_round_at(progress, point, &round))
        return false;
    uint64_t world = round.world > 0 ? round.world : progress_next_world(progress, point);
    if (world == 0)
        return false;
    uint64_t step = progress_point_split(point, world, &before);
    return progress_point_after(ret, point->pass, point->epoch, &before, world, step + 1);
}

/* The node was in no such round; but the rank was, by what its client says, when another daemon
 * served the node. Or only the node was: then others say so. */
static bool progress_take_former(const struct progress *progress,
                                 const struct resume_request *request,
                                 const struct progress_point *point, struct progress_round *round)
{
    const struct former_place *former = &request->former;
    uint64_t next = progress_next_world(progress, point);

    if (former->world > 0 && former->rank >= request->local &&
        progress_take_place(progress, point, former->rank - request->local, former->world, round))
        return true;
    if (!request->tell || next == 0)
        return false;
    const struct former_place told = request->tell(request->teller, next);
    return told.world > 0 && progress_take_place(progress, point, told.rank, told.world, round);
}

/* ---- where a rank resumes ---------------------------------------------------------------------
 */

/* Between that point and where the ranks are by now there was another world than the present one: a
 * rank that went back there would lack the ranks of that world. Or this pass began behind that
 * point. */
static bool progress_is_behind_other_world(const struct progress *progress,
                                           const struct progress_point *point)
{
    const struct progress_round *latest = progress_latest(progress);
    const struct history *to = &latest->begin.history;
    struct progress_round round;
    uint32_t n = point->history.n;

    assert(latest->known);
    if (progress_compare(point, &latest->begin) != PROGRESS_BEFORE)
        return false;
    if (latest->begin.epoch != point->epoch || !progress_round_at(progress, point, &round) ||
        round.begin.pass != point->pass)
        return true;
    if (n > 0 && to->stretches[n - 1].steps > point->history.stretches[n - 1].steps)
        n--;
    return n + 1 != to->n || to->stretches[n].world != latest->world;
}

/* It has had all of the epoch that it asks for the beginning of, or all rounds have begun later. */
static bool progress_is_again(const struct progress *progress, const struct progress_rank *rank,
                              const struct progress_point *point)
{
    enum progress_order order = progress_compare(point, &rank->behind);
    struct progress_round round;

    if (order != PROGRESS_BEFORE)
        return order == PROGRESS_UNRELATED;
    return (point->history.n == 0 && point->epoch != rank->behind.epoch) ||
           !progress_round_at(progress, point, &round);
}

/* It is not on its way on from where it was, but told to begin there, as all ranks are that a
 * launcher has started again: of those some may be there yet. */
static bool progress_goes_there(const struct progress_rank *rank,
                                const struct resume_request *request,
                                const struct progress_point *point)
{
    enum progress_order order;

    if (rank->entered == PROGRESS_NO_ROUND)
        return request->former.world == 0;
    order = progress_compare(point, &rank->behind);
    return order == PROGRESS_BEFORE || (order == PROGRESS_SAME && rank->left);
}

/* Others have turned back, and all do. One that has still to end the pass before, where they read
 * the epoch once more, is further in it. */
static void progress_follow_others(const struct progress_point *others, bool goes_there,
                                   struct progress_point *point)
{
    struct progress_point there = *point;

    if (others->epoch != point->epoch || others->pass <= point->pass)
        return;
    there.pass = others->pass;
    if (goes_there || progress_compare(&there, others) != PROGRESS_AFTER)
        *point = there;
}

/* Where it asks to resume, and in which pass. */
static int progress_requested_point(const struct progress *progress,
                                    const struct progress_rank *rank,
                                    const struct resume_request *request, bool *ret_turns,
                                    struct progress_point *ret, struct dl_error *err)
{
    const struct progress_round *latest = progress_latest(progress);
    bool is_new = rank->entered == PROGRESS_NO_ROUND;
    uint64_t pass = is_new ? latest->begin.pass : rank->behind.pass;

    if (!progress_point_after(ret, pass, request->epoch, &request->before, latest->world,
                              request->step))
        return dl_error_set(err, EINVAL, "before",
                            "the world has changed %" PRIu64 " times in this epoch, the most "
                            "that can be recorded; start the next epoch",
                            DL_MAX_HISTORY);
    if (!is_new && progress_is_again(progress, rank, ret)) {
        ret->pass++;
        return 0;
    }
    bool goes_there = progress_goes_there(rank, request, ret);
    progress_follow_others(&latest->begin, goes_there, ret);
    if (goes_there)
        ret->pass += progress_is_behind_other_world(progress, ret);
    *ret_turns = !is_new && ret->pass > pass;
    return 0;
}

/* A rank that is new here begins where the first round that it has a place in began. */
static int progress_find_beginning(const struct progress *progress,
                                   const struct resume_request *request, struct progress_point *ret,
                                   struct dl_error *err)
{
    char text[PROGRESS_TEXT_MAX];

    const struct progress_round *round = progress_first(progress);
    assert(round); /* the latest one at least */
    *ret = round->begin;
    if (request->epoch == RESUME_ANYWHERE || request->epoch == ret->epoch)
        return 0;
    /* All ranks read the same epoch again and again, and have finished it once more. */
    if (ret->pass > 0 && request->epoch + 1 == ret->epoch && ret->history.n == 0) {
        *ret = (struct progress_point){.pass = ret->pass + 1, .epoch = request->epoch};
        return 0;
    }
    progress_point_text(ret, text);
    return dl_error_set(err, EINVAL, "epoch",
                        "%" PRIu64 " was requested, but the other nodes are in %s; request that "
                        "one, or the position of the others (DL_RESUME)",
                        request->epoch, text);
}

/* Whether a rank of that world gets from one point to the other: if they are in the same epoch and
 * pass, all before that world must be the same. */
static bool progress_leads_on(const struct progress_point *from, const struct progress_point *to,
                              uint64_t world)
{
    struct history a, b;

    if (to->pass != from->pass || to->epoch != from->epoch)
        return true;
    (void)progress_point_split(from, world, &a);
    (void)progress_point_split(to, world, &b);
    return history_equal(&a, &b);
}

/* It says no more of its place than that it begins. One that was in a world before is at the
 * beginning, and has missed nothing of the epoch; but where the epoch is read again and again, it
 * has had all of it, unless the others have hardly begun.
 */
static bool progress_is_beginning(const struct resume_request *request,
                                  const struct progress_round *latest)
{
    const struct history *others = &latest->begin.history;
    bool is_first = request->before.n == 0 && request->step == 0;
    bool have_begun = others->n > 1 || (others->n == 1 && others->stretches[0].steps > 1);

    return request->epoch == RESUME_ANYWHERE ||
           (is_first && (request->former.world == 0 || (latest->begin.pass > 0 && have_begun)));
}

/* Steps of the world that it was in which a rank at that point has not had, and will not have: up
 * to where the others went on without it. What they did then was theirs. */
static uint64_t progress_lost(const struct progress *progress, const struct progress_point *point,
                              uint64_t world)
{
    struct history before;
    uint64_t step = progress_point_split(point, world, &before), lost = UINT64_MAX;

    for (uint32_t i = 0; i < progress->n; i++) {
        const struct progress_point *begin = &progress->rounds[i].begin;
        struct history path = begin->history;

        if (!progress->rounds[i].known || begin->pass != point->pass ||
            begin->epoch != point->epoch || path.n <= before.n)
            continue;
        path.n = before.n;
        bool same =
            history_equal(&path, &before) && begin->history.stretches[before.n].world == world;
        uint64_t end = same ? begin->history.stretches[before.n].steps : 0;
        lost = min_u64(lost, end > step ? end - step : 0);
    }
    return lost;
}

/* The world that it was in last, as its client says or as is known here. */
static uint64_t progress_former_world(const struct progress *progress,
                                      const struct progress_rank *rank,
                                      const struct resume_request *request)
{
    const struct progress_round *entered = progress_find(progress, rank->entered);

    return entered && entered->world > 0 ? entered->world : request->former.world;
}

int progress_resume(const struct progress *progress, const struct progress_rank *rank,
                    const struct resume_request *request, struct resume_place *ret,
                    struct dl_error *err)
{
    const struct progress_round *latest = progress_latest(progress);
    struct progress_round round = {0};
    bool is_new = rank->entered == PROGRESS_NO_ROUND, anywhere = request->epoch == RESUME_ANYWHERE;
    bool turns = false;
    struct progress_point point = {0}, from = {0};
    uint64_t lost = 0;
    int r;

    assert(latest && latest->world > 0);
    if (is_new && progress_is_beginning(request, latest)) {
        r = progress_find_beginning(progress, request, &point, err);
    } else {
        point = rank->behind;
        r = anywhere ? 0 : progress_requested_point(progress, rank, request, &turns, &point, err);
    }
    if (r < 0)
        return r;
    if (!progress_round_at(progress, &point, &round) ||
        (round.world == 0 && !progress_take_former(progress, request, &point, &round)) ||
        (is_new && !progress_leads_on(&round.begin, &point, round.world))) {
        from = point;
        lost = progress_lost(progress, &from, progress_former_world(progress, rank, request));
        round = *latest;
        point = latest->begin;
    }
    *ret = (struct resume_place){.round = round.number,
                                 .first = round.first,
                                 .world = round.world,
                                 .pass = point.pass,
                                 .epoch = point.epoch,
                                 .turns = turns && lost == 0,
                                 .lost = lost,
                                 .from = from};
    assert(round.known && round.world > 0);
    ret->step = progress_point_split(&point, round.world, &ret->before);
    ret->limit =
        progress_limit(progress, round.number, round.world, point.pass, point.epoch, &ret->before);
    return 0;
}

bool progress_begin_as_before(const struct resume_request *request, uint64_t first, uint64_t world,
                              struct progress_point *ret)
{
    if (request->epoch == RESUME_ANYWHERE || request->former.world != world ||
        request->former.rank != first + request->local)
        return false;
    const struct progress_point at = {.history = request->before};
    *ret = (struct progress_point){.epoch = request->epoch};
    (void)progress_point_split(&at, world, &ret->history);
    return true;
}

/* ---- what nodes report ---------------------------------------------------------------------- */

static int progress_refuse_unrelated(const struct node_report *a, const struct node_report *b,
                                     struct dl_error *err)
{
    char first[PROGRESS_TEXT_MAX], second[PROGRESS_TEXT_MAX];

    progress_point_text(&a->report->point, first);
    progress_point_text(&b->report->point, second);
    return dl_error_set(err, EINVAL, "before",
                        "node %s is at %s, and node %s at %s, which do not belong to one "
                        "history; start all ranks from one state",
                        a->node, first, b->node, second);
}

int progress_merge(const struct node_report *reports, uint32_t n, struct progress_point *ret,
                   struct dl_error *err)
{
    const struct node_report *furthest = NULL;
    uint64_t last = PROGRESS_NO_ROUND;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t known = reports[i].report->last;

        if (known != PROGRESS_NO_ROUND && (last == PROGRESS_NO_ROUND || known > last))
            last = known;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct progress_report *report = reports[i].report;
        enum progress_order order;

        if (!report->has_point || report->last != last)
            continue;
        order =
            furthest ? progress_compare(&report->point, &furthest->report->point) : PROGRESS_AFTER;
        if (order == PROGRESS_UNRELATED)
            return progress_refuse_unrelated(furthest, &reports[i], err);
        if (order == PROGRESS_AFTER)
            furthest = &reports[i];
    }
    if (!furthest)
        return 1;
    assert(furthest->report->has_point && furthest->report->last == last);
    *ret = furthest->report->point;
    return 0;
}
