/*
 * What planning batches of tokens makes: the members of all groups, and where each group stands
 * among them. plan_tokens.h has the words and the rules.
 *
 * The groups are kept in the order in which they were cut; the group of step k is computed on
 * demand, so that shuffling them takes no memory. A group consists of samples, or of rows of
 * samples (`pack`): of *parts*, to say both. Part i belongs to rank i mod world. Where ranks need
 * not have equally many samples, a group consists of *batches* instead, each of which is a stretch
 * of parts: batch i is rank i's.
 */
#ifndef DL_PLAN_GROUPS_H
#define DL_PLAN_GROUPS_H

#include "proto/common/base.h"

struct plan_group {
    uint32_t first; /* part, or batch */
    uint32_t count; /* of these; below world: only in the last group */
};

struct plan_batch {
    uint32_t first; /* part */
    uint32_t count; /* of parts */
};

struct plan_groups {
    uint32_t *members; /* owned; sample indices */
    uint32_t *rows; /* owned; row i is members rows[i]..rows[i + 1] - 1; NULL: a part is a sample */
    size_t n_rows;  /* room for one more, where the last row ends, is kept behind them */
    size_t rows_room;
    struct plan_batch *batches; /* owned; NULL: parts are dealt out one by one */
    size_t n_batches;
    size_t batches_room;
    struct plan_group *groups; /* owned */
    size_t n_groups;
    size_t groups_room;
    /* The groups before the first one that cannot be dealt out evenly, and their parts. */
    size_t n_even;
    uint64_t even_parts;
};

void plan_groups_deinit(struct plan_groups *made);
/* Their memory, for `members` members. */
uint64_t plan_groups_bytes(const struct plan_groups *made, uint64_t members);

/* `first` + `count` ≤ UINT32_MAX. Both return 0 or -ENOMEM. */
int _nodiscard_ plan_groups_add(struct plan_groups *made, uint64_t world, uint64_t first,
                                uint64_t count);
/* The next row, where the last one ends. */
int _nodiscard_ plan_groups_add_row(struct plan_groups *made, uint64_t first, uint64_t end);
/* The next batch; before any group is added. */
int _nodiscard_ plan_groups_add_batch(struct plan_groups *made, uint64_t first, uint64_t count);

/* A rank's parts of a group: first, first + stride, …; count may be 0. */
struct plan_share {
    uint64_t first;
    uint64_t count;
    uint64_t stride;
};
struct plan_share plan_groups_share(const struct plan_groups *made, const struct plan_group *group,
                                    uint64_t world, uint64_t rank, bool even);

/* The members that a part has: *ret_end is behind the last. */
static inline uint64_t plan_groups_part(const struct plan_groups *made, uint64_t part,
                                        uint64_t *ret_end)
{
    *ret_end = made->rows ? made->rows[part + 1] : part + 1;
    return made->rows ? made->rows[part] : part;
}

/* A group's members lie in that many stretches; stretch i ends before *ret_end. */
static inline uint64_t plan_groups_stretches(const struct plan_groups *made,
                                             const struct plan_group *group)
{
    return made->batches ? group->count : 1;
}

static inline uint64_t plan_groups_stretch(const struct plan_groups *made,
                                           const struct plan_group *group, uint64_t i,
                                           uint64_t *ret_end)
{
    uint64_t first = made->batches ? made->batches[group->first + i].first : group->first;
    uint64_t count = made->batches ? made->batches[group->first + i].count : group->count;

    plan_groups_part(made, first + count - 1, ret_end);
    return made->rows ? made->rows[first] : first;
}

/*
 * Sorts values by keys[value], ascending and stable; a key above `limit` counts as `limit`, none
 * may be above `longest` otherwise. `scratch` has room for as many.
 */
struct plan_keys {
    const uint32_t *keys;
    uint32_t limit;
    uint32_t longest;
};
void plan_sort(const struct plan_keys *keys, uint32_t *values, uint32_t *scratch, size_t n);

#endif
