#include "daemon/serve/loader/headspace.h"

#include "daemon/base/memory.h"
#include "proto/common/figures.h"
#include "proto/shared/words.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* A hold lasts at most as long as HOLD_BATCHES batches at the former pace; a burst ends after
 * IDLE_STEPS steps without progress. */
enum { HOLD_BATCHES = 32, IDLE_STEPS = 4, LATE_STEPS = 4 };

/* Batches that a client may keep while it waits for more: the last one, and a few prepared
 * ahead. */
enum { FLOOR_MAX = 4 };

#define HOLD_LEAST_NS (2 * HEADSPACE_S)
#define IDLE_LEAST_NS (HEADSPACE_S / 5)

/* `n` steps of equal length, and the wait that their client reported then, perhaps for earlier
 * steps. */
struct pace {
    double ns;
    double waited_ns;
    uint32_t n;
};

struct steps {
    struct pace *paces; /* owned */
    size_t n_paces, cap;
    uint64_t n;
    double ns, waited_ns; /* of them all */
};

struct track {
    uint64_t key;
    uint64_t last_ns;   /* it released last, in this stretch; 0: it has not */
    uint64_t waited_ns; /* since then */
    uint32_t floor;     /* batches that its client keeps while it waits, as far as is known */
    bool still;         /* it has made no progress while others did */
    bool bursting;      /* the burst is for it, too */
    uint32_t ahead;     /* when that began */
};

struct headspace {
    enum headspace_phase phase;
    uint64_t since_ns; /* that phase */
    uint64_t moved_ns; /* a batch was given back, or the phase began */
    bool moved;        /* the former, in this phase */
    bool resting;      /* APART until that is so */
    uint32_t wanted;   /* steps of each rank */
    uint32_t ranks;    /* most that were seen at once */
    struct track *tracks;
    size_t n_tracks, cap_tracks;
    struct steps as_is, perfect;
    uint64_t before; /* perfect.n when the burst began */
    uint32_t bursts, barren;
    uint64_t aheads, ahead; /* of all bursts: how many ranks', and what they had */
    struct dl_error why;    /* why there is no result */
};

struct headspace *headspace_new(uint32_t steps, uint64_t now)
{
    struct headspace *h = must_alloc(sizeof *h);

    h->wanted = (uint32_t)min_u64(max_u64(steps, 1), HEADSPACE_STEPS_MAX);
    h->since_ns = h->moved_ns = now;
    return h;
}

struct headspace *headspace_free(struct headspace *h)
{
    if (!h)
        return NULL;
    free(h->as_is.paces);
    free(h->perfect.paces);
    free(h->tracks);
    free(h);
    return NULL;
}

enum headspace_phase headspace_phase(const struct headspace *h)
{
    return h->phase;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void headspace_add(struct steps *steps, const struct pace *pace)
{
    must_reserve(steps->paces, steps->cap, steps->n_paces + 1);
    steps->paces[steps->n_paces++] = *pace;
    steps->n += pace->n;
    steps->ns += pace->ns * pace->n;
    steps->waited_ns += pace->waited_ns * pace->n;
}

static void headspace_note_pace(struct steps *steps, uint64_t ns, uint64_t waited_ns, uint32_t n)
{
    if (steps->n_paces < HEADSPACE_PACES_MAX)
        headspace_add(steps, &(struct pace){(double)ns / n, (double)waited_ns / n, n});
}

static uint64_t headspace_mean(const struct steps *steps)
{
    return steps->n ? (uint64_t)(steps->ns / (double)steps->n) : 0;
}

static struct track *headspace_find(struct headspace *h, uint64_t key)
{
    for (size_t i = 0; i < h->n_tracks; i++)
        if (h->tracks[i].key == key)
            return &h->tracks[i];
    return NULL;
}

static struct track *headspace_find_or_add(struct headspace *h, uint64_t key)
{
    struct track *track = headspace_find(h, key);

    if (track)
        return track;
    must_reserve(h->tracks, h->cap_tracks, h->n_tracks + 1);
    h->tracks[h->n_tracks] = (struct track){.key = key};
    return &h->tracks[h->n_tracks++];
}

static const struct headspace_rank *headspace_rank_of(const struct headspace_now *now, uint64_t key)
{
    for (size_t i = 0; i < now->n_ranks; i++)
        if (now->ranks[i].key == key)
            return &now->ranks[i];
    return NULL;
}

/* Streams that are gone do not come back. */
static void headspace_forget_gone(struct headspace *h, const struct headspace_now *now)
{
    size_t n = 0;

    for (size_t i = 0; i < h->n_tracks; i++)
        if (headspace_rank_of(now, h->tracks[i].key))
            h->tracks[n++] = h->tracks[i];
    h->n_tracks = n;
}

/* A burst ends after this much time without progress; a longer step is not counted: the trainer may
 * be saving its state. */
static uint64_t headspace_idle_limit(const struct headspace *h)
{
    return min_u64(max_u64(IDLE_STEPS * headspace_mean(&h->as_is), IDLE_LEAST_NS),
                   HEADSPACE_IDLE_NS);
}

void headspace_returned(struct headspace *h, uint64_t key, uint32_t n, uint64_t waited_ns,
                        uint64_t now)
{
    struct track *track = headspace_find_or_add(h, key);
    uint64_t last = track->last_ns, waited = track->waited_ns + waited_ns;

    track->waited_ns = n == 0 && last > 0 ? waited : 0;
    if (n == 0)
        return;
    track->last_ns = now;
    track->still = false;
    h->moved_ns = max_u64(h->moved_ns, now);
    h->moved = true;
    if (last == 0)
        return;
    if (h->phase == HEADSPACE_WATCH)
        headspace_note_pace(&h->as_is, now - min_u64(last, now), waited, n);
    else if (h->phase == HEADSPACE_BURST && track->bursting &&
             (now - min_u64(last, now)) / n <= headspace_idle_limit(h))
        headspace_note_pace(&h->perfect, now - min_u64(last, now), waited, n);
}

/* Before a burst, trainers also wait for batches, which is not a pause; those that pin batches
 * report it some steps later. */
static bool headspace_is_pause(const struct steps *steps, size_t at, uint64_t limit)
{
    const struct pace *pace = &steps->paces[at];
    double waited = 0;

    for (size_t i = at; i < steps->n_paces && i <= at + LATE_STEPS; i++)
        waited += steps->paces[i].waited_ns * steps->paces[i].n;
    return pace->ns - waited / pace->n > (double)limit;
}

static void headspace_drop_pauses(struct headspace *h)
{
    struct steps all = h->as_is;
    uint64_t limit = headspace_idle_limit(h);

    h->as_is = (struct steps){0};
    for (size_t i = 0; i < all.n_paces; i++)
        if (!headspace_is_pause(&all, i, limit))
            headspace_add(&h->as_is, &all.paces[i]);
    free(all.paces);
}

/* ---- phases --------------------------------------------------------------------------------- */

static void headspace_go(struct headspace *h, enum headspace_phase phase, uint64_t now)
{
    h->phase = phase;
    h->since_ns = h->moved_ns = now;
    h->moved = h->resting = false;
    for (size_t i = 0; i < h->n_tracks; i++) {
        h->tracks[i].last_ns = h->tracks[i].waited_ns = 0;
        h->tracks[i].bursting = false;
    }
}

_printf_(4, 5) static void fail(struct headspace *h, uint64_t now, int code, const char *format,
                                ...)
{
    char text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dl_error_set(&h->why, code, "headspace", "%s", text);
    headspace_go(h, HEADSPACE_ENDED, now);
}

static uint64_t headspace_wanted(const struct headspace *h)
{
    return min_u64((uint64_t)h->wanted * h->ranks, HEADSPACE_PACES_MAX);
}

/* No reader is left: reports what was measured, if it suffices. */
static void headspace_finish(struct headspace *h, uint64_t now)
{
    if (h->perfect.n >= min_u64(HEADSPACE_FEW, headspace_wanted(h)))
        headspace_go(h, HEADSPACE_ENDED, now);
    else
        fail(h, now, ENODATA,
             "only %llu steps were measured before its last reader ended; measure while a "
             "trainer is in the middle of an epoch",
             (ull)h->perfect.n);
}

static void headspace_look_watch(struct headspace *h, const struct headspace_now *now)
{
    uint64_t lasted = now->ns - min_u64(h->since_ns, now->ns);
    bool enough = h->as_is.n >= headspace_wanted(h) ||
                  (lasted >= HEADSPACE_WATCH_NS && h->as_is.n >= HEADSPACE_FEW);

    if (h->ranks == 0) {
        fail(h, now->ns, ENODATA, "no trainer reads it; measure while one does");
    } else if (now->n_ranks == 0 && now->ns - min_u64(h->moved_ns, now->ns) >= HEADSPACE_APART_NS) {
        headspace_finish(h, now->ns);
    } else if (now->n_ranks > 0 && enough) {
        headspace_drop_pauses(h);
        headspace_go(h, HEADSPACE_HOLD, now->ns);
    } else if (lasted >= HEADSPACE_STALL_NS && h->as_is.n < HEADSPACE_FEW) {
        fail(h, now->ns, ETIME,
             "its trainer released fewer than %d batches in %llu s; measure while it trains",
             HEADSPACE_FEW, (ull)(HEADSPACE_STALL_NS / HEADSPACE_S));
    }
}

/* Batches that the rank would have in a burst. */
static uint32_t headspace_ahead_of(struct headspace *h, const struct headspace_rank *rank)
{
    const struct track *track = headspace_find(h, rank->key);
    uint32_t all = rank->leased + rank->ready, floor = track ? track->floor : 0;

    return all - (uint32_t)min_u64(all, floor);
}

static uint32_t headspace_most_ahead(struct headspace *h, const struct headspace_now *now)
{
    uint32_t most = 0;

    for (size_t i = 0; i < now->n_ranks; i++)
        most = (uint32_t)max_u64(most, headspace_ahead_of(h, &now->ranks[i]));
    return most;
}

/* They may have been wrong, and must not be the reason to give up. */
static uint32_t headspace_forget_floors(struct headspace *h, const struct headspace_now *now)
{
    for (size_t i = 0; i < h->n_tracks; i++)
        h->tracks[i].floor = 0;
    return headspace_most_ahead(h, now);
}

static bool headspace_all_ending(const struct headspace_now *now)
{
    for (size_t i = 0; i < now->n_ranks; i++)
        if (!now->ranks[i].ending)
            return false;
    return true;
}

static void headspace_begin_burst(struct headspace *h, const struct headspace_now *now)
{
    headspace_go(h, HEADSPACE_BURST, now->ns);
    h->before = h->perfect.n;
    h->bursts++;
    for (size_t i = 0; i < now->n_ranks; i++) {
        uint32_t ahead = headspace_ahead_of(h, &now->ranks[i]);
        struct track *track = headspace_find_or_add(h, now->ranks[i].key);

        track->bursting = ahead >= HEADSPACE_LEAST && !track->still;
        track->ahead = ahead;
        h->aheads += track->bursting;
        h->ahead += track->bursting ? ahead : 0;
    }
}

/* The readers hold no more batches, and can get no more. */
static void headspace_give_up(struct headspace *h, const struct headspace_now *now, uint32_t most,
                              uint64_t limit)
{
    char may[UNITS_MAX];

    format_seconds((double)limit / 1e9, may, sizeof may);
    if (now->full && now->starving)
        fail(h, now->ns, ENOBUFS,
             "only %u batches can be loaded ahead, and %d are needed: %s leaves no room; raise "
             "it",
             most, HEADSPACE_LEAST, now->starving);
    else if (now->full)
        fail(h, now->ns, ENOBUFS,
             "only %u batches are loaded ahead, and %d are needed; raise workers.prefetch, or "
             "the trainer's credits",
             most, HEADSPACE_LEAST);
    else
        fail(h, now->ns, ETIMEDOUT,
             "only %u batches were loaded in the %s for which they may be held back, and %d "
             "are needed: the loader is too slow to measure",
             most, may, HEADSPACE_LEAST);
}

static void headspace_look_hold(struct headspace *h, const struct headspace_now *now)
{
    uint64_t limit = min_u64(max_u64(HOLD_BATCHES * headspace_mean(&h->as_is), HOLD_LEAST_NS),
                             HEADSPACE_HOLD_NS);
    bool over = now->full || now->ns - min_u64(h->since_ns, now->ns) >= limit;
    uint32_t most = headspace_most_ahead(h, now);

    if (over && most < HEADSPACE_LEAST)
        most = headspace_forget_floors(h, now);
    if (now->n_ranks == 0 || (over && most < HEADSPACE_LEAST && headspace_all_ending(now)))
        headspace_go(h, HEADSPACE_APART, now->ns);
    else if (over && most >= HEADSPACE_LEAST)
        headspace_begin_burst(h, now);
    else if (over)
        headspace_give_up(h, now, most, limit);
}

static bool headspace_has_more(const struct track *track, const struct headspace_now *now)
{
    const struct headspace_rank *rank = headspace_rank_of(now, track->key);

    return track->bursting && rank && (rank->ready > 0 || rank->leased > track->floor);
}

/*
 * A client that makes no progress with its batches keeps them while it waits for more, so the next
 * burst need not wait for them. As it may be busy otherwise, only a few are assumed. One that has
 * not begun while others progress is not waited for until it does.
 */
static void headspace_learn(struct headspace *h, const struct headspace_now *now)
{
    for (size_t i = 0; i < h->n_tracks; i++) {
        struct track *track = &h->tracks[i];

        if (!headspace_has_more(track, now))
            continue;
        track->still = track->last_ns == 0;
        if (!track->still)
            track->floor = (uint32_t)min_u64(headspace_rank_of(now, track->key)->leased,
                                             min_u64(track->ahead - HEADSPACE_LEAST, FLOOR_MAX));
    }
}

/* A client with fewer batches does not keep that many. */
static void headspace_unlearn_floors(struct headspace *h, const struct headspace_now *now)
{
    for (size_t i = 0; i < h->n_tracks; i++) {
        const struct headspace_rank *rank = headspace_rank_of(now, h->tracks[i].key);

        if (rank)
            h->tracks[i].floor = (uint32_t)min_u64(h->tracks[i].floor, rank->leased);
    }
}

static void headspace_end_burst(struct headspace *h, const struct headspace_now *now)
{
    bool moved = h->moved, more = now->n_ranks > 0 && !headspace_all_ending(now);

    h->barren = h->perfect.n > h->before ? 0 : h->barren + 1;
    if (moved)
        headspace_learn(h, now);
    if (h->perfect.n >= headspace_wanted(h)) {
        headspace_go(h, HEADSPACE_ENDED, now->ns);
    } else if (h->barren == HEADSPACE_BARREN) {
        fail(h, now->ns, ETIME, "its trainer releases batches too irregularly to measure");
    } else {
        headspace_go(h, moved && more ? HEADSPACE_HOLD : HEADSPACE_APART, now->ns);
        h->resting = !moved;
    }
}

static void headspace_look_burst(struct headspace *h, const struct headspace_now *now)
{
    bool any = false;

    for (size_t i = 0; i < h->n_tracks && !any; i++)
        any = headspace_has_more(&h->tracks[i], now);
    if (!any || now->ns - min_u64(h->moved_ns, now->ns) >= headspace_idle_limit(h))
        headspace_end_burst(h, now);
}

static void headspace_look_apart(struct headspace *h, const struct headspace_now *now)
{
    if (now->n_ranks > 0 && !headspace_all_ending(now) && (h->moved || !h->resting))
        headspace_go(h, HEADSPACE_HOLD, now->ns);
    else if (now->ns - min_u64(h->since_ns, now->ns) >= HEADSPACE_APART_NS)
        headspace_finish(h, now->ns);
}

bool headspace_look(struct headspace *h, const struct headspace_now *now)
{
    enum headspace_phase before = h->phase;

    h->ranks = (uint32_t)max_u64(h->ranks, now->n_ranks);
    headspace_unlearn_floors(h, now);
    switch (h->phase) {
    case HEADSPACE_WATCH:
        headspace_look_watch(h, now);
        break;
    case HEADSPACE_HOLD:
        headspace_look_hold(h, now);
        break;
    case HEADSPACE_BURST:
        headspace_look_burst(h, now);
        break;
    case HEADSPACE_APART:
        headspace_look_apart(h, now);
        break;
    case HEADSPACE_ENDED:
        break;
    }
    headspace_forget_gone(h, now);
    return h->phase != before;
}

/* ---- the result ----------------------------------------------------------------------------- */

static int headspace_compare_paces(const void *a, const void *b)
{
    double x = ((const struct pace *)a)->ns, y = ((const struct pace *)b)->ns;

    return (x > y) - (x < y);
}

static struct headspace_spread headspace_spread_of(struct steps *steps)
{
    struct headspace_spread spread = {.mean_ns = steps->ns / (double)max_u64(steps->n, 1)};
    uint64_t below = 0;
    size_t at = 0;

    if (steps->n_paces == 0)
        return spread;
    qsort(steps->paces, steps->n_paces, sizeof *steps->paces, headspace_compare_paces);
    for (unsigned quarter = 1; quarter <= 3; quarter++) {
        while (at < steps->n_paces - 1 && 4 * (below + steps->paces[at].n) < quarter * steps->n)
            below += steps->paces[at++].n;
        spread.quartile_ns[quarter - 1] = steps->paces[at].ns;
    }
    return spread;
}

int headspace_result(struct headspace *h, struct headspace_result *ret, struct dl_error *err)
{
    double worked = h->as_is.ns - fmin(h->as_is.waited_ns, h->as_is.ns);

    if (h->why.code) {
        *err = h->why;
        return -err->code;
    }
    *ret = (struct headspace_result){.steps = h->perfect.n,
                                     .watched = h->as_is.n,
                                     .ranks = h->ranks,
                                     .bursts = h->bursts,
                                     .ahead = (double)h->ahead / (double)max_u64(h->aheads, 1),
                                     .as_is = headspace_spread_of(&h->as_is),
                                     .perfect = headspace_spread_of(&h->perfect)};
    /* A client that says it did nothing but wait is not believed to the last percent. */
    ret->by_waiting = h->as_is.ns > 0 ? h->as_is.ns / fmax(worked, h->as_is.ns / 1000) : 1;
    ret->speedup = ret->as_is.mean_ns / fmax(ret->perfect.mean_ns, 1);
    return 0;
}

void headspace_words(const struct headspace_result *result, char text[static HEADSPACE_WORDS])
{
    char as_is[32], perfect[32], times[16];

    format_seconds(result->as_is.mean_ns / 1e9, as_is, sizeof as_is);
    format_seconds(result->perfect.mean_ns / 1e9, perfect, sizeof perfect);
    words_times(result->speedup, times, sizeof times);
    if (result->speedup < 1.02)
        (void)snprintf(text, HEADSPACE_WORDS,
                       "a perfect loader would make this trainer no faster: %s a step, and %s now",
                       perfect, as_is);
    else
        (void)snprintf(text, HEADSPACE_WORDS,
                       "a perfect loader would make this trainer %s times as fast: %s a step "
                       "instead of %s",
                       times, perfect, as_is);
}
