/*
 * What torchrun, and launchers like it, put into the environment of a trainer, as defaults.
 *
 *   RANK, WORLD_SIZE            the rank and the world, together; a variable is not even read if
 *                               what it says was given
 *   LOCAL_RANK                  the rank, in the world of a cluster of daemons: the one on this
 *                               node. torchrun --virtual-local-rank has it 0 for all trainers; then
 *                               RANK among those of GROUP_RANK tells which one it is
 *   TORCHELASTIC_RUN_ID         the job's name, where rank and world are torchrun's, too. How often
 *                               it was restarted is no part of it, so that a trainer that comes
 *                               back finds its place. "none" is what torchrun says without
 *                               --rdzv-id: many a job would have it
 */
#include "client/dlclient.h"
#include "proto/common/base.h"
#include "proto/limits.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Where a refusal is explained; `text` may be NULL with size 0. */
struct why {
    char *text;
    size_t size;
};

/* A variable that holds a number. */
struct number {
    const char *name;
    uint32_t min, max;
    bool set;
    uint32_t value;
};

__attribute__((format(printf, 2, 3))) static int environment_refuse(const struct why *why,
                                                                    const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (why->size > 0)
        (void)vsnprintf(why->text, why->size, format, args);
    va_end(args);
    return -EINVAL;
}

/* Decimal digits alone. */
static int environment_read_number(struct number *ret, const struct why *why)
{
    const char *text = getenv(ret->name);
    uint64_t n = 0;
    size_t i;

    if (!text)
        return 0;
    for (i = 0; text[i] >= '0' && text[i] <= '9' && n <= UINT32_MAX; i++)
        n = n * 10 + (uint64_t)(text[i] - '0');
    if (i == 0 || text[i] || n < ret->min || n > ret->max)
        return environment_refuse(why, "$%s: \"%.64s\" is not a whole number from %u to %u",
                                  ret->name, text, ret->min, ret->max);
    ret->set = true;
    ret->value = (uint32_t)n;
    return 0;
}

static struct number environment_rank(const char *name)
{
    return (struct number){.name = name, .max = DL_MAX_WORLD_SIZE - 1};
}

static struct number environment_size(const char *name)
{
    return (struct number){.name = name, .min = 1, .max = DL_MAX_WORLD_SIZE};
}

/* ---- one of all ranks ----------------------------------------------------------------------- */

static int environment_check_below(const struct dl_epoch_options *o, const struct number *rank,
                                   const struct number *world, const struct why *why)
{
    uint32_t n = o->world ? o->world : 1;

    if (o->rank < n || (!rank->set && !world->set))
        return 0;
    if (!world->set)
        return environment_refuse(why, "$RANK: %u is not below the world size that was given, %u",
                                  o->rank, n);
    if (!rank->set)
        return environment_refuse(why, "$WORLD_SIZE: %u is not above the rank that was given, %u",
                                  n, o->rank);
    return environment_refuse(why, "$RANK: %u is not below $WORLD_SIZE, %u", o->rank, n);
}

/* *ret_all: both are what the environment says. */
static int environment_find_rank(struct dl_epoch_options *o, unsigned given, bool *ret_all,
                                 const struct why *why)
{
    struct number rank = environment_rank("RANK"), world = environment_size("WORLD_SIZE");
    int r = 0;

    if (!(given & DL_GIVEN_RANK))
        r = environment_read_number(&rank, why);
    if (r == 0 && !(given & DL_GIVEN_WORLD))
        r = environment_read_number(&world, why);
    if (r < 0)
        return r;
    if (rank.set != world.set && !(given & (DL_GIVEN_RANK | DL_GIVEN_WORLD)))
        return environment_refuse(why, "$%s is set and $%s is not; set both, or neither",
                                  rank.set ? rank.name : world.name,
                                  rank.set ? world.name : rank.name);
    if (rank.set)
        o->rank = rank.value;
    if (world.set)
        o->world = world.value;
    *ret_all = rank.set && world.set;
    return environment_check_below(o, &rank, &world, why);
}

/* ---- one of a node's ranks ------------------------------------------------------------------ */

/* Of torchrun's trainers, where all nodes have as many: the one among those of its group. */
static int environment_find_in_group(const struct number *size, uint32_t *ret,
                                     const struct why *why)
{
    struct number rank = environment_rank("RANK"), world = environment_size("WORLD_SIZE");
    struct number group = environment_rank("GROUP_RANK"),
                  groups = environment_size("GROUP_WORLD_SIZE");
    struct number *all[] = {&rank, &world, &group, &groups};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        int r = environment_read_number(all[i], why);
        if (r < 0)
            return r;
        if (!all[i]->set)
            return 0;
    }
    uint64_t first = (uint64_t)group.value * size->value;
    if ((uint64_t)groups.value * size->value == world.value && rank.value >= first &&
        rank.value - first < size->value)
        *ret = (uint32_t)(rank.value - first);
    return 0;
}

static int environment_find_local_rank(struct dl_epoch_options *o, const struct why *why)
{
    struct number rank = environment_rank("LOCAL_RANK"),
                  size = environment_size("LOCAL_WORLD_SIZE");
    int r = environment_read_number(&rank, why);

    if (r == 0)
        r = environment_read_number(&size, why);
    if (r < 0)
        return r;
    if (size.set && !rank.set)
        return environment_refuse(
            why, "$LOCAL_WORLD_SIZE is set and $LOCAL_RANK is not; set both, or neither");
    if (!rank.set)
        return 0;
    if (size.set && rank.value >= size.value)
        return environment_refuse(why, "$LOCAL_RANK: %u is not below $LOCAL_WORLD_SIZE, %u",
                                  rank.value, size.value);
    if (size.set && rank.value == 0)
        r = environment_find_in_group(&size, &rank.value, why);
    if (r == 0)
        o->rank = rank.value;
    return r;
}

/* ---- the job -------------------------------------------------------------------------------- */

static int environment_find_job(struct dl_epoch_options *o, const struct why *why)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID");

    if (!id || !*id || strcmp(id, "none") == 0)
        return 0;
    if (strlen(id) > DL_MAX_NAME_BYTES)
        return environment_refuse(
            why,
            "$TORCHELASTIC_RUN_ID: \"%.64s…\" has %zu bytes, and the name of a job may "
            "have %llu; give torchrun a shorter --rdzv-id, or the job a name",
            id, strlen(id), (unsigned long long)DL_MAX_NAME_BYTES);
    o->job = id;
    return 0;
}

int dl_epoch_options_from_env(struct dl_epoch_options *options, unsigned given, char *text,
                              size_t size)
{
    struct why why = {.size = size};
    struct dl_epoch_options o = *options;
    bool all = false;
    int r = 0;

    why.text = text;
    if (!(given & DL_GIVEN_WORLD) || o.world != DL_WORLD_CLUSTER)
        r = environment_find_rank(&o, given, &all, &why);
    else if (!(given & DL_GIVEN_RANK))
        r = environment_find_local_rank(&o, &why);
    if (r == 0 && all && !(given & DL_GIVEN_JOB))
        r = environment_find_job(&o, &why);
    if (r == 0)
        *options = o;
    return r;
}
