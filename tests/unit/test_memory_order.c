/*
 * What processes share, in each order that C11's memory model allows: the code itself, on the model
 * of tests/lib/memory_model.h. Each order of memory that the code asks for is then weakened, and
 * something has to break: an order that nothing needs is not there, and the model sees those that
 * are needed.
 */
#include "tests/lib/harness.h"

#include "proto/common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/lib/model_atomics.h"

#include "proto/position.h"
#include "proto/queue.h"

#define fallocate(fd, mode, from, bytes) ((void)(from), 0)
#include "daemon/cache/pictures_cache.c"

enum {
    ACQUIRE = memory_order_acquire,
    RELEASE = memory_order_release,
    RELAXED = memory_order_relaxed
};
enum { SC = memory_order_seq_cst, FULL = memory_order_acq_rel };

static struct {
    struct worker_queues queues;
    uint32_t bell;
} shared;

/* ---- a queue, and sleeping ------------------------------------------------------------------ */

enum { PUT = 2 };

static uint64_t taken[PUT + 1];

static void put_two(void)
{
    for (uint64_t i = 1; i <= PUT; i++) {
        if (task_put(&shared.queues, &(struct queue_task){.task = i}) &&
            queue_must_wake(&shared.queues.tasks))
            model_ring(&shared.bell);
    }
}

/* As the worker: another reason than the bell may wake it, of which the first is one. */
static void take_two_as_worker(void)
{
    struct queue_task task;
    unsigned n = 0;

    for (unsigned sleeps = 0; n < PUT;) {
        if (task_take(&shared.queues, &task)) {
            taken[n++] = task.task;
        } else if (queue_sleep(&shared.queues.tasks)) {
            if (sleeps++ > 0)
                model_wait(&shared.bell);
            queue_awake(&shared.queues.tasks);
        }
    }
}

/* As the daemon, which does not say that it is awake: it is told once more. */
static void take_two_as_daemon(void)
{
    struct queue_task task;

    for (unsigned n = 0; n < PUT;) {
        if (task_take(&shared.queues, &task))
            taken[n++] = task.task;
        else if (queue_sleep(&shared.queues.tasks))
            model_wait(&shared.bell);
    }
}

static bool took_two(void)
{
    return taken[0] == 1 && taken[1] == 2;
}

/* One record's place is used again, as soon as it was taken. */
static struct worker_queues full;
static bool fits;

static void put_one_more(void)
{
    fits = task_put(&full, &(struct queue_task){.task = 2});
}

static void take_first(void)
{
    struct queue_task task;

    taken[0] = task_take(&full, &task) ? task.task : UINT64_MAX;
}

static bool took_first(void)
{
    return taken[0] == 1;
}

/* ---- notes, slow samples, places ------------------------------------------------------------ */

static int heard[2];

static void note_two(void)
{
    struct dl_error note = {.code = 1};

    if (note_put(&shared.queues.note, &note)) {
        note.code = 2;
        (void)note_put(&shared.queues.note, &note);
    }
}

static void hear_two(void)
{
    struct dl_error note;

    for (unsigned i = 0; i < 2; i++)
        heard[i] = note_take(&shared.queues.note, &note) ? note.code : 0;
}

static bool heard_in_order(void)
{
    return heard[0] == 0 ? heard[1] == 0 || heard[1] == 1
                         : heard[0] == 1 && (heard[1] == 0 || heard[1] == 2);
}

/* A note that was written before a completion is there once that was taken. */
static void note_then_complete(void)
{
    (void)note_put(&shared.queues.note, &(struct dl_error){.code = 1});
    (void)done_put(&shared.queues, &(struct queue_done){.task = 1});
}

static void complete_then_hear(void)
{
    struct queue_done done;
    struct dl_error note;

    heard[0] = done_take(&shared.queues, &done);
    heard[1] = note_take(&shared.queues.note, &note) ? note.code : 0;
}

static bool heard_of_completed(void)
{
    return !heard[0] || heard[1] == 1;
}

static struct queue_slow slow, slow_full;

static void put_slow(void)
{
    fits = slow_put(&slow, &(struct slow_sample){.index = 1});
}

static void take_slow(void)
{
    struct slow_sample got;

    taken[0] = slow_take(&slow, &got) ? got.index : 0;
}

static bool took_slow(void)
{
    return taken[0] <= 1;
}

static void put_slow_in_full(void)
{
    fits = slow_put(&slow_full, &(struct slow_sample){.index = 2});
}

static void take_slow_of_full(void)
{
    struct slow_sample got;

    taken[0] = slow_take(&slow_full, &got) ? got.index : UINT64_MAX;
}

static char place_read[DL_ERROR_PATH_MAX];
static uint32_t place_count;

static void turn_to_two(void)
{
    note_place(&shared.queues.note, "aaaaa");
    note_place(&shared.queues.note, "bbbbb");
}

static void read_place(void)
{
    memset(place_read, 0, sizeof place_read);
    place_count = note_try_place(&shared.queues.note.place, place_read);
}

static bool read_one_place(void)
{
    const char *want = place_count == 0 ? "" : place_count == 2 ? "aaaaa" : "bbbbb";

    return place_count % 2 || strcmp(place_read, want) == 0;
}

/* ---- a rank's position ---------------------------------------------------------------------- */

static struct rank_position position;
static bool used[2];

static void use_two(void)
{
    used[0] = position_advance(&position, 1);
    used[1] = position_advance(&position, 2);
}

static void close_position(void)
{
    taken[0] = position_close(&position);
}

static bool both_know(void)
{
    return taken[0] == (uint64_t)used[0] + used[1] && used[0] >= used[1];
}

/* ---- pictures ------------------------------------------------------------------------------- */

enum { ARENA = PICTURES_CACHE_LEAST };

static _Alignas(64) uint8_t arena[ARENA];
static const struct pictures_cache cache = {.arena = (void *)arena, .fd = -1, .bytes = ARENA};
static const struct pictures_key keys[] = {{.ino = 1}, {.ino = 2}};
static uint64_t pixels_found;

static void put_picture(uint64_t key, uint64_t pixels, bool keep)
{
    struct pictures_room room;

    if (!pictures_cache_take(&cache, &keys[key], 1, 2, &room))
        return;
    memcpy(room.pixels, &pixels, sizeof pixels);
    if (keep)
        (void)pictures_cache_publish(&cache, &room);
    else
        pictures_cache_drop(&cache, &room);
}

static void publish_picture(void)
{
    put_picture(0, 7, true);
}

/* Its room may become another's. */
static void drop_picture(void)
{
    put_picture(1, 8, false);
}

static void find_picture(void)
{
    struct pictures_entry entry;

    pixels_found = 0;
    if (pictures_cache_find(&cache, &keys[0], &entry))
        memcpy(&pixels_found, entry.pixels, sizeof pixels_found);
}

static bool found_whole(void)
{
    return pixels_found == 0 || pixels_found == 7;
}

/* ---- all of them ---------------------------------------------------------------------------- */

enum { MOST_WEAKER = 8 };

/* As if much had gone through. */
static void fill(void)
{
    full.tasks.tail = QUEUE_RECORDS;
    full.task_records[0].task = 1;
    slow_full.tail = SLOW_SAMPLES;
    slow_full.samples[0].index = 1;
    pictures_arena_init(arena, ARENA, 0);
}

#define TASKS shared.queues.tasks
static const struct row {
    struct model_scenario scenario;
    struct model_weaker weaker[MOST_WEAKER];
} rows[] = {
    {{"a worker takes two tasks",
      &shared,
      sizeof shared,
      2,
      {put_two, take_two_as_worker},
      took_two},
     {{0, &TASKS.tail, RELEASE, RELAXED},
      {0, &TASKS.tail, SC, FULL},
      {0, &TASKS.sleeping, SC, ACQUIRE},
      {1, &TASKS.tail, ACQUIRE, RELAXED},
      {1, &TASKS.tail, SC, ACQUIRE},
      {1, &TASKS.sleeping, SC, RELEASE}}},
    {{"the daemon takes two", &shared, sizeof shared, 2, {put_two, take_two_as_daemon}, took_two},
     {{0, &TASKS.tail, RELEASE, RELAXED},
      {0, &TASKS.tail, SC, FULL},
      {0, &TASKS.sleeping, SC, ACQUIRE},
      {1, &TASKS.tail, ACQUIRE, RELAXED},
      {1, &TASKS.tail, SC, ACQUIRE},
      {1, &TASKS.sleeping, SC, RELEASE}}},
    {{"a full queue", &full, sizeof full, 2, {put_one_more, take_first}, took_first},
     {{0, &full.tasks.head, ACQUIRE, RELAXED}, {1, &full.tasks.head, RELEASE, RELAXED}}},
    {{"two notes", &shared, sizeof shared, 2, {note_two, hear_two}, heard_in_order},
     {{0, &shared.queues.note.full, ACQUIRE, RELAXED},
      {0, &shared.queues.note.full, RELEASE, RELAXED},
      {1, &shared.queues.note.full, ACQUIRE, RELAXED},
      {1, &shared.queues.note.full, RELEASE, RELAXED}}},
    {{"a note and a completion",
      &shared,
      sizeof shared,
      2,
      {note_then_complete, complete_then_hear},
      heard_of_completed},
     {{0, &shared.queues.done.tail, RELEASE, RELAXED},
      {1, &shared.queues.done.tail, ACQUIRE, RELAXED}}},
    {{"a slow sample", &slow, sizeof slow, 2, {put_slow, take_slow}, took_slow},
     {{0, &slow.tail, RELEASE, RELAXED}, {1, &slow.tail, ACQUIRE, RELAXED}}},
    {{"a slow sample more",
      &slow_full,
      sizeof slow_full,
      2,
      {put_slow_in_full, take_slow_of_full},
      took_first},
     {{0, &slow_full.head, ACQUIRE, RELAXED}, {1, &slow_full.head, RELEASE, RELAXED}}},
    {{"two places", &shared, sizeof shared, 2, {turn_to_two, read_place}, read_one_place},
     {{0, &shared.queues.note.place.count, RELEASE, RELAXED},
      {1, &shared.queues.note.place.count, ACQUIRE, RELAXED},
      {0, &shared.queues.note.place.path[1], RELEASE, RELAXED},
      {1, &shared.queues.note.place.path[1], ACQUIRE, RELAXED}}},
    {{"a position", &position, sizeof position, 2, {use_two, close_position}, both_know}, {{0}}},
    {{"a picture", arena, ARENA, 3, {publish_picture, find_picture, drop_picture}, found_whole},
     {{0, NULL, ACQUIRE, RELAXED},
      {0, NULL, RELEASE, RELAXED},
      {1, NULL, ACQUIRE, RELAXED},
      {2, NULL, RELEASE, RELAXED}}},
};

TEST(test_every_order)
{
    fill();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct model_result result = model_run(&rows[i].scenario, NULL);

        print_message("# %s: %llu states, %llu ends\n", rows[i].scenario.name,
                      (unsigned long long)result.states, (unsigned long long)result.ends);
        if (result.why)
            fail_msg("%s: %s", rows[i].scenario.name, result.why);
    }
}

TEST(test_every_weaker_order_breaks)
{
    fill();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (const struct model_weaker *w = rows[i].weaker; w->order != RELAXED; w++) {
            if (!model_run(&rows[i].scenario, w).why)
                fail_msg("%s: nothing needs order %d of thread %d, row %zu", rows[i].scenario.name,
                         w->order, w->thread, (size_t)(w - rows[i].weaker));
        }
    }
}
