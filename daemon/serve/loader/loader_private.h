/*
 * The inside of a loader, shared by the files that it is made of. Nobody else includes it.
 *
 *   loader.c            its life: opening, users, what it is asked; breaking and closing
 *   loader_streams.c    the streams that read from it
 *   loader_jobs.c       ranks that agree, clients that come back
 *   loader_pump.c       one turn after another: deliver, then schedule
 *   loader_deliver.c    which batch is due
 *   loader_schedule.c   which step is loaded next
 *   loader_tasks.c      what becomes of the tasks that these steps are
 *   loader_dispatch.c   batches of all ranks
 *   loader_measure.c    lengths, before it is open
 *   loader_starving.c   who waits for memory
 *   loader_verdict.c    where the time goes
 *   loader_headspace.c  what a faster one would be worth
 *   loader_words.c      what a step is called
 */
#ifndef DL_LOADER_PRIVATE_H
#define DL_LOADER_PRIVATE_H

#include "daemon/serve/loader/epoch.h"
#include "daemon/serve/loader/length_table.h"
#include "daemon/serve/loader/loader.h"
#include "daemon/serve/loader/positions.h"
#include "daemon/serve/ring/roll.h"
#include "proto/verdict.h"

enum loader_state { LOADER_OPENING, LOADER_OPEN, LOADER_BROKEN };

struct measuring;
struct loader_headspace;

struct loader {
    struct loader_options o;
    struct dl_spec spec; /* owned */
    enum loader_state state;
    struct dl_error why_broken;
    struct pool *pool;              /* owned */
    struct loader_user *users;      /* borrowed list */
    struct stream *streams;         /* owned list, in the order of service */
    struct step *waiting;           /* steps to run again (utlist), borrowed from their streams */
    struct dispatcher *dispatchers; /* owned list */
    struct epoch_set epochs;
    uv_timer_t end;  /* linger, or the end of a broken loader */
    uint64_t length; /* samples; UINT64_MAX: iterable, and not known */
    bool iterable;
    bool leaps;                   /* the dataset passes over samples without making them */
    bool in_turn;                 /* step s is made by worker s mod workers: python_in_turn() */
    struct measuring *measuring;  /* owned; while lengths are taken */
    struct length_table *lengths; /* counted; from loader_measure() on, complete once it is open;
                                   * NULL without batch.tokens */
    uint64_t first_slot_bytes;    /* what one rank's batch was thought to take at first */
    uint32_t streams_made;
    uint64_t fingerprint;
    struct state_identity identity; /* whole once it is open */
    struct loader_totals totals;
    struct timing timing; /* of the streams that are gone */
    struct trace trace;
    uint64_t now;         /* ns; of the pump that goes on */
    struct recent marked; /* its time, and what was then */
    struct recent recently[STAGES], recently_delivered;
    char verdict[VERDICT_LATEST_MAX]; /* when a stream was last read, or left; "": none was */
    char starving[sizeof(((struct dl_error *)NULL)->path)]; /* the setting that streams starve by */
    struct quarantine
        quarantine;            /* of samples in delivered batches, or in those that could not be */
    struct stream_params last; /* the stream started last */
    struct positions positions;
    struct roll_book rolls;             /* of dispatched epochs that all ranks have left */
    uint32_t parked;                    /* of the streams */
    bool expecting;                     /* epochs have followed each other so far */
    struct loader_headspace *headspace; /* owned; while it is measured */
    bool starved; /* when work was handed out last, there was no memory for what is asked for */
    bool starves; /* and nothing else was there for somebody who reads */
    bool pumping;
    bool halted;  /* nothing more is loaded or delivered */
    bool faulted; /* while work was handed out: there is something to deliver */
    bool gone;    /* the registry was told */
};

/* ---- loader.c ------------------------------------------------------------------------------- */

void loader_opened(struct loader *loader); /* it is: whoever waits is told */
void loader_break(struct loader *loader, const struct dl_error *err);

/* ---- loader_streams.c ----------------------------------------------------------------------- */

/* Completed parameters; 0 or negative with `err`. */
int _nodiscard_ loader_add_stream(struct loader *loader, struct stream_params *params,
                                  struct stream **ret, struct dl_error *err);
/* Tells how far the stream goes, if that is known now and was not before. May end it. */
void loader_plan(struct loader *loader, struct stream *stream);
/* What of the stream is not yet delivered never will be. */
void loader_drop_steps(struct loader *loader, struct stream *stream);
/* The same of one step, in whatever state; what is leased stays. */
void loader_drop_step(struct loader *loader, struct stream *stream, struct step *step);
/* The stream of that rank and epoch that a client has, or (`expected`) that nobody has yet. */
struct stream *loader_find_stream(struct loader *loader, uint64_t epoch, uint64_t rank,
                                  uint64_t world, bool expected);
/* A stream that has planned its last step makes room for the next epoch's first. */
void loader_expect_next(struct loader *loader, const struct stream *stream);
/*
 * Drops expected streams: all, or those of a rank that starts another epoch `instead`, which shows
 * that the guess was wrong. True if there was any.
 */
bool loader_drop_expected(struct loader *loader, const struct stream_params *instead);

/* ---- loader_jobs.c -------------------------------------------------------------------------- */

/* Where the rank goes on, for EPOCH_RESUME, and whether it agrees with others. */
int _nodiscard_ loader_agree(struct loader *loader, struct stream_params *params,
                             struct dl_error *err);
/* The parked stream that goes on just there, or NULL. Others of this rank, up to that epoch, and of
 * ranks of another world are dropped. */
struct stream *loader_take_parked(struct loader *loader, const struct stream_params *params);
void loader_note_start(struct loader *loader, const struct stream_params *params);
/* The stream is about to stop, by its client's will. */
void loader_note_stop(struct loader *loader, const struct stream *stream);
/* Drops parked streams: the one that was parked first, or all; true if there was any. */
bool loader_drop_parked(struct loader *loader, bool all);
void loader_expire_parked(struct loader *loader);

/* ---- loader_tasks.c ------------------------------------------------------------------------- */

extern const struct pool_events loader_pool_events;

/* The step will never be a batch, and its client is told so in its place. */
void loader_fault(struct loader *loader, struct step *step, int code, const char *what);
/* The step is READY or RUNNING, and its slot not its own. */
void loader_run_again(struct loader *loader, struct step *step);

/* ---- loader_schedule.c ---------------------------------------------------------------------- */

/* Hands out all that can be. */
void loader_schedule(struct loader *loader);
/* It has nothing to do for anybody who reads, and can do nothing. */
bool loader_is_full(struct loader *loader);

/* ---- loader_deliver.c ----------------------------------------------------------------------- */

/* Hands on what of the stream is due. */
void loader_deliver(struct loader *loader, struct stream *stream);
/*
 * Counts what is bad in a batch that is due, and tells the stream of it: here, and not when it was
 * made, so that the same one is the first to be too many. False: it is, and the step has become a
 * fault. The batch of a source is counted once, for the rank that takes it first.
 */
bool _nodiscard_ loader_admit(struct loader *loader, struct stream *stream, struct step *step);

/* ---- loader_pump.c -------------------------------------------------------------------------- */

/* loader_pump(), for who calls back. */
void loader_go_on(void *loader);

/* ---- loader_measure.c ----------------------------------------------------------------------- */

/*
 * Takes the lengths of all samples, and then says loader_opened(); while loader->measuring is
 * there, tasks are its own. `fingerprint` is the cache's, or 0. An error comes at once, or breaks
 * the loader.
 */
int _nodiscard_ loader_measure(struct loader *loader, uint64_t fingerprint, struct dl_error *err);
void loader_measure_pump(struct loader *loader);
struct measuring *measuring_free(struct measuring *m); /* no task runs; NULL is fine */
uint64_t measuring_done(const struct measuring *m);    /* samples */
void measuring_name(const void *tag, char *text, size_t len);
void measuring_took(struct measuring *m, void *tag);
void measuring_refused(struct measuring *m, void *tag, const struct dl_error *err);
void measuring_lost(struct measuring *m, void *tag, bool culprit, const char *cause);

/* ---- loader_dispatch.c ---------------------------------------------------------------------- */

/*
 * A rank's stream gets a source to take its steps from; leaves it, for good, which lets go of what
 * was kept for it alone; takes what there is for it, as far as its window reaches.
 */
int _nodiscard_ loader_join(struct loader *loader, struct stream *stream, struct dl_error *err);
void loader_leave_source(struct loader *loader, struct stream *stream);
void loader_take(struct loader *loader, struct stream *stream);
/* A source that has planned its last step makes room for the next epoch's first. */
void loader_expect_source(struct loader *loader, const struct stream *source);
/* The source of the epoch before, if ranks take from it still. */
const struct stream *loader_source_before(const struct loader *loader, const struct stream *source);
/* The stream is nobody's yet. */
bool stream_is_expected(const struct stream *stream);

/* ---- loader_words.c ------------------------------------------------------------------------- */

/* "step 7 of epoch 0 (samples 3, 9)", "step 7 of epoch 0 (batch 3 of worker 1)". */
void loader_name_step(const struct loader *loader, const struct step *step, char *text, size_t len);

/* ---- loader_starving.c ---------------------------------------------------------------------- */

/* There is no memory for what somebody waits for; `err` is the pool's. */
void loader_tell_starving(struct loader *loader, const struct dl_error *err);

/* ---- loader_verdict.c ----------------------------------------------------------------------- */

/* At a pump's beginning: what goes on from here on is of this moment. */
void loader_note_time(struct loader *loader);
/* And at its end: whether somebody starves until the next one. */
void loader_note_starving(struct loader *loader);
/* A stream is about to begin: what was done for others that have ended is nothing of the last
 * while. */
void loader_mark_start(struct loader *loader);
void loader_mark_anew(struct loader *loader); /* what was until now is no while at all */
/* A stream has had its last batch: what is said of the last while then, is said afterwards. */
void loader_note_verdict(struct loader *loader);

/* ---- loader_headspace.c, of a loader that has one ------------------------------------------- */

bool loader_holds(const struct loader *loader);  /* deliveries are held back */
bool loader_stills(const struct loader *loader); /* no task is begun */
/* After each turn of the pump. True: there is to be another. */
bool loader_headspace_look(struct loader *loader);
/* It is not to be known any more. */
void loader_headspace_end(struct loader *loader, const struct dl_error *err);

#endif
