/* What an administrator sets of a rendezvous: checked, and what follows from it. */
#include "daemon/cluster/rendezvous/rendezvous.h"

#include <errno.h>
#include <inttypes.h>

#define SECOND ((uint64_t)1000000000)

const struct rdzv_settings RDZV_DEFAULTS = {.min = 1,
                                            .max = 1,
                                            .missed = 3,
                                            .join_ns = 600 * SECOND,
                                            .last_call_ns = 30 * SECOND,
                                            .close_ns = 30 * SECOND,
                                            .beat_ns = 5 * SECOND,
                                            .poll_ns = SECOND};

int rdzv_settings_check(const struct rdzv_settings *settings, struct dl_error *err)
{
    if (settings->min < 1 || settings->min > settings->max || settings->max > RDZV_NODES_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.nodes",
                            "%u to %u: must be from 1 to %d, the smaller number first",
                            settings->min, settings->max, RDZV_NODES_MAX);
    if (settings->missed < 1 || settings->missed > 1000)
        return dl_error_set(err, EINVAL, "rendezvous.heartbeat.missed", "%u: must be 1 to 1000",
                            settings->missed);
    const uint64_t times[] = {settings->join_ns, settings->last_call_ns, settings->close_ns,
                              settings->beat_ns, settings->poll_ns};
    for (size_t i = 0; i < ARRAY_SIZE(times); i++)
        if (times[i] < SECOND / 1000 || times[i] > 30 * 86400 * SECOND)
            return dl_error_set(err, EINVAL, "rendezvous",
                                "a time of %" PRIu64 " ns: must be 1 ms to 30 days", times[i]);
    if (settings->poll_ns > settings->beat_ns)
        return dl_error_set(err, EINVAL, "rendezvous.poll",
                            "is longer than the time between two heartbeats");
    if (settings->missed == 1 && settings->poll_ns > settings->beat_ns / RDZV_POLLS_OF_ONE_MISSED)
        return dl_error_set(err, EINVAL, "rendezvous.poll",
                            "is longer than an eighth of the time between two heartbeats, none "
                            "of which may be missed");
    return 0;
}

uint64_t rdzv_silence(const struct rdzv_settings *settings)
{
    return settings->missed * settings->beat_ns +
           (settings->missed == 1 ? settings->beat_ns / 2 : 0);
}

struct rdzv_rules rdzv_rules_of(const struct rdzv_settings *settings)
{
    return (struct rdzv_rules){.min = settings->min,
                               .max = settings->max,
                               .missed = settings->missed,
                               .beat_ns = settings->beat_ns};
}
