/*
 * The two queues between the daemon and one worker, in a memfd of their own.
 *
 * Each is a single-producer single-consumer ring of fixed records: tasks (daemon → worker) and
 * completions (worker → daemon). A full exchange costs no system call while both sides are awake. A
 * side that is about to sleep says so in `sleeping`, looks once more, and sleeps on its eventfd;
 * the other side rings the bell only if it finds that word set.
 *
 * Memory order. `tail` is stored with release after the record is written and loaded with acquire
 * before it is read; `head` likewise in the other direction, so a record is never overwritten while
 * it is read. `sleeping` is a Dekker pair with `tail`: the sleeper stores `sleeping` then loads
 * `tail`; the producer, its records put, touches `tail` by an addition of 0 then loads `sleeping`.
 * These four are seq_cst and so in one total order. Where the producer's load does not see that
 * store of `sleeping`, load and addition stand before it and the sleeper's load of `tail` after it:
 * that load sees the records, and the consumer does not sleep. Where it does see it, it rings. No
 * wake-up is lost. The addition writes no new value; it is there because a fence, which costs the
 * same one locked instruction on x86, is unknown to the thread sanitizer.
 *
 * Behind the queues is a note, in which the worker reports anything that is not about a task; it is
 * read before completions that were put after it was written. So are its reports of slow samples.
 * `full` hands the text over, by release and acquire, in either direction; `tail` and `head` of the
 * slow samples work as those of the queues.
 *
 * A worker that hangs while it opens the dataset cannot report where, so until then the note's
 * memory holds the path it is working on, overwritten at any time. That is a seqlock: `count` is
 * odd while words are written. Each word is stored with release and loaded with acquire, so that a
 * reader that finds a word of a later text finds `count` changed, too; it then retries, or accepts
 * a mixed text. This never clashes with a note: the worker writes notes only after a task, and it
 * gets tasks only once the daemon knows that it has opened the dataset and stops reading places.
 *
 * A slot's content is handed on in the same order: the daemon writes it and puts the task
 * (release); the worker takes the task (acquire), fills the slot and puts the completion; the
 * daemon takes that and sends the client a message. A message of a socket, or a bell, orders as
 * release and acquire do: the kernel's locks do. The way back, by which a slot is free again, is
 * RELEASE, a message, too.
 *
 * tests/unit/test_memory_order.c tries all this in each order that C11 allows.
 *
 * The daemon trusts nothing here: positions are masked, records copied out before they are checked.
 */
#ifndef DL_QUEUE_H
#define DL_QUEUE_H

#include "proto/common/error.h"
#include <stdatomic.h>

enum { QUEUE_RECORDS = 4096 }; /* power of two; more than any worker's slots in flight */

struct queue_task {
    uint64_t task; /* the daemon's number for it */
    uint32_t segment;
    uint32_t slot;
};

struct queue_done {
    uint64_t task;
    uint64_t bytes; /* of the slot in use; with ENOBUFS: the bytes the batch would need; 0: it was
                       not begun, as one before it has none */
    uint32_t code;  /* 0 = filled; else the errno: ENOBUFS if the slot is too small, ENODATA at the
                       end of an iterable dataset's replica */
    uint32_t samples;    /* in the batch, if it is filled */
    uint64_t began_ns;   /* of the clock that all processes have: it took the task */
    uint64_t cost_ns;    /* from then to its end */
    uint64_t collate_ns; /* of that: making a batch of samples that were there */
    /* In Python's code, of a host that runs some: of the time before collating, and of collating */
    uint64_t fetch_python_ns;
    uint64_t collate_python_ns;
};
_Static_assert(sizeof(struct queue_task) == 16, "shared layout");
_Static_assert(sizeof(struct queue_done) == 64, "shared layout");

struct queue_end {
    _Alignas(64) _Atomic uint64_t tail;     /* records ever put; written by the producer */
    _Alignas(64) _Atomic uint64_t head;     /* records ever taken; written by the consumer */
    _Alignas(64) _Atomic uint32_t sleeping; /* the consumer waits on its bell */
};

/* A sample that took long to make. A worker reports SLOW_SAMPLES of them, and then only slower
 * ones. */
enum { SLOW_NAME = 256, SLOW_SAMPLES = 16 };
struct slow_sample {
    uint64_t index; /* in the dataset */
    uint64_t epoch;
    uint64_t ns;
    uint64_t together;    /* samples made in that time, of which this is the first; 1: only it */
    char name[SLOW_NAME]; /* a name for people, cut at its start; "" if it has no name */
};

/* Those that the daemon has not read yet: it may hear of many tasks at once. */
struct queue_slow {
    _Alignas(64) _Atomic uint64_t tail; /* ever put; written by the worker */
    _Atomic uint64_t spent_ns;  /* ever, on samples that took far longer than is usual; likewise */
    _Atomic uint64_t remote_ns; /* ever, waiting for remote files; likewise */
    _Alignas(64) _Atomic uint64_t head; /* ever taken; written by the daemon */
    struct slow_sample samples[SLOW_SAMPLES];
};

/* Of a stand-in for a worker on another machine (daemon/helper/link.h): what went over its
 * connections in its life, and for how long batches were on their way here, from their first byte
 * to their last, and files there that tasks waited for.
 */
struct way {
    uint64_t sent_bytes, received_bytes;
    uint64_t way_ns;
    uint64_t round_trip_ns; /* lately, of the network alone; 0: not known */
};
struct queue_way {
    _Alignas(64) _Atomic uint64_t sent_bytes, received_bytes, way_ns, round_trip_ns;
};

/* Where the text is, before the dataset is open: what the worker is at. */
struct queue_place {
    _Atomic uint32_t count; /* twice the places so far; odd: one is being written */
    _Atomic uint32_t path[DL_ERROR_PATH_MAX / sizeof(uint32_t)];
};

/* One text: the worker writes it while it is empty, and the daemon empties it. */
struct queue_note {
    _Alignas(64) _Atomic uint32_t full;
    union {
        struct dl_error text;
        struct queue_place place;
    };
};
_Static_assert(offsetof(struct queue_note, place.path) == offsetof(struct queue_note, text.path),
               "shared layout");

struct worker_queues {
    struct queue_end tasks;
    struct queue_end done;
    _Alignas(64) struct queue_task task_records[QUEUE_RECORDS];
    _Alignas(64) struct queue_done done_records[QUEUE_RECORDS];
    struct queue_note note;
    struct queue_slow slow;
    struct queue_way way; /* of stand-ins, which are of the daemon's own release */
};
/* What workers map of it, also those of the last release. */
enum { WORKER_QUEUES_BYTES = offsetof(struct worker_queues, way) };

/* Producer. False when full. The record is visible after the call. */
static inline bool queue_put(struct queue_end *end, void *records, size_t size, const void *record)
{
    uint64_t tail = atomic_load_explicit(&end->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&end->head, memory_order_acquire);

    if (tail - head >= QUEUE_RECORDS)
        return false;
    memcpy((char *)records + (tail % QUEUE_RECORDS) * size, record, size);
    atomic_store_explicit(&end->tail, tail + 1, memory_order_release);
    return true;
}

/* Consumer. False when empty. */
static inline bool queue_take(struct queue_end *end, const void *records, size_t size, void *record)
{
    uint64_t head = atomic_load_explicit(&end->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&end->tail, memory_order_acquire);

    if (head == tail)
        return false;
    memcpy(record, (const char *)records + (head % QUEUE_RECORDS) * size, size);
    atomic_store_explicit(&end->head, head + 1, memory_order_release);
    return true;
}

/* Consumer. The record that queue_take() would take; false when empty. */
static inline bool queue_peek(struct queue_end *end, const void *records, size_t size, void *record)
{
    uint64_t head = atomic_load_explicit(&end->head, memory_order_relaxed);

    if (head == atomic_load_explicit(&end->tail, memory_order_acquire))
        return false;
    memcpy(record, (const char *)records + (head % QUEUE_RECORDS) * size, size);
    return true;
}

/* Consumer. The record of number *at, counted from the first ever put, or the one that queue_take()
 * would take, if that comes later; *at becomes the number of the next. False: it is not there yet.
 */
static inline bool queue_look(struct queue_end *end, const void *records, size_t size, uint64_t *at,
                              void *record)
{
    uint64_t head = atomic_load_explicit(&end->head, memory_order_relaxed);

    if (*at < head)
        *at = head;
    if (*at == atomic_load_explicit(&end->tail, memory_order_acquire))
        return false;
    memcpy(record, (const char *)records + (*at % QUEUE_RECORDS) * size, size);
    ++*at;
    return true;
}

/* Consumer. Records that wait. */
static inline uint64_t queue_count(struct queue_end *end)
{
    return atomic_load_explicit(&end->tail, memory_order_acquire) -
           atomic_load_explicit(&end->head, memory_order_relaxed);
}

/* Consumer. Acquire would do but for queue_sleep(); on x86 a load is a load. */
static inline bool queue_empty(struct queue_end *end)
{
    return atomic_load_explicit(&end->head, memory_order_relaxed) ==
           atomic_load_explicit(&end->tail, memory_order_seq_cst);
}

/* Producer, after one or more puts: true when the consumer sleeps and must be woken (once). */
static inline bool queue_must_wake(struct queue_end *end)
{
    (void)atomic_fetch_add_explicit(&end->tail, 0, memory_order_seq_cst);
    if (!atomic_load_explicit(&end->sleeping, memory_order_seq_cst))
        return false;
    return atomic_exchange_explicit(&end->sleeping, 0, memory_order_relaxed) != 0;
}

/* Consumer, before it sleeps: true when the queue is still empty and it may. */
static inline bool queue_sleep(struct queue_end *end)
{
    atomic_store_explicit(&end->sleeping, 1, memory_order_seq_cst);
    if (queue_empty(end))
        return true;
    atomic_store_explicit(&end->sleeping, 0, memory_order_relaxed);
    return false;
}

/* Consumer, once awake for another reason than the bell. */
static inline void queue_awake(struct queue_end *end)
{
    atomic_store_explicit(&end->sleeping, 0, memory_order_relaxed);
}

/* The worker. False: the last one has not been read. */
static inline bool note_put(struct queue_note *note, const struct dl_error *text)
{
    if (atomic_load_explicit(&note->full, memory_order_acquire))
        return false;
    memcpy(&note->text, text, sizeof *text);
    atomic_store_explicit(&note->full, 1, memory_order_release);
    return true;
}

/* The daemon takes the note. False if there is no note. Its texts are made printable. */
static inline bool note_take(struct queue_note *note, struct dl_error *ret)
{
    struct dl_error text;

    if (!atomic_load_explicit(&note->full, memory_order_acquire))
        return false;
    memcpy(&text, &note->text, sizeof text);
    atomic_store_explicit(&note->full, 0, memory_order_release);
    text.path[sizeof text.path - 1] = text.message[sizeof text.message - 1] = '\0';
    (void)dl_error_set(ret, text.code, text.path, "%s", text.message);
    return true;
}

/* The worker, before it has opened the dataset: it now works on `path`, of which a long one loses
 * its end. */
static inline void note_place(struct queue_note *note, const char *path)
{
    struct queue_place *place = &note->place;
    uint32_t count = atomic_load_explicit(&place->count, memory_order_relaxed);
    char text[DL_ERROR_PATH_MAX] = "";
    size_t len = strnlen(path, sizeof text - 1);

    memcpy(text, path, len);
    atomic_store_explicit(&place->count, count | 1, memory_order_relaxed);
    for (size_t i = 0; i * sizeof(uint32_t) <= len; i++) {
        uint32_t word;
        memcpy(&word, text + i * sizeof word, sizeof word);
        atomic_store_explicit(&place->path[i], word, memory_order_release);
    }
    atomic_store_explicit(&place->count, (count | 1) + 1, memory_order_release);
}

/* One reading of it: the count, or an odd number if it is not of one text. */
static inline uint32_t note_try_place(const struct queue_place *place,
                                      char ret[static DL_ERROR_PATH_MAX])
{
    uint32_t count = atomic_load_explicit(&place->count, memory_order_acquire);
    bool ends = false;

    for (size_t i = 0; i < ARRAY_SIZE(place->path) && !ends; i++) {
        uint32_t word = atomic_load_explicit(&place->path[i], memory_order_acquire);
        memcpy(ret + i * sizeof word, &word, sizeof word);
        ends = memchr(&word, '\0', sizeof word) != NULL;
    }
    ret[DL_ERROR_PATH_MAX - 1] = '\0';
    return count | (atomic_load_explicit(&place->count, memory_order_relaxed) != count);
}

/* The daemon reads the place. Returns a number that changes with each place; "" if the worker has
 * not written one. The text may be mixed if the worker keeps writing, or died while writing. */
static inline uint32_t note_read_place(const struct queue_note *note,
                                       char ret[static DL_ERROR_PATH_MAX])
{
    enum { TRIES = 16 };
    uint32_t count = 1;

    for (unsigned i = 0; i < TRIES && count % 2; i++)
        count = note_try_place(&note->place, ret);
    return count;
}

/* The worker. Whether there is room for one. */
static inline bool slow_has_room(const struct queue_slow *slow)
{
    return atomic_load_explicit(&slow->tail, memory_order_relaxed) -
               atomic_load_explicit(&slow->head, memory_order_acquire) <
           SLOW_SAMPLES;
}

/* The worker. False if the ring is full. */
static inline bool slow_put(struct queue_slow *slow, const struct slow_sample *what)
{
    uint64_t tail = atomic_load_explicit(&slow->tail, memory_order_relaxed);

    if (!slow_has_room(slow))
        return false;
    memcpy(&slow->samples[tail % SLOW_SAMPLES], what, sizeof *what);
    atomic_store_explicit(&slow->tail, tail + 1, memory_order_release);
    return true;
}

/* The daemon. False if the ring is empty. The name is made printable. */
static inline bool slow_take(struct queue_slow *slow, struct slow_sample *ret)
{
    uint64_t head = atomic_load_explicit(&slow->head, memory_order_relaxed);
    struct dl_error fit;

    if (atomic_load_explicit(&slow->tail, memory_order_acquire) == head)
        return false;
    memcpy(ret, &slow->samples[head % SLOW_SAMPLES], sizeof *ret);
    atomic_store_explicit(&slow->head, head + 1, memory_order_release);
    ret->name[SLOW_NAME - 1] = '\0';
    (void)dl_error_set(&fit, 1, "", "%s", ret->name);
    memcpy(ret->name, fit.message, min_u64(SLOW_NAME, sizeof fit.message));
    ret->name[SLOW_NAME - 1] = '\0';
    return true;
}

/* The worker adds; the daemon takes what was spent so far. */
static inline void slow_spend(struct queue_slow *slow, uint64_t ns)
{
    uint64_t before = atomic_load_explicit(&slow->spent_ns, memory_order_relaxed);

    atomic_store_explicit(&slow->spent_ns, before + ns, memory_order_relaxed);
}

static inline uint64_t slow_spent(const struct queue_slow *slow)
{
    return atomic_load_explicit(&slow->spent_ns, memory_order_relaxed);
}

/* The worker: how long it waited for remote files in its life; and the daemon, likewise. */
static inline void slow_tell_remote(struct queue_slow *slow, uint64_t ns)
{
    atomic_store_explicit(&slow->remote_ns, ns, memory_order_relaxed);
}

static inline uint64_t slow_remote(const struct queue_slow *slow)
{
    return atomic_load_explicit(&slow->remote_ns, memory_order_relaxed);
}

/* The stand-in: all of it; and the daemon, likewise. Each is a count of its own. */
static inline void way_tell(struct queue_way *to, const struct way *way)
{
    atomic_store_explicit(&to->sent_bytes, way->sent_bytes, memory_order_relaxed);
    atomic_store_explicit(&to->received_bytes, way->received_bytes, memory_order_relaxed);
    atomic_store_explicit(&to->way_ns, way->way_ns, memory_order_relaxed);
    atomic_store_explicit(&to->round_trip_ns, way->round_trip_ns, memory_order_relaxed);
}

static inline struct way way_read(struct queue_way *from)
{
    return (struct way){
        .sent_bytes = atomic_load_explicit(&from->sent_bytes, memory_order_relaxed),
        .received_bytes = atomic_load_explicit(&from->received_bytes, memory_order_relaxed),
        .way_ns = atomic_load_explicit(&from->way_ns, memory_order_relaxed),
        .round_trip_ns = atomic_load_explicit(&from->round_trip_ns, memory_order_relaxed)};
}

#define task_put(q, rec)  queue_put(&(q)->tasks, (q)->task_records, sizeof(struct queue_task), rec)
#define task_take(q, rec) queue_take(&(q)->tasks, (q)->task_records, sizeof(struct queue_task), rec)
#define task_look(q, at, rec) \
    queue_look(&(q)->tasks, (q)->task_records, sizeof(struct queue_task), at, rec)
#define task_peek(q, rec) queue_peek(&(q)->tasks, (q)->task_records, sizeof(struct queue_task), rec)
#define done_put(q, rec)  queue_put(&(q)->done, (q)->done_records, sizeof(struct queue_done), rec)
#define done_take(q, rec) queue_take(&(q)->done, (q)->done_records, sizeof(struct queue_done), rec)

#endif
