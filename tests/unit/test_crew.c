/* The loop's threads: one user's jobs leave some for others, and all are done in the end. */
#include "tests/lib/harness.h"
#include "tests/lib/uv_threads.h"

#include "daemon/serve/loader/crew.h"

enum { MANY = 10, ONE_USER = 1, ANOTHER = 2, THREADS = 4 /* that libuv makes */ };

struct job {
    struct crew_job job;
    unsigned number;
};

static struct play {
    uv_loop_t loop;
    struct crew *crew;
    struct job jobs[MANY], other;
    uv_sem_t go_on, full; /* as many run as may */
    uv_mutex_t lock;
    unsigned running, most, ran[MANY + 1], n_ran, n_done;
    bool other_done;
} play;

static void run(struct crew_job *job)
{
    struct job *j = container_of(job, struct job, job);

    uv_mutex_lock(&play.lock);
    if (++play.running > play.most)
        play.most = play.running;
    if (play.running == CREW_JOBS)
        uv_sem_post(&play.full);
    play.ran[play.n_ran++] = j->number;
    uv_mutex_unlock(&play.lock);
    uv_sem_wait(&play.go_on);
    uv_mutex_lock(&play.lock);
    play.running--;
    uv_mutex_unlock(&play.lock);
}

static void done(struct crew_job *job)
{
    (void)job;
    play.n_done++;
}

static void run_beside_all(struct crew_job *job)
{
    (void)job;
    uv_sem_wait(&play.full);
}

/* Somebody else's is done while all of the first user's are still waited for. */
static void other_done(struct crew_job *job)
{
    (void)job;
    assert_int_equal(play.n_done, 0);
    play.other_done = true;
    for (unsigned i = 0; i < MANY; i++)
        uv_sem_post(&play.go_on);
}

static void play_begin(void)
{
    play = (struct play){0};
    assert_int_equal(uv_loop_init(&play.loop), 0);
    assert_int_equal(uv_sem_init(&play.go_on, 0), 0);
    assert_int_equal(uv_sem_init(&play.full, 0), 0);
    assert_int_equal(uv_mutex_init(&play.lock), 0);
    play.crew = crew_new(&play.loop, THREADS);
}

static void play_end(void)
{
    assert_null(crew_free(play.crew));
    uv_mutex_destroy(&play.lock);
    uv_sem_destroy(&play.full);
    uv_sem_destroy(&play.go_on);
    assert_int_equal(uv_loop_close(&play.loop), 0);
}

TEST(test_shares)
{
    play_begin();
    for (unsigned i = 0; i < MANY; i++) {
        play.jobs[i].number = i;
        crew_start(play.crew, ONE_USER, &play.jobs[i].job, run, done);
    }
    crew_start(play.crew, ANOTHER, &play.other.job, run_beside_all, other_done);
    uv_run(&play.loop, UV_RUN_DEFAULT);
    assert_true(play.other_done);
    assert_int_equal(play.n_done, MANY);
    assert_int_equal(play.most, CREW_JOBS);
    for (unsigned i = 0; i < MANY;
         i++) /* in their order, but for those that run beside each other */
        assert_true(play.ran[i] <= i + CREW_JOBS - 1);
    play_end();
}

/* What waits for the user's others is over at once, and what a thread has is not. */
TEST(test_nobody_wants_it)
{
    unsigned waits = CREW_JOBS, last = CREW_JOBS + 1;

    play_begin();
    for (unsigned i = 0; i <= last; i++)
        crew_start(play.crew, ONE_USER, &play.jobs[i].job, run, done);
    uv_sem_wait(&play.full);
    assert_false(crew_cancel(&play.jobs[0].job));
    assert_true(crew_cancel(&play.jobs[waits].job));
    memset(&play.jobs[waits], 0xff, sizeof play.jobs[waits]); /* nobody looks at it any more */
    for (unsigned i = 0; i <= last; i++)
        uv_sem_post(&play.go_on);
    uv_run(&play.loop, UV_RUN_DEFAULT);
    assert_int_equal(play.n_done, last);
    assert_int_equal(play.n_ran, last);
    play_end();
}

/* limits.threads: with one, each is alone; and what its user has is known. */
TEST(test_one_at_a_time)
{
    play_begin();
    crew_set_limit(play.crew, 0); /* is one */
    for (unsigned i = 0; i < MANY; i++)
        crew_start(play.crew, ONE_USER, &play.jobs[i].job, run, done);
    struct crew_share share = crew_share_of(play.crew, ONE_USER);
    assert_int_equal(share.running, 1);
    assert_int_equal(share.waiting, MANY - 1);
    assert_int_equal(crew_share_of(play.crew, ANOTHER).running, 0);
    for (unsigned i = 0; i < MANY; i++)
        uv_sem_post(&play.go_on);
    uv_run(&play.loop, UV_RUN_DEFAULT);
    assert_int_equal(play.n_done, MANY);
    assert_int_equal(play.most, 1);
    assert_int_equal(crew_share_of(play.crew, ONE_USER).waiting, 0);
    play_end();
}
