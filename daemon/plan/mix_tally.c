/* What was given out of a mixture. See mix_tally.h. */
#include "daemon/plan/mix_tally.h"

#include <errno.h>
#include <math.h>

static int mix_ruler_set_ends(struct mix_ruler *ruler, const struct plan_mix *mix)
{
    ruler->ends = calloc(mix->schedule.n, sizeof *ruler->ends);
    if (!ruler->ends)
        return -ENOMEM;
    return plan_mix_ends(mix, ruler->ends) ? 0 : -EINVAL;
}

int mix_ruler_init(struct mix_ruler *ruler, const struct plan_params *params)
{
    const struct plan_mix *mix = &params->mix;
    bool by_tokens = params->tokens.tokens > 0;

    *ruler = (struct mix_ruler){.by = mix->by,
                                .length = mix->stop == MIX_STOP_NEVER ? mix->length : 0,
                                .lengths = by_tokens ? params->tokens.lengths : NULL,
                                .limit = by_tokens ? plan_tokens_limit(&params->tokens) : 0,
                                .truncate = params->tokens.truncate};
    if (!plan_is_mix(params) || !mix->sizes)
        return -EINVAL;
    int r = mix_course_init(&ruler->course, &mix->schedule, mix->changes);

    if (r == 0)
        r = mix_ruler_set_ends(ruler, mix);
    if (r < 0)
        mix_ruler_deinit(ruler);
    return r;
}

void mix_ruler_deinit(struct mix_ruler *ruler)
{
    mix_course_deinit(&ruler->course);
    free(ruler->ends);
    *ruler = (struct mix_ruler){.by = 0};
}

/* The child that has the sample; as many as there are children: none. */
static uint32_t mix_ruler_child(const struct mix_ruler *ruler, uint64_t index)
{
    uint32_t low = 0, high = ruler->course.n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (index < ruler->ends[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static uint32_t mix_ruler_tokens(const struct mix_ruler *ruler, uint64_t index)
{
    uint32_t length = ruler->lengths ? ruler->lengths[index] : 0;

    if (length <= ruler->limit)
        return length;
    return ruler->truncate ? ruler->limit : 0;
}

/* The weights at the batch. */
static struct mix_spot mix_ruler_spot(const struct mix_ruler *ruler, const struct mix_batch *batch)
{
    uint64_t position;

    if (ruler->length == 0) /* epochs have an order each */
        return mix_course_spot_of(&ruler->course, batch->epoch,
                                  min_u64(batch->position, MIX_POSITIONS - 1));
    if (mul_overflows(batch->epoch, ruler->length, &position) ||
        add_overflows(position, batch->position, &position))
        position = MIX_POSITIONS;
    return mix_course_spot(&ruler->course, min_u64(position, MIX_POSITIONS - 1));
}

static void mix_tally_want(const struct mix_ruler *ruler, const struct mix_batch *batch,
                           double amount, struct mix_tally *tallies)
{
    struct mix_spot spot = mix_ruler_spot(ruler, batch);

    for (uint32_t i = 0; i < ruler->course.n; i++) {
        mix_units weight = mix_spot_weight(&spot, i);

        tallies[i].wanted += amount * ldexp((double)weight, -MIX_UNIT_BITS);
    }
}

void mix_tally_add(const struct mix_ruler *ruler, const struct mix_batch *batch,
                   struct mix_tally *tallies)
{
    uint64_t samples = 0, tokens = 0;

    for (uint32_t i = 0; i < batch->n; i++) {
        /* Once, since another process may write there. */
        uint64_t index = __atomic_load_n(&batch->indices[i], __ATOMIC_RELAXED);
        uint32_t child = mix_ruler_child(ruler, index);

        if (child == ruler->course.n)
            continue;
        uint32_t length = mix_ruler_tokens(ruler, index);
        tallies[child].samples++;
        tallies[child].tokens += length;
        samples++;
        tokens += length;
    }
    mix_tally_want(ruler, batch, (double)(ruler->by == MIX_BY_TOKENS ? tokens : samples), tallies);
}

void mix_tally_merge(struct mix_tally *tallies, const struct mix_tally *more, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tallies[i].wanted += more[i].wanted;
        tallies[i].samples += more[i].samples;
        tallies[i].tokens += more[i].tokens;
    }
}

struct mix_tally mix_tally_sum(const struct mix_tally *tallies, uint32_t n)
{
    struct mix_tally sum = {0};

    for (uint32_t i = 0; i < n; i++) {
        sum.wanted += tallies[i].wanted;
        sum.samples += tallies[i].samples;
        sum.tokens += tallies[i].tokens;
    }
    return sum;
}

static double mix_tally_part(double part, double sum)
{
    return sum > 0 ? part / sum : 0;
}

double mix_tally_wanted(const struct mix_tally *child, const struct mix_tally *sum)
{
    return mix_tally_part(child->wanted, sum->wanted);
}

double mix_tally_share(const struct mix_tally *child, const struct mix_tally *sum)
{
    return mix_tally_part((double)child->samples, (double)sum->samples);
}

double mix_tally_token_share(const struct mix_tally *child, const struct mix_tally *sum)
{
    return mix_tally_part((double)child->tokens, (double)sum->tokens);
}
