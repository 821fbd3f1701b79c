/* How many requests a host is sent at once: simulated stores that refuse for several reasons, each
 * asked for as much as it gives; and what single answers do. */
#include "tests/lib/harness.h"

#include "daemon/fetcher/host_limit.h"
#include "tests/lib/splitmix.h"

enum { MOST = 96, MS = 1000000, SECONDS = 60 };
#define S (1000ULL * MS)

/* Requests arrive when they are sent. What is served is answered after 15 to 25 ms, what is refused
 * after 5 ms. */
struct store {
    unsigned chance;    /* so many of 1,000 are refused whatever else is; */
    unsigned rate;      /* those of more than so many in a second; 0: any number; */
    unsigned at_once;   /* and those that come while so many are served; 0: any number */
    uint64_t until_ns;  /* from then on the latter two hold no more; 0: always */
    unsigned retry_s;   /* what it says when it refuses */
    bool is_ignored;    /* the limit, for comparison */
    double tokens;      /* of the rate: */
    uint64_t tokens_ns; /* as it was then */
    unsigned serves;
};

struct sent {
    uint64_t sent_ns, ends_ns;
    bool refused;
};

struct sim {
    struct store store;
    struct host_limit limit;
    struct sent sent[MOST];
    uint64_t random, now_ns;
    uint64_t n, served, refused; /* in the latter half of the time */
};

static bool store_refuses(struct sim *sim)
{
    struct store *store = &sim->store;
    bool holds = store->until_ns == 0 || sim->now_ns < store->until_ns;
    double burst = store->rate / 50.0;

    store->tokens += (double)(sim->now_ns - store->tokens_ns) / 1e9 * store->rate;
    store->tokens = store->tokens > burst ? burst : store->tokens;
    store->tokens_ns = sim->now_ns;
    if (next_random(&sim->random) % 1000 < store->chance)
        return true;
    if (holds &&
        ((store->rate && store->tokens < 1) || (store->at_once && store->serves >= store->at_once)))
        return true;
    store->tokens -= store->rate ? 1 : 0;
    store->serves++;
    return false;
}

static void send_one(struct sim *sim, struct sent *sent)
{
    bool refused = store_refuses(sim);
    uint64_t takes = refused ? 5 * MS : 15 * MS + next_random(&sim->random) % (10 * MS);

    *sent = (struct sent){sim->now_ns, sim->now_ns + takes, refused};
    host_limit_sent(&sim->limit);
}

static void answer_one(struct sim *sim, struct sent *sent)
{
    const struct host_answer answer = {.sent_ns = sent->sent_ns,
                                       .refused = sent->refused,
                                       .after_s = sent->refused ? sim->store.retry_s : 0};

    if (!sim->store.is_ignored)
        host_limit_answered(&sim->limit, &answer, sim->now_ns, MOST);
    host_limit_ended(&sim->limit);
    sim->store.serves -= !sent->refused;
    if (sim->now_ns > SECONDS / 2 * S) {
        sim->n++;
        sim->served += !sent->refused;
        sim->refused += sent->refused;
    }
    sent->ends_ns = 0;
}

/* There is always another one that waits to be sent. */
static void simulate(struct sim *sim)
{
    while (sim->now_ns < SECONDS * S) {
        struct sent *next = NULL;

        for (size_t i = 0; i < MOST; i++) {
            struct sent *sent = &sim->sent[i];
            if (sent->ends_ns == 0 && host_limit_has_room(&sim->limit, sim->now_ns))
                send_one(sim, sent);
            if (sent->ends_ns > 0 && (!next || sent->ends_ns < next->ends_ns))
                next = sent;
        }
        if (next) {
            sim->now_ns = next->ends_ns;
            answer_one(sim, next);
        } else {
            sim->now_ns += host_limit_opens_after(&sim->limit, sim->now_ns);
        }
    }
}

/* Of what is served in a second and refused of 1,000, the least and the most. Without a limit a
 * store is asked again and again, and a request is given up after TRANSFER_TRIES. */
static const struct {
    const char *what;
    struct store store;
    unsigned served[2], refused[2];
    bool slowed; /* in the end */
} rows[] = {
    {"it refuses nothing", {0}, {4750, 4850}, {0, 0}, false},
    {"1 of 100 by chance", {.chance = 10}, {4600, 4850}, {5, 15}, false},
    {"1,000 in a second", {.rate = 1000}, {900, 1000}, {0, 50}, true},
    {"that, without a limit", {.rate = 1000, .is_ignored = true}, {990, 1000}, {900, 999}, false},
    {"100 in a second", {.rate = 100}, {50, 100}, {0, 50}, true},
    {"8 at once", {.at_once = 8}, {320, 400}, {0, 50}, true},
    {"that, without a limit", {.at_once = 8, .is_ignored = true}, {320, 400}, {900, 999}, false},
    {"8 at once, for 20 s", {.at_once = 8, .until_ns = 20 * S}, {4750, 4850}, {0, 0}, false},
    {"come again in 1 s", {.rate = 1000, .retry_s = 1}, {50, 150}, {0, 50}, true},
};

TEST(test_stores)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sim sim = {.store = rows[i].store, .random = i + 1};

        simulate(&sim);
        uint64_t served = sim.served / (SECONDS / 2), refused = sim.refused * 1000 / sim.n;
        print_message("# %s: %llu served in a second, %llu of 1,000 refused, %u at once\n",
                      rows[i].what, (unsigned long long)served, (unsigned long long)refused,
                      sim.limit.at_once);
        assert_in_range(served, rows[i].served[0], rows[i].served[1]);
        assert_in_range(refused, rows[i].refused[0], rows[i].refused[1]);
        assert_int_equal(sim.limit.at_once > 0 && sim.limit.at_once < MOST / 2, rows[i].slowed);
    }
}

static void answer(struct host_limit *limit, uint64_t sent_ns, uint64_t now_ns, bool refused)
{
    host_limit_answered(limit, &(struct host_answer){.sent_ns = sent_ns, .refused = refused},
                        now_ns, MOST);
    host_limit_ended(limit);
}

/* Of those that are under way when it is lowered the others lower it no further. */
TEST(test_lowered_once)
{
    struct host_limit limit = {0};

    for (int i = 0; i < 40; i++)
        host_limit_sent(&limit);
    for (int i = 0; i < 40; i++)
        answer(&limit, 1, 100 + (uint64_t)i, true);
    assert_int_equal(limit.at_once, 20);
    for (int i = 0; i < 20; i++) {
        assert_true(host_limit_has_room(&limit, 200));
        host_limit_sent(&limit);
    }
    assert_false(host_limit_has_room(&limit, 200));
    for (int i = 0; i < 20; i++)
        answer(&limit, 200, 300, true);
    assert_int_equal(limit.at_once, 10);
}

/* It never is 0, and goes up again until it is no limit; one that is refused is chance. */
TEST(test_least)
{
    struct host_limit limit = {0};
    uint64_t now = 1;

    host_limit_sent(&limit);
    answer(&limit, now, now, true);
    assert_int_equal(limit.at_once, 0);
    for (int i = 0; i < 10; i++, now++) {
        assert_true(host_limit_has_room(&limit, now));
        host_limit_sent(&limit);
        answer(&limit, now, now, true);
    }
    assert_int_equal(limit.at_once, 1);
    for (uint32_t was = 1; limit.at_once; was = limit.at_once) {
        for (uint64_t i = 0; i < max_u64(was, HOST_LIMIT_CHANCE); i++, now++) {
            host_limit_sent(&limit);
            answer(&limit, now, now, was > 1 && i == 5);
        }
        assert_true(limit.at_once == 0 || limit.at_once > was);
    }
    assert_in_range(now, 32 * 32, 96 * 96); /* requests */
}

TEST(test_closed)
{
    static const struct {
        int64_t after_s;
        uint64_t want_s;
    } table[] = {{0, 0}, {-5, 0}, {1, 1}, {30, 30}, {31, 30}, {INT64_MAX, 30}};

    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct host_limit limit = {0};

        host_limit_sent(&limit);
        host_limit_answered(
            &limit, &(struct host_answer){.refused = true, .after_s = table[i].after_s}, 7, MOST);
        host_limit_ended(&limit);
        assert_int_equal(host_limit_opens_after(&limit, 7), table[i].want_s * S);
        assert_int_equal(host_limit_has_room(&limit, 7), table[i].want_s == 0);
        assert_true(host_limit_has_room(&limit, 7 + table[i].want_s * S));
    }
}
