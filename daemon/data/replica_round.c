/*
 * Rounds of a replica (replica.h): which samples a rank takes of each, and how the last one is
 * made.
 */
#include "daemon/data/replica_private.h"

#include <assert.h>
#include <errno.h>

#include "daemon/data/files/guard.h"
#include "daemon/plan/shard.h"

/* ---- how ranks share the samples ------------------------------------------------------------ */

struct part replica_part(const struct replica_set *set, const struct round *round)
{
    if (set->shard == SHARD_BATCH || set->shard == SHARD_SPLIT)
        return (struct part){round->size * round->world, round->rank * round->size, round->size};
    return (struct part){round->size, 0, round->size};
}

/* How many of the first samples may be repeated. */
static uint64_t replica_round_repeats(const struct replica_set *set, const struct round *round)
{
    if (!set->even || set->drop_last || set->shard == SHARD_STRIDED)
        return 0;
    return set->shard == SHARD_DISPATCH ? round->world : replica_part(set, round).round;
}

struct replica_params replica_params_of(const struct replica_set *set, const struct round *round)
{
    bool apart = set->shard == SHARD_STRIDED;
    uint32_t rank = apart ? round->rank : 0;

    return (struct replica_params){
        .key = {.seed = set->seed, .epoch = round->epoch},
        .seed = dataset_replica_seed(set->seed, round->epoch, rank, set->workers, set->worker),
        .again = replica_round_repeats(set, round),
        .again_bad = set->on_error > ON_ERROR_RAISE,
        .worker = set->worker,
        .workers = set->workers,
        .rank = rank,
        .world = apart ? round->world : 1,
    };
}

bool replica_substitutes(const struct replica_set *set)
{
    return set->on_error == ON_ERROR_SUBSTITUTE && set->shard == SHARD_STRIDED;
}

bool replica_makes_all(const struct replica_set *set)
{
    return set->in_sequence || replica_substitutes(set);
}

/* ---- passing over samples -------------------------------------------------------------------- */

/* Passes over samples one by one where the dataset cannot leap. */
static int replica_round_replica_skip_slowly(struct dataset_iter *it, struct sample_batch *batch,
                                             uint64_t n)
{
    struct dl_error err;
    int r = 0;

    for (uint64_t i = 0; r != DATASET_END && i < n; i++) {
        sample_batch_clear(batch);
        struct sample *sample = sample_batch_add(batch, i);
        if (!sample)
            return -ENOMEM;
        r = it->ops->next(it, sample, &err);
    }
    return r == DATASET_END ? r : 0;
}

int replica_skip(struct replica_set *set, struct dataset_iter *it, uint64_t n)
{
    return it->ops->skip ? it->ops->skip(it, n, NULL)
                         : replica_round_replica_skip_slowly(it, &set->passed, n);
}

int replica_refuse_memory(struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, "", "out of memory for a sample");
}

/* ---- making a round ------------------------------------------------------------------------- */

/* The sample of the round that was just made is among those that may have taken longest, if it has
 * a name: its number alone says nothing, since each replica has one of it. */
static void replica_round_watch(struct replica_set *set, const struct replica *replica,
                                const struct sample_batch *batch)
{
    struct dataset_iter *iter = replica->iter;
    char name[4096] = "";

    if (!set->watch || batch != &set->batch || !iter->ops->name ||
        !slow_watch_sample(set->watch, replica->position - 1))
        return;
    (void)iter->ops->name(iter, name, sizeof name);
    slow_watch_cut(name, set->watch->name);
    slow_watch_pass(set->watch);
}

/* The samples of a round, or such as are dropped. */
static int replica_round_take_one(struct replica_set *set, struct replica *replica,
                                  struct sample_batch *batch, struct dl_error *err)
{
    if (batch == &set->passed)
        sample_batch_clear(batch);
    struct sample *sample = sample_batch_add(batch, replica->position);

    if (!sample)
        return replica_refuse_memory(err);
    int r = replica->iter->ops->next(replica->iter, sample, err);
    if (guard_check(set->guard, err) < 0)
        r = -EIO;
    if (r == DATASET_END) {
        replica->ended = true;
        return r;
    }
    replica->position++;
    if (r == 0)
        r = sample_check(sample, err);
    if (r == 0) {
        sample_batch_keep(batch);
        replica->good++;
        replica_round_watch(set, replica, batch);
    }
    return r;
}

/* The round goes on without sample `number`, which was to be at `position` of it: 0, or the error
 * that it ends with. */
static int replica_round_leave_out(const struct replica_set *set, struct sample_batch *batch,
                                   uint64_t number, uint64_t position, struct dl_error *err)
{
    if (set->on_error <= ON_ERROR_RAISE || !bad_is_sample(err))
        return -err->code;
    if (bad_list_add(&batch->bad, number, position, err) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory for a list of bad samples");
    return 0;
}

/* Up to `n` samples into set->batch, or into set->passed, to be dropped; *ret_taken of them count.
 */
static int replica_round_take(struct replica_set *set, struct replica *replica,
                              struct sample_batch *batch, uint64_t n, uint64_t *ret_taken,
                              uint64_t *ret_bad, struct dl_error *err)
{
    uint64_t in_a_row = 0;

    if (set->watch)
        slow_watch_pass(set->watch);
    while (!replica->ended && *ret_taken < n && in_a_row < BAD_IN_A_ROW) {
        int r = replica_round_take_one(set, replica, batch, err);
        if (r == DATASET_END)
            break;
        bool counts = r == 0 || !replica_substitutes(set);
        if (r < 0)
            r = replica_round_leave_out(set, batch, replica->position - 1, *ret_taken, err);
        if (r < 0) {
            *ret_bad = replica->position - 1;
            return r;
        }
        in_a_row = counts ? 0 : in_a_row + 1;
        *ret_taken += counts;
    }
    if (in_a_row == BAD_IN_A_ROW)
        replica->ended = true;
    assert(replica->ended || *ret_taken == n);
    return 0;
}

/* Passes over other ranks' samples: one by one, so that it shows how many there are. In sequence,
 * an error of one of these is all ranks'. */
static int replica_round_pass_over(struct replica_set *set, struct replica *replica, uint64_t n,
                                   uint64_t *ret_bad, struct dl_error *err)
{
    uint64_t taken = 0;

    if (set->in_sequence)
        return replica_round_take(set, replica, &set->passed, n, &taken, ret_bad, err);
    for (; !replica->ended && n > 0; n--) {
        int r = replica_skip(set, replica->iter, 1);
        if (r < 0)
            return replica_refuse_memory(err);
        if (guard_check(set->guard, err) < 0) {
            replica_close(replica); /* it has gone astray */
            return -EIO;
        }
        replica->ended = r == DATASET_END;
        replica->position += !replica->ended;
    }
    return 0;
}

/* Takes the rank's part of the round, and passes over the rest if what is in it has a meaning. */
static int replica_round_take_part(struct replica_set *set, struct replica *replica,
                                   const struct part *part, uint64_t *ret_taken, uint64_t *ret_bad,
                                   struct dl_error *err)
{
    int r = replica_round_pass_over(set, replica, part->first, ret_bad, err);

    if (r == 0)
        r = replica_round_take(set, replica, &set->batch, part->n, ret_taken, ret_bad, err);
    /* Where samples have to be made to be passed over, it is all ranks that make them, in the same
     * step: what a dataset draws from generators which steps share is the same for all. */
    if (r == 0 && !replica->ended &&
        (set->drop_last || set->in_sequence || !replica->iter->ops->skip))
        r = replica_round_pass_over(set, replica, part->round - part->first - part->n, ret_bad,
                                    err);
    return r;
}

/* The replica's first round goes on from where its beginning has led. */
static void replica_round_enter(const struct replica_set *set, uint64_t number)
{
    if (set->enter && number > 0)
        set->enter(set->context, number);
}

int replica_drop(struct replica_set *set, struct replica *replica, const struct round *round,
                 struct dl_error *err)
{
    uint64_t samples = replica_part(set, round).round;

    for (; !replica->ended && replica->rounds < round->number; replica->rounds++) {
        uint64_t taken = 0, bad;
        replica_round_enter(set, replica->rounds);
        int r = replica_round_take(set, replica, &set->passed, samples, &taken, &bad, err);
        /* In sequence the round ended there when it was made, too. */
        if (r < 0 && !set->in_sequence)
            return r;
    }
    sample_batch_clear(&set->passed);
    assert(replica->ended || replica->rounds == round->number);
    return 0;
}

/* ---- making the last round ------------------------------------------------------------------ */

/* A second pass over the beginning. */
struct again {
    struct dataset_iter *iter; /* owned; NULL: not begun */
    uint64_t position;
};

static void replica_round_again_deinit(struct again *again)
{
    if (again->iter)
        again->iter->ops->close(again->iter);
}

/* To sample `number`. */
static int replica_round_again_move(struct replica_set *set, const struct round *round,
                                    struct again *again, uint64_t number, struct dl_error *err)
{
    struct replica_params params = replica_params_of(set, round);
    int r = 0;

    if (!again->iter || again->position > number) {
        replica_round_again_deinit(again);
        *again = (struct again){0};
        r = set->dataset->ops->iterate(set->dataset, &params, &again->iter, err);
        if (r < 0) {
            again->iter = NULL;
            return r;
        }
    }
    r = replica_skip(set, again->iter, number - again->position);
    again->position = number;
    return r < 0 ? replica_refuse_memory(err) : r;
}

/* *number: which of the first ones, and then its number. */
static int replica_round_repeat_one(struct replica_set *set, const struct replica *replica,
                                    const struct round *round, struct again *again,
                                    uint64_t *number, struct dl_error *err)
{
    struct sample_batch *batch = &set->batch;
    struct dataset_iter *it = replica->iter;
    struct sample *sample = sample_batch_add(batch, *number);
    int r = 0;

    if (!sample)
        return replica_refuse_memory(err);
    if (it->ops->again) {
        r = it->ops->again(it, number, sample, err);
        batch->numbers[batch->n] = *number;
    } else {
        r = replica_round_again_move(set, round, again, *number, err);
        if (r == 0)
            r = again->iter->ops->next(again->iter, sample, err);
        again->position++;
    }
    if (guard_check(set->guard, err) < 0)
        r = -EIO;
    if (r == DATASET_END)
        return dl_error_set(err, EIO, "dataset",
                            "sample %llu of a worker's share must be repeated so that all ranks "
                            "get equally many, but it did not come a second time; write shard: "
                            "{even: false} for a dataset that changes while it is read",
                            (ull)*number);
    if (r == 0)
        r = sample_check(sample, err);
    if (r == 0) {
        sample_batch_keep(batch);
        batch->repeated++;
    }
    return r;
}

/* Repeats what stands behind the first `taken` positions of the span, which lies behind the end. */
static int replica_round_repeat(struct replica_set *set, const struct replica *replica,
                                const struct round *round, const struct shard *shard,
                                const struct shard_span *span, uint64_t taken, uint64_t *ret_bad,
                                struct dl_error *err)
{
    _cleanup_(replica_round_again_deinit) struct again again = {0};
    int r = 0;

    for (uint64_t at = taken; r == 0 && at < span->n; at++) {
        *ret_bad = shard_at(shard, span->first + at);
        r = replica_round_repeat_one(set, replica, round, &again, ret_bad, err);
        if (r < 0)
            r = replica_round_leave_out(set, &set->batch, *ret_bad, at, err);
    }
    return r;
}

/* The replica has ended, before the round or in it: whether the round exists, and what it lacks. */
static int replica_round_complete(struct replica_set *set, const struct replica *replica,
                                  const struct round *round, uint64_t taken, uint64_t *ret_bad,
                                  struct dl_error *err)
{
    bool dispatch = set->shard == SHARD_DISPATCH;
    /* Samples that rounds before lost by an error in sequence count as if they were there. */
    uint64_t count =
        round->number * replica_part(set, round).round + replica->position - replica->begun;
    uint64_t rank = dispatch ? SHARD_ALL : round->rank;
    struct shard shard =
        shard_of(&(struct shard_params){.count = count,
                                        .world = round->world,
                                        .batch_size = round->size / (dispatch ? round->world : 1),
                                        .mode = dispatch ? PLAN_DISPATCH : PLAN_BATCH,
                                        .drop_last = set->drop_last,
                                        .even = set->even});

    if (round->number >= shard_steps(&shard, rank))
        return DATASET_END;
    struct shard_span span = shard_span(&shard, rank, round->number);
    return replica_round_repeat(set, replica, round, &shard, &span, taken, ret_bad, err);
}

int replica_make(struct replica_set *set, struct replica *replica, const struct round *round,
                 uint64_t *ret_bad, struct dl_error *err)
{
    const struct part part = replica_part(set, round);
    struct sample_batch *batch = &set->batch;
    uint64_t taken = 0;

    sample_batch_clear(batch);
    replica->begun = replica->position;
    if (replica->ended)
        return DATASET_END;
    replica_round_enter(set, round->number);
    int r = replica_round_take_part(set, replica, &part, &taken, ret_bad, err);
    if (r == 0 && replica->ended) {
        if (set->shard != SHARD_STRIDED)
            r = replica_round_complete(set, replica, round, taken, ret_bad, err);
        else if (taken == 0 || set->drop_last)
            r = DATASET_END;
    }
    assert(batch->repeated <= batch->n && replica->position >= replica->begun);
    if (r != 0 || batch->n > 0 || batch->bad.n == 0)
        return r;
    *ret_bad = batch->bad.items[0].index;
    return bad_nothing_left(&batch->bad, err);
}
