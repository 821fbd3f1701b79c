#include "daemon/serve/core/roll.h"

#include "daemon/serve/base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MARK_BITS = 2, MARKS = 4, MARK_MASK = 3 }; /* MARKS of MARK_BITS in a byte */

struct roll *roll_new(uint64_t world)
{
    struct roll *roll = must_alloc(sizeof *roll + world / MARKS + 1);

    roll->world = roll->awaited = world;
    return roll;
}

enum roll_mark roll_of(const struct roll *roll, uint64_t rank)
{
    assert(rank < roll->world);
    return (enum roll_mark)(roll->marks[rank / MARKS] >> rank % MARKS * MARK_BITS & MARK_MASK);
}

static void roll_set(struct roll *roll, uint64_t rank, enum roll_mark mark)
{
    enum roll_mark old = roll_of(roll, rank);
    uint64_t shift = rank % MARKS * MARK_BITS;
    uint8_t *byte = &roll->marks[rank / MARKS];

    roll->awaited -= old == ROLL_AWAITED;
    roll->done -= old == ROLL_DONE;
    roll->done += mark == ROLL_DONE;
    *byte = (uint8_t)((*byte & ~(MARK_MASK << shift)) | (unsigned)mark << shift);
}

void roll_come(struct roll *roll, uint64_t rank)
{
    roll_set(roll, rank, ROLL_EXCUSED);
}

void roll_excuse(struct roll *roll, uint64_t rank)
{
    if (roll_of(roll, rank) == ROLL_AWAITED)
        roll_set(roll, rank, ROLL_EXCUSED);
}

void roll_excuse_all(struct roll *roll)
{
    for (uint64_t rank = 0; roll->awaited > 0; rank++)
        roll_excuse(roll, rank);
}

void roll_done(struct roll *roll, uint64_t rank)
{
    roll_set(roll, rank, ROLL_DONE);
}

void roll_learn_done(struct roll *roll, const struct roll *other)
{
    for (uint64_t rank = 0; rank < roll->world; rank++)
        if (roll_of(other, rank) == ROLL_DONE)
            roll_done(roll, rank);
}

void roll_learn(struct roll *roll, const struct roll *other)
{
    roll_learn_done(roll, other);
    for (uint64_t rank = 0; rank < roll->world; rank++)
        if (roll_of(other, rank) == ROLL_EXCUSED)
            roll_excuse(roll, rank);
}

uint64_t roll_first_awaited(const struct roll *roll)
{
    for (uint64_t rank = 0; roll->awaited > 0 && rank < roll->world; rank++)
        if (roll_of(roll, rank) == ROLL_AWAITED)
            return rank;
    return UINT64_MAX;
}

bool roll_same_epoch(const struct stream_params *a, const struct stream_params *b)
{
    return a->epoch == b->epoch && a->world == b->world && strcmp(a->job, b->job) == 0 &&
           history_equal(&a->before, &b->before);
}

/* ---- epochs that all have left -------------------------------------------------------------- */

void roll_book_deinit(struct roll_book *book)
{
    for (uint32_t i = 0; i < book->n; i++)
        free(book->kept[i].roll);
    *book = (struct roll_book){0};
}

/* Takes it out; NULL: nothing is known of the epoch. */
static struct roll *roll_book_take(struct roll_book *book, const struct stream_params *epoch)
{
    for (uint32_t i = 0; i < book->n; i++) {
        struct roll *roll = book->kept[i].roll;

        if (!roll_same_epoch(&book->kept[i].epoch, epoch))
            continue;
        book->n--;
        memmove(&book->kept[i], &book->kept[i + 1], (book->n - i) * sizeof book->kept[0]);
        return roll;
    }
    return NULL;
}

static void roll_book_put(struct roll_book *book, const struct stream_params *epoch,
                          struct roll *roll)
{
    if (book->n == ROLLS_KEPT)
        free(roll_book_take(book, &book->kept[0].epoch));
    book->kept[book->n].epoch = *epoch;
    book->kept[book->n++].roll = roll;
}

void roll_book_keep(struct roll_book *book, const struct stream_params *epoch, struct roll *roll)
{
    _cleanup_free_ struct roll *mine = roll;
    _cleanup_free_ struct roll *known = roll_book_take(book, epoch);

    if (known)
        roll_learn_done(mine, known);
    if (mine->done > 0 && mine->done < mine->world)
        roll_book_put(book, epoch, steal_ptr(mine));
}

const struct roll *roll_book_come(struct roll_book *book, const struct stream_params *rank)
{
    struct roll *known = roll_book_take(book, rank);

    if (known && roll_of(known, rank->rank) == ROLL_DONE) { /* another pass begins */
        free(known);
        return NULL;
    }
    if (known)
        roll_book_put(book, rank, known);
    return known;
}
