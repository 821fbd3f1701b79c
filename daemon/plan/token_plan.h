/*
 * The plan of token batches, as plan.c and the strategies see it. plan_tokens.h has the rules;
 * here is what the strategies share: the order to be cut, and how long its samples count.
 */
#ifndef DL_TOKEN_PLAN_H
#define DL_TOKEN_PLAN_H

#include "daemon/plan/permute.h"
#include "daemon/plan/plan_groups.h"
#include "daemon/plan/sampler.h"

/*
 * What is shuffled, so that no two shuffles of an epoch are alike. permute_native's `cycle` is one
 * of these, and a number: of the window, or of the bucket. A sampler's cycles lie below 2^63.
 */
enum token_shuffle { SHUFFLE_GROUPS = 1, SHUFFLE_ROWS, SHUFFLE_BUCKET, SHUFFLE_END };

struct token_bucket {
    uint64_t group;    /* members of a full group */
    uint64_t members;  /* of the order */
    uint64_t carried;  /* that are there at the start of the epoch */
    uint64_t full;     /* of both, in full groups */
    uint64_t first;    /* place of the first of these */
    uint64_t leftover; /* place of the first of the others (emit) */
};

/* The cost of a token, and of a pair of them, as integers, so that a machine's rounding cannot
 * affect the plan. */
struct token_costs {
    uint64_t linear, square;
    unsigned shift; /* of a sum, so that the greatest fits 63 bits */
};

/* For a mixture: which samples belong to which child. */
struct token_children {
    uint32_t n;     /* 0: not a mixture */
    bool by_tokens; /* shares are of tokens */
    uint64_t *ends; /* owned; of their samples, one child's after the other's */
};

/* Of an order that is cut window by window (plan_lazy.h): how far it has come. */
struct token_lazy {
    uint64_t count;        /* positions of the order */
    uint64_t taken;        /* of these, in windows that were cut */
    uint64_t windows;      /* that were cut */
    uint64_t first;        /* member that the next one begins with: what the last one left */
    uint64_t base;         /* rows that other world sizes had before */
    uint64_t start;        /* the first of the rows here that is in a group */
    uint64_t row;          /* the first from there on that is in none yet */
    uint64_t skipped;      /* steps before the first that is here, because of the mark */
    uint64_t steps_before; /* that there were before the last window was cut */
    uint64_t *marks;       /* owned; rows before the first window of each chain, from the mark on */
    size_t n_marks, marks_room;
};

/* With `split`: parts of samples are members as samples are, numbered behind these. */
struct token_part {
    uint32_t sample;
    uint32_t begin; /* token of it */
};

struct token_split {
    uint32_t *lengths; /* owned; of samples of the windows so far, and of parts: params.lengths */
    struct token_part *parts; /* owned; member plan->length + i */
    size_t n_parts, lengths_room, parts_room, members_room;
    const uint32_t *measured; /* borrowed; the lengths of samples */
};

struct token_plan {
    struct plan_tokens params;
    uint32_t limit;   /* plan_tokens_limit() */
    uint32_t longest; /* planned length in the order */
    uint64_t length;  /* of the dataset */
    uint64_t world;   /* at most 2^32: no more samples are ever dealt out */
    uint64_t seed;
    uint64_t epoch;
    struct history before;
    bool even;
    bool shuffled; /* the order is shuffled, and so are the groups */
    bool prepared;
    uint64_t unit; /* groups that stay together: accumulate, or 1 */
    struct token_costs costs;
    uint64_t count; /* of members in the order, the overlong ones left out */
    struct plan_groups made;
    struct token_children children;
    uint32_t *turn; /* owned; the units in the order in which they come, where children's shares say
                       which; else NULL */
    struct token_bucket *buckets; /* owned */
    uint32_t n_buckets;
    struct token_lazy lazy;
    struct token_split split;
    uint64_t most; /* samples in a step of a rank */
    struct plan_totals totals;
};

/* -EINVAL: see struct plan_tokens. `count` is the sampler's. */
int _nodiscard_ token_plan_new(const struct plan_params *params, uint64_t count,
                               struct token_plan **ret);
struct token_plan *token_plan_free(struct token_plan *plan); /* NULL is fine */

int _nodiscard_ token_plan_prepare(struct token_plan *plan, struct sampler *sampler);

/* Memory that it has by now. */
uint64_t token_plan_bytes(const struct token_plan *plan);

uint64_t token_plan_samples(const struct token_plan *plan, uint64_t rank);
uint64_t token_plan_steps(const struct token_plan *plan, uint64_t rank);
size_t token_plan_step(const struct token_plan *plan, uint64_t rank, uint64_t step,
                       uint64_t *indices);
uint64_t token_plan_repeated(const struct token_plan *plan, uint64_t rank, uint64_t step);
struct plan_step_tokens token_plan_step_tokens(const struct token_plan *plan, uint64_t rank,
                                               uint64_t step);
struct plan_step_size token_plan_step_size(const struct token_plan *plan, uint64_t rank,
                                           uint64_t step);
struct plan_step_tokens token_plan_put_planned(const struct token_plan *plan, uint64_t rank,
                                               uint64_t step, struct slot_planned *ret);
void token_plan_step_lengths(const struct token_plan *plan, uint64_t rank, uint64_t step,
                             uint32_t *ret);
const struct plan_totals *token_plan_totals(const struct token_plan *plan);
uint64_t token_plan_most(const struct token_plan *plan);
uint32_t token_plan_buckets(const struct token_plan *plan);
struct plan_bucket token_plan_bucket(const struct token_plan *plan, uint32_t bucket);

/* The group that is that step of all ranks. */
const struct plan_group *token_plan_group(const struct token_plan *plan, uint64_t step);

/* ---- the order: made.members, `count` of them ----------------------------------------------- */

/* Each returns 0 or -ENOMEM. */
int _nodiscard_ token_begin_order(struct token_plan *plan, struct sampler *sampler); /* none yet */
/* The sampler's order without samples that are empty or too long. */
int _nodiscard_ token_take_order(struct token_plan *plan, struct sampler *sampler);
int _nodiscard_ token_leave_out_taken(struct token_plan *plan);    /* what `before` says */
uint32_t *token_copy_members(const uint32_t *members, uint64_t n); /* owned; NULL: out of memory */
/* Positions `first` to `end` of the sampler's order are its next members, after
 * token_begin_order(). */
void token_take_positions(struct token_plan *plan, struct sampler *sampler, uint64_t first,
                          uint64_t end);
/* The same with `split`; 0, or -ENOMEM. Sets aside what it needs when it is first called. */
int _nodiscard_ token_take_parts(struct token_plan *plan, struct sampler *sampler, uint64_t first,
                                 uint64_t end);
/* Cuts the members from `first` on, with `split`, so that they fill rows one after another; 0, or
 * -ENOMEM. */
int _nodiscard_ token_cut_members(struct token_plan *plan, uint64_t first);

/* Cuts it by its strategy, and orders the steps of a mixture. */
int _nodiscard_ token_plan_cut(struct token_plan *plan);

/* plan->turn, of what was cut of `order` (plan_mixed.c). */
int _nodiscard_ token_order_mixed(struct token_plan *plan, const uint32_t *order, uint64_t count);

/* Whole units of groups, without a last group that is too small for all ranks. */
uint64_t token_plan_units(const struct token_plan *plan);

/* ---- the strategies: they cut made.members, which are in the sampler's order --------------------
 */

/*
 * Of an order that carries, made.members, in the midst of an epoch that `first_world` has begun:
 * all members that this epoch has, carried ones first; and what `world` leaves of them for the next
 * epoch. To be called without buckets, and makes them.
 */
struct token_carry {
    uint64_t first_world;
    uint64_t world;
    uint32_t *members; /* owned by the caller; `n` of them */
    uint64_t n;
    uint32_t *tail; /* the caller's: how often each sample is left over is added */
};
int _nodiscard_ token_carry_over(struct token_plan *plan, struct token_carry *carry);

/* Each returns 0 or -ENOMEM, and sees to totals.leftover and totals.carried. */
int _nodiscard_ token_cut_sorted(struct token_plan *plan);
int _nodiscard_ token_cut_buckets(struct token_plan *plan);
int _nodiscard_ token_cut_rows(struct token_plan *plan);
int _nodiscard_ token_cut_in_turn(struct token_plan *plan);

/* ---- window by window (plan_lazy.c) -----------------------------------------------------------
 */

int _nodiscard_ token_lazy_begin(struct token_plan *plan, struct sampler *sampler);
bool token_lazy_takes_mark(const struct plan_tokens *tokens, uint64_t count);
bool token_lazy_is_whole(const struct token_plan *plan);
/* Positions of the next window: how many, from *ret_first on. */
uint64_t token_lazy_window(const struct token_plan *plan, uint64_t *ret_first);
int _nodiscard_ token_lazy_cut(struct token_plan *plan, struct sampler *sampler);
uint64_t token_lazy_row(const struct token_plan *plan, uint64_t step);          /* plan_row() */
struct lazy_mark token_lazy_mark(const struct token_plan *plan, uint64_t step); /* plan_mark() */
uint64_t token_lazy_position(const struct token_plan *plan, uint64_t step); /* plan_position() */

/* Puts the members from *first on into rows, which are added but for the emptiest, unless it is the
 * `last` window: *first is then where that begins. (plan_pack.c) */
int _nodiscard_ token_pack_window(struct token_plan *plan, uint64_t window, uint64_t *first,
                                  bool last);

/* The same with padding, of the other strategies: each row is a batch, and what fills none is left,
 * unless it is the `last` window. (plan_windows.c) */
int _nodiscard_ token_batch_window(struct token_plan *plan, uint64_t window, uint64_t *first,
                                   bool last);

/* What a group adds to the epoch's totals. */
void token_plan_count_group(struct token_plan *plan, const struct plan_group *group);

/* ---- batches, where ranks need not have equally many samples (plan_batches.c) ---------------- */

/* Groups of the full batches from `before` on: units, dealt by cost where that is wanted. *ret_end:
 * how many batches are in groups then; the others stand behind them. */
int _nodiscard_ token_group_batches(struct token_plan *plan, uint64_t before, uint64_t *ret_end);

/* The same for the last ones, as `leftover` says, with the members from `rest` on, which do not
 * fill a batch: all remaining groups, and those too small for one. */
int _nodiscard_ token_group_last_batches(struct token_plan *plan, uint64_t before, uint64_t rest);

/* ---- balance (plan_balance.c) -----------------------------------------------------------------
 */

struct token_costs token_costs_of(const struct plan_tokens *tokens);

/* The cost of a row or a batch, by the sum of its lengths and of their squares. */
uint64_t token_cost(const struct token_plan *plan, uint64_t tokens, uint64_t squares);

struct token_priced {
    uint64_t cost;
    uint32_t item;
};

/*
 * Deals `n` items, a multiple of `each` · unit · world, to groups of `each` for every rank; `turn`
 * then has their final order. Sorts `items`.
 */
int _nodiscard_ token_deal(const struct token_plan *plan, struct token_priced *items, size_t n,
                           uint64_t each, uint64_t unit, uint32_t *turn);

/* ---- what they share ------------------------------------------------------------------------ */

/* Lengths are prefetched this many members ahead: they lie anywhere in memory. */
enum { TOKEN_AHEAD = 16 };

static inline uint32_t token_length(const struct token_plan *plan, uint32_t sample)
{
    uint32_t length = plan->params.lengths[sample];

    return length < plan->limit ? length : plan->limit;
}

static inline uint32_t token_sample(const struct token_plan *plan, uint32_t member)
{
    return plan->params.split && member >= plan->length
               ? plan->split.parts[member - plan->length].sample
               : member;
}

static inline uint32_t token_begin_in_sample(const struct token_plan *plan, uint32_t member)
{
    return member >= plan->length ? plan->split.parts[member - plan->length].begin : 0;
}

/* P(n) of plan_tokens.h. */
static inline uint64_t token_padded(const struct plan_tokens *params, uint64_t length)
{
    if (params->strategy == PLAN_PACK)
        return length;
    if (params->pad_length > 0)
        return params->pad_length;
    return params->multiple == 1
               ? length
               : (length + params->multiple - 1) / params->multiple * params->multiple;
}

/* The number of samples that fit a batch whose longest has that length; at least one. */
static inline uint64_t token_fits(const struct plan_tokens *params, uint64_t longest)
{
    return max_u64(params->tokens / token_padded(params, longest), 1);
}

/* Whether that many do not; without a division. */
static inline bool token_exceeds(const struct plan_tokens *params, uint64_t n, uint64_t longest)
{
    return n > 1 && n * token_padded(params, longest) > params->tokens;
}

static inline struct plan_keys token_keys(const struct token_plan *plan)
{
    return (struct plan_keys){plan->params.lengths, plan->limit, plan->longest};
}

/* The permutation of `length` things for that use in the plan's epoch. */
void token_plan_shuffle(const struct token_plan *plan, enum token_shuffle use, uint64_t number,
                        uint64_t length, struct permute_native *ret);

/* Where a window ends that begins at member `first`: it has `window` groups' tokens, or all. */
uint64_t token_plan_window(const struct token_plan *plan, uint64_t first);

/* Adds a group of `count` parts that stand one behind the other. */
static inline int token_plan_add(struct token_plan *plan, uint64_t first, uint64_t count)
{
    return plan_groups_add(&plan->made, plan->world, first, count);
}

#endif
