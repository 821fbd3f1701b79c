#include "daemon/base/allowance.h"

/* What is left of the debt. A clock that stands still or goes back repays nothing. */
static uint64_t allowance_debt(const struct allowance *a, uint64_t now_ns)
{
    uint64_t passed = now_ns > a->at_ns ? now_ns - a->at_ns : 0;
    uint64_t paid = passed / 1000 * ALLOWANCE_PER_MILLE;

    return a->debt_ns > paid ? a->debt_ns - paid : 0;
}

void allowance_charge(struct allowance *a, uint64_t took_ns, uint64_t now_ns)
{
    uint64_t debt = allowance_debt(a, now_ns);

    a->debt_ns = min_u64(debt + min_u64(took_ns, ALLOWANCE_MOST_NS), ALLOWANCE_MOST_NS);
    a->at_ns = now_ns;
}

uint64_t allowance_due(const struct allowance *a, uint64_t now_ns)
{
    uint64_t debt = allowance_debt(a, now_ns);

    if (debt <= ALLOWANCE_OWED_NS)
        return now_ns;
    return now_ns + ((debt - ALLOWANCE_OWED_NS) / ALLOWANCE_PER_MILLE + 1) * 1000;
}
