/* How much is asked for ahead: simulated links of several rates and latencies are filled, also
 * where what is asked for at first does not fill them; and no more is under way than two and a half
 * times what they carry. */
#include "tests/lib/harness.h"

#include "daemon/fetcher/depth.h"

enum { MS = 1000000, SECONDS = 20, KIB = 1024 };
#define S (1000ULL * MS)

/* Answers come one after another, as fast as the link is, and not before its latency is over. */
struct sim {
    double bytes_per_ns;
    uint64_t latency_ns, each;
    struct depth depth;
    uint64_t now_ns, free_ns; /* the link is free again */
    uint64_t sent_ns[DEPTH_REQUESTS_MOST], ends_ns[DEPTH_REQUESTS_MOST];
    uint64_t first, n; /* under way: a ring */
    uint64_t came;     /* bytes in the latter half */
    uint64_t most;     /* bytes under way then */
};

static void send_one(struct sim *sim)
{
    uint64_t i = (sim->first + sim->n++) % DEPTH_REQUESTS_MOST;
    uint64_t begins = max_u64(sim->now_ns + sim->latency_ns, sim->free_ns);

    sim->free_ns = begins + (uint64_t)((double)sim->each / sim->bytes_per_ns);
    sim->sent_ns[i] = sim->now_ns;
    sim->ends_ns[i] = sim->free_ns;
}

static void simulate(struct sim *sim, bool is_fixed)
{
    while (sim->now_ns < SECONDS * S) {
        uint64_t requests = is_fixed ? DEPTH_REQUESTS : depth_requests(&sim->depth);
        uint64_t bytes = is_fixed ? DEPTH_BYTES : depth_bytes(&sim->depth);

        while (sim->n < requests && (sim->n + 1) * sim->each <= bytes)
            send_one(sim);
        sim->now_ns = sim->ends_ns[sim->first];
        depth_note(&sim->depth, sim->now_ns, sim->now_ns - sim->sent_ns[sim->first], sim->each);
        if (sim->now_ns > SECONDS / 2 * S) {
            sim->came += sim->each;
            sim->most = max_u64(sim->most, sim->n * sim->each);
        }
        sim->first = (sim->first + 1) % DEPTH_REQUESTS_MOST;
        sim->n--;
    }
}

static const struct {
    double gbits;
    unsigned latency_ms, each_kib;
    unsigned percent, fixed_percent; /* of the link, at least; and at most without depth.h */
} rows[] = {
    {2, 20, 100, 95, 100},    {2, 20, 4096, 95, 100},  {2, 100, 100, 95, 45},
    {10, 20, 1024, 95, 100},  {10, 100, 4096, 95, 30}, {10, 100, 100, 28, 10},
    {0.1, 200, 100, 95, 100}, {100, 1, 4096, 95, 100}, {25, 40, 4096, 95, 30},
};

TEST(test_links)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t percent[2], carried = 0, most = 0;

        for (int is_fixed = 0; is_fixed < 2; is_fixed++) {
            struct sim sim = {.bytes_per_ns = rows[i].gbits / 8,
                              .latency_ns = rows[i].latency_ms * (uint64_t)MS,
                              .each = rows[i].each_kib * (uint64_t)KIB};

            simulate(&sim, is_fixed);
            carried = (uint64_t)(sim.bytes_per_ns * (double)sim.latency_ns) + sim.each;
            most = is_fixed ? most : sim.most;
            percent[is_fixed] =
                (uint64_t)((double)sim.came * 100 / (sim.bytes_per_ns * SECONDS / 2 * S));
        }
        print_message("# %.1f Gbit/s, %u ms, %u KiB: %llu %% of the link, %llu %% with a fixed "
                      "depth; %llu MiB under way\n",
                      rows[i].gbits, rows[i].latency_ms, rows[i].each_kib,
                      (unsigned long long)percent[0], (unsigned long long)percent[1],
                      (unsigned long long)most >> 20);
        assert_in_range(percent[0], rows[i].percent, 101);
        assert_in_range(percent[1], 0, rows[i].fixed_percent);
        assert_in_range(most, 0, max_u64(carried * 5 / 2, DEPTH_BYTES));
    }
}

TEST(test_bounds)
{
    struct depth depth = {0};

    assert_int_equal(depth_requests(&depth), DEPTH_REQUESTS);
    assert_int_equal(depth_bytes(&depth), DEPTH_BYTES);
    depth_note(&depth, 1, 0, 0); /* says nothing */
    assert_int_equal(depth_requests(&depth), DEPTH_REQUESTS);
    for (int i = 0; i < 1000; i++)
        depth_note(&depth, 10 * S + (uint64_t)i, S, 4 << 20);
    assert_int_equal(depth_bytes(&depth), DEPTH_BYTES_MOST);
    assert_int_equal(depth_requests(&depth), DEPTH_REQUESTS_MOST);
    depth_note(&depth, 10 * S + 2 * DEPTH_SLICES * DEPTH_SLICE_MS * (uint64_t)MS, S, 1);
    assert_int_equal(depth_bytes(&depth), DEPTH_BYTES); /* what was is over */
}
