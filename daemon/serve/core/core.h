/*
 * The loader's core: it decides which worker loads which step next, which client gets which batch,
 * and when streams end. Pure: an event and the time come in, commands come out, which the shell
 * (serve/loader) executes once the call has returned. There are no callbacks, so no object can
 * vanish during a call.
 *
 * Order of service: steps whose worker died first, then the streams in turn, one step each, as far
 * as their windows reach: those of high, normal and low priority, and last those not yet requested.
 * A source has the priority of the rank that it was made for.
 *
 * Look-ahead: when a stream has planned its last step, the slots it releases go to the rank's next
 * epoch, before a client requests it. The stream made for that is *expected*: it has no sink, its
 * window and its predecessor's together stay within the credits, and START for that epoch takes it
 * over with the batches that are ready. So an epoch starts without a pause. If another epoch is
 * started instead, expected streams are dropped, and no more are made until epochs follow each
 * other again.
 *
 * Dispatch: the ranks of a job's epoch share a *source*, which loads each batch of all of them
 * once; see stream.h. Its window, as large as a rank's, counts the steps that not every rank has
 * taken. So a rank that stands still, or has yet to start, holds up the others after that many
 * steps. A rank that has stopped does not. It may come back at any step that the source still has;
 * at an earlier one it gets its own source, which does not wait for ranks that are elsewhere or
 * have finished the epoch, even when all have left it (roster.h). A rank that comes back in the
 * middle of an epoch waits for others only as long as for a lost client, since they may have
 * finished before the daemon was started. Waiting only saves work: a rank that comes later gets its
 * own source. An expected stream is then the next epoch's source, for the first rank that starts
 * it.
 *
 * Companions: jobs that read the same batches (share.window) share a source as ranks do, but come
 * and go, and are not waited for longer than share.wait; see core_companions.c.
 *
 * Jobs: a stream of a named job whose client is lost without stopping it is *parked*: it has no
 * sink, its leases are READY again, and nothing more is loaded for it. START for the same job, rank
 * and epoch at its step takes it over. It is kept as long as an unused loader, and dropped when
 * memory is short.
 *
 * An event costs only the work that follows from it: a RELEASE looks only at its own stream. START
 * and a lack of memory look at all streams.
 *
 *   core.c           streams and commands: how they begin, change and end
 *   core_jobs.c      ranks that agree, clients that come back
 *   core_dispatch.c  sources, and ranks that take from them
 *   core_companions.c  jobs that take from one, as long as they are not too far apart
 *   core_schedule.c  which step is loaded next, and where
 *   core_steps.c     a step's later life: made or lost, delivered, released
 */
#ifndef DL_CORE_H
#define DL_CORE_H

#include "daemon/base/quota.h"
#include "daemon/serve/core/jobs.h"
#include "daemon/serve/core/roster.h"
#include "daemon/serve/ring/timing.h"
#include "proto/shared/quarantine.h"
#include "proto/spec.h"

/* ---- commands -------------------------------------------------------------------------------- */

enum core_command_kind {
    CORE_RUN,     /* `step` by `worker`: core_ran(), core_postpone() or core_fault() follows */
    CORE_SLOT,    /* `event` happens to `slot` of `segment` */
    CORE_GROW,    /* `worker`, or any (CORE_ANY), needs a slot: core_refuse_memory() may follow */
    CORE_EXPECT,  /* a stream to follow `stream`: core_next_params() */
    CORE_DELIVER, /* `step` is leased to the sink of `stream` */
    CORE_FAULT,   /* send `err` to `stream`, for `step` or (NULL) for no step; `final` */
    CORE_FINISH,  /* `stream` has had all there is */
    CORE_REFUSE,  /* START of `stream` failed with `err`: end it */
    CORE_WARN,    /* send `text` to `stream` */
    CORE_BAD,     /* the same about a bad sample; also logged */
    CORE_LOG,     /* `text` about `stream`, only for the log */
    CORE_DROP,    /* a stream is gone: its `epoch` is not used any more, nor is what workers keep
                     of its `number`; `final`: steps that were foreseen may never come */
};

#define CORE_ANY UINT32_MAX /* not one worker in particular */

struct core_command {
    enum core_command_kind kind;
    bool final;
    uint32_t worker;
    uint32_t slot;
    uint32_t number; /* of a stream with replicas; else 0 */
    enum slot_event event;
    struct stream *stream;      /* borrowed, */
    struct step *step;          /* this too */
    struct segment *segment;    /* borrowed */
    const struct dl_error *err; /* borrowed from the core, or from the caller */
    struct epoch *epoch;        /* returned */
    char *text;                 /* owned by the executor */
};

/* ---- the core -------------------------------------------------------------------------------- */

/* Streams are served band by band. */
enum core_band { BAND_HIGH, BAND_NORMAL, BAND_LOW, BAND_EXPECTED, BANDS };

struct core_options {
    const struct dl_spec *spec; /* borrowed */
    struct quota_account *account;
    uint64_t linger_ns; /* how long parked streams are kept; 0: streams are not parked */
    bool in_turn;       /* step s is made by worker s mod workers */
    uint32_t helpers;   /* workers besides those of the spec, on other machines */
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
    bool delivery_paused; /* nothing is delivered, while headspace is measured */

    struct stream *streams;  /* owned list */
    struct stream *touched;  /* something happened to them: core_deliver() looks at them */
    struct stream **wanting; /* owned: those that have a step to load: of each band, for each
                                worker, and for any one (the last) */
    struct stream *parked;   /* the first to be parked comes first */
    struct stream *later;    /* to be touched at the next turn: no lease left, or paused */
    struct stream *sources;  /* borrowed list (by peer_prev, peer_next) */
    struct step *waiting;    /* steps to run again, borrowed */
    struct reader *readers;  /* by owner: what each holds of the loader */
    uint32_t streams_made;
    uint32_t workers;   /* that there are by now, */
    uint32_t resting;   /* of these: helpers, which nothing is loaded ahead for: core_rest() */
    uint32_t prefetch;  /* and batches ahead for each: core_resize() */
    bool hold_idle;     /* of this machine's workers that are idle, */
    uint32_t may_begin; /* no more than these get a step, whichever it is for */
    bool expecting;     /* epochs have followed each other so far */
    bool again;         /* there may be more to schedule, without any event */
    bool starved;       /* memory for wanted slots was lacking at the last core_schedule() */
    struct dl_error starving; /* what streams starve for; path "": not starving */

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

/* The next command, passed to the caller; false if the queue is empty. */
bool core_next_command(struct core *core, struct core_command *ret);

/*
 * The loader has that many workers from now on, none if nobody reads it, and `prefetch` batches
 * ahead for each, and each stream whose client left the choice to the daemon as large a window as
 * these need. Not where steps are bound to workers: in turn, or of replicas. No CORE_RUN is on its
 * way.
 */
void core_resize(struct core *core, uint32_t workers, uint32_t prefetch);
/* From now on `resting` of its workers get no tasks. */
void core_rest(struct core *core, uint32_t resting);

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

/* The stream made for this earlier, parked or expected; or NULL. Drops the rank's other kept
 * streams that are not needed then. */
struct stream *core_take(struct core *core, const struct stream_params *params);

/*
 * A new stream without a client. `epoch` (the caller's, which CORE_DROP returns) and its plan may
 * be NULL. core_settle() follows if its steps are not known.
 */
struct stream *core_add(struct core *core, const struct stream_params *params, struct epoch *epoch,
                        const struct plan *plan);
/* Its plan is worked out: how many steps its rank has. -EINVAL: it was to begin behind them. */
int _nodiscard_ core_settle(struct core *core, struct stream *stream, uint64_t steps,
                            struct dl_error *err);

/* The same of a plan that is cut while the stream reads it: its steps are not known, and it plans
 * none before core_hold(). */
void core_settle_by_windows(struct core *core, struct stream *stream);
/* All windows were cut, so its number of steps is known. */
void core_learn_steps(struct core *core, struct stream *stream, uint64_t steps);

/* It cannot begin: its client, which waits, gets `err`. */
void core_refuse(struct core *core, struct stream *stream, const struct dl_error *err);

/* If batches are dispatched: the source that the stream may take its steps from, or NULL; the
 * parameters of a new one for core_add(); and its ranks. */
struct stream *core_find_source(struct core *core, const struct stream *stream);
struct stream_params core_source_params(const struct stream_params *like, uint32_t credits);
/* `first`: the stream it is made for; may be NULL. It is paid for, as by core_pay(), and rosters of
 * epochs that all ranks have left are dropped for it. -EDQUOT: the caller ends it. */
int _nodiscard_ core_add_source(struct core *core, struct stream *source,
                                const struct stream *first, struct dl_error *err);
void core_join(struct core *core, struct stream *stream, struct stream *source, uint64_t now);

/* A client takes it over. */
void core_begin(struct core *core, struct stream *stream, const struct stream_params *params,
                void *sink, uint64_t now);

/* The stream that is to follow: of the next epoch, from its first step on. */
struct stream_params core_next_params(const struct stream *stream);
/* core_add() has made it. */
void core_expect(struct core *core, struct stream *stream, struct stream *next);

/* Drops an expected or parked stream. False if neither exists. */
bool core_make_way(struct core *core);
/* Drops expected streams: all, or (not NULL) those made useless by starting `instead`. */
bool core_drop_expected(struct core *core, const struct stream_params *instead);
void core_drop_parked(struct core *core);

/* ---- what clients do ------------------------------------------------------------------------- */

/* Feeds the client's next step, as stream_feed(), if `n` is not 0; `end`: it is the last. -EPROTO
 * without `err`: too far ahead, or the end was fed before; or an error of core_pay(). */
int _nodiscard_ core_feed(struct core *core, struct stream *stream, const uint8_t *indices,
                          uint32_t n, bool end, struct dl_error *err);
/* Charges the user for what the stream takes by now (QUOTA_OVERHEAD); core_deliver() does so, too.
 * -EDQUOT: it is more than the user may have, and its growth is not paid for. */
int _nodiscard_ core_pay(struct core *core, struct stream *stream, struct dl_error *err);
/* The same of something that takes `bytes`, of which *paid are charged. */
int _nodiscard_ core_pay_for(struct core *core, uint64_t bytes, uint64_t *paid,
                             struct dl_error *err);
/* False if the client has no such lease. A fault can be released, but not pinned. */
bool _nodiscard_ core_release(struct core *core, struct stream *stream, uint64_t step,
                              uint64_t now);
bool _nodiscard_ core_pin(struct core *core, struct stream *stream, uint64_t step, uint64_t now);
/* For a change of the cluster's world: pauses the stream; continues it, up to `limit`. */
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
/* The loader is broken: all readers get `err`, which is permanent. */
void core_break(struct core *core, const struct dl_error *err);

/* ---- what becomes of steps ------------------------------------------------------------------- */

/* CORE_RUN was executed: a worker has the step, in that slot. `indices`: `n` of them. */
void core_ran(struct core *core, struct step *step, struct segment *segment, uint32_t slot,
              const uint64_t *indices, uint32_t n, uint64_t now);
/* CORE_RUN cannot be executed: no slot was free, or (`unplanned`) it must wait for
 * core_planned(). */
void core_postpone(struct core *core, struct step *step, bool unplanned);
void core_planned(struct core *core);

/*
 * A worker's report on a step that it had. After core_done() the slot is READY and the core's;
 * otherwise the caller keeps it. A step whose `stream` is NULL is freed.
 */
void core_done(struct core *core, struct step *step, uint32_t samples, uint32_t repeated,
               uint64_t bytes, const struct bad_list *bad, const struct made_times *made);
void core_ended(struct core *core, struct step *step); /* its replica ended before it */
void core_lost(struct core *core, struct step *step, bool culprit, const char *cause);
/* Its batch did not fit, and its worker keeps what it has of it: it runs there again. */
void core_outgrew(struct core *core, struct step *step);
/* No worker has been there for too long: what workers have had, and waits for another one, is given
 * up. */
void core_stalled(struct core *core, const char *why);
/* The step will never become a batch. `what` is the reason; consumes `detail`, which may be
 * NULL. */
void core_fault(struct core *core, struct step *step, int code, const char *what, char *detail);

/* Memory is short: gives up READY steps in retiring segments, to be made again. */
void core_reclaim(struct core *core);
/* CORE_GROW for that worker failed with `err`. `idle`: no worker has anything to do, or is coming.
 */
void core_refuse_memory(struct core *core, uint32_t worker, const struct dl_error *err, bool idle);

/* ---- turns ----------------------------------------------------------------------------------- */

/* Delivers all batches that are due. */
void core_deliver(struct core *core, uint64_t now);

/* Hands out all that can be. `rooms`: of each worker, used up. */
void core_schedule(struct core *core, struct worker_room *rooms);

/* ---- views ----------------------------------------------------------------------------------- */

/* "step 7 of epoch 0 (samples 3, 9)", "step 7 of epoch 0 (batch 3 of worker 1)"; or only the latter
 * part, without brackets. */
void core_name_step(const struct core *core, const struct step *step, char *text, size_t len);
void core_name_samples(const struct core *core, const struct step *step, char *text, size_t len);

/* If the stream's batches are dispatched and it could take more: the lowest rank that holds it up;
 * else UINT64_MAX. *ret_started: that rank has begun. */
uint64_t core_waits_for(const struct stream *stream, bool *ret_started);

/* A client waits for a step that could run if a worker had room. */
bool core_wants(const struct core *core);

#endif
