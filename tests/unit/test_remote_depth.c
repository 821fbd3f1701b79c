/* How much is asked for ahead: simulated links of several rates and latencies are filled, also
 * where what is asked for at first does not fill them, whether answers come one after another or
 * share the link; and no more is under way than two and a half times what they carry. */
#include "tests/lib/harness.h"

#include "daemon/fetcher/depth.h"

enum { MS = 1000000, SECONDS = 20, KIB = 1024 };
#define S (1000ULL * MS)

/* Answers come as fast as the link is, and not before its latency is over: one after another, or
 * all that are under way together. */
struct sim {
    bool is_shared;
    double bytes_per_ns;
    uint64_t latency_ns, each;
    struct depth depth;
    uint64_t now_ns;
    uint64_t begins_ns[DEPTH_REQUESTS_MOST], left[DEPTH_REQUESTS_MOST];
    uint64_t first, n;  /* under way: a ring */
    uint64_t under_way; /* bytes of it that have not come */
    uint64_t came;      /* bytes in the latter half */
    uint64_t most;      /* bytes under way then */
};

enum { TURN = 64 * KIB }; /* bytes that come at once */

static void send_one(struct sim *sim)
{
    uint64_t i = (sim->first + sim->n++) % DEPTH_REQUESTS_MOST;

    sim->begins_ns[i] = sim->now_ns + sim->latency_ns;
    sim->left[i] = sim->each;
    sim->under_way += sim->each;
}

/* The one whose turn it is after `i`: of those that have begun, or the first. */
static uint64_t next_turn(const struct sim *sim, uint64_t i)
{
    for (uint64_t k = 0; sim->is_shared && k < sim->n; k++) {
        uint64_t at = (i + 1 + k) % DEPTH_REQUESTS_MOST;
        bool is_there = (at + DEPTH_REQUESTS_MOST - sim->first) % DEPTH_REQUESTS_MOST < sim->n;

        if (is_there && sim->left[at] > 0 && sim->begins_ns[at] <= sim->now_ns)
            return at;
    }
    return sim->first;
}

static void come(struct sim *sim, uint64_t i)
{
    uint64_t bytes = min_u64(sim->left[i], TURN);

    sim->now_ns = max_u64(sim->now_ns, sim->begins_ns[i]);
    if (sim->left[i] == sim->each)
        depth_note_begin(&sim->depth, sim->now_ns - (sim->begins_ns[i] - sim->latency_ns));
    sim->now_ns += (uint64_t)((double)bytes / sim->bytes_per_ns);
    depth_note_came(&sim->depth, sim->now_ns, bytes);
    sim->left[i] -= bytes;
    sim->under_way -= bytes;
    if (sim->left[i] == 0)
        depth_note_whole(&sim->depth, sim->each);
    if (sim->now_ns > SECONDS / 2 * S)
        sim->came += bytes;
}

static void simulate(struct sim *sim, bool is_fixed)
{
    uint64_t turn = 0;

    while (sim->now_ns < SECONDS * S) {
        uint64_t requests = is_fixed ? DEPTH_REQUESTS : depth_requests(&sim->depth);
        uint64_t bytes = is_fixed ? DEPTH_BYTES : depth_bytes(&sim->depth);

        while (sim->n < requests && sim->under_way + sim->each <= bytes)
            send_one(sim);
        if (sim->now_ns > SECONDS / 2 * S)
            sim->most = max_u64(sim->most, sim->under_way);
        turn = next_turn(sim, turn);
        come(sim, turn);
        for (; sim->n > 0 && sim->left[sim->first] == 0; sim->n--)
            sim->first = (sim->first + 1) % DEPTH_REQUESTS_MOST;
    }
}

static const struct row {
    double gbits;
    unsigned latency_ms, each_kib;
    unsigned percent, fixed_percent; /* of the link, at least; and at most without depth.h */
} rows[] = {
    {2, 20, 100, 95, 100},    {2, 20, 4096, 95, 100},  {2, 100, 100, 85, 45},
    {10, 20, 1024, 95, 100},  {10, 100, 4096, 95, 30}, {10, 100, 100, 34, 10},
    {0.1, 200, 100, 95, 100}, {100, 1, 4096, 95, 100}, {25, 40, 4096, 95, 30},
};

static uint64_t percent_of(struct sim *sim, bool is_fixed)
{
    simulate(sim, is_fixed);
    return (uint64_t)((double)sim->came * 100 / (sim->bytes_per_ns * SECONDS / 2 * S));
}

TEST(test_links)
{
    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i / 2];
        struct sim sim = {.is_shared = i % 2,
                          .bytes_per_ns = row->gbits / 8,
                          .latency_ns = row->latency_ms * (uint64_t)MS,
                          .each = row->each_kib * (uint64_t)KIB},
                   fixed = sim;
        uint64_t carried = (uint64_t)(sim.bytes_per_ns * (double)sim.latency_ns) + sim.each;
        uint64_t percent = percent_of(&sim, false), fixed_percent = percent_of(&fixed, true);

        print_message("# %.1f Gbit/s, %u ms, %u KiB%s: %llu %% of the link, %llu %% with a fixed "
                      "depth; %llu MiB under way\n",
                      row->gbits, row->latency_ms, row->each_kib, sim.is_shared ? ", shared" : "",
                      (unsigned long long)percent, (unsigned long long)fixed_percent,
                      (unsigned long long)sim.most >> 20);
        assert_in_range(percent, row->percent, 101);
        assert_in_range(fixed_percent, 0, row->fixed_percent);
        assert_in_range(sim.most, 0, max_u64(carried * 5 / 2, DEPTH_BYTES));
    }
}

TEST(test_bounds)
{
    struct depth depth = {0};

    assert_int_equal(depth_requests(&depth), DEPTH_REQUESTS);
    assert_int_equal(depth_bytes(&depth), DEPTH_BYTES);
    depth_note_whole(&depth, 0); /* says nothing */
    assert_int_equal(depth_requests(&depth), DEPTH_REQUESTS);
    depth_note_begin(&depth, S);
    for (int i = 0; i < 1000; i++)
        depth_note_came(&depth, 10 * S + (uint64_t)i, 4 << 20);
    assert_int_equal(depth_bytes(&depth), DEPTH_BYTES_MOST);
    assert_int_equal(depth_requests(&depth), DEPTH_REQUESTS_MOST);
    depth_note_came(&depth, 10 * S + 2 * DEPTH_SLICES * DEPTH_SLICE_MS * (uint64_t)MS, 1);
    assert_int_equal(depth_bytes(&depth), DEPTH_BYTES); /* what was is over */
}
