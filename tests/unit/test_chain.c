/* Nodes that ask each other along chains: whatever order things come in, each block leaves the
 * store once, and never again where together they have room for all. Requests, answers, writes to a
 * disk and what is brought are steps of their own, which random schedules take in any order. */
#include "tests/lib/harness.h"

#include "daemon/cache/block_shelf.h"
#include "daemon/fetcher/chain.h"
#include "tests/lib/splitmix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    NODES_MOST = 16,
    BLOCKS_MOST = 4000,
    JOBS_MOST = 1024,
    SLOT = 256 * 1024,
    NOBODY = -1,
};

/* Something that takes its next step some time: a read of a block, the bringing of one, or the end
 * of a turn. */
enum step {
    READ_BEGIN,
    READ_ASK,
    READ_WAIT, /* until a turn has ended */
    READ_STORE,
    READ_KEEP,
    READ_WRITTEN,
    BRING,
    BRING_WRITTEN,
    TURN_END,
};

struct job {
    enum step step;
    uint32_t node, block;
    struct chain chain;
    int slot; /* that is being written; NOBODY: none */
};

struct sim {
    struct placement placements[NODES_MOST];
    struct shelf shelves[NODES_MOST];
    bool promised[NODES_MOST][BLOCKS_MOST];
    uint32_t given[BLOCKS_MOST]; /* in this epoch */
    uint32_t order[NODES_MOST][BLOCKS_MOST], n_order[NODES_MOST], at[NODES_MOST];
    uint32_t reading[NODES_MOST];
    struct job jobs[JOBS_MOST];
    uint32_t n_jobs, n, n_blocks, at_once;
    uint64_t random, bytes;
};

static struct sim sim;

static uint64_t below(uint64_t n)
{
    return next_random(&sim.random) % n;
}

static uint32_t point_of(uint32_t block)
{
    char where[64];

    snprintf(where, sizeof where, "http://h s3://bucket/%u", block);
    return placement_point(where, 0);
}

/* 12 to 48 KiB. */
static uint32_t bytes_of(uint32_t block)
{
    return 4096 * (3 + point_of(block) % 10);
}

static struct job *job_new(enum step step, uint32_t node, uint32_t block)
{
    struct job *job = &sim.jobs[sim.n_jobs++];

    assert_true(sim.n_jobs <= JOBS_MOST);
    *job = (struct job){.step = step, .node = node, .block = block, .slot = NOBODY};
    return job;
}

static void job_end(struct job *job)
{
    if (job->step <= READ_WRITTEN)
        sim.reading[job->node]--;
    *job = sim.jobs[--sim.n_jobs];
}

/* ---- disks ---------------------------------------------------------------------------------- */

static bool has(uint32_t node, uint32_t block)
{
    struct shelf *shelf = &sim.shelves[node];
    uint32_t slot = shelf_find(shelf, block + 1);

    if (slot == SHELF_NONE || !shelf->slots[slot].there)
        return false;
    shelf_use(shelf, slot);
    return true;
}

static uint64_t room_of(uint32_t node)
{
    const struct shelf *shelf = &sim.shelves[node];

    return shelf->limit - min_u64(shelf->limit, shelf->first_bytes);
}

enum terms { BY_ORDER, IF_ROOM, COPY };

/* Its slot, in which it is being written. NOBODY: it is not kept. */
static int begin_write(uint32_t node, uint32_t block, enum terms terms)
{
    struct shelf *shelf = &sim.shelves[node];
    uint32_t bytes = bytes_of(block), slot;
    uint32_t order = placement_order(&sim.placements[node], point_of(block), terms == COPY);

    if (shelf_find(shelf, block + 1) != SHELF_NONE || (terms == IF_ROOM && room_of(node) < bytes))
        return NOBODY;
    while (!shelf_fits(shelf, bytes) &&
           (slot = shelf_victim(shelf, terms == IF_ROOM ? shelf->first : order)) != SHELF_NONE) {
        shelf_take_off(shelf, slot);
        shelf_give_back(shelf, slot);
    }
    if (!shelf_fits(shelf, bytes))
        return NOBODY;
    assert_int_equal(shelf_add(shelf, block + 1, order, bytes, &slot), 0);
    shelf->slots[slot].busy = 1;
    shelf->slots[slot].copy = terms == COPY;
    return (int)slot;
}

static void end_write(uint32_t node, int slot)
{
    sim.shelves[node].slots[slot].busy = 0;
    sim.shelves[node].slots[slot].there = true;
}

/* A copy that is here becomes what others look for, as far as there is room. */
static bool own(uint32_t node, uint32_t block)
{
    struct shelf *shelf = &sim.shelves[node];
    uint32_t slot = shelf_find(shelf, block + 1);

    if (slot == SHELF_NONE || (shelf->slots[slot].copy && room_of(node) < bytes_of(block)))
        return false;
    shelf->slots[slot].copy = false;
    shelf_reorder(shelf, slot, placement_order(&sim.placements[node], point_of(block), false));
    return true;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void end_promise(uint32_t node, uint32_t block)
{
    sim.promised[node][block] = false;
    for (uint32_t i = 0; i < sim.n_jobs; i++)
        if (sim.jobs[i].step == READ_WAIT && sim.jobs[i].block == block)
            sim.jobs[i].step = READ_BEGIN;
}

/* By a message, if it is another node's. */
static void end_turn(uint32_t node, uint32_t block, const struct chain *chain)
{
    uint32_t giver;

    if (!chain_has_turn(chain))
        return;
    giver = (uint32_t)chain->nodes[chain->turn].id;
    if (giver == node)
        end_promise(giver, block);
    else
        job_new(TURN_END, giver, block);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static uint32_t node_of(const struct job *job, uint32_t i)
{
    return (uint32_t)job->chain.nodes[i].id;
}

static void read_begin(struct job *job)
{
    uint32_t chain[PLACEMENT_CHAIN], n;
    uint64_t ids[PLACEMENT_CHAIN];

    if (has(job->node, job->block)) {
        job_end(job);
        return;
    }
    n = placement_chain(&sim.placements[job->node], point_of(job->block), chain);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = chain[i];
    chain_begin(&job->chain, ids, sim.n > 1 ? n : 0, 1);
    job->step = READ_ASK;
}

/* It asks one node. */
static void read_ask(struct job *job)
{
    struct chain *chain = &job->chain;
    uint32_t node = chain->at < chain->n ? node_of(job, chain->at) : 0;

    if (chain->at == chain->n) {
        job->step = READ_STORE;
    } else if (has(node, job->block)) {
        const struct chain whole = *chain;
        job->step = READ_BEGIN;
        if (node != job->node) {
            job->step = READ_WRITTEN;
            job->slot = begin_write(job->node, job->block, COPY);
            chain->n = 0;
        }
        end_turn(job->node, job->block, &whole);
    } else if (!chain_has_turn(chain) && sim.promised[node][job->block]) {
        job->step = READ_WAIT;
    } else {
        if (!chain_has_turn(chain))
            sim.promised[node][job->block] = true;
        chain_take_absent(chain, room_of(node), chain->at == 0);
    }
}

/* As peers_terms(), fetch_keep() and peers_bring(). */
static void read_keep(struct job *job)
{
    struct chain *chain = &job->chain;
    uint32_t self = job->node, block = job->block;
    enum terms terms = chain->n > 0 ? COPY : BY_ORDER;

    chain->at = 0;
    for (uint32_t i = 0; i < chain->n; i++)
        if (node_of(job, i) == self)
            chain->nodes[i].room = room_of(self);
    if (chain_find_room(chain, bytes_of(block)))
        terms = node_of(job, chain->at) == self ? IF_ROOM : COPY;
    else if (chain->n > 0 && node_of(job, 0) == self)
        terms = BY_ORDER;
    job->slot = begin_write(self, block, terms);
    job->step = READ_WRITTEN;
    if (chain->n > 0 && (terms == COPY || (terms == IF_ROOM && job->slot == NOBODY))) {
        job_new(BRING, self, block)->chain = *chain;
        chain->n = 0;
    }
}

static void read_written(struct job *job)
{
    const struct job ended = *job;

    if (ended.slot != NOBODY)
        end_write(ended.node, ended.slot);
    job_end(job);
    end_turn(ended.node, ended.block, &ended.chain);
}

/* To one node. */
static void bring(struct job *job)
{
    struct chain *chain = &job->chain;
    bool finds = chain_find_room(chain, bytes_of(job->block));
    uint32_t last = chain_by_order(chain), at = finds ? node_of(job, chain->at) : 0;

    if (finds && at == job->node && own(at, job->block)) {
        job->step = BRING_WRITTEN;
    } else if (finds) {
        job->slot = begin_write(at, job->block, IF_ROOM);
        if (job->slot == NOBODY)
            chain_pass(chain);
        else
            job->step = BRING_WRITTEN;
    } else {
        if (last != CHAIN_NONE && node_of(job, last) != job->node) {
            chain->at = last;
            job->slot = begin_write(node_of(job, last), job->block, BY_ORDER);
        }
        job->step = BRING_WRITTEN;
    }
}

static void bring_written(struct job *job)
{
    const struct job ended = *job;

    if (ended.slot != NOBODY)
        end_write(node_of(&ended, ended.chain.at), ended.slot);
    job_end(job);
    end_turn(ended.node, ended.block, &ended.chain);
}

static void take_step(struct job *job)
{
    switch (job->step) {
    case READ_BEGIN:
        read_begin(job);
        break;
    case READ_ASK:
        read_ask(job);
        break;
    case READ_STORE:
        sim.given[job->block]++;
        job->step = READ_KEEP;
        break;
    case READ_KEEP:
        read_keep(job);
        break;
    case READ_WRITTEN:
        read_written(job);
        break;
    case BRING:
        bring(job);
        break;
    case BRING_WRITTEN:
        bring_written(job);
        break;
    case TURN_END: {
        const struct job ended = *job;
        job_end(job);
        end_promise(ended.node, ended.block);
        break;
    }
    case READ_WAIT:
        break;
    }
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void begin(uint32_t n, uint32_t n_blocks, double c, uint32_t at_once, uint64_t seed)
{
    struct placement_node nodes[NODES_MOST];

    memset(&sim, 0, sizeof sim);
    sim.random = seed;
    sim.n = n;
    sim.n_blocks = n_blocks;
    sim.at_once = at_once;
    for (uint32_t i = 0; i < n_blocks; i++)
        sim.bytes += bytes_of(i);
    for (uint32_t i = 0; i < n; i++)
        nodes[i] = (struct placement_node){.id = 1000 + i, .room = (uint64_t)(c * sim.bytes)};
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(placement_set(&sim.placements[i], nodes, n, i), 0);
        shelf_init(&sim.shelves[i], nodes[i].room);
        shelf_set_first(&sim.shelves[i], placement_first(&sim.placements[i]));
    }
}

static void end(void)
{
    for (uint32_t i = 0; i < sim.n; i++) {
        placement_deinit(&sim.placements[i]);
        shelf_deinit(&sim.shelves[i]);
    }
}

/* Each node its part of one order, or each all in an order of its own. */
static void shuffle(bool all)
{
    uint32_t order[BLOCKS_MOST];

    memset(sim.n_order, 0, sizeof sim.n_order);
    memset(sim.at, 0, sizeof sim.at);
    for (uint32_t node = 0; node < sim.n; node++) {
        for (uint32_t i = 0; i < sim.n_blocks && (all || node == 0); i++) {
            uint64_t other = below(i + 1);
            order[i] = order[other];
            order[other] = i;
        }
        for (uint32_t i = 0; i < sim.n_blocks; i++)
            if (all || i % sim.n == node)
                sim.order[node][sim.n_order[node]++] = order[i];
    }
}

static void begin_reads(void)
{
    for (uint32_t node = 0; node < sim.n; node++)
        for (; sim.at[node] < sim.n_order[node] && sim.reading[node] < sim.at_once;
             sim.reading[node]++)
            job_new(READ_BEGIN, node, sim.order[node][sim.at[node]++]);
}

/* The store's share of the bytes. */
static double read_epoch(bool all)
{
    uint64_t given = 0, idle = 0;

    memset(sim.given, 0, sizeof sim.given);
    shuffle(all);
    begin_reads();
    while (sim.n_jobs > 0) {
        struct job *job = &sim.jobs[below(sim.n_jobs)];

        idle = job->step == READ_WAIT ? idle + 1 : 0;
        assert_true(idle < 100 * JOBS_MOST); /* nobody waits for nothing */
        take_step(job);
        begin_reads();
    }
    for (uint32_t i = 0; i < sim.n_blocks; i++)
        given += sim.given[i] * (uint64_t)bytes_of(i);
    for (uint32_t node = 0; node < sim.n; node++)
        for (uint32_t i = 0; i < sim.n_blocks; i++)
            assert_false(sim.promised[node][i]);
    return (double)given / (double)sim.bytes;
}

static void check_once(uint64_t seed)
{
    for (uint32_t i = 0; i < sim.n_blocks; i++)
        if (sim.given[i] != 1)
            fail_msg("schedule %llu: block %u has left the store %u times in the first epoch",
                     (unsigned long long)seed, i, sim.given[i]);
}

/* ---- cases ---------------------------------------------------------------------------------- */

/* What is not had again after the first epoch: as much as has no room, and of what would just have,
 * a block or two of each node, where more than a chain are at work a little more. */
TEST(test_shares)
{
    enum { EPOCHS = 4 };
    static const struct {
        uint32_t n, n_blocks;
        double c;     /* of the data, on each node */
        double later; /* the store's share of each later epoch */
        double more;  /* at most */
    } cases[] = {
        {1, 4000, 0.5, 0.5, 0.02},  {2, 4000, 0.5, 0, 0.002},      {3, 4000, 1.0 / 3, 0, 0.002},
        {3, 200, 1.0 / 3, 0, 0.03}, {3, 200, 0.34, 0, 0},          {3, 4000, 1.0 / 6, 0.5, 0.02},
        {3, 4000, 0.5, 0, 0},       {5, 4000, 0.1, 0.5, 0.02},     {5, 4000, 0.2, 0, 0.01},
        {5, 2000, 0.21, 0, 0.002},  {16, 4000, 1.0 / 16, 0, 0.03}, {16, 4000, 1.05 / 16, 0, 0.003},
        {4, 2000, 1, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        begin(cases[i].n, cases[i].n_blocks, cases[i].c, 4, i);
        assert_true(read_epoch(false) == 1);
        for (int epoch = 1; epoch < EPOCHS; epoch++) {
            double share = read_epoch(false);
            if (fabs(share - cases[i].later) > cases[i].more)
                fail_msg("%u nodes of %.2f each: the store's share of epoch %d is %.4f", cases[i].n,
                         cases[i].c, epoch, share);
        }
        end();
    }
}

/* Few blocks, and many under way; also those that all nodes need at the same time. */
TEST(test_schedules)
{
    enum { SCHEDULES = 4000 };
    static const double rooms[] = {1.0 / 3, 0.36, 0.45, 1};
    double most[2][ARRAY_SIZE(rooms)] = {{0}};

    for (uint64_t seed = 0; seed < SCHEDULES; seed += harness_stride()) {
        size_t c = seed / 2 % ARRAY_SIZE(rooms);
        bool all = seed % 2;

        begin(3, 40 + 20 * (uint32_t)below(2), rooms[c], 1 + (uint32_t)(seed / 8 % 12), seed);
        (void)read_epoch(all);
        if (!all || rooms[c] > 0.4)
            check_once(seed); /* else what nobody has room for is fetched by each */
        for (int epoch = 1; epoch < 3; epoch++)
            most[all][c] = fmax(most[all][c], read_epoch(all));
        end();
    }
    for (int all = 0; all < 2; all++)
        for (size_t c = 0; c < ARRAY_SIZE(rooms); c++)
            print_message("# %s, %.2f each: at most %.3f of a later epoch\n", all ? "all" : "parts",
                          rooms[c], most[all][c]);
}
