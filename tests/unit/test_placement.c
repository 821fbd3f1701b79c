/* Which node keeps what: each owns as much as its room is of all, only what has to move moves, and
 * nodes that ask each other read each block from the store once, and never again where together
 * they have room for all.
 */
#include "tests/lib/harness.h"

#include "daemon/cache/block_shelf.h"
#include "daemon/cache/placement.h"
#include "tests/lib/splitmix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

enum { BLOCKS = 20000, NODES = 5, EPOCHS = 4, BYTES = 4096 };

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
    assert_int_equal(placement_order(&placement, 5), 5);
    assert_int_equal(placement_set(&placement, many, PLACEMENT_NODES_MAX + 1, 0), -EINVAL);
    assert_int_equal(placement_set(&placement, many, 2, 2), -EINVAL);
    free(many);
    placement = placement_of(none, 2, 1);
    assert_int_equal(placement_owner(&placement, 5), PLACEMENT_NONE);
    assert_int_equal(placement_order(&placement, UINT32_MAX), UINT32_MAX);
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

/* What a node owns comes before all else, and all orders are even. */
TEST(test_orders)
{
    static const uint64_t rooms[] = {10, 20, 30, 40};

    (void)state;
    for (uint32_t self = 0; self < 4; self++) {
        struct placement placement = placement_of(rooms, 4, self);
        uint32_t parts[10] = {0};
        double share = (double)rooms[self] / 100 * UINT32_MAX;

        for (uint32_t i = 0; i < BLOCKS; i++) {
            uint32_t order = placement_order(&placement, point_of(i));

            if (placement_owner(&placement, point_of(i)) == self)
                assert_true(order <= share);
            else
                assert_true(order >= share - 1);
            parts[(uint64_t)order * 10 >> 32]++;
        }
        for (int i = 0; i < 10; i++)
            assert_in_range(parts[i], BLOCKS / 10 * 88 / 100, BLOCKS / 10 * 112 / 100);
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

/* ---- nodes that ask each other -------------------------------------------------------------- */

struct cluster {
    struct placement placements[NODES];
    struct shelf shelves[NODES];
    uint32_t n;
    uint64_t from_store, from_peers, from_disk;
};

static bool look(struct shelf *shelf, uint64_t key)
{
    uint32_t slot = shelf_find(shelf, key);

    shelf_pass(shelf, BYTES);
    if (slot != SHELF_NONE)
        shelf_use(shelf, slot);
    return slot != SHELF_NONE;
}

static void keep(struct cluster *cluster, uint32_t node, uint32_t i)
{
    struct shelf *shelf = &cluster->shelves[node];
    uint32_t order = placement_order(&cluster->placements[node], point_of(i)), slot;

    while (!shelf_fits(shelf, BYTES) && (slot = shelf_victim(shelf, order)) != SHELF_NONE) {
        shelf_take_off(shelf, slot);
        shelf_give_back(shelf, slot);
    }
    if (!shelf_fits(shelf, BYTES))
        return;
    assert_int_equal(shelf_add(shelf, i + 1, order, BYTES, &slot), 0);
    shelf->slots[slot].there = true;
}

/* Disk, the one that owns it, the store; what the store gives the owner gets. */
static void ask(struct cluster *cluster, uint32_t node, uint32_t i, bool owner_is_dead)
{
    uint32_t owner = placement_owner(&cluster->placements[node], point_of(i));

    if (look(&cluster->shelves[node], i + 1)) {
        cluster->from_disk++;
        return;
    }
    if (owner != node && !owner_is_dead && look(&cluster->shelves[owner], i + 1)) {
        cluster->from_peers++;
    } else {
        cluster->from_store++;
        if (owner != node && !owner_is_dead)
            keep(cluster, owner, i);
    }
    keep(cluster, node, i);
}

static struct cluster cluster_of(uint32_t n, double c)
{
    struct cluster cluster = {.n = n};
    uint64_t rooms[NODES];

    for (uint32_t i = 0; i < n; i++)
        rooms[i] = (uint64_t)(c * BLOCKS) * BYTES;
    for (uint32_t i = 0; i < n; i++) {
        cluster.placements[i] = placement_of(rooms, n, i);
        shelf_init(&cluster.shelves[i], rooms[i]);
    }
    return cluster;
}

static void cluster_deinit(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->n; i++) {
        placement_deinit(&cluster->placements[i]);
        shelf_deinit(&cluster->shelves[i]);
    }
}

/* Each block is read by one node, by another one in each epoch. Returns the store's share. */
static double read_epoch(struct cluster *cluster, uint32_t dead, uint64_t *random)
{
    static uint32_t order[BLOCKS];

    cluster->from_store = cluster->from_peers = cluster->from_disk = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t other = (uint32_t)(next_random(random) % (i + 1));
        order[i] = order[other];
        order[other] = i;
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t node = i % cluster->n;
        uint32_t owner = placement_owner(&cluster->placements[node], point_of(order[i]));

        if (node != dead)
            ask(cluster, node, order[i], owner == dead);
    }
    return (double)cluster->from_store / BLOCKS;
}

TEST(test_cluster)
{
    static const struct {
        uint32_t n;
        double c;     /* of the data, on each node */
        double later; /* the store's share of each later epoch */
    } cases[] = {{1, 0.5, 0.5}, {2, 0.5, 0},   {3, 1.0 / 3, 0}, {3, 1.0 / 6, 0.5},
                 {3, 0.5, 0},   {5, 0.1, 0.5}, {5, 0.2, 0},     {4, 1, 0}};
    uint64_t random = 1;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cluster cluster = cluster_of(cases[i].n, cases[i].c);

        assert_true(read_epoch(&cluster, PLACEMENT_NONE, &random) == 1);
        for (int epoch = 1; epoch < EPOCHS; epoch++) {
            double share = read_epoch(&cluster, PLACEMENT_NONE, &random);
            if (fabs(share - cases[i].later) > 0.015)
                fail_msg("%u nodes of %.2f each: the store's share of epoch %d is %.3f", cases[i].n,
                         cases[i].c, epoch, share);
        }
        cluster_deinit(&cluster);
    }
}

/* A third of what the others read is the dead one's, and comes from the store. */
TEST(test_dead)
{
    struct cluster cluster = cluster_of(3, 1.0 / 3);
    uint64_t random = 3;

    (void)state;
    (void)read_epoch(&cluster, PLACEMENT_NONE, &random);
    assert_true(fabs(read_epoch(&cluster, 2, &random) - 2.0 / 9) < 0.015);
    cluster_deinit(&cluster);
}
