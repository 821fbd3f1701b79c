/*
 * The simulation of test_world_sim.c: daemons with their streams as session_world.c treats them,
 * trainers as their clients and a launcher do, and the rounds of a rendezvous. Included there
 * alone.
 */
#ifndef DL_TEST_WORLD_SIM_H
#define DL_TEST_WORLD_SIM_H

#include "tests/lib/harness.h"
#include "tests/lib/splitmix.h"
#include "tests/lib/world_around.h"

#include "daemon/base/memory.h"
#include "daemon/cluster/world/world_rules.h"

#include <errno.h>
#include <stdio.h>
#include <utlist.h>

enum { NODES = 3, LOCAL = 2, RANKS = NODES * LOCAL, SAMPLES = 150, AHEAD = 3 };
enum { FAULTS = 4, MARGIN = 2 /* steps between a fence and what others do then */ };
enum { MOVES = 60000 }; /* more than any schedule takes */

#define MS ((uint64_t)1000000)

enum rank_phase {
    RANK_ASKS,  /* START is with the daemon, or lies with a daemon that is not there */
    RANK_READS, /* it has a stream */
    RANK_ENDS,  /* all is used; it waits for the daemon's word */
    RANK_DONE
};

struct sim_rank {
    bool lives, anywhere;
    enum rank_phase phase;
    struct sim_daemon *daemon; /* that its stream is with; NULL: it was lost, or never was */
    struct shared_loader *shared;
    struct resume_place place;
    uint64_t limit, used, delivered, released, asked, ended_ns;
    uint64_t known_to;   /* the member id of the daemon that has heard of it last */
    bool paused, closed; /* closed: the client uses no more of it */
    struct history before;
    uint64_t step; /* in the world of its place; of one who was told where all resume */
    struct former_place former;
    uint64_t turns;
    uint64_t most; /* turns for now; 0: as many as it can */
    bool again;    /* a launcher has started it again, */
    bool agreed;   /* and it resumes where all do */
    bool back;     /* its program has gone back to a state: */
    struct history state;
    int session; /* its address is the client's session */
};

struct sim_daemon {
    struct around around;
    struct members *m;
    char name[8];
    uint64_t number; /* of its node */
    bool frozen, in, ending;
    bool owes_over, evicted, owes_round;
};

struct sim {
    uint64_t random, round, told;      /* `told`: samples, said to be left out */
    struct sim_daemon *daemons[NODES]; /* NULL: none */
    struct sim_rank ranks[RANKS];
    struct rdzv_state state; /* of the latest round */
    struct quota *quota;
    bool changing;
    bool has_group;    /* in which ranks that were started again agree where they resume */
    int user[SAMPLES]; /* 1 + the rank that has used it; 0: none */
    bool by_dead[SAMPLES];
    bool one_behind; /* one has resumed behind the epoch: what is missing is told at the next one's
                        end */
    bool one_away;   /* how far a rank was that is away, or was, nobody knows */
    unsigned deaths, faults; /* `faults`: still to come */
};

/* As things are: whether a client whose daemon is gone uses what it has; and whether a trainer may
 * use what a daemon that has slept gives out before that looks at the clock. */
enum { CLIENT_READS_ON = 0, WAKES_SLOWLY = 0 };

static struct sim *sim;
static uint64_t sim_kinds; /* of what may happen, a bit each */
static uint64_t sim_seed;  /* of the schedule that is played */

static uint64_t sim_draw(uint64_t below)
{
    return next_random(&sim->random) % below;
}

static void sim_say(const char *what, uint64_t a, uint64_t b)
{
    if (around_verbose)
        (void)fprintf(stderr, "# sim: %s %llu %llu\n", what, (unsigned long long)a,
                      (unsigned long long)b);
}

static struct sim_daemon *sim_daemon_of(const struct sim_rank *rank)
{
    return sim->daemons[(rank - sim->ranks) / LOCAL];
}

static bool sim_takes_part(const struct sim_daemon *d)
{
    return d && !d->around.dead && !d->around.cut && !d->frozen && !d->ending;
}

static uint64_t sim_local(const struct sim_rank *rank)
{
    return (uint64_t)(rank - sim->ranks) % LOCAL;
}

static uint64_t sim_prefix(const struct history *history)
{
    uint64_t samples = 0;

    for (uint32_t i = 0; i < history->n; i++)
        samples += history->stretches[i].world * history->stretches[i].steps;
    return samples;
}

static uint64_t sim_steps(const struct sim_rank *rank)
{
    return (SAMPLES - sim_prefix(&rank->place.before)) / rank->place.world;
}

static uint64_t sim_end_of(const struct sim_rank *rank)
{
    return min_u64(rank->limit, sim_steps(rank));
}

static struct progress_point sim_point(const struct sim_rank *rank, uint64_t steps)
{
    struct progress_point point = {.pass = rank->place.pass, .epoch = 1};

    if (steps < sim_steps(rank) || rank->limit < sim_steps(rank))
        assert_true(progress_point_after(&point, rank->place.pass, 0, &rank->place.before,
                                         rank->place.world, steps));
    return point;
}

/* ---- streams, as session_world.c has them --------------------------------------------------- */

static void sim_note(struct sim_rank *rank)
{
    struct progress_point given = sim_point(rank, rank->delivered);
    struct progress_point behind = sim_point(rank, rank->released);

    shared_loader_note(rank->shared, sim_local(rank), rank, &given, &behind);
}

static void sim_note_all(struct sim_rank *rank)
{
    struct progress_point end = sim_point(rank, rank->used);

    shared_loader_note(rank->shared, sim_local(rank), rank, &end, &end);
}

/* The stream is no more; what the daemon knows of it was noted. */
static void sim_drop_stream(struct sim_rank *rank)
{
    if (rank->daemon)
        shared_loader_leave(rank->shared);
    rank->daemon = NULL;
    rank->shared = NULL;
}

static void sim_leave(struct sim_rank *rank, enum rank_next next)
{
    struct progress_point at = sim_point(rank, rank->used);

    shared_loader_note(rank->shared, sim_local(rank), rank, &at, &at);
    shared_loader_ended(rank->shared, sim_local(rank), rank, next);
}

/* Its client stops the stream: as session_leave_world(). */
static void sim_stop(struct sim_rank *rank)
{
    if (!rank->daemon || rank->closed)
        return;
    sim_leave(rank, rank->used < sim_end_of(rank)   ? RANK_GOES_AWAY
                    : rank->limit < sim_steps(rank) ? RANK_GOES_ON
                                                    : RANK_RESTS);
}

static void sim_cut(struct sim_rank *rank)
{
    if (rank->closed)
        return;
    rank->closed = true;
    sim_say("rank is cut behind", (uint64_t)(rank - sim->ranks), rank->used);
    sim_leave(rank, rank->used < sim_steps(rank) ? RANK_GOES_ON : RANK_RESTS);
}

static bool sim_has_used_all(const struct sim_rank *rank)
{
    return rank->used == sim_steps(rank) && rank->limit >= sim_steps(rank) && !rank->paused;
}

static bool sim_reads_with(const struct sim_rank *rank, const struct sim_daemon *d)
{
    return rank->lives && rank->daemon == d && !rank->closed && rank->phase <= RANK_ENDS;
}

static void sim_on_world(void *context, enum world_event event, const struct dl_error *why)
{
    const struct sim_daemon *d = context;

    (void)why;
    for (unsigned i = 0; i < RANKS; i++) {
        struct sim_rank *rank = &sim->ranks[i];

        if (!sim_reads_with(rank, d))
            continue;
        switch (world_actions[event]) {
        case WORLD_NOTE:
            sim_note(rank);
            break;
        case WORLD_CUT:
            if (!sim_has_used_all(rank))
                sim_cut(rank);
            else
                sim_note_all(rank); /* it waits to be told what is missing */
            break;
        case WORLD_CLOSE:
            sim_cut(rank);
            break;
        case WORLD_PAUSE:
            rank->paused = true;
            break;
        }
    }
}

/* The world goes on: as session_world_go_on(). */
static void sim_go_on(struct sim_rank *rank)
{
    struct dl_error err = {0};
    uint64_t limit;
    int r;

    if (!rank->paused)
        return;
    r = shared_loader_limit(rank->shared, &rank->place, &limit, &err);
    if (r == 1)
        return;
    if (r < 0) {
        sim_cut(rank);
        return;
    }
    rank->paused = false;
    rank->limit = limit;
}

/* ---- ranks ---------------------------------------------------------------------------------- */

/* What its client says of where it is: behind all that it has used. */
static void sim_leave_world(struct sim_rank *rank)
{
    assert_true(history_add(&rank->before, rank->place.world, rank->used));
    rank->former = (struct former_place){.rank = rank->place.first + sim_local(rank),
                                         .world = rank->place.world};
    rank->step = 0;
    rank->phase = RANK_ASKS;
    rank->asked = uv_hrtime();
    sim_drop_stream(rank);
}

/* As a number of samples; in the next epoch: more than all. */
static uint64_t sim_position(const struct sim_rank *rank)
{
    return rank->place.epoch > 0 ? SAMPLES + 1
                                 : sim_prefix(&rank->place.before) + rank->used * rank->place.world;
}

static struct history sim_history(const struct sim_rank *rank)
{
    struct history at = rank->before;

    if (rank->phase == RANK_ASKS)
        return at;
    at = rank->place.before;
    assert_true(history_add(&at, rank->place.world, rank->used));
    return at;
}

/* It is told to begin there. */
static void sim_go_back(struct sim_rank *rank, const struct history *to)
{
    if (rank->phase != RANK_ASKS)
        rank->former = (struct former_place){.rank = rank->place.first + sim_local(rank),
                                             .world = rank->place.world};
    sim_stop(rank);
    sim_drop_stream(rank);
    rank->phase = RANK_ASKS;
    rank->asked = uv_hrtime();
    rank->before = *to;
    rank->step = 0;
    rank->closed = false;
}

/* What it has used from there on was used by one that is dead, and comes again. */
static void sim_void(const struct sim_rank *rank, uint64_t position)
{
    for (uint64_t i = position; i < SAMPLES; i++)
        if (sim->user[i] == 1 + (int)(rank - sim->ranks))
            sim->user[i] = 0;
}

/* It begins again, where all do: those of the others that have not begun yet used nothing since. */
static void sim_void_again(const struct sim_rank *rank)
{
    uint64_t position = sim_position(rank);

    sim_void(rank, position);
    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].again && sim->ranks[i].phase == RANK_ASKS)
            sim_void(&sim->ranks[i], position);
}

static void sim_begin(struct sim_rank *rank, struct sim_daemon *d, struct shared_loader *shared,
                      const struct resume_place *place)
{
    rank->shared = shared;
    rank->place = *place;
    rank->limit = place->limit;
    rank->before = place->before;
    rank->used = rank->delivered = rank->released = place->step;
    rank->paused = rank->closed = rank->anywhere = false;
    rank->phase = RANK_READS;
    rank->daemon = d;
    rank->known_to = member_id(d->m->member);
    rank->ended_ns = 0;
    shared_loader_started(shared, sim_local(rank), place, &rank->session, rank);
    sim->one_behind |= place->epoch > 0;
    if (rank->again)
        sim_void_again(rank);
    sim_say("rank begins at sample", (uint64_t)(rank - sim->ranks),
            sim_prefix(&place->before) + place->step * place->world);
    sim_say("  in round, to step", place->round, place->limit);
}

static uint64_t sim_count_living(void)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < RANKS; i++)
        n += sim->ranks[i].lives;
    return n;
}

/* Its program, which has gone back to a state, wants to be in a world of all that live: what it is
 * given in another one comes to nothing; when that is over it asks again. If the state is the end
 * of the epoch, it is given nothing in any. */
static void sim_look_around(struct sim_rank *rank)
{
    if (rank->place.world == sim_count_living() || sim_has_used_all(rank)) {
        rank->back = false;
        return;
    }
    if (rank->limit < UINT64_MAX)
        rank->used = rank->delivered = rank->released = rank->limit;
    if (rank->limit < UINT64_MAX || rank->closed)
        sim_go_back(rank, &rank->state);
}

/* START. False: it waits. */
static bool sim_start(struct sim_rank *rank)
{
    static const struct state_identity identity = {.length = SAMPLES};
    struct sim_daemon *d = sim_daemon_of(rank);
    struct shared_loader *shared;
    struct resume_place place;
    struct dl_error err = {0};

    if (!d || d->frozen || d->ending)
        return false;
    const struct shared_loader_request request = {
        .identity = &identity,
        .job = "",
        .local = sim_local(rank),
        .asked = rank->asked,
        .account = quota_account(sim->quota, 0),
        .name = "simulated",
        .batch = 1,
        .resume = {.epoch = rank->anywhere ? RESUME_ANYWHERE : 0,
                   .step = rank->step,
                   .before = rank->before,
                   .local = sim_local(rank),
                   .former = rank->former}};
    int r = shared_loader_place(d->m, &request, &shared, &place, &err);
    if (r < 0)
        fail_msg("rank %d: %s: %s", (int)(rank - sim->ranks), err.path, err.message);
    bool agrees = sim->has_group && rank->again && !rank->agreed;
    if (r == 0 && place.epoch > 0 && !agrees) { /* the others have had all of the epoch */
        rank->phase = RANK_DONE;
        if (rank->again)
            rank->place = place;
        sim->one_behind |= rank->again;
        return true;
    }
    if (r == 0)
        sim_begin(rank, d, shared, &place);
    if (r == 0 && rank->back)
        sim_look_around(rank);
    return r == 0;
}

static void sim_use(struct sim_rank *rank)
{
    uint64_t sample = sim_prefix(&rank->place.before) + rank->used * rank->place.world +
                      rank->place.first + sim_local(rank);

    assert_in_range(sample, 0, SAMPLES - 1);
    if (sim->user[sample])
        fail_msg("sample %d twice: rank %d has used it, and now rank %d does", (int)sample,
                 sim->user[sample] - 1, (int)(rank - sim->ranks));
    sim->user[sample] = 1 + (int)(rank - sim->ranks);
    sim_say("rank uses sample", (uint64_t)(rank - sim->ranks), sample);
    rank->used++;
    rank->turns++;
}

/* It has nothing of the epoch left. */
static void sim_finish(struct sim_rank *rank)
{
    sim_stop(rank);
    sim_drop_stream(rank);
    rank->phase = RANK_DONE;
}

/* How many samples are said to be left out. */
static uint64_t sim_count_told(const struct dl_error *err)
{
    const char *at = strstr(err->message, "up to ");

    assert_non_null(at);
    return strtoull(at + strlen("up to "), NULL, 10);
}

/* All is used, and released: the daemon says what is missing, once it knows. */
static bool sim_end(struct sim_rank *rank)
{
    struct dl_error err = {0};
    int r;

    if (!rank->daemon || rank->daemon->frozen || rank->released < rank->used)
        return false;
    if (!rank->ended_ns)
        rank->ended_ns = uv_hrtime();
    r = shared_loader_finish(rank->shared, &rank->place, sim_steps(rank), rank->ended_ns, &err);
    if (r == 1)
        return false;
    if (r < 0)
        sim->told = max_u64(sim->told, sim_count_told(&err));
    for (unsigned i = 0; i < NODES; i++)
        sim->one_away |=
            !sim_takes_part(sim->daemons[i]) || !sim->daemons[i]->in || sim->daemons[i]->evicted;
    sim_finish(rank);
    return true;
}

/* Ranks that were started again tell each other where they would resume: if they differ, all begin
 * at the least of these, and tell each other again. False: not all know it yet. */
static bool sim_agree(struct sim_rank *rank)
{
    const struct sim_rank *least = rank;
    bool is_same = true;

    for (unsigned i = 0; i < RANKS; i++) {
        const struct sim_rank *other = &sim->ranks[i];

        if (other->lives && !other->agreed && other->phase != RANK_READS)
            return false;
        if (other->lives && !other->agreed && sim_position(other) < sim_position(least))
            least = other;
        is_same = is_same && (!other->lives || (sim_position(other) == sim_position(rank) &&
                                                other->place.world == rank->place.world));
    }
    struct history at = sim_history(least);
    uint64_t position = sim_position(least);
    for (unsigned i = 0; i < RANKS; i++) {
        struct sim_rank *other = &sim->ranks[i];

        other->agreed = is_same || position > SAMPLES;
        sim_void(other, position);
        if (other->lives && position > SAMPLES)
            sim_finish(other);
        else if (other->lives && !is_same)
            sim_go_back(other, &at);
    }
    return true;
}

/* None has used fewer: the collective of the step before is over. */
static bool sim_may_next(const struct sim_rank *rank)
{
    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].lives && sim->ranks[i].turns < rank->turns)
            return false;
    return rank->lives;
}

/* next(). False: nothing comes of it yet. */
static bool sim_next(struct sim_rank *rank)
{
    if (!sim_may_next(rank))
        return false;
    if (rank->phase == RANK_ASKS)
        return sim_start(rank);
    if (sim->has_group && rank->again && !rank->agreed)
        return sim_agree(rank);
    if (rank->phase == RANK_DONE)
        return false;
    if (rank->back && rank->phase == RANK_READS) {
        sim_look_around(rank);
        return rank->phase == RANK_ASKS;
    }
    if (rank->released < rank->used && rank->daemon && !rank->daemon->frozen) {
        rank->released = rank->used;
        return true;
    }
    if (rank->closed || (!rank->daemon && (!CLIENT_READS_ON || sim_daemon_of(rank))) ||
        (rank->used == rank->limit && rank->limit < sim_steps(rank) && !rank->paused)) {
        sim_stop(rank);
        sim_leave_world(rank);
        return true;
    }
    if (rank->phase == RANK_ENDS)
        return sim_end(rank);
    if (rank->most > 0 && rank->turns >= rank->most)
        return false;
    if (rank->used < rank->delivered) {
        sim_use(rank);
        return true;
    }
    if (sim_has_used_all(rank)) {
        rank->phase = RANK_ENDS;
        return true;
    }
    return false;
}

static bool sim_deliver(struct sim_rank *rank)
{
    if (!rank->lives || !rank->daemon || rank->daemon->frozen || rank->closed || rank->paused ||
        rank->phase != RANK_READS || rank->delivered == sim_end_of(rank) ||
        rank->delivered == rank->used + AHEAD)
        return false;
    rank->delivered++;
    return true;
}

/* ---- daemons -------------------------------------------------------------------------------- */

static void sim_on_changed(void *context)
{
    for (unsigned i = 0; i < RANKS; i++)
        if (sim->ranks[i].lives && sim->ranks[i].daemon == context)
            sim_go_on(&sim->ranks[i]);
}

static struct sim_daemon *sim_start_daemon(unsigned number)
{
    static const struct members_events events = {.changed = sim_on_changed,
                                                 .happened = sim_on_world};
    struct sim_daemon *d = must_alloc(sizeof *d);
    struct dl_error err = {0};

    *d = (struct sim_daemon){.number = number};
    (void)snprintf(d->name, sizeof d->name, "%c", (char)('a' + number));
    struct config_rendezvous config = {.backend = CONFIG_BACKEND_ETCD,
                                       .id = "run",
                                       .node = d->name,
                                       .local_ranks = LOCAL,
                                       .nodes = {1, NODES},
                                       .timeouts = {.join = 60000 * MS, .last_call = 100 * MS},
                                       .heartbeat = {200 * MS, 15}};
    around_enter(&d->around);
    assert_int_equal(members_new(NULL, &config, &events, d, &d->m, &err), 0);
    members_join(d->m, "");
    sim->daemons[number] = d;
    sim_say("daemon starts", number, member_id(d->m->member));
    return d;
}

/* Its clients hear of it. */
static void sim_lose_sessions(struct sim_daemon *d)
{
    for (unsigned i = 0; i < RANKS; i++) {
        struct sim_rank *rank = &sim->ranks[i];

        if (rank->daemon != d)
            continue;
        shared_loader_leave(rank->shared);
        rank->daemon = NULL;
        rank->shared = NULL;
    }
}

/* Its process has ended. */
static void sim_free_daemon(struct sim_daemon *d)
{
    sim->daemons[d->number] = NULL;
    around_drop(&d->around);
    free(d);
}

static void sim_kill_daemon(struct sim_daemon *d)
{
    sim_say("daemon is killed", d->number, 0);
    d->around.dead = true;
    sim_lose_sessions(d);
    members_end(d->m);
    d->around.member->events->ended(d->around.member->owner, RDZV_LEFT, NULL);
    sim_free_daemon(d);
}

/* As daemon_finish(): it goes on until it has left. */
static void sim_stop_daemon(struct sim_daemon *d)
{
    sim_say("daemon is told to end", d->number, 0);
    sim_on_world(d, WORLD_LEFT, NULL);
    d->ending = true;
    sim_lose_sessions(d);
    members_end(d->m);
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* Those that take part from now on: in the open round, or, `complete`, with their ranks. */
static void sim_show(struct sim_daemon *to, bool complete)
{
    struct rdzv_state *state = &to->around.member->state;
    uint32_t rank = 0;

    rdzv_state_deinit(state);
    *state = (struct rdzv_state){.round = sim->round, .complete = complete};
    for (unsigned i = 0; i < NODES; i++) {
        const struct sim_daemon *d = sim->daemons[i];
        struct rdzv_node node = {.member = true, .ready = true, .local = LOCAL};

        if (!sim_takes_part(d))
            continue;
        node.id = member_id(d->m->member);
        (void)snprintf(node.name, sizeof node.name, "%s", d->name);
        assert_int_equal(rdzv_state_add(state, &node), 0);
        rdzv_state_find(state, node.id)->rank = complete               ? rank
                                                : d->in && !d->evicted ? i
                                                                       : RDZV_NO_RANK;
        rank++;
    }
}

/* The round is over: nodes that were in it learn it in a while, and one that is back learns that it
 * was taken out. */
static void sim_open_round(void)
{
    sim->round++;
    sim->changing = true;
    sim_say("round opens", sim->round, 0);
    for (unsigned i = 0; i < NODES; i++)
        if (sim_takes_part(sim->daemons[i])) {
            struct sim_daemon *d = sim->daemons[i];

            d->owes_over = d->in;
            d->around.member->ready = !d->in;
        }
}

static void sim_tell_over(struct sim_daemon *d)
{
    struct member *member = d->around.member;

    sim_say("is told that it is over", d->number, d->evicted);
    sim_show(d, false);
    member->events->changed(member->owner, NULL, &member->state);
    d->owes_over = d->around.unread = false;
    member->events->over(member->owner, d->evicted, "nodes change");
}

/* All who take part are ready: the round is complete. */
static bool sim_complete_round(void)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim_takes_part(sim->daemons[i]) &&
            (sim->daemons[i]->owes_over || !sim->daemons[i]->around.member->ready))
            return false;
    sim->changing = false;
    sim_say("round is complete", sim->round, 0);
    for (unsigned i = 0; i < NODES; i++)
        if (sim_takes_part(sim->daemons[i])) {
            sim->daemons[i]->owes_round = sim->daemons[i]->in = true;
            sim->daemons[i]->evicted = false;
        } else if (sim->daemons[i]) {
            sim->daemons[i]->evicted |= sim->daemons[i]->in;
        }
    return true;
}

static void sim_tell_round(struct sim_daemon *d)
{
    struct member *member = d->around.member;

    sim_show(d, true);
    struct rdzv_place place = rdzv_state_place(&member->state, member->id);
    d->owes_round = false;
    sim_say("is told of the round", d->number, place.world);
    member->events->round(member->owner, &member->state, &place);
}

static bool sim_any_round_due(void)
{
    for (unsigned i = 0; i < NODES; i++)
        if (sim->daemons[i] && sim->daemons[i]->owes_round)
            return true;
    return false;
}

/* A move of a daemon. False: it has nothing to do. */
static bool sim_move_daemon(struct sim_daemon *d)
{
    if (!d || d->frozen)
        return false;
    if (d->ending && d->around.member && d->around.member->leaving && !d->around.calls) {
        d->around.member->events->ended(d->around.member->owner, RDZV_LEFT, NULL);
        sim_free_daemon(d);
        return true;
    }
    if (sim_takes_part(d) && d->around.unread && d->around.reads && !d->owes_over) {
        d->around.unread = d->around.reads = false;
        return true;
    }
    if (sim_takes_part(d) && d->owes_over) {
        sim_tell_over(d);
        return true;
    }
    if (sim_takes_part(d) && d->owes_round) {
        sim_tell_round(d);
        return true;
    }
    return around_step(&d->around);
}

#endif
