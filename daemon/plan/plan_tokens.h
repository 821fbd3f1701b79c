/*
 * Batches that are measured in tokens: sequences of similar length together, so that little of a
 * batch is padding; or packed into rows, with almost no padding; or in the sampler's order.
 *
 * The sampler's order is cut into *groups*: the batches of one step, one for each rank. Member i of
 * a group goes to rank i mod world, and all members of a group have similar lengths. So all ranks
 * have similar work at the same step, and agree on it without communicating. A group is *full* when
 * one member more for each rank would exceed `tokens`. Where ranks need not have equally many
 * samples, a group is one batch per rank, each cut separately: a batch is full when the next member
 * would exceed `tokens`. All of an epoch is known before its first step: it is a list of groups,
 * and step k is the k-th of them, for every rank. So resuming costs nothing, and the number of
 * steps is known from the start.
 *
 * The padded length of a sample, P(n), is n rounded up to `multiple`, or `pad_length` where that is
 * given. A batch of m samples whose longest has n tokens takes m · P(n) tokens.
 *
 * Strategy `sorted`. The order is cut into windows of about `window` groups' tokens. A window is
 * sorted by length, ascending and stable, and cut into groups greedily: c members for each rank, as
 * many as satisfy c · P(longest of them) ≤ tokens. Samples that do not fill a group at the end of a
 * window begin the next. The groups of the whole epoch are then shuffled.
 *
 * Without `even` a sorted window is cut into batches instead, from its start, each of as many
 * members as fit; `world` of them that follow each other are a group. Samples that do not fill a
 * group begin the next window. So a rank's batch is not padded to the length of another rank's.
 *
 * Strategy `in turn` (`sequential` in specs). A batch is closed when the next sample of the order
 * would exceed `tokens`, and `world` batches that follow each other are a group. Only the order
 * itself is shuffled; ranks may have different numbers of samples, as with `pack`.
 *
 * Strategy `bucket`. A sample's bucket is (n − 1) div interval; the bucket's upper length U is
 * (bucket + 1) · interval. A group is emitted when its bucket has (tokens div P(U)) · world
 * members, in the order in which buckets fill. Windows of `window` groups are then shuffled
 * internally; by default the whole epoch is one window. Otherwise buckets that fill late would come
 * late, and a step's length would reveal its place in the epoch.
 *
 * Strategy `pack`. Samples are put into rows of `row_length` tokens: within a window as above the
 * longest first, each into the row with the least room for it. A batch is tokens div row_length
 * rows. The fullest rows of a window make full groups, in a shuffled order; the samples in the
 * other rows begin the next window. The groups of the whole epoch are then shuffled. Parts of a
 * group are rows here: row i goes to rank i mod world. P(n) is n.
 *
 * All shuffles are permute_native, keyed only by seed and epoch; with PLAN_SEQUENTIAL nothing is
 * shuffled. In a step of one rank, samples stand in the order of the group: by length with
 * `sorted`, as they came with `bucket`, row by row with `pack`.
 *
 * Balance. A sample of n tokens costs linear · n + square · n², a row or a batch the sum of its
 * samples; in a batch each counts with its padding. Within a window, rows (or batches) are sorted
 * by cost, and those next to each other become a group; within a group, the costliest goes to the
 * rank that has the least so far, layer by layer, so that all ranks have the same number. With
 * `accumulate`, that many groups, evenly spaced in the sorted window, are a *unit*: the consecutive
 * steps of one update of the weights, over which each rank's sum is levelled, too. Units are
 * shuffled as groups are otherwise. With `pack`, `sorted` without `even`, and `in turn`, whose
 * windows are of `window` steps then.
 *
 * A mixture. Its groups (or units) are not shuffled like that: they come, window after window, in
 * an order in which each child always has about as much, in tokens or in samples, as in the order
 * that they were cut from, to within about one group (plan_mixed.c). If shares are of tokens, this
 * holds even with PLAN_SEQUENTIAL.
 *
 * All of them can also take windows of a fixed number of samples, one after another, while the
 * epoch is read: plan_lazy.h has the rules.
 *
 * Empty samples, of length 0, are left out of the order.
 *
 * Too long is a sample with n > max_length, or n > pad_length where that is given; with `pack` one
 * with n > row_length; without max_length one with P(n) > tokens, with `bucket` one with P(U) >
 * tokens. It is left out of the order, or (`truncate`) counts as one of the greatest length that is
 * not too long. With `split` it comes in parts, each as long as one may be, but for the last; each
 * part but the first begins with the last `overlap` tokens of the one before. Parts are packed as
 * samples are, wherever they fit.
 *
 * With max_length a sample that is not too long may still have P(n) > tokens (P(U) with `bucket`):
 * it is alone in its batch, the only kind that exceeds `tokens`.
 *
 * The leftover is what does not fill a group at the end of the epoch.
 *
 * `emit`: it is delivered, too. `sorted` and `pack` make one more group of it. With `bucket` each
 * bucket's leftover becomes a group, from the lowest bucket on; when there are fewer members than
 * ranks they join the next bucket's leftover, which first emits a full group if it is large enough.
 * Such a group is dealt out like any other: ranks may differ by one member in it. At the very end
 * fewer members (rows) than ranks may be left. They are the last step of the epoch: with `even`
 * they are dealt out in turn until each rank has one, which repeats some; else only the first ranks
 * have that step.
 *
 * If there are fewer batches than ranks, they are cut in halves until each rank has one.
 *
 * `drop`: it is left out, and counted. Which samples that hits depends on the epoch: with `sorted`
 * and `pack` they lie anywhere in the last window, and are not the longest each time.
 *
 * `carry`: the next epoch begins with it. Only with `bucket`, and a sampler that gives every sample
 * once in an epoch. A bucket that n samples of each epoch are in, with groups of g, then leaves (e
 * + 1) · n mod g of them after epoch e: which ones must follow from the epoch only, so that a state
 * stays (epoch, step). Hence the members of a bucket come in the bucket's own order in each epoch,
 * keyed by (seed, epoch, bucket), and the sampler's order decides only when.
 *
 * A change of the world size within an epoch (plan.h). The groups that were taken before are those
 * of a plan for that world size, so its steps say which samples are gone; the rest of the order is
 * unchanged and is cut anew, with windows, buckets, rows and shuffles as for any order. `emit` and
 * `drop` deal with the leftover of that. With `carry` what is left is all that the first world size
 * found in the epoch, carried samples included, less what was taken, and less what the next epoch
 * begins with, in the new world size; all of it is delivered, as with `emit`. So a sample comes in
 * this epoch or in the next. Only samples that the next epoch begins with and that were already
 * taken, less than a group of each bucket, are repeated there, as when the world size changes
 * between epochs.
 *
 * Pure, as plan.h. Sources of the rules: tensor2tensor and tf.data for buckets, fairseq for greedy
 * token batches shuffled in groups of ranks, torchtext for sorting in windows.
 */
#ifndef DL_PLAN_TOKENS_H
#define DL_PLAN_TOKENS_H

#include "daemon/plan/plan_lazy.h"

enum plan_strategy { PLAN_SORTED, PLAN_BUCKET, PLAN_PACK, PLAN_IN_TURN };
/* Which row a sample goes into; all but the first in the sampler's order. */
enum plan_fill { PLAN_BEST_FIT, PLAN_FIRST_FIT, PLAN_NEXT_FIT, PLAN_CUT };
enum plan_leftover { PLAN_EMIT, PLAN_DROP, PLAN_CARRY };

/*
 * What does not go together makes plan_new() fail with -EINVAL: a dataset or an order of more than
 * UINT32_MAX samples, tokens above UINT32_MAX, row_length 0 or above tokens with `pack`, interval 0
 * or above tokens with `bucket`, multiple 0 without `pack`, no lengths, `carry` where it cannot be,
 * balance where it cannot be or without a cost, `split` or `fill` where they cannot be, `lazy`
 * with balance or `carry`, a mark that cannot be.
 */
#define PLAN_COST_MAX       1048576.0
#define PLAN_ACCUMULATE_MAX 65536
#define PLAN_LAZY_MAX       1048576

struct plan_tokens {
    uint64_t tokens; /* of one rank's batch, at most, padding included; 0: no such batches */
    const uint32_t *lengths; /* in tokens, of each of params.length samples; borrowed */
    enum plan_strategy strategy;
    enum plan_leftover leftover;
    bool truncate;         /* longer samples are cut; else left out, or */
    bool split;            /* come in parts, each of which counts as a sample; lazy, pack */
    enum plan_fill fill;   /* pack; lazy, but for the first; PLAN_CUT needs split */
    uint32_t overlap;      /* split: tokens that a part has of the one before */
    uint32_t max_length;   /* 0: unlimited */
    uint32_t interval;     /* bucket */
    uint32_t multiple;     /* ≥ 1; without meaning with pack */
    uint32_t pad_length;   /* 0: to the longest; without meaning with pack */
    uint32_t row_length;   /* pack */
    uint64_t window;       /* in groups; 0: the whole epoch */
    uint64_t lazy;         /* samples of a window that is cut as soon as its lengths are known
                              (plan_lazy.h), in place of `window`; 0: all of them are */
    struct lazy_mark mark; /* lazy: where it begins; all zero: at the first window */
    bool balance;
    double linear, square; /* balance: what a token costs, and a pair of tokens of one sample */
    uint64_t accumulate;   /* balance: steps of a unit; 0 and 1: single steps */
};

/* The greatest length that is not too long; 0: unlimited. For parameters that plan_new() takes. */
uint32_t plan_tokens_limit(const struct plan_tokens *tokens);

/* What a scan of all lengths shows, for callers that refuse lengths before planning. */
struct plan_lengths {
    uint64_t shortest, longest; /* of all */
    uint64_t empty;             /* samples without tokens */
    uint64_t first_overlong;    /* the first that is too long; UINT64_MAX: all fit */
    uint64_t overlong;          /* how many are too long */
    uint64_t tokens;            /* sum of all */
};
void plan_look_at_lengths(const struct plan_tokens *tokens, uint64_t length,
                          struct plan_lengths *ret);

struct plan;
struct slot_planned;

/* Of the whole epoch, all ranks together, once plan_prepare() was called. */
struct plan_totals {
    uint64_t groups;   /* steps; without `even`, a rank may have one fewer */
    uint64_t samples;  /* in batches, repeated ones included */
    uint64_t tokens;   /* of these */
    uint64_t padded;   /* tokens that their batches take, padding included */
    uint64_t overlong; /* samples left out, or cut */
    uint64_t leftover; /* samples left out (drop), or left for the next epoch (carry) */
    uint64_t carried;  /* samples that were left for this epoch by those before (carry) */
    uint64_t repeated; /* samples that come once more to even the ranks out */
    uint64_t rows;     /* pack; repeated ones included */
    uint64_t empty;    /* samples without a token, left out */
};
const struct plan_totals *plan_totals(const struct plan *plan); /* NULL without tokens */

/* The buckets of strategy bucket: their number, up to that of the longest sample in the order (0:
 * another strategy), and one bucket's content. */
struct plan_bucket {
    uint32_t upper;    /* greatest length in it */
    uint64_t members;  /* samples of the order in it */
    uint64_t full;     /* samples in a full group of its own; carried ones included */
    uint64_t leftover; /* members that no full group had, in this epoch; carried ones included */
};
uint32_t plan_buckets(const struct plan *plan);
struct plan_bucket plan_bucket_at(const struct plan *plan, uint32_t bucket);

/* One rank's step. */
struct plan_step_tokens {
    uint64_t samples;
    uint64_t tokens;  /* of the samples as planned, that is cut where they are cut */
    uint64_t padded;  /* samples · padded length; pack: rows · row_length */
    uint32_t longest; /* planned length of its longest sample */
    uint32_t bucket;  /* the group's highest, for all ranks; UINT32_MAX: no buckets */
    uint32_t rows;    /* pack; else 0 */
};
struct plan_step_tokens plan_step_tokens(const struct plan *plan, uint64_t rank, uint64_t step);

/* How much one rank's step has, without a look at any length. rows: 0 but with pack. */
struct plan_step_size {
    uint64_t samples;
    uint32_t rows;
    uint64_t begins; /* with `split`: as many as samples, for plan_put_planned(); else 0 */
};
struct plan_step_size plan_step_size(const struct plan *plan, uint64_t rank, uint64_t step);

/*
 * What the step's slot is to say of it, at `ret`, which has room for slot_planned_bytes(samples,
 * rows + begins). Returns what it has in tokens.
 */
struct plan_step_tokens plan_put_planned(const struct plan *plan, uint64_t rank, uint64_t step,
                                         struct slot_planned *ret);

/* The planned lengths of the step's samples, in the order of plan_step(), and behind them, with
 * `pack`, the samples of each row: room for samples + rows. */
void plan_step_lengths(const struct plan *plan, uint64_t rank, uint64_t step, uint32_t *ret);

#endif
