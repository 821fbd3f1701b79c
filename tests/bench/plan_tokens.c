/*
 * How long the plan of an epoch of token batches takes, by each strategy: lengths of a log-normal
 * distribution, planned by one thread with the daemon's own code, in torch's shuffled order.
 *
 * Each run is the plan of another epoch, from plan_new() to the end of plan_prepare(), after which
 * every step is known. It is reported as one line of JSON: the time by the clock, the time of the
 * processor, which says the same and more on a machine that is busy, and what padding came out.
 */
#include "daemon/plan/plan.h"
#include "tests/bench/bench.h"

#include <math.h>

struct options {
    uint64_t samples;
    uint64_t tokens;
    uint64_t longest;
    uint64_t world;
    uint64_t row;
    unsigned strategy; /* an enum plan_strategy */
    bool balance;
    bool serve;
};

/* Of text in sentences: half of the lengths are below e^4 ≈ 55, one in six above e^4.8 ≈ 120. */
static const double log_mean = 4.0, log_deviation = 0.8;

/* splitmix64, as a fraction above 0, so that it has a logarithm. */
static double next_fraction(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) / 9007199254740992.0;
}

/* By Box and Muller's transform. Longer ones than the longest are cut to it. */
static void make_lengths(const struct options *opt, uint32_t *ret)
{
    uint64_t state = 42;

    for (uint64_t i = 0; i < opt->samples; i++) {
        double radius = sqrt(-2 * log(next_fraction(&state)));
        double normal = radius * cos(6.283185307179586 * next_fraction(&state));
        double length = exp(log_mean + log_deviation * normal);
        ret[i] = length < 1 ? 1 : (uint32_t)fmin(length, (double)opt->longest);
    }
}

static double cpu_now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int do_run(const struct options *opt, const uint32_t *lengths, uint64_t epoch)
{
    struct plan_params params = {
        .length = opt->samples,
        .order = PLAN_TORCH,
        .seed = 42,
        .epoch = epoch,
        .world = opt->world,
        .even = opt->strategy != PLAN_SORTED || !opt->balance,
        .tokens = {.tokens = opt->tokens,
                   .lengths = lengths,
                   .strategy = (enum plan_strategy)opt->strategy,
                   .interval = 8,
                   .multiple = 1,
                   .row_length = (uint32_t)min_u64(opt->tokens, opt->row),
                   .window = opt->strategy == PLAN_BUCKET ? 0 : 256,
                   .balance = opt->balance,
                   .linear = opt->balance,
                   .square = opt->balance ? 1.0 / 4096 : 0},
    };
    const struct plan_totals *totals;
    struct plan *plan = NULL;
    double begun = bench_now_s(), begun_cpu = cpu_now_s(), seconds, cpu;
    int r;

    r = plan_new(&params, &plan);
    if (r == 0)
        r = plan_prepare(plan);
    seconds = bench_now_s() - begun;
    cpu = cpu_now_s() - begun_cpu;
    if (r == 0) {
        totals = plan_totals(plan);
        printf("{\"seconds\": %.9f, \"cpu_s\": %.9f, \"batches\": %llu, \"samples\": %llu, "
               "\"tokens\": %llu, "
               "\"padded\": %llu}\n",
               seconds, cpu, (unsigned long long)totals->groups,
               (unsigned long long)totals->samples, (unsigned long long)totals->tokens,
               (unsigned long long)totals->padded);
        fflush(stdout);
    }
    plan_free(plan);
    return r;
}

static bool parse_options(int argc, char **argv, struct options *opt)
{
    static const char *const strategies[] = {"sorted", "bucket", "pack", "sequential", NULL};
    const struct bench_option options[] = {
        {"samples", .number = &opt->samples, .max = UINT32_MAX},
        {"tokens", .number = &opt->tokens, .max = UINT32_MAX},
        {"longest", .number = &opt->longest, .max = UINT32_MAX},
        {"strategy", .choice = &opt->strategy, .names = strategies},
        {"world", .number = &opt->world, .max = UINT32_MAX},
        {"row", .number = &opt->row, .max = UINT32_MAX},
        {"balance", .flag = &opt->balance},
        {"serve", .flag = &opt->serve},
        {0},
    };

    return bench_parse(argc, argv, options) && opt->samples > 0 && opt->longest > 0 &&
           opt->tokens > 0 && opt->world > 0 && opt->row > 0;
}

int main(int argc, char **argv)
{
    struct options opt = {
        .samples = 10000000, .tokens = 16384, .longest = 512, .world = 1, .row = 2048};
    uint32_t *lengths;
    int r = 0;

    if (!parse_options(argc, argv, &opt)) {
        fprintf(stderr, "usage: plan_tokens [--strategy sorted|bucket|pack|sequential]\n"
                        "                   [--samples N] [--tokens N] [--longest N] [--world N]\n"
                        "                   [--row N] [--balance] [--serve]\n");
        return 2;
    }
    lengths = calloc(opt.samples, sizeof *lengths);
    if (!lengths) {
        fprintf(stderr, "plan_tokens: no memory for %llu lengths\n",
                (unsigned long long)opt.samples);
        return 1;
    }
    make_lengths(&opt, lengths);
    for (uint64_t epoch = 0; r == 0 && bench_next_run(opt.serve, epoch); epoch++)
        r = do_run(&opt, lengths, epoch);
    free(lengths);
    if (r < 0)
        fprintf(stderr, "plan_tokens: cannot plan: %s\n", strerror(-r));
    return r < 0;
}
