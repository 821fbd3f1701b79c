/* The array of results. The samplers decide what is drawn, and from how many words. */
#include "daemon/plan/rng_log.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/lazy_zero.h"

static uint64_t rng_log_width(const struct rng_log *log)
{
    return log->wide ? sizeof(uint64_t) : sizeof(uint32_t);
}

int rng_log_init(struct rng_log *log, uint64_t count, bool wide, uint64_t seed)
{
    uint64_t size;

    log->done = 0;
    log->count = count;
    log->wide = wide;
    log->results = NULL;
    if (mul_overflows(count, rng_log_width(log), &size))
        return -ENOMEM;
    mt19937_init(&log->generator, seed);
    return lazy_zero_new(size, false, &log->results);
}

void rng_log_deinit(struct rng_log *log)
{
    if (log->results)
        lazy_zero_free(log->results, log->count * rng_log_width(log));
    log->results = NULL;
}

void rng_log_add(struct rng_log *log, uint64_t result)
{
    assert(log->done < log->count);
    if (log->wide)
        ((uint64_t *)log->results)[log->done++] = result;
    else
        ((uint32_t *)log->results)[log->done++] = (uint32_t)result;
}
