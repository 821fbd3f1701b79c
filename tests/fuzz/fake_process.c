#include "tests/fuzz/fake_process.h"

#include "daemon/base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <signal.h>
#include <utlist.h>

enum { SEGMENTS_MAX = 64, RECORDS_MAX = 512 };

struct process {
    struct process *prev, *next; /* fakes.first */
    const struct process_events *events;
    void *owner;
    char *label; /* owned */
    bool open;   /* process_open() was called */
    bool looks;  /* at the files, and has not said how they are */
    bool ready;
    bool killed;
    const struct segment *segments[SEGMENTS_MAX]; /* sent to it; borrowed, until unmapped */
    uint32_t ids[SEGMENTS_MAX];
    uint32_t n_segments;
    uint32_t unmapped;        /* how many of the last ones it has not answered */
    struct queue_task *tasks; /* owned ring */
    struct queue_done *dones; /* owned ring */
    uint64_t task_begin, task_end, done_begin, done_end;
};

struct fakes fakes;

/* ---- what the daemon does ------------------------------------------------------------------- */

int process_start(const struct process_options *o, struct process **ret, struct dl_error *err)
{
    if (fakes.refuse_next) {
        fakes.refuse_next = false;
        return dl_error_set(err, EAGAIN, "worker", "no more processes");
    }
    struct process *p = must_alloc(sizeof *p);
    p->events = o->events;
    p->owner = o->owner;
    p->label = must_strdup(o->label);
    p->tasks = must_alloc(RECORDS_MAX * sizeof *p->tasks);
    p->dones = must_alloc(RECORDS_MAX * sizeof *p->dones);
    DL_APPEND(fakes.first, p);
    fakes.count++;
    *ret = p;
    return 0;
}

void process_open(struct process *p, const struct process_options *o)
{
    FUZZ_ASSERT(!p->open && o->owner == p->owner && strcmp(o->label, p->label) == 0);
    p->open = true;
    p->looks = o->looks;
}

struct process *process_free(struct process *p)
{
    if (!p)
        return NULL;
    DL_DELETE(fakes.first, p);
    fakes.count--;
    free(p->label);
    free(p->tasks);
    free(p->dones);
    free(p);
    return NULL;
}

void process_hand_over(struct process *p, const struct process_events *events, void *owner)
{
    p->events = events;
    p->owner = owner;
}

int process_pid(const struct process *p)
{
    return p ? 4711 : 0;
}

void process_kill(struct process *p)
{
    p->killed = true;
}

void process_send_segment(struct process *p, const struct segment *segment)
{
    FUZZ_ASSERT(p->n_segments < SEGMENTS_MAX);
    FUZZ_ASSERT(segment->bytes >= segment_bytes(segment->slots.count, segment->slot_bytes));
    p->ids[p->n_segments] = segment->id;
    p->segments[p->n_segments++] = segment;
    p->unmapped++;
}

void process_send_unmap(struct process *p, uint32_t id)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_segments; i++) {
        if (p->ids[i] != id)
            continue;
        p->n_segments--;
        memmove(&p->ids[i], &p->ids[i + 1], (p->n_segments - i) * sizeof p->ids[0]);
        memmove(&p->segments[i], &p->segments[i + 1], (p->n_segments - i) * sizeof p->segments[0]);
        p->unmapped = (uint32_t)min_u64(p->unmapped, p->n_segments);
        return;
    }
}

void process_send_forget(struct process *p, uint32_t stream)
{
    FUZZ_ASSERT(p && stream > 0);
}

void process_send_expect(struct process *p, bool anew, struct dl_span indices)
{
    (void)p;
    FUZZ_ASSERT(anew ? indices.len == 0 : indices.len > 0 && indices.len % sizeof(uint64_t) == 0);
}

void process_send_look(struct process *p, struct dl_span spec)
{
    FUZZ_ASSERT(spec.len > 0);
    p->looks = true;
}

bool process_put_task(struct process *p, const struct queue_task *task)
{
    FUZZ_ASSERT(p->ready && p->task_end - p->task_begin < RECORDS_MAX);
    p->tasks[p->task_end++ % RECORDS_MAX] = *task;
    return true;
}

void process_ring(struct process *p)
{
    FUZZ_ASSERT(p);
}

bool process_take_done(struct process *p, struct queue_done *ret)
{
    if (p->done_begin == p->done_end)
        return false;
    *ret = p->dones[p->done_begin++ % RECORDS_MAX];
    return true;
}

bool process_take_note(struct process *p, struct dl_error *ret)
{
    FUZZ_ASSERT(p);
    (void)ret;
    return false;
}

uint64_t process_take_slow_ns(struct process *p)
{
    FUZZ_ASSERT(p);
    return UINT64_MAX; /* a worker may write what it likes there */
}

uint64_t process_take_remote_ns(struct process *p)
{
    FUZZ_ASSERT(p);
    return UINT64_MAX; /* likewise */
}

void process_take_way(struct process *p, struct way *total)
{
    FUZZ_ASSERT(p);
    total->sent_bytes += UINT64_MAX; /* likewise */
}

uint32_t process_read_place(const struct process *p, char ret[static DL_ERROR_PATH_MAX])
{
    FUZZ_ASSERT(p);
    memset(ret, 'x', DL_ERROR_PATH_MAX - 1); /* likewise, but that it ends */
    ret[DL_ERROR_PATH_MAX - 1] = '\0';
    return 1;
}

bool process_take_slow(struct process *p, struct slow_sample *ret)
{
    FUZZ_ASSERT(p);
    (void)ret;
    return false;
}

/* ---- what the worker does ------------------------------------------------------------------- */

struct process *fake_pick(uint32_t n)
{
    struct process *p = fakes.first;

    for (n = fakes.count ? n % fakes.count : 0; p && n > 0; n--)
        p = p->next;
    return p;
}

const char *fake_label(const struct process *p)
{
    return p->label;
}

void fake_looked(struct process *p, uint64_t identity)
{
    if (p->looks) {
        p->looks = false;
        p->events->looked(p->owner, identity);
    }
}

void fake_ready(struct process *p, const struct dl_msg_w_ready *what)
{
    fake_looked(p, 1);
    p->ready = true;
    p->events->ready(p->owner, what);
}

void fake_indexed(struct process *p, const struct dl_msg_w_indexed *what, int fd)
{
    p->events->indexed(p->owner, what, fd);
}

void fake_mapped(struct process *p, uint32_t id)
{
    if (id == 0 && p->unmapped > 0)
        id = p->ids[p->n_segments - p->unmapped--];
    if (id != 0)
        p->events->mapped(p->owner, id);
}

void fake_failed(struct process *p, uint32_t segment, int code)
{
    struct dl_error err = {0};

    if (segment != 0 && p->unmapped > 0) {
        /* The daemon forgets it with this answer. */
        uint32_t at = p->n_segments - p->unmapped;
        segment = p->ids[at];
        process_send_unmap(p, segment);
    }
    dl_error_set(&err, code, "dataset", "it cannot be: %s", strerror(code));
    p->events->failed(p->owner, segment, &err);
}

bool fake_take(struct process *p, struct fake_task *ret)
{
    if (p->task_begin == p->task_end)
        return false;
    *ret = (struct fake_task){.record = p->tasks[p->task_begin++ % RECORDS_MAX]};
    for (uint32_t i = 0; i < p->n_segments; i++) {
        if (p->ids[i] != ret->record.segment)
            continue;
        FUZZ_ASSERT(ret->record.slot < p->segments[i]->slots.count);
        FUZZ_ASSERT(p->segments[i]->slots.slots[ret->record.slot].state == SLOT_FILLING);
        ret->slot = segment_slot(p->segments[i], ret->record.slot);
        ret->slot_bytes = p->segments[i]->slot_bytes;
        return true;
    }
    FUZZ_ASSERT(!"a task is in a segment that the worker was sent");
    return false;
}

void fake_done(struct process *p, const struct queue_done *done, bool late)
{
    if (p->done_end - p->done_begin == RECORDS_MAX)
        return;
    p->dones[p->done_end++ % RECORDS_MAX] = *done;
    if (!late)
        p->events->completed(p->owner);
}

bool fake_was_killed(const struct process *p)
{
    return p->killed;
}

bool fake_is_open(const struct process *p)
{
    return p->open;
}

bool fake_is_ready(const struct process *p)
{
    return p->ready;
}

void fake_exit(struct process *p, int signal)
{
    p->events->exited(p->owner, p->killed ? SIGKILL : signal, "it ended");
}
