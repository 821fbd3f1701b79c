/* The inside of the core, shared by core*.c. Nobody else includes it. */
#ifndef DL_CORE_PRIVATE_H
#define DL_CORE_PRIVATE_H

#include "daemon/serve/base/memory.h"
#include "daemon/serve/core/core.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

typedef unsigned long long ull; /* for printf */

/* Queues of streams that have a step to load, in so many bands, which come first in core.wanting.
 */
static inline uint32_t core_n_queues(const struct core *core, int bands)
{
    return (uint32_t)bands * (core->o.spec->workers + 1);
}

/* Whoever has started streams of the loader. */
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
/* Of a READY step, which nobody is to have. */
void core_give_up_slot(struct core *core, const struct step *step);
void core_say(struct core *core, enum core_command_kind kind, struct stream *stream,
              const char *text);
/* What was to be done for the stream, but for its steps, or (not NULL) for that step alone, is not
 * to be any more. */
void core_cancel(struct core *core, const struct stream *stream, const struct step *step);
/* Something has happened to it that the next core_deliver() looks at. */
void core_touch(struct core *core, struct stream *stream);
/* Puts the stream into that queue, at its end; NULL: into none. */
void core_enqueue(struct stream *stream, struct stream **queue, bool at_front);
/* Its client holds one batch more, or less. */
void core_count_lease(struct core *core, const struct stream *stream, int n);
uint32_t core_leases(const struct core *core, const struct stream *stream);
/* What of the stream is not yet delivered never will be; the same of one step. */
void core_drop_steps(struct core *core, struct stream *stream);
void core_drop_step(struct core *core, struct stream *stream, struct step *step);
/* As core_end(). `willed`: its client has said so; `lost`: it is gone and has not read it to its
 * end.
 */
void core_end_as(struct core *core, struct stream *stream, bool willed, bool lost);
/* As core_pay(); rosters that are kept give way. */
int _nodiscard_ core_pay_for_source(struct core *core, struct stream *source, struct dl_error *err);
/* What is kept of epochs that all have left is charged; what the user may not have is forgotten. */
void core_pay_for_rosters(struct core *core);
/* Looks at it again in the next turn, not in this one. */
void core_touch_later(struct core *core, struct stream *stream);
/* It has been looked at. */
void core_untouch(struct stream *stream);
/* A client has it, or (NULL) none has any more. */
void core_set_sink(struct core *core, struct stream *stream, void *sink);
/* The stream of that rank and epoch that a client has, or (`expected`) that nobody has yet. */
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

/* Takes what there is for the rank from its source, as far as the rank's window reaches. */
void core_take_steps(struct core *core, struct stream *stream);
/* It takes no more from its source; `lost`: it has not read the epoch to its end. */
void core_leave(struct core *core, struct stream *stream, bool lost);
/* Nobody waits any longer for those that were awaited. */
void core_lose_patience(struct core *core, struct stream *source);
/* A rank of the source has nothing to read until those come that are awaited in the middle of an
 * epoch. */
bool core_is_waited_at(const struct stream *source);

/* ---- core_steps.c */

/*
 * Counts what is bad in a batch that is due, and tells `stream` of it: here, and not when it was
 * made, so that the same one is the first to be too many. False: it is, and the step has become a
 * fault. The batch of a source is counted once, for the rank that takes it first.
 */
bool _nodiscard_ core_admit(struct core *core, struct stream *stream, struct step *step);
/* The client's lease is over: its slot and its credit are back. */
void core_end_lease(struct core *core, struct stream *stream, struct step *step);

/* ---- core_schedule.c */

/* Whether the stream has a step to load has changed, perhaps. */
void core_requeue(struct core *core, struct stream *stream);
/* The WAITING step is not to be run again. False: it waits for nothing, CORE_RUN is on its way. */
bool core_wait_no_more(struct core *core, struct step *step);
/* The step, READY or RUNNING, is to be run again; its slot is the caller's. */
void core_run_again(struct core *core, struct step *step);

#endif
