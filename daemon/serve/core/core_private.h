/* The inside of the core. Only core*.c include it. */
#ifndef DL_CORE_PRIVATE_H
#define DL_CORE_PRIVATE_H

#include "daemon/base/memory.h"
#include "daemon/serve/core/core.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

/* That it began with: its own, and behind them those of other machines. */
static inline uint32_t core_n_workers(const struct core *core)
{
    return core->o.spec->workers + core->o.helpers;
}

/* Number of queues for the first `bands` bands in core.wanting. */
static inline uint32_t core_n_queues(const struct core *core, int bands)
{
    return (uint32_t)bands * (core_n_workers(core) + 1);
}

/* An owner that has started streams of the loader. */
struct reader {
    UT_hash_handle hh;
    const void *owner;
    uint32_t streams;
    uint32_t leases; /* batches that it has, in all of them */
};

/* ---- core.c */

struct core_command *core_command(struct core *core, enum core_command_kind kind,
                                  struct stream *stream);
void core_slot(struct core *core, struct segment *segment, uint32_t slot, enum slot_event event);
/* The slot of a READY step that will not be delivered. */
void core_give_up_slot(struct core *core, const struct step *step);
void core_say(struct core *core, enum core_command_kind kind, struct stream *stream,
              const char *text);
/* Cancels queued commands for the stream, except those of its steps, or (not NULL) only those of
 * `step`. */
void core_cancel(struct core *core, const struct stream *stream, const struct step *step);
/* Something has happened to it that the next core_deliver() looks at. */
void core_touch(struct core *core, struct stream *stream);
/* Moves the stream to that queue's end or front; NULL: to no queue. */
void core_enqueue(struct stream *stream, struct stream **queue, bool at_front);
/* Its client holds one batch more, or less. */
void core_count_lease(struct core *core, const struct stream *stream, int n);
uint32_t core_leases(const struct core *core, const struct stream *stream);
/* What of the stream is not yet delivered never will be; the same of one step. */
void core_drop_steps(struct core *core, struct stream *stream);
void core_drop_step(struct core *core, struct stream *stream, struct step *step);
/* As core_end(). `willed`: at its client's request; `lost`: the client is gone before the end. */
void core_end_as(struct core *core, struct stream *stream, bool willed, bool lost);
/* As core_pay(); rosters that are kept give way. */
int _nodiscard_ core_pay_for_source(struct core *core, struct stream *source, struct dl_error *err);
/* Charges the kept rosters; drops those that the user cannot pay for. */
void core_pay_for_rosters(struct core *core);
/* Looks at it again in the next turn, not in this one. */
void core_touch_later(struct core *core, struct stream *stream);
/* It has been looked at. */
void core_untouch(struct stream *stream);
/* Gives it to a client, or (NULL) takes it away. */
void core_set_sink(struct core *core, struct stream *stream, void *sink);
/* A client's stream of that rank and epoch, or (`expected`) the one without a client. */
struct stream *core_find(const struct core *core, const struct stream_params *params,
                         uint64_t epoch, bool expected);
/* It shares its window no more with the one before or after it. */
void core_unlink_expected(struct core *core, struct stream *stream);
/* A stream that has planned its last step makes room for the next epoch's first. */
void core_look_ahead(struct core *core, struct stream *stream);

/* ---- core_jobs.c */

/* The parked stream that resumes just there, or NULL. Others of this rank, up to that epoch, and of
 * ranks of another world are dropped. */
struct stream *core_take_parked(struct core *core, const struct stream_params *params);
void core_note_start(struct core *core, const struct stream_params *params);
/* The stream is about to stop, by its client's will. */
void core_note_stop(struct core *core, const struct stream *stream);
/* Drops the stream that was parked first. */
void core_drop_oldest(struct core *core);

/* ---- core_dispatch.c */

/* The first step that the rank has yet to take; UINT64_MAX: it has all. */
uint64_t core_place_of(const struct stream *rank);
/* It has room for a step that its source cannot load, since some rank lags behind. */
bool core_waits_in_source(const struct stream *rank);
/* The source gives up what every rank has taken, or will not. */
void core_trim(struct core *core, struct stream *source);
/* Takes what there is for the rank from its source, as far as the rank's window reaches. */
void core_take_steps(struct core *core, struct stream *stream);
/* It takes no more from its source; `lost`: it has not read the epoch to its end. */
void core_leave(struct core *core, struct stream *stream, bool lost);
/* Stops waiting for awaited ranks. */
void core_lose_patience(struct core *core, struct stream *source);
/* A rank of the source has nothing to read until those come that are awaited in the middle of an
 * epoch, or a companion until others have read. */
bool core_is_waited_at(const struct core *core, const struct stream *source);

/* ---- core_companions.c */

/* A companion of the source has nothing to read until one behind it has taken its next step. */
bool core_is_held_up(const struct core *core, const struct stream *source);
/* Those that hold others up go on alone. */
void core_leave_behind(struct core *core, struct stream *source);
/* Its source has a step that is a fault, of which the companion takes only a part: it goes on
 * alone. False: it takes whole ones. */
bool core_leave_fault(struct core *core, struct stream *one);
/* The companion takes its next step from another source, if that is further on and has it. */
void core_catch_up(struct core *core, struct stream *stream, uint64_t now);
/* Gives up steps that are kept for companions that may come. False: there are none. */
bool core_keep_less(struct core *core);

/* ---- core_steps.c */

/*
 * Counts the bad samples in a batch that is due and reports them to `stream`: here, and not when it
 * was made, so that the limit is always reached at the same sample. False if it was exceeded; the
 * step is then a fault. The batch of a source is counted once, for the rank that takes it first.
 */
bool _nodiscard_ core_admit(struct core *core, struct stream *stream, struct step *step);
/* The client's lease is over: its slot and its credit are back. */
void core_end_lease(struct core *core, struct stream *stream, struct step *step);

/* ---- core_schedule.c */

/* Whether the stream has a step to load has changed, perhaps. */
void core_requeue(struct core *core, struct stream *stream);
/* The WAITING step is not to be run again. False: it waits for nothing, CORE_RUN is on its way. */
bool core_wait_no_more(struct core *core, struct step *step);
/* Runs the step, READY or RUNNING, again; its slot becomes the caller's. */
void core_run_again(struct core *core, struct step *step);

#endif
