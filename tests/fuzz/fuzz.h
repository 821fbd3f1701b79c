/*
 * What a harness is: one function over bytes, which must return 0 and leave nothing behind. Linked
 * with libFuzzer it is fuzzed; linked with replay.c it runs over its corpus as an ordinary test.
 * FUZZ_ASSERT states what must hold for every input; it stays in all builds.
 */
#ifndef DL_FUZZ_H
#define DL_FUZZ_H

#include "proto/common/base.h"
#include <stdio.h>

#define FUZZ_ASSERT(condition)                                                            \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#endif
