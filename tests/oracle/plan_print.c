/*
 * Prints plans, for comparison with another implementation.
 *
 * Reads lines `order length seed epoch world batch_size drop_last even rank`, order being
 * sequential, torch or native, and the two flags 0 or 1. Answers each with one line: the indices
 * of the rank's steps in turn, separated by spaces within a step and by commas between steps.
 * Exit status 1 and a message for a line that it does not understand.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "daemon/plan/plan.h"

struct request {
    struct plan_params params;
    uint64_t rank;
};

static bool parse(const char *line, struct request *ret)
{
    static const char *const orders[] = {
        [PLAN_SEQUENTIAL] = "sequential", [PLAN_TORCH] = "torch", [PLAN_NATIVE] = "native"};
    struct request request = {0};
    struct plan_params *params = &request.params;
    unsigned drop_last, even, order = 0;
    char name[16];

    if (sscanf(line,
               "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %u %u %" SCNu64,
               name, &params->length, &params->seed, &params->epoch, &params->world,
               &params->batch_size, &drop_last, &even, &request.rank) != 9)
        return false;
    while (order < ARRAY_SIZE(orders) && strcmp(orders[order], name) != 0)
        order++;
    if (order == ARRAY_SIZE(orders) || request.rank >= params->world)
        return false;
    params->order = (enum plan_order)order;
    params->drop_last = drop_last;
    params->even = even;
    *ret = request;
    return true;
}

static int print_plan(const struct request *request)
{
    struct plan *plan;
    int r = plan_new(&request->params, &plan);
    if (r < 0)
        return r;

    uint64_t samples = plan_samples(plan, request->rank);
    uint64_t room = min_u64(max_u64(request->params.batch_size, 1), max_u64(samples, 1));
    uint64_t *indices = calloc(room, sizeof *indices);

    for (uint64_t step = 0; indices && step < plan_steps(plan, request->rank); step++) {
        size_t count = plan_step(plan, request->rank, step, indices);

        for (size_t i = 0; i < count; i++)
            printf("%s%" PRIu64, i > 0 ? " " : step > 0 ? "," : "", indices[i]);
    }
    putchar('\n');
    r = indices ? 0 : -ENOMEM;
    free(indices);
    plan_free(plan);
    return r;
}

int main(void)
{
    char line[512];

    while (fgets(line, sizeof line, stdin)) {
        struct request request;
        int r = -EINVAL;

        if (parse(line, &request))
            r = print_plan(&request);
        if (r < 0) {
            fprintf(stderr, "plan_print: %s: %s", strerror(-r), line);
            return 1;
        }
    }
    return 0;
}
