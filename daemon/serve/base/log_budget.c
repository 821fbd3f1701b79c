#include "daemon/serve/base/log_budget.h"

#define LINE_NS ((uint64_t)1000000000)

/* Each line puts the day on which all are made up for a second off, and that may be so far away. */
static bool log_budget_has_room(const struct log_budget *budget, uint64_t now_ns)
{
    return budget->spent_ns <= now_ns + (LOG_LINES_AT_ONCE - 1) * LINE_NS;
}

static void log_budget_spend(struct log_budget *budget, uint64_t now_ns)
{
    budget->spent_ns = max_u64(budget->spent_ns, now_ns) + LINE_NS;
}

bool log_budget_take(struct log_budget *budget, uint64_t now_ns)
{
    if (!log_budget_has_room(budget, now_ns)) {
        budget->left_out++;
        return false;
    }
    log_budget_spend(budget, now_ns);
    return true;
}

uint64_t log_budget_left_out(struct log_budget *budget, uint64_t now_ns)
{
    uint64_t n = budget->left_out;

    if (n == 0 || !log_budget_has_room(budget, now_ns))
        return 0;
    log_budget_spend(budget, now_ns);
    budget->left_out = 0;
    return n;
}
