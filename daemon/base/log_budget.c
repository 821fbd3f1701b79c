#include "daemon/base/log_budget.h"

#define LINE_NS ((uint64_t)1000000000)

/* Each line puts the day on which all are made up for a second off, and that may be so far away. */
static bool log_budget_has_room(const struct log_budget *budget, uint64_t lines, uint64_t now_ns)
{
    uint64_t ahead;

    if (mul_overflows(max_u64(lines, 1) - 1, LINE_NS, &ahead) || ahead > UINT64_MAX - now_ns)
        return true;
    return budget->spent_ns <= now_ns + ahead;
}

static void log_budget_spend(struct log_budget *budget, uint64_t now_ns)
{
    budget->spent_ns = max_u64(budget->spent_ns, now_ns) + LINE_NS;
}

bool log_budget_take(struct log_budget *budget, uint64_t lines, uint64_t now_ns)
{
    if (!log_budget_has_room(budget, lines, now_ns)) {
        budget->left_out++;
        budget->all_left_out++;
        return false;
    }
    log_budget_spend(budget, now_ns);
    return true;
}

uint64_t log_budget_left_out(struct log_budget *budget, uint64_t lines, uint64_t now_ns)
{
    uint64_t n = budget->left_out;

    if (n == 0 || !log_budget_has_room(budget, lines, now_ns))
        return 0;
    log_budget_spend(budget, now_ns);
    budget->left_out = 0;
    return n;
}
