/* Workers that die: those in a loop are given up, and those that die now and then never. */
#include "tests/lib/harness.h"

#include "daemon/serve/pool/deaths.h"

#define S      UINT64_C(1000000000)
#define MINUTE (60 * S)
#define DAY    (1440 * MINUTE)

enum { LIVES = 10, GIVEN_UP = 9999 };

static const struct {
    const char *name;
    uint64_t well[LIVES];  /* ns, of each life */
    uint64_t pause[LIVES]; /* ms behind it; nothing comes behind GIVEN_UP */
} rows[] = {
    {"as soon as it is there", {0}, {0, 50, 100, 200, 400, GIVEN_UP}},
    {"a while after", {S, 2 * S, S, 9 * S, S, 59 * S}, {0, 50, 100, 200, 400, GIVEN_UP}},
    {"just too soon",
     {MINUTE - 1, MINUTE - 1, MINUTE - 1, MINUTE - 1, MINUTE - 1, MINUTE - 1},
     {0, 50, 100, 200, 400, GIVEN_UP}},
    {"each minute",
     {MINUTE, MINUTE, MINUTE, MINUTE, MINUTE, MINUTE, MINUTE, MINUTE, MINUTE, MINUTE},
     {0}},
    {"days apart", {DAY, 3 * DAY, DAY, DAY, 2 * DAY, DAY, DAY, DAY, 9 * DAY, DAY}, {0}},
    {"a bad hour in a long life",
     {9 * DAY, S, S, S, 9 * DAY, S, S, S, 9 * DAY, DAY},
     {0, 50, 100, 200, 0, 50, 100, 200, 0, 0}},
    {"a short rest is worth little",
     {0, 0, 0, 0, 2 * MINUTE, 0, 0, 0},
     {0, 50, 100, 200, 100, 200, 400, GIVEN_UP}},
    {"the longest life",
     {UINT64_MAX, 0, UINT64_MAX, UINT64_MAX, 0},
     {0, 50, 0, 0, 50, 100, 200, 400, GIVEN_UP}},
};

TEST(test_table)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct deaths deaths = {0};
        for (size_t k = 0; k < LIVES; k++) {
            uint64_t pause = GIVEN_UP;
            bool again = deaths_add(&deaths, rows[i].well[k], &pause);
            if (pause != rows[i].pause[k] || again != (pause != GIVEN_UP))
                fail_msg("%s: behind life %zu came %llu", rows[i].name, k,
                         (unsigned long long)pause);
            if (!again)
                break;
        }
    }
}

TEST(test_a_finished_task)
{
    struct deaths deaths = {0};
    uint64_t pause;

    for (uint32_t i = 0; i < 10 * DEATHS_MAX; i++) {
        assert_true(deaths_add(&deaths, 0, &pause));
        assert_int_equal(pause > 0, i % DEATHS_MAX > 0);
        if (i % DEATHS_MAX == DEATHS_MAX - 1)
            deaths = (struct deaths){0};
    }
}
