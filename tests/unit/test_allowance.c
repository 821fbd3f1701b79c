/* What part of the loop's time something may take: rows of what it took, and when. */
#include "tests/lib/harness.h"

#include "daemon/base/allowance.h"

#define MS 1000000ULL

struct turn {
    uint64_t at_ms, took_us;
    uint64_t due_ms; /* when it may go on, said then */
};

TEST(test_when_it_may_go_on)
{
    static const struct {
        struct turn turns[4]; /* none that takes nothing at 0 */
    } rows[] = {
        {{{0, 0, 0}}},
        {{{0, 2000, 0}}},                                         /* may be owed */
        {{{0, 3000, 10}}},                                        /* ten times what is more */
        {{{5, 2000, 5}, {6, 100, 6}}},                            /* paid back meanwhile */
        {{{5, 2000, 5}, {5, 2000, 25}, {26, 0, 26}}},             /* to what may be owed */
        {{{5, 2000, 5}, {5, 2000, 25}, {26, 1000, 35}}},          /* and a bit more */
        {{{0, 2000, 0}, {1000, 2000, 1000}, {2000, 3000, 2010}}}, /* nothing is saved up */
        {{{9, 4000, 29}, {3, 0, 23}}}, /* the clock goes back: no debt is paid */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct allowance a = {0};

        for (size_t t = 0; t < ARRAY_SIZE(rows[i].turns); t++) {
            const struct turn *turn = &rows[i].turns[t];

            if (t > 0 && turn->at_ms == 0)
                break;
            allowance_charge(&a, turn->took_us * 1000, turn->at_ms * MS);
            uint64_t due = allowance_due(&a, turn->at_ms * MS);
            assert_int_equal(due / MS, turn->due_ms);
            assert_true(due >= turn->at_ms * MS);
            assert_int_equal(allowance_due(&a, due), due);
        }
    }
}

/* A user who takes as much as there is gets a tenth, however long each turn takes. */
TEST(test_a_tenth)
{
    static const uint64_t turns_us[] = {1, 50, 1000, 2000, 5000, 40000};

    for (size_t i = 0; i < ARRAY_SIZE(turns_us); i++) {
        struct allowance a = {0};
        uint64_t now = 0, took = 0;

        while (now < 60000 * MS) {
            now = allowance_due(&a, now) + turns_us[i] * 1000;
            took += turns_us[i] * 1000;
            allowance_charge(&a, turns_us[i] * 1000, now);
        }
        assert_in_range(took, now / 11, now / 9);
    }
}

TEST(test_the_most)
{
    struct allowance a = {0};

    allowance_charge(&a, UINT64_MAX, 1);
    allowance_charge(&a, UINT64_MAX, 2);
    assert_in_range(allowance_due(&a, 2), 480 * MS, 481 * MS);
    assert_int_equal(allowance_due(&a, UINT64_MAX), UINT64_MAX);
}
