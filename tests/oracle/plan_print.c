/*
 * Prints plans, for comparison with another implementation.
 *
 * Reads lines `order length seed epoch world batch_size drop_last even shard rank num_samples
 * replacement kind [number...]`, order being sequential, torch or native, shard a number of enum
 * plan_shard, the flags 0 or 1, and kind all,
 * indices or weights, with as many numbers after it. Answers each with one line: the indices
 * of the rank's steps in turn, separated by spaces within a step and by commas between steps; then
 * a semicolon, and for each step how many of its samples are repeated, separated by commas.
 * Exit status 1 and a message for a line that it does not understand.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "daemon/plan/plan.h"

enum { NUMBERS_MAX = 4096 };

struct request {
    struct plan_params params;
    uint64_t rank;
    uint64_t indices[NUMBERS_MAX];
    double weights[NUMBERS_MAX];
};

/* What follows the kind, as indices and as weights; false for anything that is no number. */
static bool parse_numbers(const char *text, struct request *request, size_t *ret)
{
    size_t n = 0;

    for (char *end;; text = end) {
        text += strspn(text, " \n");
        if (*text == '\0')
            break;
        if (n == NUMBERS_MAX)
            return false;
        request->weights[n] = strtod(text, &end);
        if (end == text)
            return false;
        request->indices[n] = strtoull(text, NULL, 10);
        n++;
    }
    *ret = n;
    return true;
}

static bool parse_list(const char *kind, const char *text, struct request *request)
{
    size_t n;

    if (!parse_numbers(text, request, &n))
        return false;
    if (strcmp(kind, "indices") == 0) {
        request->params.sampler = PLAN_INDICES;
        request->params.indices = request->indices;
        request->params.n_indices = n;
    } else if (strcmp(kind, "weights") == 0) {
        request->params.sampler = PLAN_WEIGHTS;
        request->params.weights = request->weights;
        return n == request->params.length;
    }
    return true;
}

static bool parse(const char *line, struct request *request)
{
    static const char *const orders[] = {
        [PLAN_SEQUENTIAL] = "sequential", [PLAN_TORCH] = "torch", [PLAN_NATIVE] = "native"};
    struct plan_params *params = &request->params;
    unsigned drop_last, even, shard, replacement, order = 0;
    char name[16], kind[16];
    int used = 0;

    if (sscanf(line,
               "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %u %u %u %" SCNu64
               " %" SCNu64 " %u %15s%n",
               name, &params->length, &params->seed, &params->epoch, &params->world,
               &params->batch_size, &drop_last, &even, &shard, &request->rank, &params->num_samples,
               &replacement, kind, &used) != 13)
        return false;
    while (order < ARRAY_SIZE(orders) && strcmp(orders[order], name) != 0)
        order++;
    if (order == ARRAY_SIZE(orders) || request->rank >= params->world || shard > PLAN_DISPATCH)
        return false;
    params->order = (enum plan_order)order;
    params->drop_last = drop_last;
    params->even = even;
    params->shard = (enum plan_shard)shard;
    params->replacement = replacement;
    return parse_list(kind, line + used, request);
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
    for (uint64_t step = 0; indices && step < plan_steps(plan, request->rank); step++)
        printf("%s%" PRIu64, step > 0 ? "," : ";", plan_repeated(plan, request->rank, step));
    putchar('\n');
    r = indices ? 0 : -ENOMEM;
    free(indices);
    plan_free(plan);
    return r;
}

int main(void)
{
    static char line[1 << 17];

    while (fgets(line, sizeof line, stdin)) {
        static struct request request;
        int r = -EINVAL;

        request.params = (struct plan_params){0};

        if (parse(line, &request))
            r = print_plan(&request);
        if (r < 0) {
            fprintf(stderr, "plan_print: %s: %s", strerror(-r), line);
            return 1;
        }
    }
    return 0;
}
