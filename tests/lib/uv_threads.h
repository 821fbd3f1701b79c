/* libuv's worker threads keep a descriptor of their own from their first use on. */
#ifndef DL_TEST_UV_THREADS_H
#define DL_TEST_UV_THREADS_H

#include "tests/lib/harness.h"

#include <stdlib.h>
#include <uv.h>

static inline void uv_threads_nothing(uv_work_t *work)
{
    (void)work;
}

/* Uses them before harness_begin() counts descriptors. */
BEFORE_TESTS
{
    uv_work_t work;
    uv_loop_t loop;

    if (uv_loop_init(&loop) < 0 || uv_queue_work(&loop, &work, uv_threads_nothing, NULL) < 0)
        abort();
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

#endif
