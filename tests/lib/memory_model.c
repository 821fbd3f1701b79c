#include "tests/lib/memory_model.h"

#include <assert.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    OBJECTS = 8, /* atomic ones */
    WRITES = 12, /* of one object, the first contents among them */
    REGIONS = 6, /* of plain accesses */
    STEPS = 40,  /* of one thread */
    COPIED = 64, /* bytes of a region that have a value */
    FIRST = 0,   /* name of the first contents; else 1 + thread · STEPS + step */
};

enum act {
    ACT_END,
    ACT_LOAD,
    ACT_STORE,
    ACT_ADD,
    ACT_OR,
    ACT_EXCHANGE,
    ACT_COMPARE,
    ACT_READ,
    ACT_WRITE,
    ACT_RING,
    ACT_WAIT
};

struct step { /* that a thread is about to do */
    enum act act;
    unsigned object; /* or region */
    int order, otherwise;
    uint64_t value, expected;
    uint8_t bytes[COPIED];
};

/* What a thread knows of: of each object a write, of each thread its steps so far. */
struct view {
    uint8_t writes[OBJECTS];
    uint8_t clock[MODEL_THREADS];
};

struct write {
    uint64_t value;
    struct view view; /* what its readers learn by an acquire */
    uint8_t name;
    bool pinned; /* a read-modify-write stands right behind it */
    uint8_t unused[3];
};

struct object {
    struct write writes[WRITES]; /* in the order of modification */
    uint32_t n;
    uint32_t last_sc; /* name */
};

struct region {
    uint8_t bytes[COPIED];
    uint8_t writer, written; /* 1 + thread, and its clock; 0: nobody */
    uint8_t read[MODEL_THREADS];
};

struct result {
    uint64_t value;
    uint8_t bytes[COPIED];
    bool taken; /* of a compare-and-swap */
    uint8_t unused[7];
};

/* One way so far. Two ways to the same state go on alike, and only one is tried. It has no padding
 * but of zeroes. */
struct state {
    struct object objects[OBJECTS];
    struct region regions[REGIONS];
    struct view views[MODEL_THREADS];
    struct result results[MODEL_THREADS][STEPS];
    uint8_t n[MODEL_THREADS]; /* steps done */
};

/* ---- the run ------------------------------------------------------------------------------- */

static struct {
    const struct model_scenario *scenario;
    const struct model_weaker *weaker;
    const void *objects[OBJECTS]; /* by their addresses, in the order in which they were seen */
    size_t object_bytes[OBJECTS];
    const void *regions[REGIONS];
    size_t region_bytes[REGIONS];
    unsigned n_objects, n_regions;
    XXH128_hash_t *seen; /* a table of states */
    size_t n_seen, room;
    struct model_result result;
} run;

/* The thread that runs now. */
static struct {
    const struct state *state;
    unsigned thread, at;
    struct step step;
    jmp_buf out;
} now;

static unsigned object_number(const void *object, size_t bytes)
{
    unsigned i = 0;

    while (i < run.n_objects && run.objects[i] != object)
        i++;
    assert(i < OBJECTS);
    if (i == run.n_objects) {
        run.objects[i] = object;
        run.object_bytes[i] = bytes;
        run.n_objects++;
    }
    return i;
}

static unsigned region_number(const void *region, size_t bytes)
{
    unsigned i = 0;

    while (i < run.n_regions && run.regions[i] != region)
        i++;
    assert(i < REGIONS);
    if (i == run.n_regions) {
        run.regions[i] = region;
        run.region_bytes[i] = 0;
        run.n_regions++;
    }
    if (run.region_bytes[i] < bytes)
        run.region_bytes[i] = bytes;
    return i;
}

/* The result of the step if the thread has done it; else leaves the thread. */
static struct result do_step(struct step step)
{
    unsigned at = now.at++;

    if (at < now.state->n[now.thread])
        return now.state->results[now.thread][at];
    now.step = step;
    longjmp(now.out, 1);
}

uint64_t model_load(const void *object, size_t bytes, int order)
{
    return do_step((struct step){
                       .act = ACT_LOAD, .object = object_number(object, bytes), .order = order})
        .value;
}

static uint64_t do_change(enum act act, void *object, size_t bytes, uint64_t value, int order)
{
    return do_step((struct step){.act = act,
                                 .object = object_number(object, bytes),
                                 .order = order,
                                 .value = value})
        .value;
}

void model_store(void *object, size_t bytes, uint64_t value, int order)
{
    (void)do_change(ACT_STORE, object, bytes, value, order);
}

uint64_t model_add(void *object, size_t bytes, uint64_t value, int order)
{
    return do_change(ACT_ADD, object, bytes, value, order);
}

uint64_t model_or(void *object, size_t bytes, uint64_t value, int order)
{
    return do_change(ACT_OR, object, bytes, value, order);
}

uint64_t model_exchange(void *object, size_t bytes, uint64_t value, int order)
{
    return do_change(ACT_EXCHANGE, object, bytes, value, order);
}

bool model_compare_exchange(void *object, size_t bytes, uint64_t *expected, uint64_t value,
                            int order, int otherwise)
{
    struct result result = do_step((struct step){.act = ACT_COMPARE,
                                                 .object = object_number(object, bytes),
                                                 .order = order,
                                                 .otherwise = otherwise,
                                                 .value = value,
                                                 .expected = *expected});

    *expected = result.value;
    return result.taken;
}

static bool is_shared(const void *at)
{
    const char *base = run.scenario->shared;

    return (const char *)at >= base && (const char *)at < base + run.scenario->bytes;
}

void *model_copy(void *to, const void *from, size_t bytes)
{
    size_t some = bytes < COPIED ? bytes : COPIED;

    assert(!is_shared(to) || !is_shared(from));
    if (is_shared(to)) {
        struct step step = {.act = ACT_WRITE, .object = region_number(to, bytes)};

        memcpy(step.bytes, from, some);
        (void)do_step(step);
    } else if (is_shared(from)) {
        struct result result =
            do_step((struct step){.act = ACT_READ, .object = region_number(from, bytes)});

        memset(to, 0, bytes);
        memcpy(to, result.bytes, some);
    } else {
        memcpy(to, from, bytes);
    }
    return to;
}

void model_ring(void *bell)
{
    (void)do_change(ACT_RING, bell, sizeof(uint32_t), 1, memory_order_acq_rel);
}

void model_wait(void *bell)
{
    (void)do_change(ACT_WAIT, bell, sizeof(uint32_t), 0, memory_order_acq_rel);
}

/* The thread up to its next step: its `act`. */
static enum act next_step(const struct state *state, unsigned thread, struct step *ret)
{
    now.state = state;
    now.thread = thread;
    now.at = 0;
    now.step = (struct step){.act = ACT_END};
    if (setjmp(now.out) == 0)
        run.scenario->run[thread]();
    *ret = now.step;
    if (run.weaker->thread == (int)thread && ret->act >= ACT_LOAD && ret->act <= ACT_COMPARE &&
        (!run.weaker->object || run.objects[ret->object] == run.weaker->object) &&
        ret->order == run.weaker->order)
        ret->order = run.weaker->instead;
    return ret->act;
}

/* ---- what threads know ---------------------------------------------------------------------- */

static bool order_acquires(int order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static bool order_releases(int order)
{
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static uint32_t find_write(const struct object *object, uint32_t name)
{
    uint32_t i = 0;

    while (object->writes[i].name != name)
        i++;
    return i;
}

static void view_join(const struct state *state, struct view *view, const struct view *more)
{
    for (unsigned i = 0; i < run.n_objects; i++) {
        const struct object *object = &state->objects[i];

        if (find_write(object, more->writes[i]) > find_write(object, view->writes[i]))
            view->writes[i] = more->writes[i];
    }
    for (unsigned t = 0; t < MODEL_THREADS; t++) {
        if (more->clock[t] > view->clock[t])
            view->clock[t] = more->clock[t];
    }
}

/* The oldest write that the step may read; a new one goes behind it. */
static uint32_t oldest_known(const struct state *state, unsigned thread, const struct step *step,
                             int order)
{
    const struct object *object = &state->objects[step->object];
    uint32_t known = find_write(object, state->views[thread].writes[step->object]);
    uint32_t sc = order == memory_order_seq_cst ? find_write(object, object->last_sc) : 0;

    return known > sc ? known : sc;
}

static void learn(struct state *state, unsigned thread, unsigned number, const struct write *write,
                  int order)
{
    state->views[thread].writes[number] = write->name;
    if (order_acquires(order))
        view_join(state, &state->views[thread], &write->view);
}

/* Puts a write at `at`. `read`: what a read-modify-write has read, which it hands on. */
static void put_write(struct state *state, unsigned thread, const struct step *step, uint32_t at,
                      uint64_t value, const struct view *read)
{
    struct object *object = &state->objects[step->object];
    struct view *view = &state->views[thread];
    struct write write = {.name = (uint8_t)(1 + thread * STEPS + state->n[thread])};

    assert(object->n < WRITES);
    memmove(&object->writes[at + 1], &object->writes[at], (object->n - at) * sizeof write);
    object->n++;
    write.value = run.object_bytes[step->object] == sizeof(uint32_t) ? (uint32_t)value : value;
    object->writes[at] = write;
    view->writes[step->object] = write.name;
    if (order_releases(step->order))
        object->writes[at].view = *view;
    else
        object->writes[at].view.writes[step->object] = write.name;
    if (read)
        view_join(state, &object->writes[at].view, read);
    if (step->order == memory_order_seq_cst)
        object->last_sc = write.name;
}

/* ---- what a step does ----------------------------------------------------------------------- */

static void explore(const struct state *state);

static void fail(const char *why)
{
    if (!run.result.why)
        run.result.why = why;
}

static void finish_step(struct state *next, unsigned thread, uint64_t value, bool taken)
{
    struct result *result = &next->results[thread][next->n[thread]];

    result->value = value;
    result->taken = taken;
    next->n[thread]++;
    explore(next);
}

static uint64_t changed(const struct step *step, uint64_t value)
{
    switch (step->act) {
    case ACT_ADD:
    case ACT_RING:
        return value + step->value;
    case ACT_OR:
        return value | step->value;
    default:
        return step->value;
    }
}

static void do_load(const struct state *state, struct state *next, unsigned thread,
                    const struct step *step, int order, bool other_than_expected)
{
    const struct object *object = &state->objects[step->object];

    for (uint32_t i = oldest_known(state, thread, step, order); i < object->n; i++) {
        if (other_than_expected && object->writes[i].value == step->expected)
            continue;
        memcpy(next, state, sizeof *next);
        next->views[thread].clock[thread]++;
        learn(next, thread, step->object, &object->writes[i], order);
        finish_step(next, thread, object->writes[i].value, false);
    }
}

static void do_store(const struct state *state, struct state *next, unsigned thread,
                     const struct step *step)
{
    const struct object *object = &state->objects[step->object];

    for (uint32_t i = oldest_known(state, thread, step, step->order); i < object->n; i++) {
        if (object->writes[i].pinned)
            continue;
        memcpy(next, state, sizeof *next);
        next->views[thread].clock[thread]++;
        put_write(next, thread, step, i + 1, step->value, NULL);
        finish_step(next, thread, 0, false);
    }
}

static void do_read_modify_write(const struct state *state, struct state *next, unsigned thread,
                                 const struct step *step)
{
    const struct object *object = &state->objects[step->object];
    bool is_bell = step->act == ACT_RING || step->act == ACT_WAIT;
    uint32_t from = is_bell ? object->n - 1 : oldest_known(state, thread, step, step->order);

    for (uint32_t i = from; i < object->n; i++) {
        struct write read = object->writes[i];

        if (read.pinned || (step->act == ACT_COMPARE && read.value != step->expected) ||
            (step->act == ACT_WAIT && read.value == 0))
            continue;
        memcpy(next, state, sizeof *next);
        next->views[thread].clock[thread]++;
        learn(next, thread, step->object, &read, step->order);
        next->objects[step->object].writes[i].pinned = true;
        put_write(next, thread, step, i + 1, changed(step, read.value), &read.view);
        finish_step(next, thread, read.value, true);
    }
}

static bool overlap(unsigned a, unsigned b)
{
    const char *at = run.regions[a], *other = run.regions[b];

    return at < other + run.region_bytes[b] && other < at + run.region_bytes[a];
}

/* Whether the thread knows of all accesses to the bytes that its own must not meet. */
static bool is_ordered(const struct state *state, unsigned thread, const struct step *step)
{
    const struct view *view = &state->views[thread];

    for (unsigned i = 0; i < run.n_regions; i++) {
        const struct region *region = &state->regions[i];

        if (!overlap(i, step->object))
            continue;
        if (region->writer && region->written > view->clock[region->writer - 1])
            return false;
        for (unsigned t = 0; t < MODEL_THREADS && step->act == ACT_WRITE; t++) {
            if (region->read[t] > view->clock[t])
                return false;
        }
    }
    return true;
}

static void do_copy(const struct state *state, struct state *next, unsigned thread,
                    const struct step *step)
{
    struct region *region = &next->regions[step->object];

    memcpy(next, state, sizeof *next);
    uint8_t clock = ++next->views[thread].clock[thread];
    if (!is_ordered(state, thread, step))
        fail("a race: bytes are written that another thread reads or writes at the same time");
    if (step->act == ACT_WRITE) {
        memcpy(region->bytes, step->bytes, COPIED);
        region->writer = (uint8_t)(1 + thread);
        region->written = clock;
    } else {
        region->read[thread] = clock;
        memcpy(next->results[thread][next->n[thread]].bytes, region->bytes, COPIED);
    }
    finish_step(next, thread, 0, false);
}

static void take_step(const struct state *state, unsigned thread, const struct step *step)
{
    struct state *next = malloc(sizeof *next);

    assert(next && state->n[thread] < STEPS);
    switch (step->act) {
    case ACT_END:
        break;
    case ACT_LOAD:
        do_load(state, next, thread, step, step->order, false);
        break;
    case ACT_STORE:
        do_store(state, next, thread, step);
        break;
    case ACT_READ:
    case ACT_WRITE:
        do_copy(state, next, thread, step);
        break;
    case ACT_COMPARE:
        do_load(state, next, thread, step, step->otherwise, true);
        do_read_modify_write(state, next, thread, step);
        break;
    default:
        do_read_modify_write(state, next, thread, step);
    }
    free(next);
}

/* ---- all states ----------------------------------------------------------------------------- */

static bool seen_is(XXH128_hash_t hash, XXH128_hash_t *place)
{
    return place->low64 == hash.low64 && place->high64 == hash.high64;
}

static XXH128_hash_t *seen_place(XXH128_hash_t *table, size_t room, XXH128_hash_t hash)
{
    size_t i = hash.low64 % room;

    while (table[i].low64 && !seen_is(hash, &table[i]))
        i = (i + 1) % room;
    return &table[i];
}

static void seen_grow(void)
{
    size_t room = run.room ? run.room * 4 : 1 << 12;
    XXH128_hash_t *table = calloc(room, sizeof *table);

    assert(table);
    for (size_t i = 0; i < run.room; i++) {
        if (run.seen[i].low64)
            *seen_place(table, room, run.seen[i]) = run.seen[i];
    }
    free(run.seen);
    run.seen = table;
    run.room = room;
}

static bool is_new(const struct state *state)
{
    XXH128_hash_t hash = XXH3_128bits(state, sizeof *state), *place;

    hash.low64 |= 1; /* a place that is 0 is free */
    if (run.n_seen * 2 >= run.room)
        seen_grow();
    place = seen_place(run.seen, run.room, hash);
    if (seen_is(hash, place))
        return false;
    *place = hash;
    run.n_seen++;
    return true;
}

/* What no thread had touched before has its first contents. */
static void add_first_contents(struct state *state)
{
    for (unsigned i = 0; i < run.n_objects; i++) {
        struct object *object = &state->objects[i];

        if (object->n > 0)
            continue;
        object->n = 1;
        memcpy(&object->writes[0].value, run.objects[i], run.object_bytes[i]);
    }
    for (unsigned i = 0; i < run.n_regions; i++) {
        size_t bytes = run.region_bytes[i] < COPIED ? run.region_bytes[i] : COPIED;

        if (state->regions[i].writer == 0)
            memcpy(state->regions[i].bytes, run.regions[i], bytes);
    }
}

/* Whether each thread has ended, or waits for a bell that nobody is left to ring. */
static bool is_stuck(const struct state *state, const struct step *steps)
{
    for (unsigned t = 0; t < run.scenario->threads; t++) {
        const struct object *bell = &state->objects[steps[t].object];

        if (steps[t].act != ACT_END &&
            (steps[t].act != ACT_WAIT || bell->writes[bell->n - 1].value))
            return false;
    }
    return true;
}

static void explore(const struct state *state)
{
    struct step steps[MODEL_THREADS] = {0};
    unsigned ended = 0;
    struct state *copy;

    if (run.result.why || !is_new(state))
        return;
    run.result.states++;
    copy = malloc(sizeof *copy);
    assert(copy);
    memcpy(copy, state, sizeof *copy);
    for (unsigned t = 0; t < run.scenario->threads; t++)
        ended += next_step(copy, t, &steps[t]) == ACT_END;
    add_first_contents(copy);
    if (ended == run.scenario->threads) {
        run.result.ends++;
        if (!run.scenario->holds())
            fail("what has to hold does not");
    } else if (is_stuck(copy, steps)) {
        fail("all wait: a wake-up was lost");
    }
    for (unsigned t = 0; t < run.scenario->threads; t++)
        take_step(copy, t, &steps[t]);
    free(copy);
}

struct model_result model_run(const struct model_scenario *scenario,
                              const struct model_weaker *weaker)
{
    static const struct model_weaker none = {.thread = -1};
    struct state *state = calloc(1, sizeof *state);

    assert(state && scenario->threads <= MODEL_THREADS);
    memset(&run, 0, sizeof run);
    run.scenario = scenario;
    run.weaker = weaker ? weaker : &none;
    explore(state);
    free(state);
    free(run.seen);
    return run.result;
}
