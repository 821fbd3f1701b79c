/*
 * The loader's core: which step is loaded next and by whom, which batch is due to whom, and what
 * becomes of streams. Pure: an event and the time come in, commands come out, which the shell
 * (serve/loader) executes once the call has returned. Nothing is called back, so nothing that a
 * call looks at can go away under it.
 *
 * Order of service: steps whose worker died first, then the streams in turn, one step each, as far
 * as their windows reach: those of high priority, of normal and of low, and last those that nobody
 * has asked for. A source has the priority of the rank that it was made for.
 *
 * Look-ahead: when a stream has planned its last step, the slots it releases go to the rank's
 * next epoch, before anyone has asked for it. The stream made for that is *expected*: it has no
 * sink, its window and its predecessor's together stay within the credits, and START for that epoch
 * takes it over with the batches that are ready. So an epoch starts without a pause. If another
 * epoch is started instead, what was expected is dropped, and nothing is expected until epochs
 * follow each other again.
 *
 * Dispatch: the ranks of a job's epoch share a *source*, which loads each batch of all of them
 * once; see stream.h. Its window, as large as a rank's, counts the steps that not every rank has
 * taken. So a rank that stands still, or has yet to start, holds the others up after that many
 * steps. One that has stopped holds up nobody. It may come back at any step that the source still
 * has; at an earlier one it gets a source of its own, which waits for no rank that is elsewhere,
 * nor for one that has done with the epoch, also when all have left it (roster.h). Whoever comes
 * back in the middle of an epoch waits for others no longer than a client that is gone is waited
 * for, as they may have been at its end before the daemon was started. Waiting saves work and
 * decides nothing else: a rank that comes later is served by a source of its own. What is expected
 * is the next epoch's source, for the first rank that starts it.
 *
 * Jobs: a stream whose client is gone without having stopped it, and that belongs to a job with a
 * name, is *parked*: it has no sink, its leases are READY again, and nothing more is loaded for it.
 * START for the same job, rank and epoch at the step where it stands takes it over. It is kept as
 * long as a loader that nobody uses is, and gives way where memory is short.
 *
 * What an event costs is the work that follows from it: a RELEASE looks at its own stream, and at
 * no others. START, and a want of memory, look at all.
 *
 *   core.c           streams and commands: how they begin, change and end
 *   core_jobs.c      ranks that agree, clients that come back
 *   core_dispatch.c  sources, and ranks that take from them
 *   core_schedule.c  which step is loaded next, and where
 *   core_steps.c     what becomes of it: made or lost, delivered, released
 */
#ifndef DL_CORE_H
#define DL_CORE_H

#include "daemon/serve/base/quota.h"
#include "daemon/serve/core/jobs.h"
#include "daemon/serve/core/roster.h"
#include "daemon/serve/ring/timing.h"
#include "proto/shared/quarantine.h"
#include "proto/spec.h"

/* ---- commands -------------------------------------------------------------------------------- */

enum core_command_kind {
    CORE_RUN,  /* `step` by `worker`: core_ran(), core_postpone() or core_fault() follows */
    CORE_SLOT, /* `event` happens to `slot` of `segment` */
    CORE_GROW, /* `worker`, or any (CORE_ANY), has no slot left: core_refuse_memory() may follow */
    CORE_EXPECT,  /* a stream to follow `stream`: core_next_params() */
    CORE_DELIVER, /* `step` is leased to the sink of `stream` */
    CORE_FAULT,   /* `stream` is told of `err`, in place of `step`, or (NULL) of none; `final` */
    CORE_FINISH,  /* `stream` has had all there is */
    CORE_REFUSE,  /* START of `stream` failed with `err`: it is to be ended */
    CORE_WARN,    /* `stream` is told `text` */
    CORE_BAD,     /* likewise, of a sample, and the log has it */
    CORE_LOG,     /* the log alone has `text`, of `stream` */
    CORE_DROP,    /* a stream is gone: its `epoch` is not used any more, nor is what workers keep
                     of its `number` */
};

#define CORE_ANY UINT32_MAX /* not one worker in particular */

struct core_command {
    enum core_command_kind kind;
    bool final;
    uint32_t worker;
    uint32_t slot;
    uint32_t number; /* of a stream with replicas; 0: it had none */
    enum slot_event event;
    struct stream *stream;      /* borrowed, */
    struct step *step;          /* this too */
    struct segment *segment;    /* borrowed */
    const struct dl_error *err; /* borrowed of the core, or of whoever gave it */
    struct epoch *epoch;        /* returned */
    char *text;                 /* owned by whoever executes it */
};

/* ---- the core -------------------------------------------------------------------------------- */

/* Streams are served band by band. */
enum core_band { BAND_HIGH, BAND_NORMAL, BAND_LOW, BAND_EXPECTED, BANDS };

struct core_options {
    const struct dl_spec *spec; /* borrowed */
    struct quota_account *account;
    uint64_t linger_ns; /* parked streams are kept so long; 0: none is */
    bool in_turn;       /* step s is made by worker s mod workers */
};

struct core_totals {
    struct delivered delivered;
    uint64_t faults;
    uint64_t retries; /* steps run again after a worker's death */
};

struct core_commands {
    struct core_command *items; /* owned */
    size_t begin, end, room;
};

/* All zero, then core_init(). Others read `streams`, `totals`, `quarantine`, `starved` and
 * `starving`, and set what core_opened() says and `delivery_paused`. */
struct core {
    struct core_options o;
    uint64_t length; /* samples; UINT64_MAX: iterable, and not known */
    bool iterable;
    bool can_skip;        /* the dataset passes over samples without making them */
    bool delivery_paused; /* nothing is delivered: somebody measures headspace */

    struct stream *streams;  /* owned list */
    struct stream *touched;  /* something happened to them: what is due is delivered, and so on */
    struct stream **wanting; /* owned: those that have a step to load: of each band, for each
                                worker, and for any one (the last) */
    struct stream *parked;   /* the first to be parked comes first */
    struct stream *later;    /* to be touched anew at the next turn: what is due cannot be
                                delivered, as the user has no lease left, or is paused */
    struct stream *sources;  /* borrowed list (by peer_prev, peer_next) */
    struct step *waiting;    /* steps to run again, borrowed */
    struct reader *readers;  /* by owner: what each holds of the loader */
    uint32_t streams_made;
    bool expecting; /* epochs have followed each other so far */
    bool again;     /* there may be more to schedule, without any event */
    bool starved;   /* when work was handed out last, there was no memory for what is asked for */
    struct dl_error starving; /* what streams starve by; path "": none has */

    struct stream_params last; /* the stream started last */
    struct positions positions;
    struct roster_book rosters; /* of dispatched epochs that all ranks have left */
    uint64_t paid_rosters;      /* bytes of these, charged to the user */
    struct quarantine
        quarantine; /* of samples in delivered batches, or in those that could not be */
    struct core_totals totals;
    struct mix_tally *mixture; /* owned; of streams that have ended; NULL: nothing was counted */
    uint32_t n_mixture;
    struct timing timing; /* of all batches */
    struct trace trace;   /* of the last ones */
    struct core_commands commands;
};

void core_init(struct core *core, const struct core_options *options);
/* All streams have ended. Commands that were not executed are dropped. */
void core_deinit(struct core *core);

/* The next command, which is the caller's; false: there is none. */
bool core_next_command(struct core *core, struct core_command *ret);

/* Something is left to deliver or to schedule. */
bool core_has_work(const struct core *core);

/*
 * In the middle of an epoch ranks are awaited so that batches are loaded once for all: not for long
 * where others have read all that is loaded ahead. They may have finished, or died, and those that
 * train in step with them do not get so far.
 */
#define CORE_WAIT_NS (3 * UINT64_C(1000000000))

/* When core_tick() is due, ns; 0: now; UINT64_MAX: never. */
uint64_t core_deadline(const struct core *core);
void core_tick(struct core *core, uint64_t now);

/* ---- streams begin --------------------------------------------------------------------------- */

/* In the place of an epoch's number: where the job's rank has left off. */
#define EPOCH_RESUME UINT64_MAX

/* Where the rank begins, for EPOCH_RESUME, and whether it agrees with others. 0, -EINVAL, -EBUSY,
 * -ENOENT (nothing to resume), -ESTALE (another number of ranks left the job) with `err`. */
int _nodiscard_ core_agree(struct core *core, struct stream_params *params, struct dl_error *err);

/* The stream that was made for this before, parked or expected; NULL: there is none. Others of the
 * rank that were kept, and are not wanted then, are dropped. */
struct stream *core_take(struct core *core, const struct stream_params *params);

/*
 * A new stream that nobody has yet. `epoch` (the caller's, which CORE_DROP returns) and its plan
 * may be NULL. core_settle() follows if its steps are not known.
 */
struct stream *core_add(struct core *core, const struct stream_params *params, struct epoch *epoch,
                        const struct plan *plan);
/* Its plan is worked out: how many steps its rank has. -EINVAL: it was to begin behind them. */
int _nodiscard_ core_settle(struct core *core, struct stream *stream, uint64_t steps,
                            struct dl_error *err);

/* It cannot begin: its client, which waits for that, is told. */
void core_refuse(struct core *core, struct stream *stream, const struct dl_error *err);

/* Where batches are dispatched: the source that the stream may take its steps from, or NULL; what a
 * new one is to be like, for core_add(); and its ranks. */
struct stream *core_find_source(struct core *core, const struct stream *stream);
struct stream_params core_source_params(const struct stream_params *like, uint32_t credits);
/* `first`: who it was made for; NULL: nobody yet. It is paid for, as by core_pay(), and rosters of
 * epochs that all have left give way to it. -EDQUOT: the caller ends it. */
int _nodiscard_ core_add_source(struct core *core, struct stream *source,
                                const struct stream *first, struct dl_error *err);
void core_join(struct core *core, struct stream *stream, struct stream *source, uint64_t now);

/* A client has it from now on. */
void core_begin(struct core *core, struct stream *stream, const struct stream_params *params,
                void *sink, uint64_t now);

/* The stream that is to follow: of the next epoch, from its first step on. */
struct stream_params core_next_params(const struct stream *stream);
/* core_add() has made it. */
void core_expect(struct core *core, struct stream *stream, struct stream *next);

/* Something that nobody has asked for, or that was parked, gives way. False: there is nothing. */
bool core_make_way(struct core *core);
/* Drops what nobody has asked for: all, or (not NULL) what a rank starts that epoch `instead` of.
 */
bool core_drop_expected(struct core *core, const struct stream_params *instead);
void core_drop_parked(struct core *core);

/* ---- what clients do ------------------------------------------------------------------------- */

/* The client's next step, as stream_feed(), if `n` is not 0; `end`: it is the last. -EPROTO without
 * `err`: it is more than may be, or the end was said already; or what core_pay() says. */
int _nodiscard_ core_feed(struct core *core, struct stream *stream, const uint8_t *indices,
                          uint32_t n, bool end, struct dl_error *err);
/* Charges the user for what the stream takes by now (QUOTA_OVERHEAD), as is done at each
 * core_deliver() besides. -EDQUOT: it is more than the user may have, and what it grew by is not
 * paid for. */
int _nodiscard_ core_pay(struct core *core, struct stream *stream, struct dl_error *err);
/* False: the client has no such lease. A fault can be released, and not pinned. */
bool _nodiscard_ core_release(struct core *core, struct stream *stream, uint64_t step,
                              uint64_t now);
bool _nodiscard_ core_pin(struct core *core, struct stream *stream, uint64_t step, uint64_t now);
/* The cluster's world changes: it waits; it goes on, as far as `limit`. */
void core_pause(struct core *core, struct stream *stream);
void core_go_on(struct core *core, struct stream *stream, uint64_t limit);
/* For now no step from this one on is planned; UINT64_MAX: any is. */
void core_hold(struct core *core, struct stream *stream, uint64_t step);
/* Nothing more is loaded for it; leases stay. */
void core_stop(struct core *core, struct stream *stream);
/* Stops it, gives its leases back and frees it. */
void core_end(struct core *core, struct stream *stream);
/* Its client is gone. As core_end(), or (`may_park`) it is parked. */
void core_lose(struct core *core, struct stream *stream, bool may_park, uint64_t now);
/* Nothing works any more: all that read are told `err`, which is to stay. */
void core_break(struct core *core, const struct dl_error *err);

/* ---- what becomes of steps ------------------------------------------------------------------- */

/* CORE_RUN was executed: a worker has the step, in that slot. `indices`: `n` of them. */
void core_ran(struct core *core, struct step *step, struct segment *segment, uint32_t slot,
              const uint64_t *indices, uint32_t n, uint64_t now);
/* CORE_RUN cannot be executed: there is no slot after all, or (`unplanned`) not before
 * core_planned(). */
void core_postpone(struct core *core, struct step *step, bool unplanned);
void core_planned(struct core *core);

/*
 * What a worker says of a step that it had. The slot is READY after core_done(), and the core's; it
 * is the caller's business else. A step whose `stream` is NULL is freed.
 */
void core_done(struct core *core, struct step *step, uint32_t samples, uint32_t repeated,
               uint64_t bytes, const struct bad_list *bad, const struct made_times *made);
void core_ended(struct core *core, struct step *step); /* its replica had no such step */
void core_lost(struct core *core, struct step *step, bool culprit, const char *cause);
/* No worker has been there for too long: what workers have had, and waits for another one, is given
 * up. */
void core_stalled(struct core *core, const char *why);
/* It will never be a batch. `what` says why; consumes `detail`, which may be NULL. */
void core_fault(struct core *core, struct step *step, int code, const char *what, char *detail);

/* Memory is short: READY steps in retiring segments are given up, to be made again. */
void core_reclaim(struct core *core);
/* CORE_GROW for that worker failed with `err`. `idle`: no worker has anything to do, or is coming.
 */
void core_refuse_memory(struct core *core, uint32_t worker, const struct dl_error *err, bool idle);

/* ---- turns ----------------------------------------------------------------------------------- */

/* Delivers what is due. */
void core_deliver(struct core *core, uint64_t now);

/* Hands out all that can be. `rooms`: of each worker, used up. */
void core_schedule(struct core *core, struct worker_room *rooms);

/* ---- views ----------------------------------------------------------------------------------- */

/* "step 7 of epoch 0 (samples 3, 9)", "step 7 of epoch 0 (batch 3 of worker 1)"; the latter part
 * alone, without brackets. */
void core_name_step(const struct core *core, const struct step *step, char *text, size_t len);
void core_name_samples(const struct core *core, const struct step *step, char *text, size_t len);

/* Of a stream whose batches are dispatched: the lowest rank that holds it up, when it could take
 * more; UINT64_MAX: none does. *ret_started: that rank has begun. */
uint64_t core_waits_for(const struct stream *stream, bool *ret_started);

/* Somebody waits for a step that could be run, had a worker room for it. */
bool core_wants(const struct core *core);

#endif
