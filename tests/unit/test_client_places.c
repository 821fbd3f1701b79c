/*
 * A state saved and taken back under every way of placing ranks, through libdlclient and loaders
 * of this process: a table of axes, of which each cell is one training that is stopped, and goes on
 * from its state, up to three times. Either each sample comes once, and in the same world with the
 * same batches; or the cell is refused by name.
 */
#include "client/dlclient.h"
#include "proto/common/base.h"
#include "proto/limits.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <stdio.h>

/* ---- the axes -------------------------------------------------------------------------------- */

enum { SAMPLES = 101, LIVES = 4, STEPS_MOST = 128, BATCH = 6, WORLD_MOST = 3 };

static const char *const modes[] = {"strided", "batch", "split", "dispatch"};
/* How ranks come to read the same batches: so many by shard.replicas, or by a mesh. */
static const struct sharing {
    const char *name;
    uint32_t members;
    const char *mesh; /* with the ranks of the data for %u; NULL: it is the spec's */
} sharings[] = {
    {"none", 1, NULL},
    {"two replicas", 2, NULL},
    {"three replicas", 3, NULL},
    {"tp within dp", 2, "dp=%u,tp=2"},
    {"dp within pp", 2, "pp=2,dp=%u"},
};

#define RANGE "dataset: {kind: range, length: 101}, batch: {size: 6}"
#define MIXED(stop)                                                                                \
    "dataset: {kind: mix, stop: " stop ", weights: [1, 2], datasets: [{kind: range, length: 41}, " \
    "{kind: range, length: 60}]}, batch: {size: 6}, sampler: {kind: random, order: native}"

static const struct data {
    const char *name, *keys;
    bool tokens, iterable, drops;
} data[] = {
    {"in turn", RANGE},
    {"shuffled", RANGE ", sampler: {kind: random, order: native}"},
    {"torch's order", RANGE ", sampler: {kind: random, order: torch}"},
    {"last left out", "dataset: {kind: range, length: 101}, batch: {size: 6, drop_last: true}",
     .drops = true},
    {"mixture", MIXED("first")},
    {"mixture to the last", MIXED("all")},
    {"tokens",
     "dataset: {kind: text, paths: lines.txt, tokenizer: bytes}, batch: {tokens: 60}, collate: "
     "{kind: pad}",
     .tokens = true},
    {"iterable", "dataset: {kind: range, length: 101, iterable: true}, batch: {size: 6}",
     .iterable = true},
};

/* Worlds of the data, with `members` ranks for each of theirs; 0: the end. */
static const uint32_t worlds[][LIVES] = {
    {1, 1}, {2, 2}, {2, 2, 2, 2}, {2, 1}, {2, 3}, {2, 3, 1, 2}, {1, 2, 2, 1}, {3, 1, 3},
};

/* How the state comes to the next life. */
enum door {
    DOOR_EPOCH, /* dl_epoch_state() */
    DOOR_WHOLE, /* dl_epoch_whole_state() */
    DOOR_PLACE, /* dl_loader_state(), with the steps counted since the state before */
    DOOR_FOUND, /* dl_loader_find_state(), and dl_loader_state() where it says, as a Loader does */
    DOORS
};

struct cell {
    const char *mode;
    const struct sharing *sharing;
    bool even;
    const struct data *data;
    const uint32_t *worlds;
    enum door door;
};

/* What the cell is refused by; "": nothing. */
static const char *cell_refusal(const struct cell *c)
{
    bool dispatched = strcmp(c->mode, "dispatch") == 0;

    if (dispatched && c->sharing->members > 1 && !c->sharing->mesh)
        return "shard.replicas";
    if (c->data->tokens && strcmp(c->mode, "strided") != 0)
        return "shard.mode";
    for (size_t i = 1; c->data->iterable && i < LIVES && c->worlds[i]; i++)
        if (c->worlds[i] != c->worlds[0])
            return "world";
    return "";
}

/* What a failure is said to be of. */
struct now {
    struct cell cell;
    struct dl_client *client;
    struct dl_loader *loader;
    size_t cells;
};

static int now_end(void **state)
{
    struct now *now = *state;
    const struct cell *c = &now->cell;

    if (now->client)
        print_error("%s, %s, even %d, %s, worlds %u %u %u %u, door %d\n", c->mode, c->sharing->name,
                    c->even, c->data->name, c->worlds[0], c->worlds[1], c->worlds[2], c->worlds[3],
                    c->door);
    dl_client_close(now->client);
    return 0;
}

/* ---- one life -------------------------------------------------------------------------------- */

struct state {
    uint8_t bytes[DL_STATE_MAX];
    size_t len;
};

struct batch {
    uint64_t indices[64];
    size_t n, repeated;
};

/* What each rank of the data got, by the steps of that life. */
struct life {
    uint32_t world;
    struct batch batches[WORLD_MOST][STEPS_MOST];
    uint64_t steps[WORLD_MOST];
    struct state state; /* where it stopped */
};

struct play {
    const struct cell *cell;
    struct dl_client *client;
    struct dl_loader *loader;
    struct state state; /* the last one; len 0: none */
    uint64_t step;      /* where it leads in this life's world */
};

/* Of one of all ranks. */
static struct dl_epoch_options play_options(const struct play *p, uint32_t world, uint32_t rank)
{
    const struct sharing *sharing = p->cell->sharing;
    struct dl_epoch_options o = {.rank = rank,
                                 .world = world * sharing->members,
                                 .state = p->state.len > 0 ? p->state.bytes : NULL,
                                 .state_len = p->state.len};
    char mesh[32];

    if (sharing->mesh) {
        (void)snprintf(mesh, sizeof mesh, sharing->mesh, world);
        assert_int_equal(dl_epoch_options_set_mesh(&o, mesh, rank, 0, NULL, 0), 0);
    }
    return o;
}

/* 0 and the epoch, or the refusal. */
static int play_start(struct play *p, uint32_t world, uint32_t rank, struct dl_epoch **ret)
{
    struct dl_epoch_options o = play_options(p, world, rank);
    struct state found = {.len = sizeof found.bytes};
    uint64_t epoch;
    int r = 0;

    if (p->state.len > 0)
        r = dl_loader_find_state(p->loader, p->state.bytes, p->state.len, o.world, &epoch,
                                 &p->step);
    if (r < 0)
        return r;
    if (p->state.len > 0 && p->cell->door == DOOR_FOUND) {
        o.step = p->step;
        r = dl_loader_state(p->loader, &o, found.bytes, &found.len);
        o.state = found.bytes;
        o.state_len = found.len;
        o.step = 0;
    }
    return r < 0 ? r : dl_epoch_start(p->loader, &o, ret);
}

/* The state behind so many steps of this life. */
static struct state play_save(struct play *p, struct dl_epoch *epoch, uint32_t world,
                              uint64_t taken)
{
    struct dl_epoch_options o = play_options(p, world, 0);
    struct state state = {.len = sizeof state.bytes};
    int r = 0;

    switch (p->cell->door) {
    case DOOR_EPOCH:
        r = dl_epoch_state(epoch, state.bytes, &state.len);
        break;
    case DOOR_WHOLE:
        r = dl_epoch_whole_state(epoch, p->step + taken, state.bytes, &state.len);
        break;
    case DOOR_PLACE:
    case DOOR_FOUND:
    case DOORS:
        o.step = p->step + taken;
        r = dl_loader_state(p->loader, &o, state.bytes, &state.len);
        break;
    }
    if (r < 0)
        fail_msg("%s", dl_client_error(p->client));
    return state;
}

/* Up to `steps` batches; as many were there before, they must be the same: those of a replica. */
static void take(struct dl_epoch *epoch, uint64_t steps, bool again, struct life *life,
                 uint64_t rank)
{
    struct dl_batch *got;
    uint64_t taken = 0;

    for (; taken < steps && dl_epoch_next(epoch, -1, &got) == 0; taken++) {
        struct batch *batch = &life->batches[rank][taken], one = {0};
        const uint64_t *indices = dl_batch_indices(got, &one.n);

        assert_in_range(taken, 0, STEPS_MOST - 1);
        assert_in_range(one.n, 1, ARRAY_SIZE(one.indices));
        memcpy(one.indices, indices, one.n * sizeof *indices);
        one.repeated = dl_batch_repeated(got);
        if (again)
            assert_memory_equal(batch, &one, sizeof one);
        *batch = one;
    }
    if (again)
        assert_int_equal(taken, life->steps[rank]);
    life->steps[rank] = taken;
}

/* All ranks take so many steps: 0, or the refusal. */
static int play_life(struct play *p, uint32_t world, uint64_t steps, struct life *ret)
{
    bool again[WORLD_MOST] = {false};

    ret->world = world;
    for (uint32_t i = 0; i < world * p->cell->sharing->members; i++) {
        struct dl_epoch *epoch = NULL;
        int r = play_start(p, world, i, &epoch);

        if (r < 0)
            return r;
        assert_int_equal(dl_epoch_world(epoch), world);
        uint32_t rank = dl_epoch_rank(epoch);
        take(epoch, steps, again[rank], ret, rank);
        again[rank] = true;
        if (steps < STEPS_MOST) {
            struct state state = play_save(p, epoch, world, ret->steps[rank]);
            if (i > 0) /* that of any rank serves all */
                assert_memory_equal(state.bytes, ret->state.bytes, state.len);
            ret->state = state;
        }
        dl_epoch_end(epoch);
    }
    for (uint32_t rank = 0; rank < world; rank++)
        assert_true(again[rank]);
    return 0;
}

/* ---- what is checked ------------------------------------------------------------------------- */

static void count(const struct life *life, unsigned *seen)
{
    for (uint32_t rank = 0; rank < life->world; rank++)
        for (uint64_t step = 0; step < life->steps[rank]; step++) {
            const struct batch *batch = &life->batches[rank][step];

            for (size_t i = 0; i + batch->repeated < batch->n; i++)
                seen[batch->indices[i]]++;
        }
}

/* The life is what the whole epoch of its world has there. */
static void check_same(const struct life *all, const struct life *some, uint64_t at)
{
    for (uint32_t rank = 0; rank < some->world; rank++)
        for (uint64_t step = 0; step < some->steps[rank]; step++)
            assert_memory_equal(&some->batches[rank][step], &all->batches[rank][at + step],
                                sizeof(struct batch));
}

static struct life part, whole; /* what the spec's epoch has that is not stopped */

static bool is_last(const struct cell *c, size_t life)
{
    return life + 1 == LIVES || c->worlds[life + 1] == 0;
}

/* The lives of the cell, one after the other: 0, or the refusal. */
static int play_cell(struct play *p, unsigned *seen)
{
    const struct cell *c = p->cell;
    uint64_t at = 0;
    bool same = true;
    int r = whole.world == c->worlds[0] ? 0 : play_life(p, c->worlds[0], STEPS_MOST, &whole);

    for (size_t life = 0; r == 0 && life < LIVES && c->worlds[life]; life++) {
        same = same && c->worlds[life] == c->worlds[0];
        r = play_life(p, c->worlds[life], is_last(c, life) ? STEPS_MOST : life + 1, &part);
        if (r < 0)
            break;
        if (same)
            check_same(&whole, &part, at);
        count(&part, seen);
        at += part.steps[0];
        p->state = part.state;
    }
    if (r == 0 && same)
        assert_int_equal(at, whole.steps[0]);
    return r;
}

/* What came in all lives is what an epoch has that is not stopped. Each rank's last batch may be
 * left out, of other samples in other worlds. */
static void check_seen(const struct cell *c, const unsigned *seen, const unsigned *want)
{
    unsigned left_out = 0;

    for (size_t i = 0; i < SAMPLES; i++) {
        left_out += seen[i] == 0;
        if (c->data->drops ? seen[i] > 1 : seen[i] != want[i])
            fail_msg("sample %zu came %u times, and not %u", i, seen[i], want[i]);
    }
    assert_in_range(left_out, 0, c->data->drops ? BATCH * WORLD_MOST - 1 : SAMPLES);
}

static void check_cell(const struct cell *c, const struct now *now)
{
    struct dl_client *client = now->client;
    struct play p = {.cell = c, .client = client, .loader = now->loader};
    unsigned seen[SAMPLES] = {0}, want[SAMPLES] = {0};
    int r = play_cell(&p, seen);

    if (*cell_refusal(c)) {
        assert_int_equal(r, -EINVAL);
        assert_string_equal(dl_client_error_path(client), cell_refusal(c));
        assert_int_equal(dl_client_is_usable(client), 1);
        return;
    }
    if (r < 0)
        fail_msg("%s", dl_client_error(client));
    count(&whole, want);
    check_seen(c, seen, want);
}

static int open_loader(const struct cell *c, struct dl_client *client, struct dl_loader **ret)
{
    char spec[1024];

    (void)snprintf(spec, sizeof spec,
                   "{%s, seed: 1, workers: {count: 0}, shard: {mode: %s, even: %s, replicas: %u}}",
                   c->data->keys, c->mode, c->even ? "true" : "false",
                   c->sharing->mesh ? 1 : c->sharing->members);
    return dl_loader_open(client, spec, strlen(spec), harness_tmpdir(), ret);
}

/* All cells of a spec; in quick runs a few of them, and in turns a fourth. */
static void check_spec(struct cell *c, struct now *now)
{
    assert_int_equal(dl_client_connect_local(&now->client), 0);
    whole.world = 0;
    if (open_loader(c, now->client, &now->loader) < 0) {
        c->worlds = worlds[0];
        if (!*cell_refusal(c))
            fail_msg("%s", dl_client_error(now->client));
        assert_string_equal(dl_client_error_path(now->client), cell_refusal(c));
    } else {
        for (size_t i = 0; i < ARRAY_SIZE(worlds) * DOORS; i++) {
            c->worlds = worlds[i / DOORS];
            c->door = (enum door)(i % DOORS);
            /* A turn has each world by another door. */
            if (now->cells % harness_stride() == 0 && harness_has(now->cells + i / DOORS))
                check_cell(c, now);
            now->cells++;
        }
    }
    now->client = dl_client_close(now->client);
}

/* Lines of 1 to 13 bytes, which are their tokens. */
static void write_lines(void)
{
    char text[SAMPLES * 14 + 1] = "";

    for (size_t i = 0; i < SAMPLES; i++)
        (void)snprintf(text + strlen(text), 15, "%.*s\n", (int)(1 + i * i % 13), "xxxxxxxxxxxxx");
    harness_text("lines.txt", text);
}

TEST(test_every_place, NULL, now_end)
{
    static struct now now;
    struct cell *c = &now.cell;

    *state = &now;
    write_lines();
    for (size_t m = 0; m < ARRAY_SIZE(modes); m++)
        for (size_t n = 0; n < ARRAY_SIZE(sharings); n++)
            for (int even = 0; even < 2; even++)
                for (size_t d = 0; d < ARRAY_SIZE(data); d++) {
                    *c = (struct cell){modes[m], &sharings[n], even, &data[d], worlds[0], 0};
                    check_spec(c, &now);
                }
}

/* ---- no silence ------------------------------------------------------------------------------ */

/* Ranks that shard.replicas does not divide, and those of a cluster: at every door. */
TEST(test_refused_worlds)
{
    static const struct cell c = {"strided", &sharings[1], true, &data[0], worlds[0], 0};
    static const uint32_t refused[] = {0, 1, 3, DL_WORLD_CLUSTER};
    struct now now = {.cell = c};
    struct state saved = {.len = sizeof saved.bytes}, again = saved;
    struct dl_epoch *epoch;
    uint64_t number, step;

    assert_int_equal(dl_client_connect_local(&now.client), 0);
    assert_int_equal(open_loader(&c, now.client, &now.loader), 0);
    assert_int_equal(dl_loader_replicas(now.loader), 2);
    struct dl_epoch_options o = {.world = 2, .step = 3};
    assert_int_equal(dl_loader_state(now.loader, &o, saved.bytes, &saved.len), 0);
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        for (int door = 0; door < 4; door++) {
            o = (struct dl_epoch_options){.world = refused[i]};
            if (door % 2) {
                o.state = saved.bytes;
                o.state_len = saved.len;
            }
            int r = door < 2 ? dl_epoch_start(now.loader, &o, &epoch)
                             : dl_loader_state(now.loader, &o, again.bytes, &again.len);
            assert_int_equal(r, -EINVAL);
            assert_string_equal(dl_client_error_path(now.client), "world");
            r = dl_loader_find_state(now.loader, saved.bytes, saved.len, o.world, &number, &step);
            assert_int_equal(r, -EINVAL);
            assert_non_null(strstr(dl_client_error(now.client), "shard.replicas"));
        }
    dl_client_close(now.client);
}

/* What a state says does not depend on how many read the same: any of these may go on from it. */
TEST(test_states_know_no_replicas)
{
    struct state saved[ARRAY_SIZE(sharings)];

    for (size_t i = 0; i < ARRAY_SIZE(sharings); i++) {
        const struct cell c = {"batch", &sharings[i], true, &data[1], worlds[0], 0};
        struct play p = {.cell = &c};

        assert_int_equal(dl_client_connect_local(&p.client), 0);
        assert_int_equal(open_loader(&c, p.client, &p.loader), 0);
        struct dl_epoch_options o = play_options(&p, 3, 0);
        o.step = 4;
        saved[i].len = sizeof saved[i].bytes;
        assert_int_equal(dl_loader_state(p.loader, &o, saved[i].bytes, &saved[i].len), 0);
        assert_int_equal(saved[i].len, saved[0].len);
        assert_memory_equal(saved[i].bytes, saved[0].bytes, saved[0].len);
        dl_client_close(p.client);
    }
}
