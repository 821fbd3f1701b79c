/*
 * What a program says of an epoch: read, checked, and counted in ranks of the samples.
 */
#include "client/epoch_options.h"
#include "client/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int options_refuse(const struct why *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (why->size > 0)
        (void)vsnprintf(why->text, why->size, format, args);
    va_end(args);
    return -EINVAL;
}

uint64_t epoch_options_world(const struct dl_epoch_options *o)
{
    return o->world == DL_WORLD_CLUSTER ? 0 : o->world ? o->world : 1;
}

int epoch_take_options(struct dl_client *client, const struct dl_epoch_options *from,
                       struct dl_epoch_options *ret)
{
    int r = epoch_options_read(from, ret);

    return r < 0 ? client_fail(client, -r, "options", "they %s", epoch_options_why(r)) : 0;
}

const char *epoch_options_job(const struct dl_epoch_options *o)
{
    return o->job ? o->job : "";
}

int epoch_check_options(struct dl_client *client, const struct dl_epoch_options *o)
{
    bool cluster = o->world == DL_WORLD_CLUSTER;
    uint32_t world = o->world ? o->world : 1;

    if (!cluster && world > DL_MAX_WORLD_SIZE)
        return client_fail(client, EINVAL, "world", "%u is above %llu", world,
                           (ull)DL_MAX_WORLD_SIZE);
    if (cluster && o->rank >= DL_MAX_WORLD_SIZE)
        return client_fail(client, EINVAL, "rank", "%u is not below %llu", o->rank,
                           (ull)DL_MAX_WORLD_SIZE);
    if (o->rank >= world)
        return client_fail(client, EINVAL, "rank", "%u is not below the world size, %u", o->rank,
                           world);
    if (o->credits > DL_MAX_CREDITS)
        return client_fail(client, EINVAL, "credits", "%u is above %llu", o->credits,
                           (ull)DL_MAX_CREDITS);
    if (o->priority > DL_PRIORITY_LOW)
        return client_fail(client, EINVAL, "priority",
                           "%u is not DL_PRIORITY_NORMAL (0), HIGH (1) or LOW (2)", o->priority);
    if (o->follow > DL_FOLLOW_SAME || (o->follow && !cluster))
        return client_fail(client, EINVAL, "follow",
                           "%u is not DL_FOLLOW_NOT (0), or in the cluster's world ANY (1) or SAME "
                           "(2)",
                           o->follow);
    if (o->left_out > DL_LEFT_OUT_IGNORE)
        return client_fail(client, EINVAL, "left_out",
                           "%u is not DL_LEFT_OUT_ERROR (0), WARN (1) or IGNORE (2)", o->left_out);
    if (o->state && (o->epoch != 0 || o->step != 0))
        return client_fail(client, EINVAL, o->epoch ? "epoch" : "step",
                           "%llu given with a state, which contains it; write 0",
                           (ull)(o->epoch ? o->epoch : o->step));
    if (o->replicas > DL_MAX_REPLICAS || (o->replica && o->replica >= o->replicas))
        return client_fail(client, EINVAL, "replica",
                           "%u of %u; it is below their number, which is at most %llu", o->replica,
                           o->replicas, (ull)DL_MAX_REPLICAS);
    if (strlen(epoch_options_job(o)) > DL_MAX_NAME_BYTES)
        return client_fail(client, EINVAL, "job", "a name of %zu bytes; it may have %llu",
                           strlen(epoch_options_job(o)), (ull)DL_MAX_NAME_BYTES);
    if (o->epoch == DL_RESUME && ((!epoch_options_job(o)[0] && !cluster) || o->step > 0))
        return client_fail(client, EINVAL, o->step > 0 ? "step" : "job",
                           "resuming needs the job's name and no step");
    return 0;
}

int epoch_divide_ranks(struct dl_loader *loader, struct dl_epoch_options *o)
{
    uint32_t n = loader->replicas, world = o->world ? o->world : 1;
    char mesh[64], why[256];

    if (n <= 1)
        return 0;
    if (o->replicas > 0)
        return client_fail(loader->client, EINVAL, "replicas",
                           "%u beside shard.replicas %u of the spec; give one of them", o->replicas,
                           n);
    if (o->world == DL_WORLD_CLUSTER)
        return client_fail(
            loader->client, EINVAL, "world",
            "the cluster's does not go with shard.replicas; give rank and world size");
    if (world % n > 0)
        return client_fail(loader->client, EINVAL, "world",
                           "%u is not a multiple of shard.replicas, %u", world, n);
    (void)snprintf(mesh, sizeof mesh, "dp=%u,tp=%u", world / n, n);
    if (dl_epoch_options_set_mesh(o, mesh, o->rank, o->local_world, why, sizeof why) < 0)
        return client_fail(loader->client, EINVAL, "replicas", "%s", why);
    return 0;
}
