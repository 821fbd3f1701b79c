/*
 * The inside of a loader. Only its own files include it.
 *
 *   loader.c            its life: opening, users, queries; breaking and closing
 *   loader_start.c      streams begin, and clients have them do things
 *   loader_commands.c   the shell of the core: executes its decisions, turn after turn
 *   loader_workers.c    reports of its workers: on the dataset, its files, and their tasks
 *   loader_look.c       whether its files have changed
 *   loader_size.c       how many workers it has
 *   loader_fair.c       how many of them may be busy, where others want processors, too
 *   loader_changes.c    weights that are changed while it is read
 *   loader_reach.c      up to where it is read, for these, and other plans from there on
 *   loader_shared_changes.c  those that the nodes of a cluster agree on
 *   loader_ahead.c      what its next steps read, where that is far away
 *   loader_measure.c    lengths, before it is open
 *   loader_windows.c    lengths while it is read, a window ahead of its steps
 *   loader_lately.c     where the time went: lately, and in the last ten minutes
 *   loader_headspace.c  what a faster one would be worth
 */
#ifndef DL_LOADER_PRIVATE_H
#define DL_LOADER_PRIVATE_H

#include "daemon/serve/loader/epoch.h"
#include "daemon/serve/loader/length_table.h"
#include "daemon/serve/loader/loader.h"
#include "proto/remote_counts.h"
#include "proto/shared/verdict.h"

enum loader_state { LOADER_OPENING, LOADER_OPEN, LOADER_BROKEN };

enum { DELIVER_AT_ONCE = 256 }; /* steps handed to the sink in one call */

struct measuring;
struct windows;
struct loader_headspace;

/* A data file that was written to while the loader was open. */
struct written_file {
    struct written_file *next; /* loader.written (utlist) */
    struct dl_error what;
};

struct loader {
    struct loader_options o;
    struct dl_spec spec;        /* owned */
    struct credentials *reader; /* owned; of the client that opened it; or NULL */
    enum loader_state state;
    struct dl_error why_broken;
    struct core core;
    struct pictures_list pictures; /* owned; what its workers keep decoded */
    struct pool *pool;             /* owned */
    struct loader_user *users;     /* borrowed list */
    struct epoch_set epochs;
    uv_timer_t end;     /* linger, or the end of a broken loader */
    uint64_t unused_ns; /* since when it has been unused */
    uv_timer_t tick;    /* what the core waits for */
    uint64_t ticks;     /* when; ns; UINT64_MAX: for nothing */
    uint32_t open_handles;
    struct measuring *measuring;   /* owned; while lengths are taken */
    struct windows *windows;       /* owned; where lengths are taken while it is read; else NULL */
    struct dataset_states carried; /* owned; of each worker, where spec_carries_state(), */
    uint64_t paid_carried;         /* and what of it is charged to the user */
    struct length_table *lengths;  /* counted; from loader_measure() on, complete once it is open;
                                    * or from loader_begin_windows() on, where windows have been
                                    * cut; NULL without batch.tokens */
    uint64_t *sizes;               /* owned; of a mix's datasets, once it is open; else NULL */
    struct mix_changes *changes;   /* counted; of its weights; or NULL */
    uint64_t hold;                 /* nothing is planned at this position, or behind it, for now;
                                    * UINT64_MAX: it is */
    uint64_t lacks_ns;   /* since when ranks wait at a change whose sample weights are missing here;
                            0: not waiting */
    uint64_t lacks_told; /* the position of the one that was warned of, and one more */
    struct mix_ruler ruler;    /* owned; what they have is counted by it; all zero: not yet */
    uint64_t first_slot_bytes; /* what one rank's batch was thought to take at first */
    uint64_t fingerprint;
    struct state_identity identity; /* whole once it is open */

    struct step *due[DELIVER_AT_ONCE]; /* borrowed; of one stream; CORE_DELIVER on their way */
    uint32_t n_due;
    struct worker_room *rooms; /* owned; of each worker */
    bool pumping;
    bool executing;        /* commands */
    bool halted;           /* nothing more is loaded or delivered */
    bool gone;             /* the registry knows */
    bool looks_no_further; /* than queues reach, as helpers make steps, too */

    uint64_t now;         /* ns; of the current pump */
    struct recent marked; /* its time, and what was then */
    struct recent recently[STAGES], recently_delivered, recently_bytes;
    struct recent recently_remote[REMOTE_COUNTS]; /* of all loaders together */
    struct lately_book lately;
    uint64_t opening_told;   /* ns; when its users heard last of what a worker opens */
    uint32_t opening_sooner; /* how often they heard of it soon again */
    struct slow_list slowest;
    struct lengths_found found;         /* of `lengths`, once it is open */
    char verdict[VERDICT_LATEST_MAX];   /* when a stream was last read, or left; or "" */
    uint64_t starved_ns;                /* time in which a reader waited for memory */
    bool starves;                       /* a reader waits for memory, and has no batch */
    struct loader_headspace *headspace; /* owned; while it is measured */

    struct {
        bool automatic;
        struct sizing sizing, helpers; /* of its own workers, and of those on other machines */
        double cpus;                   /* that there were for all */
        uint64_t waited_ns;            /* that its trainers said since it was looked at last, */
        uint64_t at_ns;                /* when that was, */
        struct pool_spent spent;       /* and what its workers had used then */
        struct dl_error refused;       /* why it got no more last; code 0: it was not refused */
    } size;

    struct fair_part fair;

    struct written_file *written; /* owned list; the last one comes first */
    uint32_t n_written;
    uint32_t written_told; /* `n_written` at the last warning */

    struct {
        uint64_t begun_ns; /* of the current look; or 0 */
        uint64_t same_ns;  /* of the last one that found its files as they were */
        bool changed;      /* they are others: that stays */
    } look;
};

/* Where lengths of its samples are kept. */
static inline struct length_cache_for loader_length_cache(const struct loader *loader)
{
    const struct config_cache *cache = &loader->o.pool.config->cache;

    return (struct length_cache_for){
        .crew = loader->o.crew, .uid = loader->o.uid, .dir = cache->dir, .size = cache->size};
}

/* ---- loader.c */

void loader_opened(struct loader *loader); /* informs its waiting users */
void loader_break(struct loader *loader, const struct dl_error *err);

/* ---- loader_fair.c */

/* It is open; and ends, or is broken. */
void loader_join_fair(struct loader *loader);
void loader_leave_fair(struct loader *loader);
/* Its workers are busy, or no longer. */
void loader_look_fair(struct loader *loader);
/* Takes from its rooms what its share does not allow for. */
void loader_hold_workers(struct loader *loader);
/* Its readers are others, and so may its priority be. */
void loader_weigh_fair(struct loader *loader);
/* What its workers have used since the last time. */
void loader_measure_fair(struct loader *loader, const struct sizing_measure *m);
/* That it was held back, with numbers; or "". */
void loader_fair_words(const struct loader *loader, char *text, size_t len);

/* ---- loader_start.c */

/* The plan of epoch 0 for one rank, with all that the loader knows about its dataset. */
struct plan_params loader_plan_params(const struct loader *loader);

/* The plan of a stream, counted: epoch_unref(). 0, or negative with `err`. */
int _nodiscard_ loader_ref_plan(struct loader *loader, const struct stream_params *params,
                                struct epoch **ret, struct dl_error *err);

/* Completed parameters; 0 or negative with `err`. */
int _nodiscard_ loader_add_stream(struct loader *loader, const struct stream_params *params,
                                  struct stream **ret, struct dl_error *err);
/* A plan was worked out, or prepared, by a thread; `loader` is a struct loader. */
void loader_on_planned(void *loader);

/* ---- loader_shared_changes.c */

/* Where the loader holds, so does the stream. */
void loader_hold_stream(struct loader *loader, struct stream *stream);

/* ---- loader_commands.c */

/* Does what the core has decided, in order. */
void loader_execute(struct loader *loader);
/* Also in the middle of that: for what the pool cannot wait for. */
void loader_execute_all(struct loader *loader);

/* ---- loader_workers.c */

extern const struct pool_events loader_pool_events;
/* Warns the stream's client of files that were written to; there must be one. */
void loader_tell_written(struct loader *loader, struct stream *stream);

/* ---- loader_look.c */

/* Of struct pool_events; `loader` is a struct loader. */
void loader_on_looked(void *loader, enum pool_files files);

/* ---- loader_ahead.c */

/* A step of the stream was run: workers hear of those that follow. */
void loader_look_ahead(struct loader *loader, struct stream *stream);
/* Steps that they have heard of may never come. */
void loader_look_ahead_anew(struct loader *loader);

/* ---- loader_measure.c */

/* Its users hear how far it is before it is open. */
void loader_tell_progress(const struct loader *loader, uint64_t done, uint64_t all,
                          const char *what);

/*
 * Takes the lengths of all samples, and then says loader_opened(); while loader->measuring is
 * there, tasks are its own. `fingerprint` is the cache's, or 0. An error comes at once, or breaks
 * the loader.
 */
int _nodiscard_ loader_measure(struct loader *loader, uint64_t fingerprint, struct dl_error *err);
void loader_measure_pump(struct loader *loader);
struct measuring *measuring_free(struct measuring *m); /* no task runs; NULL is fine */
uint64_t measuring_done(const struct measuring *m);    /* samples */
void measuring_name(const struct measuring *m, const void *tag, char *text, size_t len);
void measuring_took(struct measuring *m, void *tag);
void measuring_refused(struct measuring *m, void *tag, const struct dl_error *err);
void measuring_lost(struct measuring *m, void *tag, bool culprit, const char *cause);

/* Of an open loader: takes the lengths of these `n` samples (consumed), when it is handed out. A
 * task has MEASURING_MOST of them at most, which slots must be large enough for. */
enum { MEASURING_MOST = 128, MEASURING_EACH = 2 /* tasks for each worker */ };
struct measuring *measuring_new(struct loader *loader, uint64_t *list, uint64_t n);
/* As far as there are places, and to `most` tasks at once. */
void measuring_hand_out(struct measuring *m, uint32_t most);
bool measuring_is_over(const struct measuring *m, uint64_t *ret_ns); /* and for how long it was */
bool measuring_runs(const struct measuring *m);                      /* a worker has a task of it */
bool measuring_has(const struct measuring *m, const void *tag);      /* this one */
const uint64_t *measuring_list(const struct measuring *m, uint64_t *ret_n);

/* ---- loader_windows.c */

/* As loader_measure(), but the loader is open at once. */
int _nodiscard_ loader_begin_windows(struct loader *loader, uint64_t fingerprint,
                                     struct dl_error *err);
struct windows *windows_free(struct windows *windows); /* no task runs; NULL is fine */
void loader_windows_pump(struct loader *loader);
bool loader_windows_go_on(const struct loader *loader); /* the next turn of the loop continues */
/* The stream's plan is one, and has begun. */
void loader_join_windows(struct loader *loader, struct stream *stream);
/* The task's lengths; NULL: it is of a step. Before the loader is open, all are of lengths. */
struct measuring *loader_measuring_of(const struct loader *loader, const void *tag);
/* No worker has been there for too long. */
void loader_windows_stalled(struct loader *loader, const char *cause);

/* ---- loader_lately.c */

/* A mark each so often: a while, which the verdict is about, is between one and two of these. */
#define MARK_NS ((uint64_t)10 * 1000000000)
void loader_mark(struct loader *loader);
bool loader_is_starving(const struct loader *loader); /* a reader waits for memory */
/* A stream is about to begin: what was done for others that have ended is nothing of the last
 * while. */
void loader_mark_start(struct loader *loader);
void loader_mark_anew(struct loader *loader); /* forgets the time until now */
/* `stream` (may be NULL) got its last batch, or a reader is about to leave: keeps the present
 * verdict for later. */
void loader_note_verdict(struct loader *loader, const struct stream *stream);

/* The stream has a client, which reads from now on; it is about to end. */
void loader_lately_begin(struct loader *loader, struct stream *stream);
void loader_lately_end(struct loader *loader, struct stream *stream);

/* ---- loader_size.c */

/* By the reader that matters most. */
double loader_priority(const struct loader *loader);
/* It is open: how many batches are loaded ahead is found, too, where workers are. */
void loader_size_first(struct loader *loader);

/* ---- loader_headspace.c */

/* In HOLD, deliveries are held back; in BURST, no task is begun. */
enum headspace_phase loader_headspace_phase(const struct loader *loader);
/* After each turn of the pump. True: another turn is needed. */
bool loader_headspace_look(struct loader *loader);
/* Its client has released `n` batches of the stream, and waited for others before. */
void loader_headspace_returned(struct loader *loader, const struct stream *stream, uint32_t n,
                               uint64_t waited_ns, uint64_t now);
/* It is not to be known any more. */
void loader_headspace_end(struct loader *loader, const struct dl_error *err);

#endif
