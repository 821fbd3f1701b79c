#include "daemon/serve/core/roster.h"

#include "daemon/base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MARK_BITS = 2, MARKS = 4, MARK_MASK = 3 }; /* MARKS of MARK_BITS in a byte */

static uint64_t roster_bytes_for(uint64_t world)
{
    return sizeof(struct roster) + world / MARKS + 1;
}

struct roster *roster_new(uint64_t world)
{
    struct roster *roster = must_alloc(roster_bytes_for(world));

    roster->world = roster->awaited = world;
    return roster;
}

uint64_t roster_bytes(const struct roster *roster)
{
    return roster_bytes_for(roster->world);
}

enum roster_mark roster_of(const struct roster *roster, uint64_t rank)
{
    if (roster->world == 0)
        return ROSTER_EXCUSED;
    assert(rank < roster->world);
    return (enum roster_mark)(roster->marks[rank / MARKS] >> rank % MARKS * MARK_BITS & MARK_MASK);
}

static void roster_set(struct roster *roster, uint64_t rank, enum roster_mark mark)
{
    enum roster_mark old = roster_of(roster, rank);
    uint64_t shift = rank % MARKS * MARK_BITS;

    if (roster->world == 0)
        return;
    uint8_t *byte = &roster->marks[rank / MARKS];

    roster->awaited -= old == ROSTER_AWAITED;
    roster->done -= old == ROSTER_DONE;
    roster->done += mark == ROSTER_DONE;
    *byte = (uint8_t)((*byte & ~(MARK_MASK << shift)) | (unsigned)mark << shift);
}

void roster_come(struct roster *roster, uint64_t rank)
{
    roster_set(roster, rank, ROSTER_EXCUSED);
}

void roster_excuse(struct roster *roster, uint64_t rank)
{
    if (roster_of(roster, rank) == ROSTER_AWAITED)
        roster_set(roster, rank, ROSTER_EXCUSED);
}

void roster_excuse_all(struct roster *roster)
{
    for (uint64_t rank = 0; roster->awaited > 0; rank++)
        roster_excuse(roster, rank);
}

void roster_done(struct roster *roster, uint64_t rank)
{
    roster_set(roster, rank, ROSTER_DONE);
}

void roster_learn_done(struct roster *roster, const struct roster *other)
{
    for (uint64_t rank = 0; rank < roster->world; rank++)
        if (roster_of(other, rank) == ROSTER_DONE)
            roster_done(roster, rank);
}

void roster_learn(struct roster *roster, const struct roster *other)
{
    roster_learn_done(roster, other);
    for (uint64_t rank = 0; rank < roster->world; rank++)
        if (roster_of(other, rank) == ROSTER_EXCUSED)
            roster_excuse(roster, rank);
}

uint64_t roster_first_awaited(const struct roster *roster)
{
    for (uint64_t rank = 0; roster->awaited > 0 && rank < roster->world; rank++)
        if (roster_of(roster, rank) == ROSTER_AWAITED)
            return rank;
    return UINT64_MAX;
}

bool roster_same_members(const struct stream_params *a, const struct stream_params *b)
{
    if (a->companion || b->companion)
        return a->companion == b->companion && a->world == b->world && a->rank == b->rank;
    return a->world == b->world && a->sharers == b->sharers &&
           (!a->sharers || a->rank == b->rank) && strcmp(a->job, b->job) == 0;
}

bool roster_same_epoch(const struct stream_params *a, const struct stream_params *b)
{
    return a->epoch == b->epoch && roster_same_members(a, b) &&
           history_equal(&a->before, &b->before);
}

/* ---- epochs that all have left -------------------------------------------------------------- */

void roster_book_deinit(struct roster_book *book)
{
    for (uint32_t i = 0; i < book->n; i++)
        free(book->entries[i].roster);
    *book = (struct roster_book){0};
}

/* Takes it out; NULL: nothing is known of the epoch. */
static struct roster *roster_book_take(struct roster_book *book, const struct stream_params *epoch)
{
    for (uint32_t i = 0; i < book->n; i++) {
        struct roster *roster = book->entries[i].roster;

        if (!roster_same_epoch(&book->entries[i].epoch, epoch))
            continue;
        book->n--;
        book->bytes -= roster_bytes(roster);
        memmove(&book->entries[i], &book->entries[i + 1], (book->n - i) * sizeof book->entries[0]);
        return roster;
    }
    return NULL;
}

static void roster_book_put(struct roster_book *book, const struct stream_params *epoch,
                            struct roster *roster)
{
    if (book->n == ROSTERS_MAX)
        (void)roster_book_forget(book);
    book->bytes += roster_bytes(roster);
    book->entries[book->n].epoch = *epoch;
    book->entries[book->n++].roster = roster;
}

bool roster_book_forget(struct roster_book *book)
{
    if (book->n == 0)
        return false;
    free(roster_book_take(book, &book->entries[0].epoch));
    return true;
}

void roster_book_keep(struct roster_book *book, const struct stream_params *epoch,
                      struct roster *roster)
{
    _cleanup_free_ struct roster *mine = roster;
    _cleanup_free_ struct roster *known = roster_book_take(book, epoch);

    if (known)
        roster_learn_done(mine, known);
    if (mine->done > 0 && mine->done < mine->world)
        roster_book_put(book, epoch, steal_ptr(mine));
}

const struct roster *roster_book_come(struct roster_book *book, const struct stream_params *rank)
{
    struct roster *known = roster_book_take(book, rank);

    if (known && roster_of(known, stream_member(rank)) == ROSTER_DONE) { /* another pass begins */
        free(known);
        return NULL;
    }
    if (known)
        roster_book_put(book, rank, known);
    return known;
}
