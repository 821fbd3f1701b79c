#include "daemon/serve/pool/helpers.h"
#include "daemon/serve/pool/pool_private.h"
#include "daemon/serve/pool/report.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

/*
 * Where there are several workers, each gets this much work ahead at most (but two tasks always),
 * so that a slow task does not hold up others that an idle worker could run.
 */
enum { AHEAD_NS = 300 * 1000 };

/* Steps in a row by this machine's workers after which helpers are not counted on. */
enum { HELPED = 64 };

static uint32_t pool_tasks_count_ahead(const struct member *m)
{
    return m->cost_ns ? (uint32_t)min_u64(AHEAD_NS / m->cost_ns, QUEUE_RECORDS) : 0;
}

/* A helper: two, as others, and those that it makes while a batch is on its way here. */
static uint32_t pool_tasks_count_away(const struct member *m)
{
    uint64_t way_ns = m->turn_ns - min_u64(m->cost_ns, m->turn_ns);

    return (uint32_t)min_u64(2 + way_ns / max_u64(m->cost_ns, 1), HELPERS_TASKS);
}

static bool pool_tasks_may_have_some(const struct member *m)
{
    if (m->state != WORKER_READY || m->timed_out || m->condemned || m->moves ||
        m->number >= m->pool->size || member_rests(m))
        return false;
    return !m->helper || m->doubted_until == 0 || uv_hrtime() >= m->doubted_until;
}

/* How many more tasks it may be given. */
static uint32_t pool_tasks_count_room(const struct member *m)
{
    uint32_t most = pool_at_work(m->pool) == 1 ? QUEUE_RECORDS
                                               : (uint32_t)max_u64(2, pool_tasks_count_ahead(m));

    if (!m->segments || !pool_tasks_may_have_some(m))
        return 0;
    if (m->helper)
        most = pool_tasks_count_away(m);
    return most - (uint32_t)min_u64(in_flight(m), most);
}

/* Of a helper that gets no tasks, as it is slow, it becomes less: so it is tried again. */
static uint64_t pool_tasks_count_cost(const struct member *m)
{
    enum { IDLE = 8 }; /* times what a task took, and it is half of that */

    if (m->state != WORKER_READY)
        return 0; /* nobody knows when it does its next one */
    if (!member_is_helper(m))
        return m->cost_ns;
    if (m->turn_ns == 0 || in_flight(m) > 0)
        return m->turn_ns;
    uint64_t idle_ns = uv_hrtime() - m->front_since;
    return m->turn_ns >> min_u64(idle_ns / (IDLE * m->turn_ns), 63);
}

static bool pool_tasks_take_slot(struct member *m, struct place *ret)
{
    struct segment *segment;

    DL_FOREACH (m->segments, segment) {
        uint32_t slot =
            segment->slot_bytes < m->pool->slot_bytes ? SLOT_NONE : slot_assign(&segment->slots);
        if (slot != SLOT_NONE) {
            *ret = (struct place){.worker = m->number, .slot = slot, .segment = segment};
            return true;
        }
    }
    return false;
}

static uint32_t pool_tasks_count_free(const struct member *m)
{
    const struct segment *segment;
    uint32_t n = 0;

    DL_FOREACH (m->segments, segment) {
        if (segment->slot_bytes >= m->pool->slot_bytes)
            n += segment->slots.in_state[SLOT_FREE];
    }
    return n;
}

uint32_t pool_workers(const struct pool *pool)
{
    return pool->n_members;
}

struct worker_room pool_room(const struct pool *pool, uint32_t worker)
{
    const struct member *m = pool->members[worker];

    return (struct worker_room){.slots = pool_tasks_count_free(m),
                                .tasks = pool_tasks_count_room(m),
                                .has = in_flight(m),
                                .bare = !m->segments && pool_tasks_may_have_some(m),
                                .ahead = pool_tasks_count_ahead(m),
                                .cost_ns = pool_tasks_count_cost(m)};
}

bool pool_take(struct pool *pool, uint32_t worker, struct place *ret)
{
    struct member *best = NULL;

    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];
        if ((worker == POOL_ANY || worker == i) && pool_tasks_count_room(m) > 0 &&
            (!best || in_flight(m) < in_flight(best)) && pool_tasks_count_free(m) > 0)
            best = m;
    }
    return best && pool_tasks_take_slot(best, ret);
}

char *pool_take_death_cause(struct pool *pool, uint32_t worker)
{
    return steal_ptr(pool->members[worker]->death_cause);
}

void pool_forget(struct pool *pool, uint32_t stream)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        if (pool->members[i]->process)
            process_send_forget(pool->members[i]->process, stream);
    }
}

bool pool_is_helped(const struct pool *pool)
{
    return pool->own_in_a_row < HELPED && pool_helpers_ready(pool) > 0;
}

/* The first ready one of our own, or that one; NULL: it is not there. */
static struct member *pool_find_own(const struct pool *pool, int pid)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];

        if (m->state == WORKER_READY && m->process && !m->helper &&
            (pid == 0 || process_pid(m->process) == pid))
            return m;
    }
    return NULL;
}

bool pool_choose_told(struct pool *pool)
{
    const struct member *m;

    if ((pool->told_pid > 0 && pool_find_own(pool, pool->told_pid)) ||
        !(m = pool_find_own(pool, 0)))
        return false;
    pool->told_pid = process_pid(m->process);
    return true;
}

void pool_expect(struct pool *pool, struct dl_span indices)
{
    const struct member *m = pool_find_own(pool, pool->told_pid);

    if (m)
        process_send_expect(m->process, false, indices);
}

void pool_expect_anew(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];

        if (m->state == WORKER_READY && m->process && !m->helper)
            process_send_expect(m->process, true, (struct dl_span){0});
    }
}

void pool_slot(struct pool *pool, struct segment *segment, uint32_t slot, enum slot_event event)
{
    slot_apply(&segment->slots, slot, event);
    if (!segment->active && event != SLOT_LEASE)
        pool_settle_retiring(pool, segment);
}

void pool_run(struct pool *pool, const struct place *place, void *tag)
{
    struct member *m = pool->members[place->worker];
    struct task task = {
        .number = pool->next_task++, .tag = tag, .segment = place->segment, .slot = place->slot};
    struct queue_task record = {
        .task = task.number, .segment = place->segment->id, .slot = place->slot};

    assert(m->state == WORKER_READY && in_flight(m) < QUEUE_RECORDS);
    assert(place->segment->slots.slots[place->slot].state == SLOT_FILLING);
    if (in_flight(m) == 0)
        m->front_since = uv_hrtime();
    m->tasks[m->end++ % QUEUE_RECORDS] = task;
    /* There is room: fewer than QUEUE_RECORDS are out. A worker that damaged the queue is stuck
     * from now on, and the timeout or its next completion finds it. */
    (void)!process_put_task(m->process, &record);
    m->to_ring = true;
}

void pool_flush(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];
        if (m->to_ring && m->process)
            process_ring(m->process);
        m->to_ring = false;
    }
}

/* The dataset's own words, from the slot: untrusted, so bounded and copied. */
static void pool_tasks_read_slot_error(const struct task *task, uint32_t code, struct dl_error *ret)
{
    const char *slot = segment_slot(task->segment, task->slot);
    struct slot_header header;
    char text[DL_ERROR_MESSAGE_MAX] = "";

    memcpy(&header, slot, sizeof header);
    if (header.error_off < task->segment->slot_bytes) {
        uint64_t room = task->segment->slot_bytes - header.error_off;
        uint64_t len = min_u64(min_u64(header.error_len, room), sizeof text - 1);
        memcpy(text, slot + header.error_off, len);
        text[len] = '\0';
    }
    dl_error_set(ret, code < 4096 ? (int)code : EIO, "dataset", "%s",
                 *text ? text : strerror((int)code));
}

/* However much is released, a slot of that size would never be had. */
static int pool_tasks_never_fits(const struct pool *pool, uint64_t slot_bytes, struct dl_error *err)
{
    uint64_t bytes = segment_bytes(1, slot_bytes), most = pool->o.spec->memory_limit;

    if (bytes > most)
        return dl_error_set(err, ENOMEM, "memory.limit",
                            "this batch takes %llu bytes and the limit is %llu", (ull)slot_bytes,
                            (ull)most);
    most = quota_limit(pool->o.account, QUOTA_BYTES);
    if (bytes > most)
        return dl_error_set(
            err, EDQUOT, "limits.bytes",
            "this batch takes %llu bytes, and limits.bytes of uid %u is %llu; lower "
            "batch.size, or raise it in dloaderd.conf",
            (ull)slot_bytes, (unsigned)quota_uid(pool->o.account), (ull)most);
    return 0;
}

bool pool_fit(struct pool *pool, uint64_t need, struct dl_error *err)
{
    uint64_t slot_bytes = align_up(min_u64(need, DL_MAX_SEGMENT_BYTES / 2), SLOT_ALIGN);
    /* Where one batch is larger than those before it, the next may be larger still. */
    uint64_t roomy = align_up(slot_bytes + slot_bytes / 4, SLOT_ALIGN);

    if (slot_bytes <= pool->slot_bytes)
        return true;
    if (pool_tasks_never_fits(pool, slot_bytes, err) < 0)
        return false;
    if (roomy <= pool->o.spec->memory_limit / (2 * max_u64(pool->size, 1)))
        slot_bytes = roomy;
    pool->slot_bytes = slot_bytes;
    for (uint32_t i = 0; i < pool->n_members; i++)
        member_retire_segments(pool->members[i], slot_bytes);
    return true;
}

static void pool_tasks_too_small(struct pool *pool, const struct task *task, uint64_t need)
{
    struct dl_error err = {0};

    if (pool_fit(pool, need, &err))
        pool->o.events->outgrew(pool->o.owner, task->tag);
    else
        pool->o.events->failed(pool->o.owner, task->tag, &err, NULL);
}

/* What it took, and how the worker does. */
static void pool_tasks_count(struct member *m, const struct queue_done *done, uint64_t now)
{
    struct pool *pool = m->pool;

    m->turn_ns = m->turn_ns ? (m->turn_ns + now - m->front_since) / 2 : now - m->front_since;
    m->finished++;
    pool->own_in_a_row =
        member_is_helper(m) ? 0 : (uint32_t)min_u64(pool->own_in_a_row + 1ULL, HELPED);
    m->deaths = (struct deaths){0};
    m->doubted_until = 0;
    m->busy_ns += done->cost_ns;
    m->collate_ns += min_u64(done->collate_ns, done->cost_ns);
    /* It may have told of what follows, too. */
    m->remote_told += process_take_remote_ns(m->process);
    uint64_t remote_ns = min_u64(m->remote_told, m->busy_ns - m->collate_ns - m->remote_ns);
    m->remote_told -= remote_ns;
    m->remote_ns += remote_ns;
    if (m->helper)
        process_take_way(m->process, &m->way);
    m->cost_ns = m->cost_ns ? (7 * m->cost_ns + done->cost_ns) / 8 : done->cost_ns;
}

static void pool_tasks_complete(struct member *m, const struct queue_done *done, uint32_t repeated,
                                uint64_t now)
{
    struct pool *pool = m->pool;
    struct task task = *front_task(m);
    bool begun = done->code != ENOBUFS || done->bytes > 0;

    m->begin++;
    if (begun)
        pool_tasks_count(m, done, now);
    m->front_since = now;
    if (done->code == 0) {
        struct made_times made = {.began_ns = done->began_ns,
                                  .cost_ns = done->cost_ns,
                                  .collate_ns = done->collate_ns,
                                  .fetch_python_ns = done->fetch_python_ns,
                                  .collate_python_ns = done->collate_python_ns,
                                  .now_ns = now};
        m->steps++;
        m->samples += done->samples;
        pool->steps++;
        slot_apply(&task.segment->slots, task.slot, SLOT_FILLED);
        pool->o.events->done(pool->o.owner, task.tag, done->samples, repeated, done->bytes,
                             &pool->bad, &made);
        return;
    }
    if (!begun) {
        pool->o.events->lost(pool->o.owner, task.tag, false, "");
    } else if (done->code == ENOBUFS) {
        pool_tasks_too_small(pool, &task, done->bytes);
    } else if (done->code == ENODATA) {
        pool->o.events->ended(pool->o.owner, task.tag);
    } else {
        struct dl_error err = {0};
        pool_tasks_read_slot_error(&task, done->code, &err);
        _cleanup_free_ char *detail =
            report_read(segment_slot(task.segment, task.slot), task.segment->slot_bytes);
        pool->o.events->failed(pool->o.owner, task.tag, &err, detail);
    }
    /* Last: it may be what a retiring segment waited for. */
    pool_slot(pool, task.segment, task.slot, SLOT_ABORT);
}

/* Samples of an iterable dataset's batch that are repeated. The worker may still write there: it is
 * read once. */
static uint32_t pool_tasks_read_repeated(struct member *m, const struct queue_done *done)
{
    const struct task *task = front_task(m);
    const volatile struct slot_header *header = segment_slot(task->segment, task->slot);

    return m->pool->iterable && done->code == 0 ? header->repeated : 0;
}

/* The list of bad samples that stands in the slot, where there may be one. */
static bool pool_tasks_read_bad(struct pool *pool, const struct task *task)
{
    bad_list_clear(&pool->bad);
    return pool->o.spec->on_error <= ON_ERROR_RAISE ||
           slot_read_bad(segment_slot(task->segment, task->slot), task->segment->slot_bytes,
                         &pool->bad) != -EINVAL;
}

/* A completion must be of the task at the front, and its batch within the slot. */
static bool pool_tasks_plausible(struct member *m, const struct queue_done *done,
                                 uint32_t *ret_repeated)
{
    if (in_flight(m) == 0 || done->task != front_task(m)->number)
        return false;
    if (done->code == ENODATA)
        return m->pool->iterable;
    *ret_repeated = pool_tasks_read_repeated(m, done);
    return done->code != 0 || (done->samples >= 1 && done->samples <= m->pool->most_samples &&
                               *ret_repeated <= done->samples && done->bytes >= SLOT_HEADER_BYTES &&
                               done->bytes <= front_task(m)->segment->slot_bytes &&
                               pool_tasks_read_bad(m->pool, front_task(m)));
}

/* Before what comes after it: an epoch may end with that. */
static void pool_tasks_read_note(struct member *m)
{
    struct dl_error what = {0};
    struct slow_sample slow;

    if (process_take_note(m->process, &what))
        m->pool->o.events->written(m->pool->o.owner, &what);
    /* No more than there is room for: a worker may write what it likes there. */
    uint64_t slow_ns = process_take_slow_ns(m->process);
    m->slow_ns += min_u64(slow_ns, m->busy_ns - m->collate_ns - m->slow_ns);
    for (int n = 0; n < SLOW_SAMPLES && process_take_slow(m->process, &slow); n++)
        m->pool->o.events->slow(m->pool->o.owner, &slow, m->helper);
}

void member_collect(struct member *m)
{
    struct queue_done done;
    uint32_t repeated = 0;
    uint64_t now = 0;

    while (m->process && !m->condemned && process_take_done(m->process, &done)) {
        if (!pool_tasks_plausible(m, &done, &repeated)) {
            log_about(LOG_WARNING,
                      &(struct log_fields){.loader = m->pool->o.spec->name,
                                           .worker = LOG_N(m->number),
                                           .client_uid = LOG_N(quota_uid(m->pool->o.account))},
                      "%s: worker %u is killed: its completion is invalid", m->pool->o.spec->name,
                      m->number);
            m->condemned = true;
            member_kill(m);
            return;
        }
        now = now ? now : uv_hrtime();
        pool_tasks_read_note(m);
        pool_tasks_complete(m, &done, repeated, now);
    }
    if (m->process)
        pool_tasks_read_note(m);
}

void pool_changed(struct pool *pool)
{
    if (!pool->freed)
        pool->o.events->changed(pool->o.owner);
}

void member_on_completed(void *member)
{
    struct member *m = member;

    member_collect(m);
    pool_changed(m->pool);
}

void pool_collect(struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];
        if (m->wants_memory)
            member_feed(m);
        member_collect(m);
    }
    pool_let_go(pool);
    pool_move_helpers(pool);
}

void member_give_tasks_back(struct member *m, const char *cause)
{
    bool culprit = true;

    while (in_flight(m) > 0) {
        struct task task = *front_task(m);
        m->begin++;
        m->pool->o.events->lost(m->pool->o.owner, task.tag, culprit, cause);
        pool_slot(m->pool, task.segment, task.slot, SLOT_ABORT);
        culprit = false;
    }
}
