#include "daemon/serve/loader/crew.h"

#include "daemon/serve/base/blame.h"
#include "daemon/serve/base/memory.h"

#include <assert.h>

#include <uthash.h>
#include <utlist.h>

struct crew_user {
    UT_hash_handle hh; /* crew.users, by uid */
    struct crew *crew;
    uint32_t uid;
    uint32_t running;
    struct crew_job *waiting; /* borrowed (utlist) */
};

struct crew {
    uv_loop_t *loop;
    uint64_t limit;
    struct crew_user *users; /* who have jobs */
};

struct crew *crew_new(uv_loop_t *loop)
{
    struct crew *crew = must_alloc(sizeof *crew);

    crew->loop = loop;
    crew->limit = CREW_JOBS;
    return crew;
}

void crew_set_limit(struct crew *crew, uint64_t jobs)
{
    crew->limit = max_u64(jobs, 1);
}

struct crew *crew_free(struct crew *crew)
{
    if (!crew)
        return NULL;
    assert(!crew->users);
    free(crew);
    return NULL;
}

static void crew_on_run(uv_work_t *work)
{
    struct crew_job *job = container_of(work, struct crew_job, work);
    _cleanup_(blame_backp)
    _unused_ uint64_t before = blame_swap(job->blame);

    job->run(job);
}

static void crew_on_done(uv_work_t *work, int status);

/* As many as may run at the same time. */
static void crew_put_to_work(struct crew_user *user)
{
    while (user->waiting && user->running < user->crew->limit) {
        struct crew_job *job = user->waiting;

        DL_DELETE(user->waiting, job);
        job->waits = false;
        user->running++;
        int r = uv_queue_work(user->crew->loop, &job->work, crew_on_run, crew_on_done);
        assert(r == 0);
    }
}

static void crew_on_done(uv_work_t *work, int status)
{
    struct crew_job *job = container_of(work, struct crew_job, work);
    struct crew_user *user = steal_ptr(job->user);
    _cleanup_(blame_backp)
    _unused_ uint64_t before = blame_swap(job->blame);

    (void)status; /* nobody cancels it */
    user->running--;
    crew_put_to_work(user);
    if (user->running == 0) {
        HASH_DEL(user->crew->users, user);
        free(user);
    }
    job->done(job);
}

void crew_start(struct crew *crew, uint32_t uid, struct crew_job *job,
                void (*run)(struct crew_job *job), void (*done)(struct crew_job *job))
{
    struct crew_user *user;

    HASH_FIND(hh, crew->users, &uid, sizeof uid, user);
    if (!user) {
        user = must_alloc(sizeof *user);
        user->crew = crew;
        user->uid = uid;
        HASH_ADD(hh, crew->users, uid, sizeof user->uid, user);
    }
    *job = (struct crew_job){
        .user = user, .waits = true, .blame = blame_at(), .run = run, .done = done};
    DL_APPEND(user->waiting, job);
    crew_put_to_work(user);
}

bool crew_cancel(struct crew_job *job)
{
    if (!job->waits)
        return false;
    assert(job->user->running > 0); /* it waits for these */
    DL_DELETE(job->user->waiting, job);
    job->waits = false;
    job->user = NULL;
    return true;
}

struct crew_share crew_share_of(const struct crew *crew, uint32_t uid)
{
    const struct crew_user *user;
    const struct crew_job *job;
    uint64_t waiting;

    HASH_FIND(hh, crew->users, &uid, sizeof uid, user);
    if (!user)
        return (struct crew_share){0};
    DL_COUNT(user->waiting, job, waiting);
    return (struct crew_share){.running = user->running, .waiting = waiting};
}
