/* How many lines about one user the log has room for. */
#include "tests/lib/harness.h"

#include "daemon/base/log_budget.h"

#define SECOND ((uint64_t)1000000000)

/* So many of `lines` at the same time. */
static unsigned written(struct log_budget *budget, unsigned lines, uint64_t now)
{
    unsigned n = 0;

    for (unsigned i = 0; i < lines; i++)
        n += log_budget_take(budget, LOG_LINES_AT_ONCE, now);
    return n;
}

TEST(test_rates)
{
    static const struct {
        uint64_t at_s;
        unsigned lines, written;
        uint64_t left_out; /* said before these */
    } rows[] = {
        {0, 99, 99, 0},    {0, 2, 1, 0},        {0, 1000, 0, 0}, {1, 10, 0, 1001},
        {2, 10, 0, 10},    {13, 20, 10, 10},    {14, 0, 0, 10},  {1000, 200, 100, 0},
        {1001, 0, 0, 100}, {2000, 100, 100, 0}, {3000, 1, 1, 0},
    };
    struct log_budget budget = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t now = 1000 * SECOND + rows[i].at_s * SECOND;

        assert_int_equal(log_budget_left_out(&budget, LOG_LINES_AT_ONCE, now), rows[i].left_out);
        assert_int_equal(written(&budget, rows[i].lines, now), rows[i].written);
    }
}

TEST(test_time_that_stands_still)
{
    struct log_budget budget = {0};

    assert_int_equal(written(&budget, 1000000, 0), LOG_LINES_AT_ONCE);
    assert_int_equal(log_budget_left_out(&budget, LOG_LINES_AT_ONCE, 0), 0);
    assert_int_equal(log_budget_left_out(&budget, LOG_LINES_AT_ONCE, SECOND - 1), 0);
    assert_int_equal(log_budget_left_out(&budget, LOG_LINES_AT_ONCE, SECOND),
                     1000000 - LOG_LINES_AT_ONCE);
    assert_int_equal(log_budget_left_out(&budget, LOG_LINES_AT_ONCE, SECOND), 0);
}

TEST(test_other_limits)
{
    static const struct {
        uint64_t lines, written;
    } rows[] = {{1, 1}, {7, 7}, {0, 1}, {UINT64_MAX, 500}, {UINT64_MAX / SECOND, 500}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct log_budget budget = {0};
        uint64_t n = 0;

        for (unsigned line = 0; line < 500; line++)
            n += log_budget_take(&budget, rows[i].lines, 1000 * SECOND);
        assert_int_equal(n, rows[i].written);
        assert_int_equal(budget.all_left_out, 500 - n);
        (void)log_budget_left_out(&budget, rows[i].lines, 2000 * SECOND);
        assert_int_equal(budget.all_left_out, 500 - n); /* that is permanent */
    }
}
