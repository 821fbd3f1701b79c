/* What fake_cuda.c notes; fake_cuda_notes() of the loaded library gives it. */
#ifndef DL_TEST_FAKE_CUDA_H
#define DL_TEST_FAKE_CUDA_H

#include <stddef.h>

struct fake_cuda {
    int inits, pushed, retained, registered;
    int strangers;   /* contexts pushed that were not to be */
    int has_context; /* set by the test: the thread has one */
    void *base;      /* of the last registration */
    size_t bytes;
    unsigned flags;
};

struct fake_cuda *fake_cuda_notes(void);

#endif
