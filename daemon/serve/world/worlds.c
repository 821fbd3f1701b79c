#include "daemon/serve/world/worlds.h"

#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/world/members_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

enum {
    WORLDS_MAX = 1024,
    WORLD_KEY_PARTS = STATE_PARTS + 2,
    WORLD_KEY_MAX = WORLD_KEY_PARTS * 16 + 1
};

struct world_rank {
    struct progress_rank of;
    const void *session, *stream; /* that it reads with; only compared */
    bool owes;                    /* a word of its own */
};

/* The words of one round, while they are listened to. */
struct hearing {
    struct hearing *prev, *next; /* world.hearings */
    struct world *world;
    struct gather *gather;
    uint64_t round;
    struct gather_node *nodes; /* owned: that round's */
    uint32_t n, self;
};

struct world {
    struct world *prev, *next; /* members.worlds */
    struct members *members;
    char *key; /* owned */
    struct progress progress;
    struct world_rank *ranks;   /* owned; members.local of them */
    struct hearing *hearings;   /* owned */
    struct gather_node *others; /* owned: those who were in a round with it, from the latest on of
                                   which it knows how it began */
    uint32_t n_others;
    struct dl_buffer said;   /* its word of the latest round of which all was heard: */
    uint64_t said_round;     /* this one */
    struct dl_error failure; /* of the latest hearing; code 0: it has gone well, or goes on */
    uint64_t failed_ns;
};

/* ---- making and ending ---------------------------------------------------------------------- */

/* Where the data lies may differ from node to node; what is read, and in which order, does not:
 * else what one node is behind would be other samples on another. */
static void write_key(const struct state_identity *what, char ret[static WORLD_KEY_MAX])
{
    uint64_t parts[WORLD_KEY_PARTS];

    memcpy(parts, what->parts, sizeof what->parts);
    parts[STATE_PARTS] = what->length;
    parts[STATE_PARTS + 1] = what->order == STATE_SEQUENTIAL ? 0 : what->seed;
    for (size_t i = 0; i < WORLD_KEY_PARTS; i++)
        (void)snprintf(ret + 16 * i, 17, "%016" PRIx64, parts[i]);
}

static struct world *find(struct members *m, const char *key)
{
    struct world *world;

    DL_FOREACH (m->worlds, world)
        if (strcmp(world->key, key) == 0)
            return world;
    return NULL;
}

static int make(struct members *m, const char *key, struct world **ret, struct dl_error *err)
{
    struct world *world = NULL;
    int count = 0;

    DL_COUNT(m->worlds, world, count);
    if (count >= WORLDS_MAX)
        return dl_error_set(err, ENOSPC, "loader",
                            "%d loaders were read in the cluster's world, and no more are kept; "
                            "start dloaderd anew",
                            count);
    world = must_alloc(sizeof *world);
    world->members = m;
    world->key = must_strdup(key);
    world->ranks = must_alloc(m->local * sizeof *world->ranks);
    for (uint32_t i = 0; i < m->local; i++)
        world->ranks[i].of.entered = PROGRESS_NO_ROUND;
    /* Its ranks had a share of those worlds, too, though nobody has asked for it here yet. */
    world->progress = m->places;
    DL_APPEND(m->worlds, world);
    *ret = world;
    return 0;
}

static void end_hearing(struct hearing *hearing)
{
    DL_DELETE(hearing->world->hearings, hearing);
    free(hearing->nodes);
    free(hearing);
}

void worlds_enter(struct members *m)
{
    struct world *world;

    progress_enter(&m->places, m->round, m->place.first, m->place.world);
    DL_FOREACH (m->worlds, world)
        progress_enter(&world->progress, m->round, m->place.first, m->place.world);
}

void worlds_deinit(struct members *m)
{
    struct world *world, *next;

    DL_FOREACH_SAFE (m->worlds, world, next) {
        while (world->hearings) {
            gather_cancel(world->hearings->gather);
            end_hearing(world->hearings);
        }
        DL_DELETE(m->worlds, world);
        free(world->others);
        buffer_deinit(&world->said);
        free(world->ranks);
        free(world->key);
        free(world);
    }
}

/* ---- words ---------------------------------------------------------------------------------- */

static bool knows_now(const struct world *world)
{
    const struct progress_round *round = progress_find(&world->progress, world->members->round);

    return round && round->known;
}

static struct hearing *hearing_of(const struct world *world, uint64_t round)
{
    struct hearing *hearing;

    DL_FOREACH (world->hearings, hearing)
        if (hearing->round == round)
            return hearing;
    return NULL;
}

/* The furthest that a rank of this node was given. */
static void find_furthest(const struct world *world, struct progress_report *word)
{
    for (uint32_t i = 0; i < world->members->local; i++) {
        const struct progress_rank *rank = &world->ranks[i].of;

        if (rank->entered == PROGRESS_NO_ROUND ||
            (word->has_point && progress_compare(&rank->given, &word->point) != PROGRESS_AFTER))
            continue;
        word->has_point = true;
        word->point = rank->given;
    }
}

static bool is_among(const struct gather_node *nodes, uint32_t n, uint64_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i].id == id)
            return true;
    return false;
}

/* Who has been in a round since this node last knew how one began may know more than it does. */
static bool may_know(const struct world *world, uint64_t id)
{
    return world->n_others == 0 || is_among(world->others, world->n_others, id);
}

/* Each once, however often a round has to be spoken in again. */
static void add_others(struct world *world, const struct gather_node *nodes, uint32_t n)
{
    uint32_t had = world->n_others;
    struct gather_node *all = must_alloc((had + n) * sizeof *all);

    if (had > 0)
        memcpy(all, world->others, had * sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        if (!is_among(all, had, nodes[i].id))
            all[world->n_others++] = nodes[i];
    free(world->others);
    world->others = all;
}

static void forget_others(struct world *world)
{
    free(world->others);
    world->others = NULL;
    world->n_others = 0;
}

typedef void (*heard_fn)(void *owner, const struct dl_span *words, const struct dl_error *error);

/* Leaves this node's word of the round, and listens to those who may know more. */
static void say(struct world *world, struct dl_span word, bool all_known, heard_fn done)
{
    struct members *m = world->members;
    struct hearing *hearing = must_alloc(sizeof *hearing);
    char key[BACKEND_KEY_MAX];

    (void)snprintf(key, sizeof key, "course/%s/%s", m->id, world->key);
    hearing->world = world;
    hearing->round = m->round;
    hearing->n = m->n_nodes;
    hearing->self = m->self;
    hearing->nodes = must_alloc(m->n_nodes * sizeof *hearing->nodes);
    memcpy(hearing->nodes, m->nodes, m->n_nodes * sizeof *hearing->nodes);
    for (uint32_t i = 0; i < hearing->n; i++)
        hearing->nodes[i].wanted = !all_known && may_know(world, hearing->nodes[i].id);
    DL_APPEND(world->hearings, hearing);
    struct gather_options options = {.loop = m->loop,
                                     .backend = m->backend,
                                     .key = key,
                                     .round = m->round,
                                     .nodes = hearing->nodes,
                                     .n = hearing->n,
                                     .self = m->self,
                                     .word = word,
                                     .timeout_ns = m->join_ns,
                                     .done = done,
                                     .owner = hearing};
    hearing->gather = gather(&options);
}

static void on_heard(void *owner, const struct dl_span *words, const struct dl_error *error);

/* Says this node's word of the round. `word` is complete but for what is known. */
static void speak(struct world *world, struct progress_report *word)
{
    const struct members *m = world->members;
    const struct progress_round *latest = progress_latest(&world->progress);
    _cleanup_(buffer_deinit)
    struct dl_buffer text = {0};

    word->last = latest ? latest->number : PROGRESS_NO_ROUND;
    word->known = world->progress;
    progress_report_write(word, &text);
    say(world, (struct dl_span){text.data, text.len}, false, on_heard);
    if (latest)
        add_others(world, m->nodes, m->n_nodes);
    world->failure.code = 0;
}

static void on_said_again(void *owner, const struct dl_span *words, const struct dl_error *error)
{
    struct hearing *hearing = owner;
    const struct members *m = hearing->world->members;

    (void)words, (void)error; /* of a store that is away again: it will be another once more */
    end_hearing(hearing);
    if (!m->ending)
        m->events->changed(m->context);
}

/* Who was not waited for may still want to hear what all the others have. */
void worlds_say_again(struct members *m)
{
    struct world *world;

    DL_FOREACH (m->worlds, world) {
        if (m->state == MEMBERS_IN && world->said.len > 0 && world->said_round == m->round &&
            !hearing_of(world, m->round))
            say(world, (struct dl_span){world->said.data, world->said.len}, true, on_said_again);
    }
}

static void keep_said(struct world *world, uint64_t round, struct dl_span word)
{
    world->said.len = 0;
    must_append(&world->said, word.data, word.len);
    world->said_round = round;
}

static bool anybody_owes(const struct world *world)
{
    for (uint32_t i = 0; i < world->members->local; i++)
        if (world->ranks[i].owes)
            return true;
    return false;
}

/* A node whose ranks were in a world before speaks by itself, once none of them has to say more. */
static void speak_if_known(struct world *world)
{
    struct progress_report word = {0};

    if (world->members->state != MEMBERS_IN || anybody_owes(world) || knows_now(world) ||
        hearing_of(world, world->members->round))
        return;
    find_furthest(world, &word);
    if (word.has_point)
        speak(world, &word);
}

void worlds_speak(struct members *m)
{
    struct world *world;

    DL_FOREACH (m->worlds, world)
        speak_if_known(world);
}

/* ---- what is heard -------------------------------------------------------------------------- */

static int read_words(const struct hearing *hearing, const struct dl_span *texts,
                      struct progress_report *words, struct node_report *said, uint32_t *ret_n,
                      struct dl_error *err)
{
    *ret_n = 0;
    for (uint32_t i = 0; i < hearing->n; i++) {
        if (texts[i].len == 0)
            continue;
        if (!progress_report_read(texts[i], hearing->round, &words[*ret_n]))
            return dl_error_set(err, EBADMSG, "rendezvous",
                                "what the store has of node %s about a loader is nothing that "
                                "dloaderd has written",
                                hearing->nodes[i].name);
        said[*ret_n] =
            (struct node_report){.node = hearing->nodes[i].name, .report = &words[*ret_n]};
        ++*ret_n;
    }
    return 0;
}

static void learn(struct world *world, uint64_t round, const struct node_report *said, uint32_t n,
                  const struct progress_point *begin)
{
    char text[PROGRESS_TEXT_MAX];

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < said[i].report->known.n; k++)
            progress_learn(&world->progress, said[i].report->known.rounds[k].number,
                           &said[i].report->known.rounds[k].begin);
    progress_learn(&world->progress, round, begin);
    progress_point_text(begin, text);
    log_info("rendezvous %s: in round %" PRIu64 " loader %.16s goes on in %s", world->members->id,
             round, world->key, text);
}

static int settle(struct hearing *hearing, const struct dl_span *texts, struct dl_error *err)
{
    _cleanup_free_ struct progress_report *words = must_alloc(hearing->n * sizeof *words);
    _cleanup_free_ struct node_report *said = must_alloc(hearing->n * sizeof *said);
    struct progress_point begin = {0}; /* nobody knows of any other */
    uint32_t n;
    int r = read_words(hearing, texts, words, said, &n, err);

    if (r == 0)
        r = progress_merge(said, n, &begin, err);
    if (r < 0)
        return r;
    learn(hearing->world, hearing->round, said, n, &begin);
    return 0;
}

static void on_heard(void *owner, const struct dl_span *words, const struct dl_error *error)
{
    struct hearing *hearing = owner;
    struct world *world = hearing->world;
    struct members *m = world->members;
    bool latest = hearing->round == m->round;
    struct dl_error err = {0};

    if (error)
        err = *error;
    else
        (void)!settle(hearing, words, &err);
    if (err.code && latest) {
        world->failure = err;
        world->failed_ns = uv_hrtime();
        log_warning("rendezvous %s: loader %.16s: %s: %s", m->id, world->key, err.path,
                    err.message);
    }
    if (!err.code && latest) {
        keep_said(world, hearing->round, words[hearing->self]);
        forget_others(world);
        add_others(world, hearing->nodes, hearing->n);
    }
    end_hearing(hearing);
    if (!m->ending)
        m->events->changed(m->context);
}

/* ---- what is asked for ---------------------------------------------------------------------- */

/* What a rank that was cut off asks for is what it had; or less, if its last step has come to
 * nothing without those who are gone. One that asks for all of an epoch begins it anew. */
static void take_word(struct world *world, const struct world_wish *wish)
{
    struct world_rank *rank = &world->ranks[wish->local];
    struct progress_point at;
    enum progress_order is;

    if (!rank->owes)
        return;
    rank->owes = false;
    rank->of.given = rank->of.behind;
    if (wish->of.epoch != RESUME_ANYWHERE && wish->of.step == 0 &&
        progress_point_after(&at, rank->of.behind.pass, wish->of.epoch, &wish->of.before, 1, 0)) {
        is = progress_compare(&at, &rank->of.behind);
        if (is == PROGRESS_AFTER || (is == PROGRESS_BEFORE && at.history.n > 0))
            rank->of.given = rank->of.behind = at;
    }
    speak_if_known(world);
}

/* The first rank to ask, of a node that is new to the loader. */
static void speak_as_new(struct world *world, const struct resume_request *wish)
{
    struct progress_report word = {.has_point = wish->epoch != RESUME_ANYWHERE};

    if (!progress_point_after(&word.point, 0, wish->epoch, &wish->before,
                              world->members->place.world, wish->step))
        word.has_point = false;
    speak(world, &word);
}

static int say_failure(const struct world *world, struct dl_error *err)
{
    *err = world->failure;
    return -err->code;
}

/* Those of as many ranks who had the epoch last go on with their stretch of it. */
static int place_fixed(const struct members_place *place, const struct world_wish *wish,
                       struct resume_place *ret, struct dl_error *err)
{
    struct progress_point at;

    if (!progress_point_after(&at, 0, wish->of.epoch, &wish->of.before, place->world,
                              wish->of.step))
        return dl_error_set(err, EINVAL, "before", "the steps are too many");
    *ret = (struct resume_place){.first = place->rank - wish->local,
                                 .world = place->world,
                                 .limit = UINT64_MAX,
                                 .epoch = wish->of.epoch};
    ret->step = progress_point_split(&at, place->world, &ret->before);
    return 0;
}

int worlds_place(struct members *m, const struct world_wish *wish, struct world **ret,
                 struct resume_place *ret_place, struct dl_error *err)
{
    struct members_place place;
    char key[WORLD_KEY_MAX];
    int r = members_place(m, wish->local, wish->asked, &place, err);

    *ret = NULL;
    if (r < 0 || wish->fixed)
        return r == 0 ? place_fixed(&place, wish, ret_place, err) : r;
    write_key(wish->what, key);
    struct world *world = find(m, key);
    if (world)
        take_word(world, wish);
    if (r == 0 && !world)
        r = make(m, key, &world, err);
    if (r != 0)
        return r;
    *ret = world;
    if (knows_now(world))
        return progress_resume(&world->progress, &world->ranks[wish->local].of, &wish->of,
                               ret_place, err);
    if (hearing_of(world, m->round))
        return 1;
    if (world->failure.code && wish->asked <= world->failed_ns)
        return say_failure(world, err);
    speak_if_known(world);
    if (!hearing_of(world, m->round) && !anybody_owes(world))
        speak_as_new(world, &wish->of);
    return 1;
}

void worlds_started(struct world *world, uint64_t local, const struct resume_place *place,
                    const void *session, const void *stream)
{
    struct world_rank *rank = &world->ranks[local];

    rank->session = session;
    rank->stream = stream;
    rank->owes = false;
    rank->of.entered = place->round;
    if (!progress_point_after(&rank->of.given, place->pass, place->epoch, &place->before,
                              place->world, place->step))
        rank->of.given = (struct progress_point){.pass = place->pass, .epoch = place->epoch + 1};
    rank->of.behind = rank->of.given;
}

void worlds_note(struct world *world, uint64_t local, const void *stream,
                 const struct progress_point *given, const struct progress_point *behind)
{
    struct world_rank *rank = &world->ranks[local];

    if (rank->stream != stream)
        return;
    rank->of.given = *given;
    rank->of.behind = *behind;
}

void worlds_ended(struct world *world, uint64_t local, const void *stream)
{
    struct world_rank *rank = &world->ranks[local];

    if (rank->stream != stream)
        return;
    rank->of.given = rank->of.behind;
    rank->stream = NULL;
}

void worlds_owe(struct world *world, uint64_t local, const void *stream)
{
    struct world_rank *rank = &world->ranks[local];

    if (rank->stream != stream)
        return;
    rank->of.given = rank->of.behind; /* unless it says more */
    rank->owes = true;
    rank->stream = NULL;
}

void worlds_left(struct members *m, const void *session)
{
    struct world *world;

    if (!m)
        return;
    DL_FOREACH (m->worlds, world) {
        for (uint32_t i = 0; i < m->local; i++)
            if (world->ranks[i].session == session)
                world->ranks[i].owes = false;
        speak_if_known(world);
    }
}

int worlds_limit(const struct world *world, const struct resume_place *place, uint64_t *ret,
                 struct dl_error *err)
{
    if (world->members->state != MEMBERS_IN || hearing_of(world, world->members->round))
        return 1;
    if (!knows_now(world) && world->failure.code)
        return say_failure(world, err);
    if (!knows_now(world))
        return 1;
    *ret =
        progress_limit(&world->progress, place->round, place->pass, place->epoch, &place->before);
    return 0;
}

const struct dl_error *worlds_why(const struct world *world)
{
    return &world->members->why_over;
}
