#include "daemon/data/files/guard.h"
#include "daemon/data/replica_private.h"

#include <assert.h>
#include <errno.h>

void replica_close(struct replica *replica)
{
    if (replica->iter)
        replica->iter->ops->close(replica->iter);
    replica->iter = NULL;
}

static struct replica *replica_find(const struct replica_set *set, uint32_t stream)
{
    struct replica *replica;

    HASH_FIND(hh, set->replicas, &stream, sizeof stream, replica);
    return replica;
}

static struct replica *replica_add(struct replica_set *set, uint32_t stream)
{
    struct replica *replica = calloc(1, sizeof *replica);

    if (!replica)
        return NULL;
    replica->stream = stream;
    HASH_ADD(hh, set->replicas, stream, sizeof replica->stream, replica);
    return replica;
}

static bool replica_is_forgotten(const struct replica_set *set, uint32_t stream)
{
    for (uint32_t i = 0; i < min_u64(set->n_forgotten, REPLICAS_REMEMBERED); i++)
        if (set->forgotten[i] == stream)
            return true;
    return false;
}

void replica_forget(struct replica_set *set, uint32_t stream)
{
    struct replica *replica = replica_find(set, stream);

    set->forgotten[set->n_forgotten++ % REPLICAS_REMEMBERED] = stream;
    if (!replica)
        return;
    HASH_DEL(set->replicas, replica);
    replica_close(replica);
    assert(!replica_find(set, stream));
    sample_batch_deinit(&replica->batch);
    free(replica);
}

void replica_set_deinit(struct replica_set *set)
{
    struct replica *replica, *next;

    HASH_ITER (hh, set->replicas, replica, next)
        replica_forget(set, replica->stream);
    assert(!set->replicas);
    sample_batch_deinit(&set->batch);
    sample_batch_deinit(&set->passed);
    free(set->state);
}

/* ---- getting to a round --------------------------------------------------------------------- */

static uint8_t *replica_state_memory(struct replica_set *set)
{
    if (!set->state)
        set->state = malloc(DATASET_STATE_MAX);
    return set->state;
}

/* The round's record, if the replica of `params` can begin with it. It is copied: plug-ins and
 * interpreters take their time, and it lies in a slot. */
static bool replica_find_state(struct replica_set *set, const struct round *round,
                               const struct replica_params *params, struct dataset_state *ret)
{
    if (round->state.len == 0 || round->state.len > DATASET_STATE_MAX || !set->dataset->saves_state)
        return false;
    /* One that keeps its first samples has to make them. */
    if ((set->in_sequence && params->again > 0) || !replica_state_memory(set))
        return false;
    memcpy(set->state, round->state.data, round->state.len);
    return dataset_state_read_first((struct dl_span){set->state, round->state.len}, ret) &&
           ret->round <= round->number && ret->rank == params->rank && ret->world == params->world;
}

/* A replica that cannot be begun has no samples: its first round tells why, and the next ones end.
 */
static int replica_begin(struct replica_set *set, struct replica *replica,
                         const struct round *round, struct dl_error *err)
{
    struct replica_params params = replica_params_of(set, round);
    struct dataset_state from = {0};

    replica_close(replica);
    if (replica_find_state(set, round, &params, &from)) {
        params.state = from.state;
        params.position = from.position;
    } else {
        from = (struct dataset_state){0};
    }
    replica->rounds = from.round;
    replica->position = from.position;
    replica->good = from.good;
    replica->ended = from.ended;
    if (set->enter)
        set->enter(set->context, 0);
    int r = set->dataset->ops->iterate(set->dataset, &params, &replica->iter, err);
    if (r < 0) {
        replica->iter = NULL;
        replica->ended = true;
    }
    assert(replica->iter || replica->ended);
    return r;
}

/* Whether the replica stands behind the round, which begins with sample `want`. */
static bool replica_is_past(const struct replica_set *set, const struct replica *replica,
                            const struct round *round, uint64_t want)
{
    return replica_makes_all(set) ? replica->rounds > round->number : replica->position > want;
}

/* To sample `want`, over what lies before. */
static int replica_leap(struct replica_set *set, struct replica *replica, uint64_t want,
                        struct dl_error *err)
{
    if (replica->ended || replica->position == want)
        return 0;
    int r = replica_skip(set, replica->iter, want - replica->position);
    if (r < 0)
        return replica_refuse_memory(err);
    if (guard_check(set->guard, err) < 0) {
        replica_close(replica); /* it has gone astray */
        return -EIO;
    }
    replica->ended = r == DATASET_END;
    replica->position = want;
    return 0;
}

/* To the round, which begins with sample `want`. */
static int replica_move(struct replica_set *set, struct replica *replica, const struct round *round,
                        uint64_t want, struct dl_error *err)
{
    bool past = replica_is_past(set, replica, round, want);

    if (past || (!replica->iter && !replica->ended)) {
        int r = replica_begin(set, replica, round, err);
        if (r < 0)
            return r;
    }
    return replica_makes_all(set) ? replica_drop(set, replica, round, err)
                                  : replica_leap(set, replica, want, err);
}

/* ---- a round --------------------------------------------------------------------------------- */

int replica_round(struct replica_set *set, const struct round *round, struct sample_batch **ret,
                  uint64_t *ret_bad, struct dl_error *err)
{
    struct replica *replica = replica_find(set, round->stream);
    uint64_t want;

    *ret_bad = UINT64_MAX;
    if (!replica && replica_is_forgotten(set, round->stream))
        return DATASET_END;
    if (!replica)
        replica = replica_add(set, round->stream);
    if (!replica)
        return dl_error_set(err, ENOMEM, "", "out of memory for a replica of the dataset");
    if (replica->retained && replica->rounds == round->number + 1) {
        *ret = &replica->batch;
        return 0;
    }
    if (replica->retained && replica->rounds <= round->number && replica->rounds > round->settled)
        return -EAGAIN;
    replica->retained = false;
    sample_batch_deinit(&replica->batch);
    *ret = &set->batch;
    if (mul_overflows(round->number, replica_part(set, round).round, &want))
        return DATASET_END;
    int r = replica_move(set, replica, round, want, err);
    if (r == 0)
        r = replica_make(set, replica, round, ret_bad, err);
    /* Where only good samples count, a round that failed does not show where the next one begins.
     */
    if (r < 0 && replica_substitutes(set) && !set->in_sequence)
        replica_close(replica);
    replica->rounds = round->number + 1;
    assert(r <= 0 || r == DATASET_END);
    return r;
}

int replica_save(struct replica_set *set, const struct round *round, struct dataset_state *ret,
                 enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    struct replica *replica = replica_find(set, round->stream);
    struct replica_params params = replica_params_of(set, round);
    size_t len = 0;

    *ret = (struct dataset_state){0};
    *ret_lost = DATASET_STATE_SAVED;
    if (!set->dataset->saves_state || !replica || !replica->iter)
        return 0;
    assert(replica->rounds == round->number + 1);
    if (!replica_state_memory(set))
        return replica_refuse_memory(err);
    int r = replica->iter->ops->save(replica->iter, set->state, DATASET_STATE_BYTES_MAX, &len,
                                     ret_lost, err);
    if (r < 0 || *ret_lost != DATASET_STATE_SAVED)
        return r == -ENOTSUP ? 0 : r;
    *ret = (struct dataset_state){.round = round->number + 1,
                                  .position = replica->position,
                                  .good = min_u64(replica->good, replica->position),
                                  .rank = params.rank,
                                  .world = params.world,
                                  .ended = replica->ended,
                                  .state = {set->state, len}};
    return 0;
}

void replica_retain(struct replica_set *set, const struct round *round, uint64_t need)
{
    struct replica *replica = replica_find(set, round->stream);

    assert(replica && replica->rounds == round->number + 1);
    if (!replica->retained) {
        replica->batch = set->batch;
        set->batch = (struct sample_batch){0};
    }
    replica->retained = true;
    replica->need = need;
}

uint64_t replica_retained_bytes(const struct replica_set *set, uint32_t stream)
{
    const struct replica *replica = replica_find(set, stream);

    return replica && replica->retained ? replica->need : 0;
}
