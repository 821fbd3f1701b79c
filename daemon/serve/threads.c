#include "daemon/serve/threads.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"

#include <signal.h>
#include <stdlib.h>

const int threads_signals[THREADS_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

void threads_hold_signals(int how)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(threads_signals); i++)
        sigaddset(&set, threads_signals[i]);
    (void)pthread_sigmask(how, &set, NULL);
}

static void threads_do_nothing(uv_work_t *work)
{
    (void)work;
}

static void threads_wait(void *go)
{
    uv_sem_wait(go);
}

uint32_t threads_count(void)
{
    const char *text = getenv("UV_THREADPOOL_SIZE");
    long n = text ? strtol(text, NULL, 10) : 4;

    return n < 1 ? 1 : (uint32_t)min_u64((uint64_t)n, 1024);
}

/* Whether the loop's threads can be made: libuv aborts where one cannot, without a word. */
static int threads_try(void)
{
    uint32_t wanted = threads_count(), n = 0;
    _cleanup_free_ uv_thread_t *threads = must_alloc(wanted * sizeof *threads);
    uv_sem_t go;
    int r = uv_sem_init(&go, 0);

    if (r < 0)
        return r;
    while (r == 0 && n < wanted)
        if ((r = uv_thread_create(&threads[n], threads_wait, &go)) == 0)
            n++;
    for (uint32_t i = 0; i < n; i++)
        uv_sem_post(&go);
    for (uint32_t i = 0; i < n; i++)
        uv_thread_join(&threads[i]);
    uv_sem_destroy(&go);
    if (r < 0)
        log_error("cannot start %u threads: %s; raise the limit of processes (ulimit -u, "
                  "pids.max of the control group, or LimitNPROC= and TasksMax= of the unit)",
                  wanted, uv_strerror(r));
    return r;
}

int threads_make(uv_loop_t *loop, uv_work_t *work)
{
    threads_hold_signals(SIG_BLOCK);
    int r = threads_try();
    if (r == 0)
        (void)uv_queue_work(loop, work, threads_do_nothing, NULL);
    threads_hold_signals(SIG_UNBLOCK);
    return r;
}
