/* The array behind the draws; what is drawn, and from how many words, is the samplers' business. */
#include "daemon/plan/draws.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/zeroes.h"

static uint64_t width(const struct draws *draws)
{
    return draws->wide ? sizeof(uint64_t) : sizeof(uint32_t);
}

int draws_init(struct draws *draws, uint64_t count, bool wide, uint64_t seed)
{
    uint64_t size;

    draws->done = 0;
    draws->count = count;
    draws->wide = wide;
    draws->results = NULL;
    if (mul_overflows(count, width(draws), &size))
        return -ENOMEM;
    mt19937_init(&draws->generator, seed);
    return zeroes_new(size, false, &draws->results);
}

void draws_deinit(struct draws *draws)
{
    if (draws->results)
        zeroes_free(draws->results, draws->count * width(draws));
    draws->results = NULL;
}

void draws_add(struct draws *draws, uint64_t result)
{
    assert(draws->done < draws->count);
    if (draws->wide)
        ((uint64_t *)draws->results)[draws->done++] = result;
    else
        ((uint32_t *)draws->results)[draws->done++] = (uint32_t)result;
}
