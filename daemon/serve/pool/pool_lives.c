/* Lives of workers: how they begin, what they say of themselves, and what their deaths lead to. */
#include "daemon/base/memory.h"
#include "daemon/serve/pool/helpers.h"
#include "daemon/serve/pool/pool_private.h"
#include "daemon/serve/pool/sandbox.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

enum { SOME_INDICES = 4096 }; /* that a slot has room for before any have come */

void pool_break(struct pool *pool, const struct dl_error *err)
{
    if (pool->broken)
        return;
    pool->broken = true;
    pool->o.events->broken(pool->o.owner, err);
}

void member_kill(struct member *m)
{
    if (!m->killed_since)
        m->killed_since = uv_hrtime();
    pool_watch(m->pool);
    process_kill(m->process);
}

/* Or are about to. */
static bool pool_lives_others_have_memory(const struct member *m)
{
    const struct pool *pool = m->pool;
    bool others = false;

    for (uint32_t i = 0; i < pool->n_members; i++) {
        const struct member *other = pool->members[i];
        others = others || (other != m && (other->segments || other->mapping));
    }
    return others;
}

bool member_has_stand_in(const struct member *m)
{
    return pool_lives_others_have_memory(m) && !pool_has_own_shares(m->pool);
}

void member_without_memory(struct member *m, const struct dl_error *err)
{
    if (err->code == EDQUOT || !pool_lives_others_have_memory(m)) {
        pool_break(m->pool, err);
        return;
    }
    m->open_error = *err;
    member_kill(m);
}

/* Python's samples are as large as they are, and a client that feeds them says how many in each
 * step; so slots begin small and grow, by pool_fit(). */
static bool pool_lives_is_fed_python(const struct pool *pool)
{
    return python_runs(pool->o.python) && pool->o.spec->sampler == SAMPLER_CLIENT;
}

/* Slots for the beginning, of what the worker asks for; 0: it asks for too little. */
static uint64_t pool_lives_first_slot_bytes(const struct pool *pool, uint64_t length, bool iterable,
                                            uint64_t asked)
{
    uint64_t most = max_u64(pool->o.spec->batch_size, 1);

    if (!iterable)
        most = min_u64(most, length);
    if (asked % SLOT_ALIGN != 0 || asked > DL_MAX_SEGMENT_BYTES / 2)
        return 0;
    if (pool_lives_is_fed_python(pool)) {
        /* Room for indices that may never come is memory that is taken all the same. */
        uint64_t rare = most > SOME_INDICES ? (most - SOME_INDICES) * sizeof(uint64_t) : 0;
        return align_up(max_u64(asked - min_u64(asked, rare), slot_indices_end(1)), SLOT_ALIGN);
    }
    if (python_runs(pool->o.python))
        return align_up(max_u64(asked, slot_indices_end(most)), SLOT_ALIGN);
    return asked < slot_indices_end(most) ? 0 : asked;
}

/* Whether a new worker has the dataset that those before it had. Of one whose indices come from the
 * client the length is the client's business. */
static bool pool_lives_same_dataset(const struct pool *pool, uint64_t length, bool iterable)
{
    return iterable == pool->iterable && (length == pool->length || pool_lives_is_fed_python(pool));
}

/* What of the spec can only be checked with the dataset open. */
static int pool_lives_check_dataset(const struct pool *pool, uint64_t length, bool iterable,
                                    struct dl_error *err)
{
    const struct dl_spec *spec = pool->o.spec;
    uint64_t one = segment_bytes(1, pool->slot_bytes);
    uint64_t all = one * spec->workers;

    if (all > spec->memory_limit)
        return dl_error_set(err, ENOMEM, "memory.limit",
                            "%llu bytes are less than one batch for each worker: %u × %llu = %llu; "
                            "raise it, or lower batch.size or workers.count",
                            (ull)spec->memory_limit, spec->workers, (ull)one, (ull)all);
    int r = spec_check_share(spec, length, err);
    if (r < 0)
        return r;
    if (iterable)
        return spec_check_iterable(spec, err);
    /* A range's length stands in the spec, and was checked there. */
    return spec->dataset.kind == DATASET_RANGE ? 0 : spec_check_length(spec, length, err);
}

/* What a new worker has, against what those before it had; 0, or -ESTALE with the member's error.
 */
static int pool_lives_compare_dataset(struct member *m, const struct dl_msg_w_ready *what)
{
    const struct pool *pool = m->pool;

    if (!pool_lives_same_dataset(pool, what->length, what->iterable))
        return dl_error_set(&m->open_error, ESTALE, "dataset",
                            "it has %llu samples now and had %llu when the loader was opened; "
                            "open the loader again under another name",
                            (ull)what->length, (ull)pool->length);
    /* A class that was sent by value has another qualified name there. */
    if (m->helper && !spec_sent(pool->o.spec) && what->dataset != pool->dataset)
        return dl_error_set(&m->open_error, ESTALE, spec_dataset_label(&pool->o.spec->dataset),
                            "the helper sees other files than this machine, by their names, sizes "
                            "or content; give both the same");
    if (m->helper)
        return 0; /* lengths are known by times, too, which copies do not share */
    if (what->fingerprint != pool->fingerprint)
        return dl_error_set(&m->open_error, ESTALE, "dataset",
                            "its files have changed since the lengths of its samples were "
                            "taken; open the loader again under another name");
    if (what->dataset != pool->dataset)
        return dl_error_set(&m->open_error, ESTALE, spec_dataset_label(&pool->o.spec->dataset),
                            "its files have changed since the loader was opened: one was "
                            "written to or replaced; open the loader again under another name");
    return 0;
}

static enum sandbox_level pool_lives_sandbox_of(const struct pool *pool)
{
    if (pool->o.python->host_number)
        return SANDBOX_OFF;
    return sandbox_choose(pool->o.config, pool->o.python->interpreter, hosts_private(pool->o.hosts),
                          pool->o.foreign);
}

static void pool_lives_note_sandbox(struct member *m, uint32_t parts)
{
    const struct pool *pool = m->pool;
    const char *complaint = sandbox_complaint(pool_lives_sandbox_of(pool), parts);

    m->sandbox = parts;
    if (!complaint || *pool->o.told_sandbox)
        return;
    *pool->o.told_sandbox = true;
    log_about(LOG_WARNING, &(struct log_fields){LOG_EVENT_SANDBOX_LACKS}, "%s", complaint);
}

static void pool_lives_on_process_opening(void *owner, const struct dl_msg_w_opening *what)
{
    struct member *m = owner;
    struct pool *pool = m->pool;

    if (m->state != WORKER_STARTING || pool->broken)
        return;
    member_goes_on(m);
    if (pool->opened)
        return;
    /* All find the same: one at a time is heard. */
    if (!pool->heard || pool->heard->state != WORKER_STARTING || !pool->heard->opens)
        pool->heard = m;
    if (pool->heard == m)
        pool->o.events->opening(pool->o.owner, what);
}

static void pool_lives_on_process_ready(void *owner, const struct dl_msg_w_ready *what)
{
    struct member *m = owner;
    struct pool *pool = m->pool;
    struct dl_error err = {0};

    /* The daemon writes header and indices itself: they must fit. */
    uint64_t length = what->length;
    bool iterable = what->iterable;
    uint64_t slot_bytes = pool_lives_first_slot_bytes(pool, length, iterable, what->slot_bytes);
    if (m->state != WORKER_STARTING || !m->opens || slot_bytes == 0) {
        member_kill(m);
        return;
    }
    if (pool->opened && pool_lives_compare_dataset(m, what) < 0) {
        member_kill(m);
        return;
    }
    if (!pool->opened)
        pool->opening_ns = uv_hrtime() - m->started_since;
    pool->length = length;
    pool->iterable = iterable;
    if (!m->helper) { /* as this machine sees it */
        pool->fingerprint = what->fingerprint;
        pool->dataset = what->dataset;
    }
    member_become(m, WORKER_READY);
    m->ready_since = uv_hrtime();
    if (member_is_helper(m))
        pool->own_in_a_row = 0;
    pool_lives_note_sandbox(m, (uint32_t)what->sandbox);
    pool->slot_bytes = max_u64(pool->slot_bytes, slot_bytes);
    if (!pool->opened && pool_lives_check_dataset(pool, length, iterable, &err) < 0) {
        pool_break(pool, &err);
        return;
    }
    member_add_first_segment(m);
    if (!pool->opened && !pool->broken) {
        pool->opened = true;
        pool->o.events->ready(pool->o.owner, what);
        pool_start_helpers(pool);
    }
    pool_let_open(pool);
    pool_look_go_on(pool);
    pool_changed(pool);
}

/* C cannot open the dataset, and Python may: all begin again as its workers. */
static bool pool_lives_fall_back(struct pool *pool, const struct dl_error *err)
{
    if (err->code != ENOSYS || pool->o.foreign || !python_fall_back(pool->o.python))
        return false;
    log_about(LOG_INFO,
              &(struct log_fields){.loader = pool->o.spec->name,
                                   .client_uid = LOG_N(quota_uid(pool->o.account))},
              "%s: Python makes its samples: %s: %s", pool->o.spec->name, err->path, err->message);
    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];
        if (!m->process)
            continue;
        m->open_error = *err;
        member_kill(m);
    }
    return true;
}

static void pool_lives_on_process_failed(void *owner, uint32_t segment, const struct dl_error *err)
{
    struct member *m = owner;
    struct pool *pool = m->pool;

    if (segment != 0 && m->mapping && segment == m->mapping->id) {
        pool_free_segment(pool, steal_ptr(m->mapping));
        log_about(LOG_WARNING,
                  &(struct log_fields){.loader = pool->o.spec->name,
                                       .worker = LOG_N(m->number),
                                       .client_uid = LOG_N(quota_uid(pool->o.account))},
                  "%s: %s: %s", pool->o.spec->name, err->path, err->message);
        if (!m->segments)
            member_without_memory(m, err);
    } else if (!pool->opened) {
        if (!m->killed_since && !pool_lives_fall_back(pool, err))
            pool_break(pool, err);
    } else {
        m->open_error = *err;
        member_kill(m);
    }
    pool_changed(pool);
}

static void pool_lives_on_process_mapped(void *owner, uint32_t id)
{
    struct member *m = owner;
    struct dl_error err = {0};

    if (!m->mapping || m->mapping->id != id) {
        member_kill(m);
        return;
    }
    struct segment *segment = steal_ptr(m->mapping);
    pool_settle_segment(m->pool, segment);
    if (segment_seal(segment, &err) < 0) {
        pool_free_segment(m->pool, segment);
        member_without_memory(m, &err);
    } else {
        DL_APPEND(m->segments, segment);
        /* Another worker's batch may meanwhile have turned out larger than these slots. */
        if (segment->slot_bytes < m->pool->slot_bytes) {
            member_retire_segments(m, m->pool->slot_bytes);
            member_add_first_segment(m);
        }
    }
    pool_changed(m->pool);
}

static void pool_lives_on_backoff(uv_timer_t *timer)
{
    member_start(timer->data);
}

/* The client's host has ended, and no other can take its place. */
static bool pool_lives_has_lost_host(const struct pool *pool)
{
    return pool->o.python->host && host_is_gone(pool->o.python->host);
}

/* Those of this machine, in whatever state; a helper that is not there may never be. */
static bool pool_lives_others_do(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        const struct member *m = pool->members[i];

        if (member_is_helper(m) ? m->state == WORKER_READY : m->state != WORKER_GIVEN_UP)
            return true;
    }
    return false;
}

static void pool_lives_give_up(struct member *m, const char *cause)
{
    struct pool *pool = m->pool;
    struct dl_error err = m->open_error;

    member_become(m, WORKER_GIVEN_UP);
    bool own_share = pool_has_own_shares(pool);
    bool others_may_live = !own_share && !pool_lives_has_lost_host(pool);
    if (others_may_live && pool_lives_others_do(pool))
        return;
    if (!err.code && pool_lives_has_lost_host(pool))
        dl_error_set(&err, EIO, "workers", "%s", cause);
    if (!err.code)
        dl_error_set(&err, EIO, "workers", "%s, %d attempts in a row failed; the last: %s",
                     own_share ? "a worker with its own share of the dataset does not stay alive"
                               : "no worker stays alive",
                     DEATHS_MAX, cause);
    pool_break(pool, &err);
}

static void pool_lives_restart_later(struct member *m, uint64_t well_ns, const char *cause)
{
    const struct pool *pool = m->pool;
    uint64_t pause_ms = 0;

    bool pinned = member_is_pinned(m) && !member_is_home(m);
    if (pinned || (member_is_helper(m) && pool_lives_others_do(pool))) {
        if (!deaths_add(&m->deaths, well_ns, &pause_ms))
            pause_ms = HELPERS_PAUSE_MS;
        m->restarts++;
        m->attempts++;
        member_become(m, WORKER_WAITING);
        uv_timer_start(&m->backoff, pool_lives_on_backoff, pause_ms, 0);
        return;
    }
    /* Whose pool is being made cannot hear yet that it broke: the next attempt, at once, will tell.
     */
    if (pool->made &&
        (pool_lives_has_lost_host(pool) || !deaths_add(&m->deaths, well_ns, &pause_ms))) {
        pool_lives_give_up(m, cause);
        return;
    }
    m->restarts++;
    member_become(m, WORKER_WAITING);
    uv_timer_start(&m->backoff, pool_lives_on_backoff, pause_ms, 0);
}

/* How long it did what it should: until now, or until it got the task that it is at. */
static uint64_t pool_lives_was_well(struct member *m)
{
    if (m->state != WORKER_READY || m->open_error.code)
        return 0;
    return (in_flight(m) > 0 ? m->front_since : uv_hrtime()) - m->ready_since;
}

/* What it had would only wait for the others there to be lost as well, one after the other. */
static void pool_lives_doubt_others(const struct member *m)
{
    const uint64_t until = uv_hrtime() + HELPERS_PAUSE_MS * 1000000;

    for (uint32_t i = 0; member_is_helper(m) && m->state == WORKER_READY && i < m->pool->n_members;
         i++) {
        struct member *other = m->pool->members[i];

        if (other != m && member_is_helper(other) && other->helper &&
            strcmp(other->helper, m->helper) == 0)
            other->doubted_until = until;
    }
}

void member_lose(struct member *m, const char *cause, bool replace)
{
    struct pool *pool = m->pool;
    uint64_t well_ns = pool_lives_was_well(m);

    if (m->state == WORKER_READY && in_flight(m) == 0 && !m->open_error.code &&
        python_in_turn(pool->o.spec) && pool->o.spec->retries == 0) {
        free(m->death_cause);
        m->death_cause = must_strdup(cause);
    }
    if (m->state == WORKER_READY && m->timed_out && !pool->hung_since)
        pool->hung_since = m->front_since;
    m->opens = m->timed_out = m->hangs = m->condemned = m->to_ring = m->moves = false;
    m->killed_since = 0;
    m->doubted_until = 0;
    member_give_tasks_back(m, cause);
    member_retire_all(m);
    if (pool->broken)
        member_become(m, WORKER_GIVEN_UP);
    else if (replace)
        pool_lives_restart_later(m, well_ns, cause);
    else
        pool_lives_give_up(m, cause);
    m->open_error.code = 0;
    member_look_no_more(m);
    pool_let_open(pool);
    pool_changed(pool);
}

void member_name_kill(const struct member *m, char *text, size_t len)
{
    double timeout = (double)m->pool->o.spec->timeout_ns / 1e9;
    const char *task = "its task took longer than workers.timeout";
    const char *opening = "opening the dataset again took far longer than workers.timeout";
    int n =
        snprintf(text, len, "worker %u (pid %d) was killed", m->number, process_pid(m->process));

    if (m->hangs && n > 0 && (size_t)n + 2 < len) {
        memcpy(text + n, ": ", 3);
        member_name_opening(m, text + n + 2, len - (size_t)n - 2);
    } else if (m->timed_out && n > 0 && (size_t)n < len)
        snprintf(text + n, len - (size_t)n, ": %s (%g s)",
                 m->state == WORKER_STARTING ? opening : task, timeout);
}

/* Why, for the log; `text`: what became of the process. */
static const char *pool_lives_name_why(const struct member *m, const char *text, char *ret,
                                       size_t len)
{
    const struct dl_error *err = &m->open_error;

    if (!err->code)
        return text;
    if (!m->helper)
        return err->message;
    snprintf(ret, len, "worker %u at helper %s: %s%s%s", m->number, m->helper, err->path,
             *err->path ? ": " : "", err->message);
    return ret;
}

static void pool_lives_on_process_exited(void *owner, int signal, const char *cause)
{
    struct member *m = owner;
    const struct pool *pool = m->pool;
    char text[1024], why[2048];
    /* Of a helper that stays of no use it was said before, and that C lacks something, too. */
    bool again = (m->helper && m->deaths.count >= DEATHS_MAX) || m->open_error.code == ENOSYS;

    member_collect(m);
    snprintf(text, sizeof text, "%s", cause);
    if (m->timed_out && signal)
        member_name_kill(m, text, sizeof text);
    if (!pool->broken)
        log_about(again ? LOG_DEBUG : LOG_WARNING,
                  &(struct log_fields){LOG_EVENT_WORKER_DIED, .loader = pool->o.spec->name,
                                       .worker = LOG_N(m->number),
                                       .worker_pid = LOG_N(process_pid(m->process)),
                                       .client_uid = LOG_N(quota_uid(pool->o.account))},
                  "%s: %s", pool->o.spec->name, pool_lives_name_why(m, text, why, sizeof why));
    m->process = process_free(m->process);
    pool_lives_doubt_others(m);
    member_lose(m, text, true);
}

static const struct process_events process_events = {.opening = pool_lives_on_process_opening,
                                                     .indexed = pool_indexes_on_indexed,
                                                     .ready = pool_lives_on_process_ready,
                                                     .failed = pool_lives_on_process_failed,
                                                     .mapped = pool_lives_on_process_mapped,
                                                     .looked = pool_look_on_looked,
                                                     .completed = member_on_completed,
                                                     .exited = pool_lives_on_process_exited};

static struct process_options pool_lives_options(struct member *m)
{
    const struct pool *pool = m->pool;

    return (struct process_options){
        .loop = pool->o.loop,
        .path = pool->o.config->worker,
        .hosts = pool->o.hosts,
        .remotes = spec_is_remote(&pool->o.spec->dataset) ? pool->o.remotes : NULL,
        .loader = pool->loader,
        .python = pool->o.python,
        .number = m->number,
        .workers = pool->size - pool->o.helpers,
        .spec = {.data = pool->spec.data, .len = pool->spec.len},
        .roots = {.data = pool->roots.data, .len = pool->roots.len},
        .seen_as = {.data = pool->seen_as.data, .len = pool->seen_as.len},
        .plugins = {.data = pool->plugins.data, .len = pool->plugins.len},
        .pictures = pool->o.pictures,
        .indexes = &pool->indexes,
        .cache = pool->o.config->cache.dir,
        .config = pool->o.config,
        .helper = m->helper,
        .sandbox = pool_lives_sandbox_of(pool),
        .foreign = pool->o.foreign,
        .reader = pool->o.reader,
        .label = pool->o.spec->name,
        .uid = quota_uid(pool->o.account),
        .events = &process_events,
        .owner = m,
    };
}

void member_open(struct member *m)
{
    struct process_options options = pool_lives_options(m);

    assert(m->state == WORKER_STARTING && !m->opens);
    options.looks = pool_look_first(m);
    m->opens = true;
    m->started_since = uv_hrtime();
    process_open(m->process, &options);
    member_goes_on(m);
    pool_watch(m->pool);
}

void member_start(struct member *m)
{
    struct pool *pool = m->pool;
    struct dl_error err = {0};

    if (member_is_pinned(m))
        (void)member_choose_helper(m); /* if nobody is there, it begins here */
    else if (member_is_helper(m) && !member_choose_helper(m)) {
        uv_timer_start(&m->backoff, pool_lives_on_backoff, HELPERS_PAUSE_MS, 0);
        return;
    }
    const struct process_options options = pool_lives_options(m);
    member_become(m, WORKER_STARTING);
    if (process_start(&options, &m->process, &err) < 0) {
        m->open_error = err;
        log_about(LOG_ERROR,
                  &(struct log_fields){LOG_EVENT_WORKER_UNSTARTED, .loader = pool->o.spec->name,
                                       .worker = LOG_N(m->number),
                                       .client_uid = LOG_N(quota_uid(pool->o.account))},
                  "%s: %s", pool->o.spec->name, err.message);
        pool_lives_restart_later(m, 0, err.message);
    }
    pool_let_open(pool);
}
