/*
 * Runs two or three threads in every order, and lets each load return every value that C11's memory
 * model allows it, whatever processor is below: a program's way of finding what x86 never shows.
 *
 * The code under test is compiled with model_atomics.h, by which its atomic operations, and copies
 * by memcpy() from and to shared memory, come here. A thread is a function that is begun anew for
 * each of its operations and is given the results of those before: it keeps nothing but its own
 * variables, and writes its findings to memory that is not shared.
 *
 * The model: of each atomic object all writes are kept, in their order of modification, each with
 * what its writer knew if it was a release. A load returns any write that is not older than one its
 * thread knows of; an acquire learns what the writer knew. A write may be put before others that
 * its thread does not know of, but for reads-modify-writes, which stand right behind what they
 * read. A seq_cst operation also knows of the last seq_cst write of its object. A plain access that
 * does not know of another thread's accesses to the same bytes is a race, which fails.
 *
 * Not in the model: loads that return what is stored later (compilers and processors may do that
 * with relaxed ones), fences, weak compare-and-swaps that fail for no reason, mixed sizes.
 */
#ifndef TESTS_MEMORY_MODEL_H
#define TESTS_MEMORY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_THREADS = 3 };

struct model_scenario {
    const char *name;
    void *shared; /* its first contents are those when the run begins */
    size_t bytes;
    unsigned threads;
    void (*run[MODEL_THREADS])(void);
    /* When all have ended, in each way they can. False: that must not be. */
    bool (*holds)(void);
};

/* An order that is replaced where a thread asks for it. */
struct model_weaker {
    int thread;
    const void *object; /* NULL: any */
    int order, instead;
};

struct model_result {
    const char *why; /* NULL: all holds */
    uint64_t states, ends;
};

struct model_result model_run(const struct model_scenario *scenario,
                              const struct model_weaker *weaker);

/* ---- what the code under test calls --------------------------------------------------------- */

uint64_t model_load(const void *object, size_t bytes, int order);
void model_store(void *object, size_t bytes, uint64_t value, int order);
uint64_t model_add(void *object, size_t bytes, uint64_t value, int order);
uint64_t model_or(void *object, size_t bytes, uint64_t value, int order);
uint64_t model_exchange(void *object, size_t bytes, uint64_t value, int order);
bool model_compare_exchange(void *object, size_t bytes, uint64_t *expected, uint64_t value,
                            int order, int otherwise);
/* Shared or not; of what is shared the first bytes have a value, the others are zero. */
void *model_copy(void *to, const void *from, size_t bytes);

/* A counter of the kernel's, whose calls order as acquire and release: to wait is to take it all,
 * once it is not zero. When all that are left wait, the run fails. */
void model_ring(void *bell);
void model_wait(void *bell);

#endif
