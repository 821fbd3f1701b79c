/* What a trainer takes from the environment that its launcher sets up, by tables. */
#include "tests/lib/harness.h"

#include "client/dlclient.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANK = DL_GIVEN_RANK, WORLD = DL_GIVEN_WORLD, JOB = DL_GIVEN_JOB };

/* What the options say before, and where they are to stay. */
enum { RANK_BEFORE = 5, WORLD_BEFORE = 6 };
static const char JOB_BEFORE[] = "before";

static const char *const names[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_RANK",
    "JOB_COMPLETION_INDEX",
};

static void clear(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        unsetenv(names[i]);
}

/* "NAME=VALUE NAME=VALUE", of the names above alone. */
static void set_environment(const char *text)
{
    char *copy = strdup(text), *save = NULL;

    clear();
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        bool known = false;

        *value++ = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            known |= strcmp(names[i], word) == 0;
        assert_true(known);
        setenv(word, value, 1);
    }
    free(copy);
}

/* That the environment names. */
static char job[DL_JOB_BYTES];

static int ask(const char *environment, unsigned given, struct dl_epoch_options *o, char why[256])
{
    int r;

    set_environment(environment);
    why[0] = '\0';
    r = dl_epoch_options_from_env(o, given, job, why, 256);
    clear();
    return r;
}

#define TORCHRUN                                                                           \
    "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4 " \
    "TORCHELASTIC_RESTART_COUNT=2 "

#define SLURM                                                                               \
    "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_NTASKS=7 SLURM_LOCALID=2 SLURM_JOB_ID=17 " \
    "SLURM_STEP_ID=0 "
#define PMI "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 "
#define OPENMPI                                                                   \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=5 OMPI_COMM_WORLD_LOCAL_RANK=0 " \
    "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_RANK=1 "
#define MVAPICH2                                                               \
    "MV2_COMM_WORLD_RANK=6 MV2_COMM_WORLD_SIZE=7 MV2_COMM_WORLD_LOCAL_RANK=3 " \
    "MV2_COMM_WORLD_LOCAL_SIZE=4 "

/* Those that others start come first. */
TEST(test_launchers)
{
    static const struct {
        const char *environment;
        unsigned given;
        uint32_t rank, world, local;
        const char *job; /* NULL: none */
    } rows[] = {
        {SLURM, 0, 5, 6, 2, "slurm-17.0"},
        {PMI, 0, 2, 4, 1, NULL},
        {OPENMPI, 0, 1, 5, 0, NULL},
        {MVAPICH2, 0, 6, 7, 3, NULL},
        {TORCHRUN SLURM PMI OPENMPI, 0, 3, 8, 1, NULL},
        {OPENMPI SLURM, 0, 1, 5, 0, NULL},
        {PMI SLURM, 0, 2, 4, 1, NULL},
        {"PMIX_RANK=5 " SLURM, 0, 5, 6, 2, "slurm-17.0"},
        {"PMIX_RANK=3 WORLD_SIZE=4", 0, 3, 4, RANK_BEFORE, NULL},
        {"JOB_COMPLETION_INDEX=3 WORLD_SIZE=4", 0, 3, 4, RANK_BEFORE, NULL},
        {"JOB_COMPLETION_INDEX=3 " TORCHRUN, 0, 3, 8, 1, NULL},
        /* A job's script, of which there is one. */
        {"SLURM_PROCID=0 SLURM_NTASKS=7 SLURM_JOB_ID=17", 0, RANK_BEFORE, WORLD_BEFORE, RANK_BEFORE,
         NULL},
        /* Each on its own, or as far as it is said. */
        {SLURM, RANK | WORLD, RANK_BEFORE, WORLD_BEFORE, 2, NULL},
        {SLURM, RANK, RANK_BEFORE, 6, RANK_BEFORE, NULL},
        {SLURM, WORLD, 5, WORLD_BEFORE, 2, NULL},
        {"JOB_COMPLETION_INDEX=3", WORLD, 3, WORLD_BEFORE, RANK_BEFORE, NULL},
    };
    char why[256];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.rank = RANK_BEFORE, .world = WORLD_BEFORE};
        struct dl_epoch_options local = {.rank = RANK_BEFORE, .world = DL_WORLD_CLUSTER};

        if (ask(rows[i].environment, rows[i].given, &o, why) != 0)
            fail_msg("%s: %s", rows[i].environment, why);
        assert_int_equal(o.rank, rows[i].rank);
        assert_int_equal(o.world, rows[i].world);
        assert_string_equal(o.job ? o.job : "", rows[i].job ? rows[i].job : "");
        assert_int_equal(ask(rows[i].environment, (rows[i].given & RANK) | WORLD, &local, why), 0);
        assert_int_equal(local.rank, rows[i].given & RANK ? RANK_BEFORE : rows[i].local);
        assert_null(local.job);
    }
}

/* How many ranks a node has, of those alone whose ranks of a node follow each other. */
TEST(test_local_world)
{
    static const struct {
        const char *environment;
        unsigned given;
        uint32_t world, local_world;
    } rows[] = {
        {TORCHRUN, 0, 0, 2},
        {TORCHRUN SLURM PMI OPENMPI, 0, 0, 2},
        {"RANK=3 WORLD_SIZE=8", 0, 0, 77},
        {"RANK=3 WORLD_SIZE=8 LOCAL_WORLD_SIZE=1048576", 0, 0, 1048576},
        {PMI, 0, 0, 77},
        {OPENMPI, 0, 0, 77},
        {MVAPICH2, 0, 0, 77},
        {SLURM " LOCAL_WORLD_SIZE=2", 0, 0, 77},
        /* Of a place of one's own it says nothing, and is not read. */
        {TORCHRUN, RANK | WORLD, 6, 77},
        {TORCHRUN, RANK, 6, 77},
        {TORCHRUN, WORLD, 6, 77},
        {TORCHRUN, WORLD, DL_WORLD_CLUSTER, 77},
        {"RANK=3 WORLD_SIZE=8 LOCAL_WORLD_SIZE=x", WORLD, 8, 77},
    };
    char why[256];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.world = rows[i].world, .local_world = 77};

        if (ask(rows[i].environment, rows[i].given, &o, why) != 0)
            fail_msg("%s: %s", rows[i].environment, why);
        assert_int_equal(o.local_world, rows[i].local_world);
    }
}

/* A world of one is nobody's share. */
TEST(test_alone)
{
    static const char *const rows[] = {TORCHRUN, SLURM, OPENMPI, "JOB_COMPLETION_INDEX=3",
                                       "RANK=x WORLD_SIZE=x"};
    char why[256];

    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.world = (uint32_t)(i % 2)};

        assert_int_equal(ask(rows[i / 2], WORLD, &o, why), 0);
        assert_int_equal(o.rank, 0);
    }
}

TEST(test_taken)
{
    static const struct {
        const char *environment;
        unsigned given;
        uint32_t rank, world;
    } rows[] = {
        {"", 0, RANK_BEFORE, WORLD_BEFORE},
        {"RANK=3 WORLD_SIZE=8", 0, 3, 8},
        {"RANK=0 WORLD_SIZE=1", 0, 0, 1},
        {"RANK=1048575 WORLD_SIZE=1048576", 0, 1048575, 1048576},
        {TORCHRUN, 0, 3, 8},
        /* What is given wins, and what has no part in it is not read. */
        {TORCHRUN, RANK | WORLD, RANK_BEFORE, WORLD_BEFORE},
        {TORCHRUN, RANK, RANK_BEFORE, 8},
        {TORCHRUN, WORLD, 3, WORLD_BEFORE},
        {"RANK=x WORLD_SIZE=x", RANK | WORLD, RANK_BEFORE, WORLD_BEFORE},
        {"RANK=x WORLD_SIZE=8", RANK, RANK_BEFORE, 8},
        {"RANK=3 WORLD_SIZE=x", WORLD, 3, WORLD_BEFORE},
        {"WORLD_SIZE=8", RANK, RANK_BEFORE, 8},
        {"RANK=3", WORLD, 3, WORLD_BEFORE},
        {"RANK=3", RANK, RANK_BEFORE, WORLD_BEFORE},
        {"LOCAL_RANK=x GROUP_RANK=x LOCAL_WORLD_SIZE=x", 0, RANK_BEFORE, WORLD_BEFORE},
        /* Every node's first trainer by LOCAL_RANK is not one of all. */
        {"LOCAL_RANK=1", 0, RANK_BEFORE, WORLD_BEFORE},
    };
    char why[256];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.rank = RANK_BEFORE, .world = WORLD_BEFORE};

        assert_int_equal(ask(rows[i].environment, rows[i].given, &o, why), 0);
        assert_string_equal(why, "");
        assert_int_equal(o.rank, rows[i].rank);
        assert_int_equal(o.world, rows[i].world);
        assert_null(o.job);
    }
}

/* In the world of a cluster the rank is one of this node's. */
TEST(test_cluster)
{
    static const struct {
        const char *environment;
        unsigned given;
        uint32_t rank;
    } rows[] = {
        {"", 0, RANK_BEFORE},
        {TORCHRUN, 0, 1},
        {TORCHRUN, RANK, RANK_BEFORE},
        {"LOCAL_RANK=4", 0, 4},
        {"LOCAL_RANK=4 LOCAL_WORLD_SIZE=5", 0, 4},
        {"RANK=x WORLD_SIZE=x LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", 0, 1},
        {"LOCAL_RANK=x", RANK, RANK_BEFORE},
        {"RANK=3 WORLD_SIZE=8", 0, RANK_BEFORE},
        /* --virtual-local-rank */
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4", 0,
         1},
        {"RANK=2 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4", 0,
         0},
        {"RANK=7 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2", 0,
         3},
        /* Nodes with other numbers of trainers, and ranks that are dealt out in turn. */
        {"RANK=3 WORLD_SIZE=7 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4", 0,
         0},
        {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4", 0,
         0},
        {"RANK=1 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=4", 0,
         0},
        {"RANK=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", 0, 0},
    };
    char why[256];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.rank = RANK_BEFORE, .world = DL_WORLD_CLUSTER};

        assert_int_equal(ask(rows[i].environment, rows[i].given | WORLD, &o, why), 0);
        assert_string_equal(why, "");
        assert_int_equal(o.rank, rows[i].rank);
        assert_true(o.world == DL_WORLD_CLUSTER);
    }
    /* It has to be given. */
    struct dl_epoch_options o = {.world = DL_WORLD_CLUSTER};
    assert_int_equal(ask(TORCHRUN, 0, &o, why), 0);
    assert_int_equal(o.world, 8);
}

TEST(test_job)
{
    static const struct {
        const char *environment;
        unsigned given;
        uint32_t world;
        const char *job; /* NULL: as before */
    } rows[] = {
        {TORCHRUN "TORCHELASTIC_RUN_ID=nine", 0, 0, "nine"},
        {"RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=9", 0, 0, "9"},
        {"RANK=3 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=nine TORCHELASTIC_RESTART_COUNT=7", 0, 0, "nine"},
        {TORCHRUN "TORCHELASTIC_RUN_ID=nine", JOB, 0, NULL},
        {TORCHRUN, 0, 0, NULL},
        /* torchrun's word for none, which many a job would have. */
        {TORCHRUN "TORCHELASTIC_RUN_ID=none", 0, 0, NULL},
        {TORCHRUN "TORCHELASTIC_RUN_ID=", 0, 0, NULL},
        {TORCHRUN "TORCHELASTIC_RUN_ID=nonesuch", 0, 0, "nonesuch"},
        /* A place of one's own: every rank may be rank 0 of 1 of what it evaluates with. */
        {TORCHRUN "TORCHELASTIC_RUN_ID=nine", RANK | WORLD, 6, NULL},
        {TORCHRUN "TORCHELASTIC_RUN_ID=nine", RANK, 6, NULL},
        {TORCHRUN "TORCHELASTIC_RUN_ID=nine", WORLD, 6, NULL},
        {TORCHRUN "TORCHELASTIC_RUN_ID=nine", RANK | WORLD, DL_WORLD_CLUSTER, NULL},
        {TORCHRUN "TORCHELASTIC_RUN_ID=nine", WORLD, DL_WORLD_CLUSTER, "nine"},
        {"TORCHELASTIC_RUN_ID=nine", 0, 6, NULL},
    };
    char why[256];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.world = rows[i].world, .job = JOB_BEFORE};

        assert_int_equal(ask(rows[i].environment, rows[i].given, &o, why), 0);
        assert_string_equal(why, "");
        assert_ptr_equal(o.job, rows[i].job ? job : JOB_BEFORE);
    }
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.world = rows[i].world};

        if (!rows[i].job)
            continue;
        set_environment(rows[i].environment);
        assert_int_equal(dl_epoch_options_from_env(&o, rows[i].given, job, why, sizeof why), 0);
        clear();
        assert_string_equal(o.job, rows[i].job);
    }
}

TEST(test_refused)
{
    static const struct {
        const char *environment;
        unsigned given;
        bool cluster;
        const char *why;
    } rows[] = {
        {"RANK=3", 0, false, "$RANK is set and $WORLD_SIZE is not; set both, or neither"},
        {"WORLD_SIZE=3", 0, false, "$WORLD_SIZE is set and $RANK is not; set both, or neither"},
        {"RANK= WORLD_SIZE=1", 0, false, "$RANK: \"\" is not a whole number from 0 to 1048575"},
        {"RANK=1x WORLD_SIZE=2", 0, false, "$RANK: \"1x\" is not a whole number from 0 to 1048575"},
        {"RANK=-1 WORLD_SIZE=2", 0, false, "$RANK: \"-1\" is not a whole number from 0 to 1048575"},
        {"RANK=+1 WORLD_SIZE=2", 0, false, "$RANK: \"+1\" is not a whole number from 0 to 1048575"},
        {"RANK=1 WORLD_SIZE=0x2", 0, false,
         "$WORLD_SIZE: \"0x2\" is not a whole number from 1 to 1048576"},
        {"RANK=0 WORLD_SIZE=0", 0, false,
         "$WORLD_SIZE: \"0\" is not a whole number from 1 to 1048576"},
        {"RANK=1048576 WORLD_SIZE=2", 0, false,
         "$RANK: \"1048576\" is not a whole number from 0 to 1048575"},
        {"RANK=0 WORLD_SIZE=1048577", 0, false,
         "$WORLD_SIZE: \"1048577\" is not a whole number from 1 to 1048576"},
        {"RANK=4294967296 WORLD_SIZE=2", 0, false,
         "$RANK: \"4294967296\" is not a whole number from 0 to 1048575"},
        {"RANK=99999999999999999999 WORLD_SIZE=2", 0, false,
         "$RANK: \"99999999999999999999\" is not a whole number from 0 to 1048575"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=0", 0, false,
         "$LOCAL_WORLD_SIZE: \"0\" is not a whole number from 1 to 1048576"},
        {"RANK=2 WORLD_SIZE=2", 0, false, "$RANK: 2 is not below $WORLD_SIZE, 2"},
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2", 0, false,
         "$OMPI_COMM_WORLD_RANK: 2 is not below $OMPI_COMM_WORLD_SIZE, 2"},
        {"SLURM_STEP_NUM_TASKS=2", 0, false,
         "$SLURM_STEP_NUM_TASKS is set and $SLURM_PROCID is not; set both, or neither"},
        {"PMI_RANK=1", 0, false,
         "$PMI_RANK is set and $PMI_SIZE is not; set that to the number of ranks, or give rank 0 "
         "and world size 1 if each is to have all samples"},
        {"JOB_COMPLETION_INDEX=0", 0, false,
         "$JOB_COMPLETION_INDEX is set and $WORLD_SIZE is not; set that to the number of ranks, or "
         "give rank 0 and world size 1 if each is to have all samples"},
        {"RANK=6 WORLD_SIZE=9", WORLD, false,
         "$RANK: 6 is not below the world size that was given, 6"},
        {"RANK=0 WORLD_SIZE=5", RANK, false,
         "$WORLD_SIZE: 5 is not above the rank that was given, 5"},
        {"RANK=1 WORLD_SIZE=x", RANK, false,
         "$WORLD_SIZE: \"x\" is not a whole number from 1 to 1048576"},
        {"LOCAL_RANK=x", 0, true, "$LOCAL_RANK: \"x\" is not a whole number from 0 to 1048575"},
        {"LOCAL_RANK=0 LOCAL_WORLD_SIZE=0", 0, true,
         "$LOCAL_WORLD_SIZE: \"0\" is not a whole number from 1 to 1048576"},
        {"LOCAL_WORLD_SIZE=2", 0, true,
         "$LOCAL_WORLD_SIZE is set and $LOCAL_RANK is not; set both, or neither"},
        {"LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", 0, true,
         "$LOCAL_RANK: 2 is not below $LOCAL_WORLD_SIZE, 2"},
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=a GROUP_WORLD_SIZE=4", 0,
         true, "$GROUP_RANK: \"a\" is not a whole number from 0 to 1048575"},
    };
    char why[256], cut[9];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint32_t world = rows[i].cluster ? DL_WORLD_CLUSTER : WORLD_BEFORE;
        unsigned given = rows[i].given | (rows[i].cluster ? WORLD : 0);
        struct dl_epoch_options o = {.rank = RANK_BEFORE, .world = world, .job = JOB_BEFORE};

        assert_int_equal(ask(rows[i].environment, given, &o, why), -EINVAL);
        assert_string_equal(why, rows[i].why);
        assert_int_equal(o.rank, RANK_BEFORE);
        assert_true(o.world == world);
        assert_ptr_equal(o.job, JOB_BEFORE);

        set_environment(rows[i].environment);
        assert_int_equal(dl_epoch_options_from_env(&o, given, job, NULL, 0), -EINVAL);
        assert_int_equal(dl_epoch_options_from_env(&o, given, job, cut, sizeof cut), -EINVAL);
        assert_int_equal(strlen(cut), sizeof cut - 1);
        assert_memory_equal(cut, rows[i].why, sizeof cut - 1);
    }
    clear();
}

TEST(test_long_job)
{
    struct dl_epoch_options o = {0};
    char id[130], why[256];

    memset(id, 'x', 129);
    id[129] = '\0';
    set_environment("RANK=0 WORLD_SIZE=2");
    setenv("TORCHELASTIC_RUN_ID", id, 1);
    assert_int_equal(dl_epoch_options_from_env(&o, 0, job, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "$TORCHELASTIC_RUN_ID: \"xxx"));
    assert_non_null(
        strstr(why, "has 129 bytes, and the name of a job may have 128; give torchrun"));
    assert_int_equal(o.world, 0);
    assert_int_equal(dl_epoch_options_from_env(&o, DL_GIVEN_JOB, job, why, sizeof why), 0);
    assert_int_equal(o.world, 2);
    id[128] = '\0';
    setenv("TORCHELASTIC_RUN_ID", id, 1);
    assert_int_equal(dl_epoch_options_from_env(&o, 0, job, why, sizeof why), 0);
    assert_string_equal(o.job, id);
    clear();
}
