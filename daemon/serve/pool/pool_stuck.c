/*
 * Workers that are killed and do not end: SIGKILL waits for a process that waits in the kernel, and
 * a file system whose server is gone may let it wait for ever. Another worker takes the place of
 * such a one. Its memory, and it itself, count for its user until it has ended.
 */
#include "daemon/base/memory.h"
#include "daemon/serve/pool/pool_private.h"
#include "proto/common/figures.h"

#include <stdio.h>

#include <utlist.h>

static void pool_stuck_ignore_opening(void *owner, const struct dl_msg_w_opening *what)
{
    (void)owner, (void)what;
}

static void pool_stuck_ignore_ready(void *owner, const struct dl_msg_w_ready *what)
{
    (void)owner, (void)what;
}

static void pool_stuck_ignore_indexed(void *owner, const struct dl_msg_w_indexed *what, int fd)
{
    (void)owner, (void)what;
    close_fdp(&fd);
}

static void pool_stuck_ignore_failed(void *owner, uint32_t segment, const struct dl_error *err)
{
    (void)owner, (void)segment, (void)err;
}

static void pool_stuck_ignore_mapped(void *owner, uint32_t segment)
{
    (void)owner, (void)segment;
}

static void pool_stuck_ignore_looked(void *owner, uint64_t identity)
{
    (void)owner, (void)identity;
}

static void pool_stuck_ignore_completed(void *owner)
{
    (void)owner;
}

/* Most of those that a closed loader leaves end at once, of which nobody has to know; ns. */
#define TOLD_NS UINT64_C(1000000000)

/* The loader may be gone by now: only what the pool owns, and the account, is there. */
static void pool_stuck_on_exited(void *owner, int signal, const char *cause)
{
    struct stuck *s = owner;
    struct pool *pool = s->pool;
    struct segment *segment;
    char after[UNITS_MAX];

    (void)signal, (void)cause;
    uint64_t took = uv_hrtime() - s->since;
    format_seconds((double)took / 1e9, after, sizeof after);
    if (took >= TOLD_NS)
        log_about(LOG_INFO, &(struct log_fields){.client_uid = LOG_N(quota_uid(pool->o.account))},
                  "worker %u (pid %d), which was killed, has ended after %s", s->worker,
                  process_pid(s->process), after);
    s->process = process_free(s->process);
    DL_FOREACH (pool->retiring, segment) {
        if (segment->keeper == s)
            segment->keeper = NULL;
    }
    retired_keeper_ended(pool->o.retired, s);
    if (s->charged)
        quota_return(pool->o.account, QUOTA_WORKERS, 1);
    pool->members[s->worker]->stuck--;
    --*pool->o.stuck;
    DL_DELETE(pool->stuck, s);
    free(s);
    pool_unref(pool);
}

static const struct process_events pool_stuck_events = {.opening = pool_stuck_ignore_opening,
                                                        .indexed = pool_stuck_ignore_indexed,
                                                        .ready = pool_stuck_ignore_ready,
                                                        .failed = pool_stuck_ignore_failed,
                                                        .mapped = pool_stuck_ignore_mapped,
                                                        .looked = pool_stuck_ignore_looked,
                                                        .completed = pool_stuck_ignore_completed,
                                                        .exited = pool_stuck_on_exited};

/* What the process has mapped is in memory as long as it is there. */
static void pool_stuck_keep_segments(struct member *m, struct stuck *s)
{
    struct segment *segment;

    DL_FOREACH (m->segments, segment)
        segment->keeper = s;
    DL_FOREACH (m->pool->retiring, segment) {
        if (segment->filler == s->process)
            segment->keeper = s;
    }
    if (m->mapping)
        m->mapping->keeper = s;
}

/* `charged`: it keeps what its loader had for it; else it is one more, if there is room. */
static struct stuck *pool_stuck_new(struct member *m, bool charged)
{
    struct pool *pool = m->pool;
    struct stuck *s = must_alloc(sizeof *s);

    s->pool = pool;
    s->worker = m->number;
    s->since = m->killed_since ? m->killed_since : uv_hrtime();
    s->charged = charged || quota_charge(pool->o.account, QUOTA_WORKERS, 1, &m->open_error) == 0;
    s->process = steal_ptr(m->process);
    pool_stuck_keep_segments(m, s);
    process_hand_over(s->process, &pool_stuck_events, s);
    DL_APPEND(pool->stuck, s);
    pool->open_handles++;
    m->stuck++;
    ++*pool->o.stuck;
    return s;
}

void member_part(struct member *m)
{
    process_kill(m->process);
    (void)pool_stuck_new(m, true);
}

void member_leave_stuck(struct member *m)
{
    struct pool *pool = m->pool;
    char why[512], text[1024];

    member_collect(m);
    member_name_kill(m, why, sizeof why);
    int pid = process_pid(m->process);
    bool replace = pool_stuck_new(m, false)->charged;
    snprintf(text, sizeof text,
             "%s; it does not end, as it waits in the kernel, usually for storage that does not "
             "answer; %s",
             why, replace ? "another takes its place" : "limits.workers allows no other");
    log_about(LOG_WARNING,
              &(struct log_fields){LOG_EVENT_WORKER_STUCK, .loader = pool->o.spec->name,
                                   .worker = LOG_N(m->number), .worker_pid = LOG_N(pid),
                                   .client_uid = LOG_N(quota_uid(pool->o.account))},
              "%s: %s", pool->o.spec->name, text);
    member_lose(m, text, replace);
}
