#include "daemon/plan/mix_replica.h"

/* The replica's first batch that is the rank's number `step` or later. */
static uint64_t mix_replica_step(const struct mix_replica *replica, uint64_t step)
{
    if (step <= replica->worker)
        return 0;
    uint64_t behind = step - replica->worker;
    return behind / replica->workers + (behind % replica->workers > 0);
}

void mix_replica_schedule(const struct mix_schedule *whole, const struct mix_replica *replica,
                          struct mix_point *points, struct mix_schedule *ret)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < whole->n_points; i++) {
        struct mix_point point = whole->points[i];

        point.step = mix_replica_step(replica, point.step);
        if (n > 0 && points[n - 1].step == point.step)
            n--; /* it lasts no batch of this replica */
        point.ramp = point.ramp && n > 0;
        points[n++] = point;
    }
    *ret = (struct mix_schedule){.n = whole->n,
                                 .n_points = n,
                                 .points = points,
                                 .step_samples =
                                     n > 1 ? max_u64(whole->step_samples / replica->world, 1) : 0};
}

uint64_t mix_replica_part(const struct mix_replica *replica, uint64_t samples)
{
    uint64_t replicas = (uint64_t)replica->world * replica->workers;
    uint64_t number = (uint64_t)replica->worker * replica->world + replica->rank;

    return samples / replicas + (number < samples % replicas);
}
