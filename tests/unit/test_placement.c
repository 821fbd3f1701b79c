/* Which nodes keep what: each owns as much as its room is of all, and only what has to move moves.
 */
#include "tests/lib/harness.h"

#include "daemon/cache/placement.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

enum { BLOCKS = 20000, NODES = 5 };

static uint32_t point_of(uint64_t i)
{
    char where[64];

    snprintf(where, sizeof where, "http://h s3://bucket/%llu", (unsigned long long)i);
    return placement_point(where, 0);
}

static struct placement placement_of(const uint64_t *rooms, uint32_t n, uint32_t self)
{
    struct placement placement = {0};
    struct placement_node nodes[NODES];

    for (uint32_t i = 0; i < n; i++)
        nodes[i] = (struct placement_node){.id = 1000 + i, .room = rooms[i]};
    assert_int_equal(placement_set(&placement, nodes, n, self), 0);
    return placement;
}

TEST(test_shares)
{
    static const struct {
        uint32_t n;
        uint64_t rooms[NODES];
    } cases[] = {
        {1, {7}},
        {2, {1, 1}},
        {3, {100, 100, 100}},
        {3, {1 << 20, 2 << 20, 5 << 20}},
        {4, {0, 3, 0, 1}},
        {5, {1, 1, 1, 1, UINT64_C(1) << 50}},
    };

    (void)state;
    for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
        struct placement placement = placement_of(cases[c].rooms, cases[c].n, 0);
        uint32_t owned[NODES] = {0};
        double all = 0;

        for (uint32_t i = 0; i < BLOCKS; i++)
            owned[placement_owner(&placement, point_of(i))]++;
        for (uint32_t i = 0; i < cases[c].n; i++)
            all += (double)cases[c].rooms[i];
        for (uint32_t i = 0; i < cases[c].n; i++) {
            double share = (double)cases[c].rooms[i] / all, is = (double)owned[i] / BLOCKS;
            if (fabs(share - is) > 0.012)
                fail_msg("case %zu: node %u has %.3f of the room, and owns %.3f", c, i, share, is);
            assert_true(share > 0 || owned[i] == 0);
        }
        placement_deinit(&placement);
    }
}

TEST(test_nobody)
{
    static const uint64_t none[] = {0, 0};
    struct placement placement = {0};
    struct placement_node *many = calloc(PLACEMENT_NODES_MAX + 1, sizeof *many);

    (void)state;
    assert_int_equal(placement_owner(&placement, 5), PLACEMENT_NONE);
    assert_int_equal(placement_order(&placement, 5, false), 5);
    assert_int_equal(placement_set(&placement, many, PLACEMENT_NODES_MAX + 1, 0), -EINVAL);
    assert_int_equal(placement_set(&placement, many, 2, 2), -EINVAL);
    free(many);
    placement = placement_of(none, 2, 1);
    assert_int_equal(placement_owner(&placement, 5), PLACEMENT_NONE);
    assert_int_equal(placement_order(&placement, UINT32_MAX, true), UINT32_MAX);
    placement_deinit(&placement);
}

/* A node goes: its blocks alone are others', and not all of them one's. */
TEST(test_one_goes)
{
    static const uint64_t rooms[] = {10, 20, 30, 40}, fewer[] = {10, 20, 0, 40};
    struct placement before = placement_of(rooms, 4, 0), after = placement_of(fewer, 4, 0);
    uint32_t heirs[4] = {0};

    (void)state;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t was = placement_owner(&before, point_of(i)),
                 is = placement_owner(&after, point_of(i));

        if (was == 2)
            heirs[is]++;
        else
            assert_int_equal(is, was);
    }
    assert_true(heirs[0] > 0 && heirs[1] > 0 && heirs[2] == 0 && heirs[3] > 0);
    placement_deinit(&before);
    placement_deinit(&after);
}

/* By the ids, wherever a node is in the list. */
TEST(test_any_order)
{
    static const struct placement_node one[] = {{1, 10}, {2, 20}, {3, 30}},
                                       other[] = {{3, 30}, {1, 10}, {2, 20}};
    struct placement a = {0}, b = {0};

    (void)state;
    assert_int_equal(placement_set(&a, one, 3, 0), 0);
    assert_int_equal(placement_set(&b, other, 3, 1), 0);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(a.nodes[placement_owner(&a, point_of(i))].id,
                         b.nodes[placement_owner(&b, point_of(i))].id);
    placement_deinit(&a);
    placement_deinit(&b);
}

/* Of four nodes three are in each chain, each once, the owner first; the smallest seldom. */
TEST(test_chains)
{
    static const uint64_t rooms[] = {10, 20, 30, 40};
    struct placement placement = placement_of(rooms, 4, 0);
    uint32_t in[4] = {0};

    (void)state;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t chain[PLACEMENT_CHAIN];

        assert_int_equal(placement_chain(&placement, point_of(i), chain), 3);
        assert_int_equal(chain[0], placement_owner(&placement, point_of(i)));
        assert_true(chain[0] != chain[1] && chain[1] != chain[2] && chain[0] != chain[2]);
        for (int k = 0; k < 3; k++)
            in[chain[k]]++;
    }
    assert_true(in[0] < in[1] && in[1] < in[2] && in[2] < in[3]);
    placement_deinit(&placement);
}

/* What others look for at a node comes before all copies there, and each are even. */
TEST(test_orders)
{
    static const uint64_t rooms[] = {10, 20, 30, 40};

    (void)state;
    for (uint32_t self = 0; self < 4; self++) {
        struct placement placement = placement_of(rooms, 4, self);
        uint32_t first = placement_first(&placement), n[2] = {0}, below[2] = {0};

        for (uint32_t i = 0; i < BLOCKS; i++) {
            uint32_t chain[PLACEMENT_CHAIN], point = point_of(i);
            uint32_t last = placement_chain(&placement, point, chain);
            uint32_t order = placement_order(&placement, point, false),
                     copy = placement_order(&placement, point, true);

            while (last > 0 && chain[last - 1] != self)
                last--;
            assert_true(copy >= first - 1 && (order <= first) == (last > 0));
            n[0] += last > 0;
            below[0] += order <= first / 2;
            n[1]++;
            below[1] += copy <= first + (UINT32_MAX - first) / 2;
        }
        for (int k = 0; k < 2; k++)
            assert_in_range(below[k], n[k] * 48 / 100, n[k] * 52 / 100);
        placement_deinit(&placement);
    }
}

TEST(test_points)
{
    (void)state;
    assert_int_equal(placement_point("a", 0), placement_point("a", PLACEMENT_GROUP_BLOCKS - 1));
    assert_int_not_equal(placement_point("a", 0), placement_point("a", PLACEMENT_GROUP_BLOCKS));
    assert_int_not_equal(placement_point("a", 0), placement_point("b", 0));
}
