/*
 * Reads a trainer's place from the environment that launchers set. The first launcher in the table
 * whose mark is present counts; those started by others come first, such as torchrun inside Slurm.
 *
 * "Variables of launchers" in dlclient(3) says who sets what. A Slurm job's script has
 * SLURM_PROCID, too, and is one process: so the number of the step's tasks is the mark.
 *
 * Rank and world are read together; a variable is not read if the caller gave its value. In the
 * world of a cluster of daemons the rank is the one on this node. torchrun --virtual-local-rank
 * sets it to 0 for all trainers; it then follows from RANK and GROUP_RANK.
 *
 * The number of ranks per node decides which members of a group that reads the same batches are on
 * this node. That needs consecutive ranks on a node, which only torchrun guarantees.
 *
 * The job's name is torchrun's --rdzv-id, or Slurm's job and step, where rank and world are theirs.
 * It leaves out the number of restarts, so that a restarted trainer finds its place. torchrun
 * without --rdzv-id calls every job "none", so that is ignored. MPI's launchers name a run by host
 * and process id, which repeat in containers.
 */
#include "client/epoch_options.h"
#include "proto/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A variable that holds a number. */
struct number {
    const char *name;
    uint32_t min, max;
    bool set;
    uint32_t value;
};

/* Accepts decimal digits only. */
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
        return options_refuse(why, "$%s: \"%.64s\" is not a whole number from %u to %u", ret->name,
                              text, ret->min, ret->max);
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

/* ---- launchers ------------------------------------------------------------------------------ */

enum { TORCHRUN, LAUNCHERS = 7 };

static const struct launcher {
    const char *rank, *size;        /* of all ranks */
    const char *local, *local_size; /* of this node's; NULL: it does not say */
    const char *mark;               /* set: it is this one; NULL: `rank` is the mark */
    const char *job, *part;         /* the job's name, and a second part of it; may be NULL */
    const char *prefix;             /* of the name here */
} environment_launchers[LAUNCHERS] = {
    [TORCHRUN] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                  .job = "TORCHELASTIC_RUN_ID", .prefix = ""},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", .mark = "SLURM_STEP_NUM_TASKS",
     .job = "SLURM_JOB_ID", .part = "SLURM_STEP_ID", .prefix = "slurm-"},
    {"PMIX_RANK", "WORLD_SIZE"},
    {"JOB_COMPLETION_INDEX", "WORLD_SIZE"},
};

/* Without any mark, use torchrun's row: setting only one of its variables is a mistake. */
static const struct launcher *environment_find_launcher(bool local)
{
    for (size_t i = 0; i < LAUNCHERS; i++) {
        const struct launcher *launcher = &environment_launchers[i];
        const char *mark = launcher->mark ? launcher->mark : launcher->rank;

        if (local && i == TORCHRUN)
            mark = launcher->local;
        if (getenv(mark) && (!local || launcher->local))
            return launcher;
    }
    return &environment_launchers[TORCHRUN];
}

/* ---- one of all ranks ----------------------------------------------------------------------- */

static int environment_check_below(const struct dl_epoch_options *o, const struct number *rank,
                                   const struct number *world, const struct why *why)
{
    uint32_t n = o->world ? o->world : 1;

    if (o->rank < n || (!rank->set && !world->set))
        return 0;
    if (!world->set)
        return options_refuse(why, "$%s: %u is not below the world size that was given, %u",
                              rank->name, o->rank, n);
    if (!rank->set)
        return options_refuse(why, "$%s: %u is not above the rank that was given, %u", world->name,
                              n, o->rank);
    return options_refuse(why, "$%s: %u is not below $%s, %u", rank->name, o->rank, world->name, n);
}

/* *ret_all: both are what the environment says. */
static int environment_find_rank(struct dl_epoch_options *o, unsigned given,
                                 const struct launcher *launcher, bool *ret_all,
                                 const struct why *why)
{
    struct number rank = environment_rank(launcher->rank), world = environment_size(launcher->size);
    bool is_alone = given & DL_GIVEN_WORLD && o->world <= 1; /* which is not launched to share */
    int r = 0;

    if (!(given & DL_GIVEN_RANK) && !is_alone)
        r = environment_read_number(&rank, why);
    if (r == 0 && !(given & DL_GIVEN_WORLD))
        r = environment_read_number(&world, why);
    if (r < 0)
        return r;
    if (rank.set && !world.set && !given && launcher != &environment_launchers[TORCHRUN])
        return options_refuse(why,
                              "$%s is set and $%s is not; set that to the number of ranks, or "
                              "give rank 0 and world size 1 if each is to have all samples",
                              rank.name, world.name);
    if (rank.set != world.set && !(given & (DL_GIVEN_RANK | DL_GIVEN_WORLD)))
        return options_refuse(why, "$%s is set and $%s is not; set both, or neither",
                              rank.set ? rank.name : world.name, rank.set ? world.name : rank.name);
    if (rank.set)
        o->rank = rank.value;
    if (world.set)
        o->world = world.value;
    *ret_all = rank.set && world.set;
    return environment_check_below(o, &rank, &world, why);
}

static int environment_find_local_world(struct dl_epoch_options *o, const struct launcher *launcher,
                                        const struct why *why)
{
    struct number size = environment_size(environment_launchers[TORCHRUN].local_size);
    int r = launcher == &environment_launchers[TORCHRUN] ? environment_read_number(&size, why) : 0;

    if (size.set)
        o->local_world = size.value;
    return r;
}

/* ---- one of a node's ranks ------------------------------------------------------------------ */

/* For torchrun's trainers, if all nodes have the same number: the rank within its group. */
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

/* *ret_found: it is what the environment says. */
static int environment_find_local_rank(struct dl_epoch_options *o, const struct launcher *launcher,
                                       bool *ret_found, const struct why *why)
{
    struct number rank = environment_rank(launcher->local),
                  size = environment_size(launcher->local_size);
    int r = environment_read_number(&rank, why);

    if (r == 0 && launcher->local_size)
        r = environment_read_number(&size, why);
    if (r < 0)
        return r;
    if (size.set && !rank.set)
        return options_refuse(why, "$%s is set and $%s is not; set both, or neither", size.name,
                              rank.name);
    if (!rank.set)
        return 0;
    if (size.set && rank.value >= size.value)
        return options_refuse(why, "$%s: %u is not below $%s, %u", rank.name, rank.value, size.name,
                              size.value);
    if (size.set && rank.value == 0 && launcher == &environment_launchers[TORCHRUN])
        r = environment_find_in_group(&size, &rank.value, why);
    if (r == 0)
        o->rank = rank.value;
    *ret_found = true;
    return r;
}

/* ---- the job -------------------------------------------------------------------------------- */

static_assert(DL_JOB_BYTES == DL_BOUND_NAME_BYTES + 1, "the name of a job");

/* Returns 1 if it has written the name to `job`. */
static int environment_find_job(const struct launcher *launcher, char job[DL_JOB_BYTES],
                                const struct why *why)
{
    const char *id = launcher->job ? getenv(launcher->job) : NULL;
    const char *part = launcher->part ? getenv(launcher->part) : NULL;

    if (!id || !*id || (launcher == &environment_launchers[TORCHRUN] && strcmp(id, "none") == 0))
        return 0;
    int n = snprintf(job, DL_JOB_BYTES, "%s%s%s%s", launcher->prefix, id, part ? "." : "",
                     part ? part : "");
    if (n >= DL_JOB_BYTES)
        return options_refuse(why,
                              "$%s: \"%.64s…\" has %zu bytes, and the name of a job may "
                              "have %llu; give torchrun a shorter --rdzv-id, or the job a name",
                              launcher->job, id, strlen(id), (ull)DL_MAX_NAME_BYTES);
    return 1;
}

int dl_epoch_options_from_env(struct dl_epoch_options *options, unsigned given, char *job,
                              char *text, size_t size)
{
    struct why why = {.size = size};
    struct dl_epoch_options o;

    why.text = text;
    int r = epoch_options_read(options, &o);
    if (r < 0)
        return options_refuse(&why, "options: they %s", epoch_options_why(r));
    bool cluster = given & DL_GIVEN_WORLD && o.world == DL_WORLD_CLUSTER, placed = false;
    const struct launcher *launcher = environment_find_launcher(cluster);
    if (!cluster)
        r = environment_find_rank(&o, given, launcher, &placed, &why);
    if (r == 0 && !cluster && placed)
        r = environment_find_local_world(&o, launcher, &why);
    if (cluster && !(given & DL_GIVEN_RANK))
        r = environment_find_local_rank(&o, launcher, &placed, &why);
    /* Nodes that join a cluster later may have come by another job of Slurm. */
    if (r == 0 && placed && !(given & DL_GIVEN_JOB) &&
        (!cluster || launcher == &environment_launchers[TORCHRUN]))
        r = environment_find_job(launcher, job, &why);
    if (r < 0)
        return r;
    if (r > 0)
        o.job = job;
    epoch_options_write(&o, options);
    return 0;
}
