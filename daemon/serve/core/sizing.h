/*
 * How many workers each loader has where its spec leaves that to the daemon (workers.count: auto).
 * Pure: measures of all loaders and the time come in, numbers of workers come out.
 *
 * What a loader needs follows from what it did: a batch takes a worker `cost`, less what it waited
 * for a processor, and trainers would take `rate / (1 - share of the time that they wait)`; the
 * product is the number of workers that are busy if nobody waits. Trainers that always wait could
 * take any number.
 *
 * Batches that workers on other machines make count for the rate, and not for the cost: a loader
 * has as many of its own as it would need without those, as far as there are processors, since
 * these are nearer.
 *
 * Workers are given where one more gains most: to the loader whose rate grows by the largest factor
 * for its share of a processor, as long as it waits and there are processors (`cpus`) for it. One
 * that waits for storage, or sleeps, hardly takes a processor, and so gets more of them.
 * The factor counts as much as the weight of the loader: of two that would take any number, one of
 * twice the weight gets twice as many. Loaders of a user have its weight together: one that opens
 * many gets no more than one that opens one.
 *
 * It stands still where it should:
 *
 *   - more are only given to a loader whose trainers wait, and taken from one that has not needed
 *     them for a while, or at once if another can use the processor;
 *   - more that gained nothing, since the disk or a lock was short, are taken back, and not tried
 *     again for a time that doubles;
 *   - fewer that made trainers wait are given back, and not taken again for a time that doubles;
 *   - a loader that is read no more keeps one for a while, then none, and gets the others back when
 *     it is read again.
 *
 * Workers whose trainers wait, and which have nothing to do themselves, have no room: what they
 * made waits for a batch that is due before. They get further ahead before there are more of them,
 * which is tried likewise. Those that compute and wait in turn leave processors idle now and then,
 * even if they take as many as there are on average; so there are more. Where no other loader is
 * read, twice as many as processors are tried in any case: all that they cost is memory. Of several
 * loaders, one whose workers also wait gets one more if it gains more by that than all together
 * lose by the processor that it takes.
 */
#ifndef DL_SIZING_H
#define DL_SIZING_H

#include "proto/spec.h"

enum {
    SIZING_FIRST = SPEC_WORKERS_AT_FIRST,
    SIZING_PER_CPU = 16, /* the most of one loader, for each processor */
    SIZING_WORDS = 1024,
    SIZING_TINY = 64 << 10, /* bytes of a slot; of such batches */
    SIZING_DEEP = 16,       /* batches loaded ahead for each worker; */
    SIZING_FURTHER = 4,     /* of others, where workers wait for room */
};
#define SIZING_TICK_NS ((uint64_t)500 * 1000000)

/* What a loader did since the last time. */
struct sizing_measure {
    uint64_t ns;          /* so long ago that was */
    uint64_t span_ns;     /* its trainers read it, all together */
    uint64_t waited_ns;   /* of it: they waited */
    uint64_t batches;     /* that its workers made, */
    uint64_t away;        /* of these, workers on other machines, */
    uint64_t away_ns;     /* which that took so long */
    uint64_t busy_ns;     /* this machine's were at the others, all together; */
    uint64_t cpu_ns;      /* used processors, */
    uint64_t cpu_wait_ns; /* and waited for one */
};

/* Why the number is what it is. */
enum sizing_reason {
    SIZING_NEW,      /* it has only begun */
    SIZING_ENOUGH,   /* its trainers do not wait */
    SIZING_MORE,     /* they do, and one more or several help */
    SIZING_AHEAD,    /* they do, and its workers have no room */
    SIZING_LESS,     /* it had more than it needed */
    SIZING_NO_GAIN,  /* more did not help */
    SIZING_NO_CPU,   /* all processors are in use */
    SIZING_NO_MORE,  /* it has as many as it may */
    SIZING_NOT_READ, /* nobody reads it */
    SIZING_GAVE,     /* another loader of its user needed some */
};

/* What is remembered of a loader; embedded. All zero: nothing. */
struct sizing {
    enum sizing_reason reason;
    bool measured;
    double wait;          /* share of the time, 0 to 1; these are means of the last seconds: */
    double rate;          /* batches in a second */
    double cost_s, cpu_s; /* of a batch: of a worker without waits for a processor, of processors */
    double idle;          /* share of its workers' time in which they have nothing to do */
    double need;          /* workers; SIZING_ANY: any number would be used */
    uint32_t before;      /* workers, until they were changed last, */
    uint64_t changed_ns;  /* then; 0: never */
    uint32_t settling;    /* looks to pass over after a change */
    uint32_t more, fewer; /* so often in a row, more or fewer were due */
    uint32_t trial_from;  /* more are tried: the number before; 0: no trial, */
    uint64_t trial_batches; /* that came since, */
    uint32_t trial_looks;   /* looks since, */
    double trial_rate;      /* and this was the rate then, */
    double trial_wait;      /* and the share */
    double trial_most;      /* the factor by which they can make it faster, at most */
    uint32_t trial_ahead; /* being further ahead is tried, not more workers: it was so far; or 0 */
    uint64_t ahead_until; /* it gained nothing, until then; ns */
    uint64_t ahead_hold;
    uint32_t ceiling;       /* more gained nothing, */
    uint64_t ceiling_until; /* until then; ns */
    uint64_t ceiling_hold;
    uint32_t floor;       /* fewer made trainers wait, */
    uint64_t floor_until; /* until then */
    uint64_t floor_hold;
    uint32_t fallen_from; /* the number before there were fewer; 0: it is long ago */
    uint32_t when_read;   /* workers that it had when it was read last */
    uint64_t read_ns;     /* when that was */
};

#define SIZING_ANY 1e9

struct sizing_case {
    struct sizing *sizing; /* borrowed; NULL: its number is fixed */
    struct sizing_measure measure;
    double weight;    /* above 0; within its user's loaders that are read, */
    const void *user; /* only compared; NULL: the weight counts among all */
    double user_weight;
    double share;     /* of all weights: sizing_decide() sets it */
    bool read;        /* somebody does */
    uint32_t workers; /* that it should have by now */
    uint32_t ready;   /* of these */
    uint32_t least;   /* that it may have; 0: 1, or none while nobody reads it, */
    uint64_t rest_ns; /* after so long; 0: never */
    uint32_t most;
    uint32_t ahead; /* batches for each worker, at most */
    uint32_t ahead_most;
    uint32_t ret; /* workers that it should have from now on, */
    uint32_t ret_ahead;
};

/* Batches to load ahead for each worker, at least as many as the spec says. With two tiny ones all
 * that happens is that processes wake each other up; of large ones more only leave the caches. */
uint32_t sizing_prefetch(uint32_t least, uint64_t slot_bytes);

void sizing_decide(struct sizing_case *cases, size_t n, double cpus, uint64_t now);

/* Nobody reads it, and others need its workers: it is as if that had been so for a while. */
void sizing_yield(struct sizing *sizing, uint32_t workers);

/* It has none, and needs one: as if it had been read until now. */
void sizing_wake(struct sizing *sizing, uint64_t now);

/* It is read, and others need some of its workers more: it had so many. */
void sizing_give(struct sizing *sizing, uint32_t workers, uint64_t now);

/* Those that are tried do not come: as if they had gained nothing. */
void sizing_give_up(struct sizing_case *c, uint64_t now);

/* In words, with numbers: "5 workers, 2 until 12 s ago: trainers waited 43 % ...". Of the case: its
 * sizing, workers and ahead. */
void sizing_words(const struct sizing_case *c, double cpus, uint64_t now,
                  char ret[static SIZING_WORDS]);

#endif
