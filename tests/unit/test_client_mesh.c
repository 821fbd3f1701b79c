/* Meshes: which samples a rank of several dimensions has, and which part of a sequence. */
#include "tests/lib/harness.h"

#include "client/dlclient.h"
#include <errno.h>

TEST(test_places)
{
    static const struct {
        const char *mesh;
        uint32_t rank, local_world;
        uint32_t want[4]; /* rank, world, replica, replicas */
    } rows[] = {
        {"dp=4", 2, 0, {2, 4, 0, 1}},
        {"dp=4,tp=2", 5, 0, {2, 4, 1, 2}},
        {"dp=4, tp=2", 5, 8, {2, 4, 1, 2}},
        {"tp=2,dp=4", 5, 0, {1, 4, 1, 2}},
        {"dp=2,pp=2,cp=2,tp=2", 11, 0, {1, 2, 3, 8}},
        {"pp=2,dp=2,tp=2", 6, 0, {1, 2, 2, 4}},
        {"dp_replicate=2,dp_shard=3,tp=2", 9, 0, {4, 6, 1, 2}},
        /* Two nodes of four: a pipeline over both of them. */
        {"pp=2,dp=2,tp=2", 6, 4, {1, 2, 0, 2}},
        {"pp=2,dp=2,tp=2", 3, 4, {1, 2, 1, 2}},
        {"tp=8", 5, 2, {0, 1, 1, 2}},
        /* Nodes of three, so that groups of four are cut into three and one, two and two. */
        {"dp=3,tp=4", 2, 3, {0, 3, 2, 3}},
        {"dp=3,tp=4", 3, 3, {0, 3, 0, 1}},
        {"dp=3,tp=4", 5, 3, {1, 3, 1, 2}},
        {"dp=3,tp=4", 6, 3, {1, 3, 0, 2}},
        {"tp=1", 0, 0, {0, 1, 0, 1}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.epoch = 7};
        char why[256] = "";

        assert_int_equal(dl_epoch_options_set_mesh(&o, rows[i].mesh, rows[i].rank,
                                                   rows[i].local_world, why, sizeof why),
                         0);
        assert_int_equal(o.rank, rows[i].want[0]);
        assert_int_equal(o.world, rows[i].want[1]);
        assert_int_equal(o.replica, rows[i].want[2]);
        assert_int_equal(o.replicas, rows[i].want[3]);
        assert_int_equal(o.epoch, 7);
    }
}

/* Of every mesh, the replicas of a rank of the samples are numbered from 0 on. */
TEST(test_each_once)
{
    static const char *const meshes[] = {"dp=3,tp=4", "tp=4,dp=3", "pp=2,dp=3,tp=2", "tp=12",
                                         "dp=12"};
    for (size_t i = 0; i < ARRAY_SIZE(meshes); i++) {
        uint32_t seen[12][12] = {0}, replicas = 0;

        for (uint32_t rank = 0; rank < 12; rank++) {
            struct dl_epoch_options o = {0};

            assert_int_equal(dl_epoch_options_set_mesh(&o, meshes[i], rank, 0, NULL, 0), 0);
            assert_int_equal(o.world * o.replicas, 12);
            assert_int_equal(seen[o.rank][o.replica]++, 0);
            replicas = o.replicas;
        }
        for (uint32_t rank = 0; rank < 12 / replicas; rank++)
            for (uint32_t replica = 0; replica < replicas; replica++)
                assert_int_equal(seen[rank][replica], 1);
    }
}

TEST(test_refused)
{
    static const struct {
        const char *mesh, *words;
    } rows[] = {
        {"", "is not a dimension"},
        {"dp", "is not a dimension"},
        {"dp=x", "is not a dimension"},
        {"dp=2 tp=2", "write a comma between"},
        {"dp=2,ep=2", "\"ep\" is not one of dp"},
        {"dp=2,dp=2", "dp occurs twice"},
        {"dp=0", "dp=0 is not from 1"},
        {"dp=9999999", "is not from 1 to 1048576"},
        {"dp=1048576,tp=2", "tp=2 is not from 1"},
        {"dp=2,tp=2", "it has 4 ranks, and this is rank 5"},
        {"tp=2048", "2048 ranks of this node"},
        {"dp=2,", "is not a dimension"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_epoch_options o = {.world = 77};
        char why[512] = "";

        assert_int_equal(dl_epoch_options_set_mesh(&o, rows[i].mesh, 5, 0, why, sizeof why),
                         -EINVAL);
        assert_non_null(strstr(why, rows[i].words));
        assert_int_equal(o.world, 77);
    }
}

TEST(test_sequences)
{
    for (uint32_t parts = 1; parts < 5; parts++) {
        for (unsigned how = DL_SEQUENCE_CONTIGUOUS; how <= DL_SEQUENCE_ZIGZAG; how++) {
            uint8_t seen[24] = {0};
            uint64_t first_seen = 0;

            for (uint32_t part = 0; part < parts; part++) {
                struct dl_stretch got[2];
                int n = dl_sequence_part(24, part, parts, (enum dl_sequence)how, got);

                assert_int_equal(n, how == DL_SEQUENCE_ZIGZAG ? 2 : 1);
                for (int i = 0; i < n; i++)
                    for (uint64_t k = 0; k < got[i].count; k++)
                        seen[got[i].first + k]++;
                /* Tokens that are seen by each other's, of a causal mask: as many for each. */
                uint64_t work = 0;
                for (int i = 0; i < n; i++)
                    for (uint64_t k = 0; k < got[i].count; k++)
                        work += got[i].first + k;
                first_seen = part == 0 ? work : first_seen;
                assert_true(how == DL_SEQUENCE_CONTIGUOUS || work == first_seen);
            }
            for (size_t i = 0; i < sizeof seen; i++)
                assert_int_equal(seen[i], 1);
        }
    }
    struct dl_stretch none[2];
    assert_int_equal(dl_sequence_part(24, 2, 2, DL_SEQUENCE_CONTIGUOUS, none), -EINVAL);
    assert_int_equal(dl_sequence_part(24, 0, 0, DL_SEQUENCE_CONTIGUOUS, none), -EINVAL);
    assert_int_equal(dl_sequence_part(25, 0, 2, DL_SEQUENCE_CONTIGUOUS, none), -EINVAL);
    assert_int_equal(dl_sequence_part(26, 0, 2, DL_SEQUENCE_ZIGZAG, none), -EINVAL);
}
