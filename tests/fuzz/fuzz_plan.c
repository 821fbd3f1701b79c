/*
 * Plans of token batches: whatever the lengths and settings are, plan_new() refuses, or the plan
 * is one pass over the samples, or over what another world size left of them, within its bounds.
 *
 * Input: HEAD bytes of settings, see choose(); then the samples' lengths, a byte each, where the
 * highest bit says sixteen times as long. Seeds are text where they can be.
 */
#include "tests/fuzz/fuzz.h"

#define PLAN_CHECK FUZZ_ASSERT
#include "tests/lib/plan_check.h"

#include <errno.h>

enum { HEAD = 16, MAX_LENGTH = 512, MAX_WORLD = 40 };

struct input {
    struct plan_params params;
    uint32_t lengths[MAX_LENGTH];
    uint64_t indices[MAX_LENGTH];
    uint32_t wanted[MAX_LENGTH];
};

static void choose(struct input *input, const uint8_t *head)
{
    struct plan_params *params = &input->params;

    params->order = (enum plan_order)(head[0] % 3);
    params->even = head[0] & 64;
    params->world = 1 + head[1] % MAX_WORLD;
    params->seed = head[2];
    params->epoch = head[3] < 128 ? head[3] : UINT64_MAX - head[3];
    if (params->order == PLAN_NATIVE && head[15] < 128) {
        params->block = head[15];
        params->window = 1 + head[2] % 16;
    }
    params->tokens = (struct plan_tokens){
        .strategy = (enum plan_strategy)(head[4] % 5),
        .balance = head[4] & 64,
        .linear = head[4] & 128 ? 1 : 0,
        .square = (head[10] % 4) / 4096.0,
        .accumulate = head[5] >> 3 & 7,
        .leftover = (enum plan_leftover)(head[5] % 4),
        .truncate = head[5] & 64,
        .tokens = head[6] + 256 * (head[7] % 16),
        .max_length = head[8],
        .interval = head[9],
        .multiple = head[10],
        .pad_length = head[11],
        .row_length = head[12] + 256 * (head[13] % 16),
        .window = head[14],
    };
    if (params->tokens.strategy == PLAN_PACK && head[9] >= 128) {
        params->tokens.lazy = head[9] - 127;
        params->tokens.fill = (enum plan_fill)(head[11] % (PLAN_CUT + 1));
    }
}

/* A list of the dataset's samples, some of them twice, instead of all. */
static void choose_indices(struct input *input, uint8_t stride)
{
    struct plan_params *params = &input->params;

    params->sampler = PLAN_INDICES;
    params->indices = input->indices;
    params->n_indices = params->length;
    for (uint64_t i = 0; i < params->length; i++) {
        input->indices[i] = i * stride % params->length;
        input->wanted[i] = 0;
    }
    for (uint64_t i = 0; i < params->length; i++)
        input->wanted[input->indices[i]]++;
}

static void check_same(const struct plan_params *params, struct plan *plan)
{
    struct plan *again = NULL;

    if (plan_new(params, &again) < 0 || plan_prepare(again) < 0)
        abort();
    FUZZ_ASSERT(memcmp(plan_totals(plan), plan_totals(again), sizeof(struct plan_totals)) == 0);
    FUZZ_ASSERT(plan_most(plan) == plan_most(again));
    plan_free(again);
}

/* Another world size has begun the epoch: what it took is wanted no more. False: that was all. */
static bool begin_with_others(struct input *input, const uint8_t *head)
{
    struct plan_params *params = &input->params, others = input->params;
    uint64_t steps = 1 + head[3] % 8, indices[MAX_LENGTH];
    struct plan *plan = NULL;
    bool all, carries = params->tokens.leftover == PLAN_CARRY;

    others.world = 1 + head[2] % MAX_WORLD;
    FUZZ_ASSERT(history_add(&params->before, others.world, steps));
    if (plan_new(&others, &plan) < 0)
        return true;
    FUZZ_ASSERT(plan_prepare(plan) == 0);
    all = steps >= plan_steps(plan, 0);
    for (uint64_t rank = 0; !all && rank < others.world; rank++)
        for (uint64_t step = 0; step < steps; step++)
            for (size_t n = plan_step(plan, rank, step, indices); n > 0; n--)
                FUZZ_ASSERT(carries || input->wanted[indices[n - 1]]-- > 0);
    plan_free(plan);
    return !all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct input input;
    struct plan *plan = NULL;
    struct plan_lengths seen;

    if (len < HEAD)
        return 0;
    input = (struct input){0};
    choose(&input, data);
    input.params.length = min_u64(len - HEAD, MAX_LENGTH);
    input.params.tokens.lengths = input.lengths;
    for (uint64_t i = 0; i < input.params.length; i++) {
        uint8_t byte = data[HEAD + i];

        input.lengths[i] = byte < 128 ? byte + !(data[0] & 32) : (byte - 127) * 16;
        input.wanted[i] = 1;
    }
    if (data[15] >= 128)
        choose_indices(&input, data[15]);
    if (data[0] >= 128 && input.params.tokens.tokens > 0 && !begin_with_others(&input, data))
        return 0;
    int r = plan_new(&input.params, &plan);
    if (r < 0) {
        FUZZ_ASSERT(r == -EINVAL && !plan);
        return 0;
    }
    if (input.params.tokens.tokens > 0) {
        plan_look_at_lengths(&input.params.tokens, input.params.length, &seen);
        FUZZ_ASSERT(plan_prepare(plan) == 0);
        FUZZ_ASSERT(input.params.indices || input.params.before.n > 0 ||
                    (seen.overlong == plan_totals(plan)->overlong &&
                     seen.empty == plan_totals(plan)->empty));
        if (input.params.before.n == 0 || input.params.tokens.leftover != PLAN_CARRY)
            plan_check(&input.params, plan, input.wanted); /* else the rest is not of one pass */
        check_same(&input.params, plan);
    }
    plan_free(plan);
    return 0;
}
