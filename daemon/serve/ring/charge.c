#include "daemon/serve/ring/charge.h"

#include <assert.h>

/* To look costs as much as touching some hundred pages. */
enum { LITTLE = 1 << 20 };

static bool charge_is_budgeted(const struct charge *charge)
{
    return charge->payer.budget && charge->bytes >= LITTLE;
}

int charge_take(struct charge *charge, const struct payer *payer, uint64_t bytes,
                const char *remedy, struct dl_error *err)
{
    struct charge taken = {.payer = *payer, .bytes = bytes};
    int r = payer->account ? quota_charge(payer->account, QUOTA_BYTES, bytes, err) : 0;

    if (r < 0)
        return r;
    if (charge_is_budgeted(&taken)) {
        r = budget_take(payer->budget, bytes, remedy, err);
        taken.promised = r == 0 ? bytes : 0;
    }
    if (r < 0 && payer->account)
        quota_return(payer->account, QUOTA_BYTES, bytes);
    if (r == 0)
        *charge = taken;
    return r;
}

void charge_settle_up_to(struct charge *charge, uint64_t bytes)
{
    uint64_t left = charge->bytes - min_u64(charge->bytes, bytes);

    if (left >= charge->promised)
        return;
    budget_settle(charge->payer.budget, charge->promised - left);
    charge->promised = left;
}

void charge_settle(struct charge *charge)
{
    charge_settle_up_to(charge, charge->bytes);
}

void charge_shrink(struct charge *charge, uint64_t bytes)
{
    struct charge less = {.payer = charge->payer, .bytes = bytes};

    assert(!charge->promised);
    if (bytes >= charge->bytes)
        return;
    if (charge->payer.account)
        quota_return(charge->payer.account, QUOTA_BYTES, charge->bytes - bytes);
    if (charge_is_budgeted(charge))
        budget_return(charge->payer.budget,
                      charge->bytes - (charge_is_budgeted(&less) ? bytes : 0));
    *charge = less;
}

void charge_return(struct charge *charge)
{
    charge_settle(charge);
    charge_shrink(charge, 0);
}
