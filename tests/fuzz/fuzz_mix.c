/*
 * Mixtures: whatever the weights and the schedule are, mix_order_init() refuses, or every child is
 * at every position within one sample of its share, and positions asked for far from each other are
 * what they are in turn.
 *
 * Input: children, points, samples of a step, a seed; then for each point its distance from the one
 * before, whether it is a ramp, and a weight for each child: a byte each.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "daemon/plan/mix_order.h"

enum { CHILDREN = 9, POINTS = 5, POSITIONS = 600 };

struct input {
    struct mix_schedule schedule;
    struct mix_point points[POINTS];
    double weights[POINTS][CHILDREN];
};

static uint8_t take(const uint8_t **data, size_t *len)
{
    uint8_t byte = *len > 0 ? **data : 1;

    *data += *len > 0;
    *len -= *len > 0;
    return byte;
}

/* A byte as a weight: small numbers, and very small ones. */
static double weight_of(uint8_t byte)
{
    return byte < 128 ? byte : (byte - 127) / 1e5;
}

static uint64_t choose(struct input *input, const uint8_t *data, size_t len)
{
    input->schedule = (struct mix_schedule){.n = take(&data, &len) % (CHILDREN + 1),
                                            .n_points = take(&data, &len) % (POINTS + 1),
                                            .points = input->points};
    input->schedule.step_samples = take(&data, &len);
    uint64_t seed = take(&data, &len), step = 0;

    for (uint32_t p = 0; p < input->schedule.n_points; p++) {
        uint8_t distance = take(&data, &len), ramp = take(&data, &len);

        step += p > 0 ? distance : 0;
        input->points[p] = (struct mix_point){
            .step = step, .weights = input->weights[p], .ramp = p > 0 && ramp & 1};
        for (uint32_t i = 0; i < input->schedule.n; i++)
            input->weights[p][i] = weight_of(take(&data, &len));
    }
    return seed;
}

static void check_in_turn(struct mix_order *order, struct mix_place *places)
{
    uint64_t counts[CHILDREN] = {0};

    for (uint64_t k = 0; k < POSITIONS; k++) {
        uint32_t stretch = mix_shares_stretch(&order->shares, k);

        places[k] = mix_order_at(order, k);
        FUZZ_ASSERT(places[k].nth == counts[places[k].child]++);
        for (uint32_t i = 0; i < order->shares.n; i++) {
            mix_units share = mix_shares_at(&order->shares, stretch, i, k + 1);

            FUZZ_ASSERT(counts[i] >= mix_whole(share));
            FUZZ_ASSERT(mix_units_of(counts[i]) < share + mix_units_of(1));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct mix_place places[POSITIONS];
    struct mix_order order;
    struct input input;
    uint64_t seed = choose(&input, data, len);
    int r = mix_order_init(&order, &input.schedule, seed, 0);

    FUZZ_ASSERT(r == 0 || r == -EINVAL);
    if (r < 0)
        return 0;
    check_in_turn(&order, places);
    for (uint64_t k = seed % 101; k < POSITIONS; k += 101) {
        struct mix_place place = mix_order_at(&order, POSITIONS - 1 - k);

        FUZZ_ASSERT(place.child == places[POSITIONS - 1 - k].child);
        FUZZ_ASSERT(place.nth == places[POSITIONS - 1 - k].nth);
    }
    mix_order_deinit(&order);
    return 0;
}
