#include "daemon/base/lookup.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <uv.h>

/* Shared by the caller and the thread; the last one frees it. */
struct lookup {
    uv_mutex_t lock;
    uv_cond_t answered;
    unsigned users;
    bool done;
    int r;
    char *path; /* owned */
    char resolved[PATH_MAX];
};

/* Unlocks it. */
static void lookup_leave(struct lookup *lookup)
{
    bool last = --lookup->users == 0;

    uv_mutex_unlock(&lookup->lock);
    if (!last)
        return;
    uv_cond_destroy(&lookup->answered);
    uv_mutex_destroy(&lookup->lock);
    free(lookup->path);
    free(lookup);
}

static int lookup_now(const char *path, char ret[PATH_MAX])
{
    struct stat st;

    if (!realpath(path, ret) || stat(ret, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static void lookup_in_thread(void *argument)
{
    struct lookup *lookup = argument;
    char resolved[PATH_MAX];
    int r = lookup_now(lookup->path, resolved);

    uv_mutex_lock(&lookup->lock);
    if (r == 0)
        memcpy(lookup->resolved, resolved, sizeof resolved);
    lookup->r = r;
    lookup->done = true;
    uv_cond_signal(&lookup->answered);
    lookup_leave(lookup);
}

/* Signals are the loop's. */
static bool lookup_start(struct lookup *lookup, uv_thread_t *ret)
{
    sigset_t all, before;

    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = uv_thread_create(ret, lookup_in_thread, lookup);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r == 0;
}

static void lookup_wait(struct lookup *lookup)
{
    uint64_t end = uv_hrtime() + LOOKUP_MS * UINT64_C(1000000);

    for (uint64_t now = uv_hrtime(); !lookup->done && now < end; now = uv_hrtime())
        (void)uv_cond_timedwait(&lookup->answered, &lookup->lock, end - now);
}

int lookup_directory(const char *path, char ret[PATH_MAX])
{
    struct lookup *lookup = must_alloc(sizeof *lookup);
    uv_thread_t thread;

    if (uv_mutex_init(&lookup->lock) < 0 || uv_cond_init(&lookup->answered) < 0)
        abort(); /* without memory, as must_alloc() */
    lookup->path = must_strdup(path);
    lookup->users = 2;
    bool started = lookup_start(lookup, &thread);
    uv_mutex_lock(&lookup->lock);
    if (started) {
        lookup_wait(lookup);
    } else {
        lookup->users--;
        lookup->r = lookup_now(path, lookup->resolved);
        lookup->done = true;
    }
    bool done = lookup->done;
    int r = done ? lookup->r : -ETIMEDOUT;
    if (r == 0)
        memcpy(ret, lookup->resolved, PATH_MAX);
    lookup_leave(lookup);
    if (started && done)
        (void)uv_thread_join(&thread); /* it is at its end */
    return r;
}
