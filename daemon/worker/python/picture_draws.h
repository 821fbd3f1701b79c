/*
 * Draws from the generators of the process, as a worker of PyTorch's makes them: each is a call of
 * torch's (or Python's) own function, so the numbers, and the generators' states behind them, are
 * PyTorch's by construction, whichever its version and the processor.
 */
#ifndef DL_WORKER_PICTURE_DRAWS_H
#define DL_WORKER_PICTURE_DRAWS_H

#include "daemon/data/decode/transform/draws.h"
#include "daemon/worker/python/py.h"

enum { PICTURE_DRAWS_CALLS = 8 };

struct picture_draws {
    struct draws base;
    PyObject *calls;         /* borrowed: a tuple of PICTURE_DRAWS_CALLS functions, in this order:
                                uniform(low, high), integer(low, high), permutation(n) -> list,
                                normals(n) -> bytes of float32, choice(weights),
                                chosen(n, weights or None), shuffled(n) -> list,
                                perspective(from, to) -> 8 floats,
                                or an empty list */
    bool failed;             /* an exception is set; numbers are valid, and no more are drawn */
    PyThreadState *released; /* of the thread that runs without the GIL */
};

/* `calls` is checked: -1 with an exception. */
int picture_draws_init(struct picture_draws *draws, PyObject *calls);

/* What is between these two runs without the GIL; the draws take it. */
void picture_draws_release(struct picture_draws *draws);
void picture_draws_take_back(struct picture_draws *draws);

#endif
