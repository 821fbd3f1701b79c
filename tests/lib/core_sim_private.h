/* The inside of core_sim.h: the world that clients and workers play in. For its two files, and for
 * client_sim.c, whose client is libdlclient. */
#ifndef DL_CORE_SIM_PRIVATE_H
#define DL_CORE_SIM_PRIVATE_H

#include "tests/lib/core_sim.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

#define SIM_ASSERT(condition)                                                             \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold; seed %llu, event %llu\n", __FILE__, \
                    __LINE__, #condition, (unsigned long long)sim->seed,                  \
                    (unsigned long long)sim->totals->events);                             \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

enum {
    TASKS_MAX = 3, /* that a worker is given */
    STEP_SAMPLES = 4,
    STEPS_MAX = 256,
    HELD_MAX = 64, /* leases and pins of a client */
    TURNS_MAX = 10000,
};

#define SIM_MS    ((uint64_t)1000000)
#define LINGER_NS (1000 * SIM_MS)

/* What a client has in hand of a step. */
struct sim_held {
    uint64_t step;
    bool pinned, fault;
};

/* One epoch of a rank, as its client sees it. */
struct sim_pass {
    struct stream *stream; /* NULL: there is none */
    uint32_t rank;
    uint64_t epoch, first, next;
    const struct stream *source;  /* of a companion, when looked at last */
    uint64_t held_up, held_up_ns; /* since then; in all, by its source; 0: it is not */
    bool finished, stopped;
    uint32_t n_held;
    struct sim_held held[HELD_MAX];
    uint8_t came[STEPS_MAX]; /* steps that came, in this stream */
};

struct sim_task {
    struct step *step;
    struct segment *segment;
    uint32_t slot;
};

struct sim_worker {
    bool dead;
    uint32_t n_tasks;
    struct sim_task tasks[TASKS_MAX];
};

struct sim;

/* Who hears what the core says to clients, where those are not the naive ones. */
struct sim_ears {
    void (*step)(struct sim *sim, struct stream *stream, struct step *step, bool fault);
    void (*starves)(struct sim *sim, struct stream *stream, const struct dl_error *err);
    void (*finish)(struct sim *sim, struct stream *stream);
};

struct sim {
    const struct sim_rules *rules;
    const struct sim_ears *ears; /* NULL: its passes */
    struct sim_totals *totals;
    uint64_t seed, draws, now;
    const uint8_t *data;
    size_t len;
    struct core core;
    struct dl_spec spec;
    struct quota *quota;
    struct quota_account *account;
    struct segment *segments; /* owned list (utlist) */
    uint32_t n_segments, next_segment;
    struct sim_worker *workers;
    struct sim_pass *passes; /* of each rank */
    uint64_t *epochs;        /* that each rank is to start next */
    bool *failed;            /* [epoch % 4][step]: something failed there, for some rank */
    bool ending;             /* nobody begins anything any more */
};

/* Input that is used up goes on as zeroes: 0 is what happens mostly. */
uint32_t sim_draw(struct sim *sim, uint32_t below);
/* Rounds that a replica has, the same for all ranks. */
uint64_t sim_rounds(const struct sim *sim, uint64_t epoch, uint32_t replica);
/* Of the rank's batches, so many are one of those that companions share: 0, as it shares none. */
uint32_t sim_slices(const struct sim *sim, uint32_t rank);
/* Whether the step is one of the rank's; of a dispatched one, in the last round there are rows for
 * some ranks only. */
uint64_t sim_samples(const struct sim *sim, uint64_t epoch, uint64_t step);
bool sim_exists(const struct sim *sim, uint64_t epoch, uint32_t rank, uint64_t step);
/* The rank's first step from that one on; STEPS_MAX: there is none. */
uint64_t sim_next(const struct sim *sim, uint64_t epoch, uint32_t rank, uint64_t step);
bool *sim_failed(const struct sim *sim, uint64_t epoch, uint64_t step);
/* Each worker can have one, unless they grow. */
bool sim_add_segment(struct sim *sim, uint32_t worker);
/* Those of that worker, or (CORE_ANY) of all; `unused`: only where no slot is used. */
void sim_retire_segments(struct sim *sim, uint32_t worker, bool unused);
void sim_settle_segment(struct sim *sim, struct segment *segment);
void sim_slot(struct sim *sim, struct segment *segment, uint32_t slot, enum slot_event event);
/* Before the first event, and behind the last: nothing is left. */
void sim_begin(struct sim *sim);
void sim_close(struct sim *sim);
/* A worker does what comes next, or is not there for a while. */
void sim_work(struct sim *sim, uint32_t index);
/* All plans are worked out, and prepared. */
void sim_settle_all(struct sim *sim);
void sim_execute(struct sim *sim);
/* A plan is worked out at once, or some time later. */
struct stream *sim_add_stream(struct sim *sim, struct stream_params params);
void sim_pump(struct sim *sim);

#endif
