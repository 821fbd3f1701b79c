#include "daemon/serve/loader/crew.h"

#include "daemon/base/blame.h"
#include "daemon/base/memory.h"
#include "daemon/serve/loader/crew_turns.h"

#include <assert.h>

#include <uthash.h>
#include <utlist.h>

struct crew_user {
    UT_hash_handle hh; /* crew.users, by uid */
    struct crew *crew;
    uint32_t uid;
    struct crew_place place;  /* which waits while `waiting` is not empty */
    struct crew_job *waiting; /* borrowed (utlist) */
};

struct crew {
    uv_loop_t *loop;
    struct crew_turns turns;
    struct crew_user *users; /* those with jobs */
};

struct crew *crew_new(uv_loop_t *loop, uint32_t threads)
{
    struct crew *crew = must_alloc(sizeof *crew);

    crew->loop = loop;
    crew->turns = (struct crew_turns){.threads = threads, .limit = CREW_JOBS};
    return crew;
}

void crew_set_limit(struct crew *crew, uint64_t jobs)
{
    crew->turns.limit = max_u64(jobs, 1);
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
    BLAMING(job->blame);

    job->run(job);
}

static void crew_on_done(uv_work_t *work, int status);

/* The job no longer waits: a thread takes it, or it was cancelled. */
static void crew_take_out(struct crew_user *user, struct crew_job *job)
{
    DL_DELETE(user->waiting, job);
    job->waits = false;
    if (!user->waiting)
        crew_turns_wait_no_more(&user->crew->turns, &user->place);
}

/* Starts no more jobs than there are threads, so that later ones do not wait in libuv's queue. */
static void crew_put_to_work(struct crew *crew)
{
    struct crew_place *place;

    while ((place = crew_turns_next(&crew->turns))) {
        struct crew_user *user = container_of(place, struct crew_user, place);
        struct crew_job *job = user->waiting;

        crew_take_out(user, job);
        int r = uv_queue_work(crew->loop, &job->work, crew_on_run, crew_on_done);
        assert(r == 0);
    }
}

static void crew_let_go(struct crew_user *user)
{
    if (user->place.running > 0 || user->waiting)
        return;
    HASH_DEL(user->crew->users, user);
    free(user);
}

static void crew_on_done(uv_work_t *work, int status)
{
    struct crew_job *job = container_of(work, struct crew_job, work);
    struct crew_user *user = steal_ptr(job->user);
    struct crew *crew = user->crew;
    BLAMING(job->blame);

    assert(status == 0 && !job->waits); /* libuv's work is never cancelled */
    crew_turns_end(&crew->turns, &user->place);
    crew_let_go(user);
    crew_put_to_work(crew);
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
    crew_turns_wait(&crew->turns, &user->place);
    crew_put_to_work(crew);
}

bool crew_cancel(struct crew_job *job)
{
    if (!job->waits)
        return false;
    struct crew_user *user = steal_ptr(job->user);
    crew_take_out(user, job);
    crew_let_go(user);
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
    return (struct crew_share){.running = user->place.running, .waiting = waiting};
}
