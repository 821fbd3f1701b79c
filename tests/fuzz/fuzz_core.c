/*
 * Fuzzer of the loader's core: the input says of what kind the loader is, and then what its clients
 * and workers do; see core_sim.h for what must hold.
 *
 * Input: kind (a bit each: any order, iterable, dispatch, job, scarce memory, few leases, two
 * sharers of each rank, slots that grow), ranks and workers, credits, slots and companions, steps;
 * then all that is drawn.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/lib/core_sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct sim_totals totals = {0};

    if (len < 5)
        return 0;
    struct sim_rules rules = {.ranks = 1 + data[1] % 5,
                              .workers = 1 + data[1] / 5 % 4,
                              .credits = 1 + data[2] % 6,
                              .slots = 1 + data[2] / 6 % 4,
                              .steps = data[3] % 20,
                              .retries = data[3] / 20 % 3,
                              .any_order = data[0] & 1,
                              .iterable = data[0] & 2,
                              .dispatch = data[0] & 4,
                              .job = data[0] & 8,
                              .grows = data[0] & 128,
                              .leases = data[0] & 32 ? 3 : 0};
    rules.segments = data[0] & 16 ? rules.workers : 40;
    if (rules.grows)
        rules.segments = 1 + rules.dispatch;
    rules.sharers = data[0] & 64 && !rules.dispatch ? 2 : 0;
    rules.ranks *= rules.sharers ? rules.sharers : 1;
    rules.any_order = rules.any_order && !rules.dispatch && !rules.sharers;
    if (!rules.iterable && !rules.dispatch && !rules.sharers && !rules.any_order)
        rules.window = data[2] / 24; /* up to 10 */
    rules.wait = rules.window & 2 ? 4000000 : 0;
    rules.slices = rules.window & 4;
    sim_play(&rules, 0, 0, data + 4, len - 4, &totals);
    return 0;
}
