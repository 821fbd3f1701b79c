/* Groups: growing them, dealing them out, and the one way in which lengths are sorted. */
#include "daemon/plan/plan_groups.h"

#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>

void plan_groups_deinit(struct plan_groups *made)
{
    free(made->members);
    free(made->rows);
    free(made->batches);
    free(made->groups);
    *made = (struct plan_groups){0};
}

uint64_t plan_groups_bytes(const struct plan_groups *made, uint64_t members)
{
    return members * sizeof *made->members + made->rows_room * sizeof *made->rows +
           made->batches_room * sizeof *made->batches + made->groups_room * sizeof *made->groups;
}

int plan_groups_add(struct plan_groups *made, uint64_t world, uint64_t first, uint64_t count)
{
    assert(count > 0 && first + count <= UINT32_MAX);

    if (!array_reserve(made->groups, made->groups_room, made->n_groups + 1))
        return -ENOMEM;
    if (!made->batches && made->n_even == made->n_groups && count % world == 0) {
        made->n_even++;
        made->even_parts += count;
    }
    made->groups[made->n_groups++] =
        (struct plan_group){.first = (uint32_t)first, .count = (uint32_t)count};
    return 0;
}

int plan_groups_add_row(struct plan_groups *made, uint64_t first, uint64_t end)
{
    assert(end <= UINT32_MAX && first < end);

    if (!array_reserve(made->rows, made->rows_room, made->n_rows + 2))
        return -ENOMEM;
    assert(made->n_rows == 0 || made->rows[made->n_rows] == first);
    made->rows[made->n_rows++] = (uint32_t)first;
    made->rows[made->n_rows] = (uint32_t)end;
    return 0;
}

int plan_groups_add_batch(struct plan_groups *made, uint64_t first, uint64_t count)
{
    assert(count > 0 && first + count <= UINT32_MAX);

    if (!array_reserve(made->batches, made->batches_room, made->n_batches + 1))
        return -ENOMEM;
    made->batches[made->n_batches++] =
        (struct plan_batch){.first = (uint32_t)first, .count = (uint32_t)count};
    return 0;
}

struct plan_share plan_groups_share(const struct plan_groups *made, const struct plan_group *group,
                                    uint64_t world, uint64_t rank, bool even)
{
    uint64_t count = group->count;
    /* Once more from the start, where every rank has to have something. */
    uint64_t place = group->first + (count < world ? rank % count : rank);
    bool has = count >= world || even || rank < count;

    if (made->batches)
        return (struct plan_share){.first = made->batches[place].first,
                                   .count = has ? made->batches[place].count : 0,
                                   .stride = 1};
    return (struct plan_share){.first = place,
                               .count =
                                   count < world ? has : count / world + (rank < count % world),
                               .stride = world};
}

/* ---- sorting -------------------------------------------------------------------------------- */

/* Below FEW, clearing the counts of a digit would take longer than the sort. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, FEW = 64 };

static inline uint32_t plan_groups_key_of(const struct plan_keys *keys, uint32_t value)
{
    uint32_t key = keys->keys[value];

    return key < keys->limit ? key : keys->limit;
}

static void plan_groups_sort_few(const struct plan_keys *keys, uint32_t *values, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint32_t value = values[i], key = plan_groups_key_of(keys, value);
        size_t j = i;

        for (; j > 0 && plan_groups_key_of(keys, values[j - 1]) > key; j--)
            values[j] = values[j - 1];
        values[j] = value;
    }
}

/* Returns false when all have the same digit, and nothing was written. */
static bool plan_groups_sort_by_digit(const struct plan_keys *keys, unsigned shift,
                                      const uint32_t *from, uint32_t *to, size_t n)
{
    uint32_t counts[DIGITS] = {0};
    uint32_t before = 0;

    for (size_t i = 0; i < n; i++)
        counts[plan_groups_key_of(keys, from[i]) >> shift & (DIGITS - 1)]++;
    if (counts[plan_groups_key_of(keys, from[0]) >> shift & (DIGITS - 1)] == n)
        return false;
    for (size_t digit = 0; digit < DIGITS; digit++) {
        uint32_t count = counts[digit];

        counts[digit] = before;
        before += count;
    }
    for (size_t i = 0; i < n; i++)
        to[counts[plan_groups_key_of(keys, from[i]) >> shift & (DIGITS - 1)]++] = from[i];
    return true;
}

void plan_sort(const struct plan_keys *keys, uint32_t *values, uint32_t *scratch, size_t n)
{
    uint32_t *from = values, *to = scratch;

    if (n < FEW) {
        plan_groups_sort_few(keys, values, n);
        return;
    }
    for (unsigned shift = 0; shift < 32 && keys->longest >> shift > 0; shift += DIGIT_BITS) {
        if (!plan_groups_sort_by_digit(keys, shift, from, to, n))
            continue;
        uint32_t *done = to;
        to = from;
        from = done;
    }
    if (from != values)
        memcpy(values, from, n * sizeof *values);
}
