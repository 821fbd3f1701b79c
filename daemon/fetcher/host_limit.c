#include "daemon/fetcher/host_limit.h"

#include <assert.h>

uint64_t host_limit_opens_after(const struct host_limit *limit, uint64_t now_ns)
{
    return limit->opens_ns > now_ns ? limit->opens_ns - now_ns : 0;
}

bool host_limit_has_room(const struct host_limit *limit, uint64_t now_ns)
{
    return (limit->at_once == 0 || limit->running < limit->at_once) &&
           host_limit_opens_after(limit, now_ns) == 0;
}

void host_limit_sent(struct host_limit *limit)
{
    limit->running++;
    limit->peak = (uint32_t)max_u64(limit->peak, limit->running);
}

void host_limit_ended(struct host_limit *limit)
{
    assert(limit->running > 0);
    limit->running--;
}

static void host_limit_begin_round(struct host_limit *limit)
{
    limit->peak = limit->running;
    limit->n = limit->refused = 0;
}

/* How many there were at once, which is too many. */
static uint32_t host_limit_was(const struct host_limit *limit)
{
    return (uint32_t)min_u64(limit->at_once ? limit->at_once : limit->peak, limit->peak);
}

static void host_limit_lower(struct host_limit *limit, uint64_t now_ns)
{
    uint32_t was = host_limit_was(limit);
    uint64_t less = min_u64((uint64_t)was * limit->refused / limit->n, was / 2);

    limit->at_once = (uint32_t)max_u64(was - max_u64(less, 1), 1);
    limit->lowered_ns = now_ns;
    host_limit_begin_round(limit);
}

static void host_limit_raise(struct host_limit *limit, uint32_t most)
{
    if (limit->at_once && ++limit->at_once >= most)
        limit->at_once = 0;
    host_limit_begin_round(limit);
}

void host_limit_answered(struct host_limit *limit, const struct host_answer *answer,
                         uint64_t now_ns, uint32_t most)
{
    if (answer->refused && answer->after_s > 0) {
        uint64_t seconds = min_u64((uint64_t)answer->after_s, HOST_LIMIT_CLOSED_S);
        limit->opens_ns = max_u64(limit->opens_ns, now_ns + seconds * 1000000000);
    }
    if (answer->sent_ns < limit->lowered_ns)
        return;
    limit->n++;
    limit->refused += answer->refused;
    bool too_many = limit->refused > max_u64(1, limit->n / HOST_LIMIT_CHANCE);
    if (too_many && limit->n >= host_limit_was(limit))
        host_limit_lower(limit, now_ns);
    else if (!too_many && limit->n >= max_u64(limit->at_once, HOST_LIMIT_CHANCE))
        host_limit_raise(limit, most);
}
