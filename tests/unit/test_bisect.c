/* Where a number lies among numbers in order: as a walk from the first to the last finds it. */
#include "proto/common/bisect.h"
#include "tests/lib/harness.h"

enum { MOST = 20, ENDS = 40 };

struct part {
    char before[3];
    uint64_t first;
    char behind;
};

/* `n` numbers below ENDS that rise, some of them twice. */
static void draw_rising(uint64_t *numbers, uint32_t n, uint64_t *seed)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005U + 1442695040888963407U;
        number += *seed >> 62;
        numbers[i] = number < ENDS ? number : ENDS - 1;
    }
}

static uint64_t walk_ends(const uint64_t *ends, uint64_t n, uint64_t at)
{
    for (uint64_t i = 0; i < n; i++)
        if (at < ends[i])
            return i;
    return n;
}

static uint64_t walk_firsts(const struct part *parts, uint64_t n, uint64_t at)
{
    uint64_t found = 0;

    for (uint64_t i = 0; i < n; i++)
        if (parts[i].first <= at)
            found = i;
    return found;
}

TEST(test_as_a_walk)
{
    uint64_t numbers[MOST] = {0}, seed = 1;
    struct part parts[MOST] = {{.first = 0}};

    for (uint32_t n = 0; n <= MOST; n++) {
        for (uint32_t time = 0; time < 20; time++) {
            draw_rising(numbers, n, &seed);
            for (uint32_t i = 0; i < n; i++)
                parts[i] = (struct part){.first = numbers[i]};
            for (uint64_t at = 0; at <= ENDS; at++) {
                assert_int_equal(bisect_ends(numbers, n, at), walk_ends(numbers, n, at));
                assert_int_equal(bisect_firsts(&parts[0].first, sizeof *parts, n, at),
                                 walk_firsts(parts, n, at));
            }
        }
    }
}

TEST(test_the_largest)
{
    const uint64_t numbers[] = {0, 1, UINT64_MAX};

    assert_int_equal(bisect_ends(numbers, 3, UINT64_MAX - 1), 2);
    assert_int_equal(bisect_ends(numbers, 3, UINT64_MAX), 3);
    assert_int_equal(bisect_firsts(numbers, sizeof *numbers, 3, UINT64_MAX - 1), 1);
    assert_int_equal(bisect_firsts(numbers, sizeof *numbers, 3, UINT64_MAX), 2);
}
