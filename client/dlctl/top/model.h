/*
 * What `dlctl top` shows, whatever it looks like: the daemon's views at one time, and those of the
 * look before, become rows with rates, shares and the time that is left. Pure: the time comes in.
 *
 * Views are another process's word: a key that is missing or of another type is a number that is
 * not known, and never a failure. Numbers that are not known are NAN, texts NULL or "".
 */
#ifndef DLCTL_TOP_MODEL_H
#define DLCTL_TOP_MODEL_H

#include "proto/value.h"

/* The views that a model is made of, in this order. */
enum { TOP_VIEWS = 5 };
extern const char *const top_views[TOP_VIEWS];

/* Where a row belongs, and what orders it. All texts of a model are borrowed from its views. */
struct top_place {
    const char *loader;
    uint64_t uid;    /* the loader's user: others may have one of that name */
    const char *job; /* "" where there is none */
    uint64_t epoch;
    uint64_t number; /* of the rank or the worker */
    bool idle;       /* nobody reads it: it stands behind all others */
    double by;       /* what rows are sorted by, the greatest first; NAN: last */
};

/* Slots of the ring by what they are in. Others are free. */
enum top_slots { TOP_LEASED, TOP_READY, TOP_FILLING, TOP_FREE, TOP_SLOTS };

struct top_loader {
    struct top_place at;
    const char *state, *verdict;
    uint64_t batches, samples, bytes; /* delivered so far */
    double batches_per_s, samples_per_s, bytes_per_s;
    uint64_t faults, retries, bad;
    uint64_t memory, limit;
    uint64_t slots[TOP_SLOTS];
    double wait;    /* mean of those of its ranks */
    double cpu;     /* of all its workers */
    double padding; /* of all its ranks */
};

/* All ranks of this daemon that read one epoch. */
struct top_epoch {
    struct top_place at;
    uint64_t world, ranks;
    double done, steps; /* of all of them; steps may be NAN */
    double steps_per_s;
    double left_s; /* of the last rank */
};

struct top_rank {
    struct top_place at;
    const char *state;
    uint64_t session, world, step;
    double steps; /* NAN: nobody knows */
    bool held_up; /* by another rank */
    uint64_t running, ready, leased, pinned, samples, tokens, padded;
    double age_s, waited_s;
    double wait; /* the share of the time since the look before, or else since it began */
    double steps_per_s, samples_per_s;
    double steady_per_s; /* steps, over the last ten seconds or so: what the time left is by */
    double left_s, padding;
};

struct top_worker {
    struct top_place at;
    const char *state;
    const char *samples; /* that it is at; NULL: none */
    double pid, step;
    uint64_t queued, tasks, restarts;
    double cpu_s, cpu; /* 1: one core, all the time since the look before */
    double memory, tasks_per_s;
};

struct top_model {
    struct value views[TOP_VIEWS]; /* owned */
    double at_s;
    const char *version, *state;
    double uptime_s;
    uint64_t pid, sessions, memory;
    struct top_loader *loaders; /* these owned, too */
    struct top_epoch *epochs;
    struct top_rank *ranks;
    struct top_worker *workers;
    uint32_t n_loaders, n_epochs, n_ranks, n_workers;
};

/*
 * Takes over what `views` hold, at `at_s` of a clock that never goes back; `before` may be NULL,
 * and is of the same daemon's. Rows stand by name. -ENOMEM.
 */
int _nodiscard_ top_model_make(struct value views[static TOP_VIEWS], double at_s,
                               const struct top_model *before, struct top_model **ret);
struct top_model *top_model_free(struct top_model *model);

enum top_sort {
    TOP_BY_NAME,
    TOP_BY_RATE,
    TOP_BY_WAIT,
    TOP_BY_CPU,
    TOP_BY_MEMORY,
    TOP_BY_ERRORS,
    TOP_SORTS,
};
const char *top_sort_name(enum top_sort sort);

/* What nobody reads comes last, whichever way. Rows that have no such figure stand by name. */
void top_model_sort(struct top_model *model, enum top_sort sort, bool reverse);

/* The same as a mapping, for programs; only what is of the loader `pick`, if that is not NULL.
 * -ENOMEM. */
int _nodiscard_ top_model_value(const struct top_model *model, const char *pick, struct value *ret);

#endif
