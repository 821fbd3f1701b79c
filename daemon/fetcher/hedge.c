#include "daemon/fetcher/hedge.h"

enum {
    HEDGE_FORGET = 1024, /* answers: the older half counts half from then on */
    HEDGE_FIRST_NS = 65536,
};

unsigned hedge_kind_of(uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    return bytes <= 64 << 10 ? 1 : bytes <= 256 << 10 ? 2 : bytes <= 1 << 20 ? 3 : 4;
}

/* From 66 µs to 18 minutes. */
static unsigned hedge_step_of(uint64_t ns)
{
    uint64_t times = ns / (HEDGE_FIRST_NS / 4);
    unsigned doublings = times < 4 ? 0 : 61 - (unsigned)__builtin_clzll(times);

    return (unsigned)min_u64(4 * doublings + (times < 4 ? 0 : (times >> doublings) - 4),
                             HEDGE_STEPS - 1);
}

/* The time at which the step ends. */
static uint64_t hedge_step_end(unsigned step)
{
    return (uint64_t)(HEDGE_FIRST_NS / 4) * (5 + step % 4) << step / 4;
}

void hedge_note(struct hedge *hedge, unsigned kind, uint64_t ns)
{
    struct hedge_kind *of = &hedge->kinds[kind];

    of->counts[hedge_step_of(ns)]++;
    if (++of->n < HEDGE_FORGET)
        return;
    of->n = 0;
    for (unsigned i = 0; i < HEDGE_STEPS; i++)
        of->n += of->counts[i] /= 2;
}

uint64_t hedge_after(const struct hedge *hedge, unsigned kind)
{
    const struct hedge_kind *of = &hedge->kinds[kind];
    uint64_t below = 0;

    if (of->n < HEDGE_LEAST)
        return UINT64_MAX;
    for (unsigned i = 0; i < HEDGE_STEPS; i++) {
        below += of->counts[i];
        if (below * 100 >= (uint64_t)of->n * 95)
            return hedge_step_end(i);
    }
    return UINT64_MAX;
}

void hedge_sent(struct hedge *hedge)
{
    hedge->credit = (uint32_t)min_u64(hedge->credit + 1, HEDGE_SAVED * HEDGE_SHARE);
}

bool hedge_take(struct hedge *hedge, uint64_t now_ns)
{
    if (hedge->credit >= HEDGE_SHARE) {
        hedge->credit -= HEDGE_SHARE;
        return true;
    }
    if (now_ns - hedge->taken_ns < HEDGE_EVERY_NS)
        return false;
    hedge->taken_ns = now_ns;
    return true;
}
