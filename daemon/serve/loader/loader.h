/*
 * A loader in the daemon: a spec, its pool, and the streams that read from it. core.h decides what
 * is loaded and delivered next; the loader carries it out.
 *
 * Main thread only. Callbacks come from the loop or from loader_pump().
 */
#ifndef DL_LOADER_H
#define DL_LOADER_H

#include "daemon/plan/lengths_rule.h"
#include "daemon/serve/core/core.h"
#include "daemon/serve/core/fair.h"
#include "daemon/serve/core/sizing.h"
#include "daemon/serve/core/slow_list.h"
#include "daemon/serve/loader/crew.h"
#include "daemon/serve/loader/headspace.h"
#include "daemon/serve/pool/pool.h"
#include "daemon/serve/ring/pictures.h"
#include "proto/shared/verdict.h"

struct loader;

/* One session's opening of a loader; embedded in the session's own record of it. */
struct loader_user {
    struct loader_user *prev, *next; /* loader.users (utlist) */
    struct loader *loader;           /* borrowed; NULL once the loader is gone */
    uint64_t blame;                  /* the loader's: loader_options.blame */
    bool answered;                   /* `opened` was called */
    bool leaving;                    /* it requests nothing more, but may still hold leases */
};

/* Waits for a loader's headspace; embedded in the session. */
struct headspace_asker {
    struct loader *loader; /* borrowed; NULL: it waits for nothing */
};

/* How far a stream goes, as far as that is known beforehand; STEPS_UNKNOWN. */
struct loader_extent {
    uint64_t steps;
    uint64_t samples;
};

struct loader_events {
    /* While it opens: `done` of `all` (UINT64_MAX: unknown) are done, such as lengths; `what` is a
     * text for people, borrowed for the call. */
    void (*progress)(struct loader_user *user, uint64_t done, uint64_t all, const char *what);
    /* err NULL: it is open. Else the user is detached already. */
    void (*opened)(struct loader_user *user, const struct dl_error *err);
    /* What loader_start() had left open is known: how far it goes, or (err) why it is not to be;
     * it has to be ended then. */
    void (*started)(struct stream *stream, const struct loader_extent *extent,
                    const struct dl_error *err);
    /* These steps were leased to the stream's sink, in order. */
    void (*deliver)(struct stream *stream, struct step *const *steps, uint32_t n);
    /* In place of a step (number), or UINT64_MAX; `detail`: the whole story, or NULL. `final`: the
     * stream is over. */
    void (*fault)(struct stream *stream, uint64_t number, const struct dl_error *err,
                  const char *detail, bool final);
    /* All was delivered, as far as it goes: to the end of the epoch, or to stream.limit. */
    void (*finished)(struct stream *stream);
    void (*warning)(struct stream *stream, const char *message);
    /* loader_changes() are others. */
    void (*changed)(struct loader_user *user);
    /* err NULL: how much faster its trainers could be. The asker waits no longer. */
    void (*measured)(struct headspace_asker *asker, const struct headspace_result *result,
                     const struct dl_error *err);
    void (*retired)(void *context, uint32_t segment);
    /* The user has no memory left for it. True: another loader of that user was dropped. */
    bool (*make_way)(void *context, struct loader *loader);
    /* The user may have no worker more. True: others of that user's loaders have given some back,
     * or are about to. */
    bool (*spare_worker)(void *context, struct loader *loader);
    /* The daemon is to find its number of workers: loader_look_sizes(). */
    void (*automatic)(void *context);
    /* A loader that was held back may have more by now: loader_go_on_fair(). */
    void (*due)(void *context);
    /* A worker has looked: loader_files() knows more. */
    void (*looked)(void *context);
    /* It may not be joined any more and will soon be freed. */
    void (*gone)(void *context, struct loader *loader);
};

struct loader_options {
    /* Without what the loader fills in: spec, python, pictures, events and owner. `reader`, the
     * credentials of the client that opens it, is copied, and may be NULL. */
    struct pool_options pool;
    struct crew *crew;
    struct fair *fair;        /* borrowed; of all loaders */
    struct python_run python; /* consumed by loader_new(), also on failure */
    uid_t uid;
    uint64_t blame;                     /* the key of the request: base/blame.h */
    struct pictures_set *pictures;      /* of all loaders; borrowed */
    const struct loader_events *events; /* borrowed, static */
    void *context;
};

/* Consumes `spec` (zeroed on return, also on failure). Starts the workers. */
int _nodiscard_ loader_new(const struct loader_options *options, struct dl_spec *spec,
                           struct loader **ret, struct dl_error *err);
/* Ends it now: users are detached without a call, streams must be gone. */
struct loader *loader_free(struct loader *loader);

void loader_attach(struct loader *loader, struct loader_user *user);
/*
 * The user's streams are stopped already, and it starts no more; its leases stay until they are
 * released, and loader_detach() comes then. Leases need no workers: these end as if the user had
 * been detached.
 */
void loader_leave(struct loader_user *user);
/* The user's streams are ended already. */
void loader_detach(struct loader_user *user);

/* Since when (ns) the loader has been unused, so that it can be dropped; UINT64_MAX: it is in use.
 * *ret_parked: jobs may come back to it. */
uint64_t loader_unused_since(const struct loader *loader, bool *ret_parked);
/* Workers of its user's limit that loader_give_way() gives back at once; and memory. */
uint32_t loader_gives_back(const struct loader *loader);
uint64_t loader_gives_back_bytes(const struct loader *loader);
/* Bytes of batches in a second, lately. */
uint64_t loader_bandwidth(const struct loader *loader, uint64_t now);
/* Whether the files of its dataset are those that they were when it was opened. */
enum loader_files {
    LOADER_FILES_SAME, /* or they are not known */
    LOADER_FILES_CHANGED,
    LOADER_FILES_ASKED, /* a worker looks; `looked`, or `gone`, follows */
};
/* For a request made at `asked`, ns. */
enum loader_files loader_files(struct loader *loader, uint64_t asked);
/* Ranks of a job read it, or may come back to it. */
bool loader_has_jobs(const struct loader *loader);
/* Warns its readers, once, that its files have changed. */
void loader_warn_of_files(struct loader *loader);
/* It has no users: ends its workers and releases its quota. The loader is freed unless clients hold
 * leases of it. */
void loader_give_way(struct loader *loader);

const struct dl_spec *loader_spec(const struct loader *loader);
uid_t loader_uid(const struct loader *loader);
const struct quota_account *loader_account(const struct loader *loader);
/* Whether a client with these credentials may read what its workers read for the one that opened
 * it. */
bool loader_may_join(const struct loader *loader, const struct credentials *who);
/* The interpreter that runs its workers; NULL: they are separate programs. */
const char *loader_interpreter(const struct loader *loader);
uint64_t loader_fingerprint(const struct loader *loader);
/* What states of its epochs know it by; once open. */
const struct state_identity *loader_identity(const struct loader *loader);
/* Batches ahead, × workers + 1; it may have fewer workers for now than it began with. */
uint32_t loader_credits(const struct loader *loader);

/* Starts a stream; -EINVAL, -ENOMEM, -EDQUOT, -EBUSY, -ENOENT (nothing to resume) with `err`. 1:
 * its plan takes a while, and `started` is called then. Batches come with the next pump. */
int _nodiscard_ loader_start(struct loader *loader, const struct stream_params *params, void *sink,
                             struct stream **ret, struct loader_extent *ret_extent,
                             struct dl_error *err);
/* The stream's steps by its plan, else by its client, else by the dataset's length; or
 * STEPS_UNKNOWN. */
uint64_t loader_expected_steps(const struct loader *loader, const struct stream *stream);
/* Gives a stream just started its client's states of replicas; moves all of them and leaves *states
 * empty. -EDQUOT. */
int _nodiscard_ loader_bring_dataset_states(struct loader *loader, struct stream *stream,
                                            struct dataset_states *states, struct dl_error *err);
/*
 * Changed weights of its mixture (loader_changes.c) that are in force, borrowed; or NULL.
 */
struct mix_changes *loader_changes(const struct loader *loader);

/* The list known to the client that will start this stream; before loader_start(). -EINVAL,
 * -ENOTSUP, -ENOMEM, -EDQUOT with `err`. */
int _nodiscard_ loader_bring_changes(struct loader *loader, const struct stream_params *params,
                                     struct mix_changes *list, struct dl_error *err);

struct loader_change {
    uint64_t epoch, step;       /* where it begins; UINT64_MAX: see MIX in messages.def */
    double *weights;            /* borrowed; one for each dataset; */
    struct weight_table *table; /* or, of a weighted sampler: borrowed; or NULL */
    uint64_t position;          /* of the step, in the order */
};
/* New weights for all readers from that step on, which is filled in. -EINVAL, -ENOTSUP, -EAGAIN
 * (not all ranks read it), -EBUSY, -E2BIG, -ENOMEM, -EDQUOT with `err`. */
int _nodiscard_ loader_mix(struct loader *loader, struct loader_change *change,
                           struct dl_error *err);

/*
 * The same in the cluster's world, where each node is given the same change
 * (daemon/docs/weights-agreed.md). Whether it is read there; */
bool loader_is_in_cluster(const struct loader *loader);
/* whether its weights can change at all; */
bool loader_weights_can_change(const struct loader *loader);
/* whether this node can make such a change; one that names an epoch alone begins with it. Errors as
 * loader_mix(), and -EINVAL: it names no step; */
int _nodiscard_ loader_check_change(struct loader *loader, struct loader_change *change,
                                    struct dl_error *err);
/* makes the list with a checked change, counted, from the former one, and fills in its place.
 * Errors as loader_mix(); */
int _nodiscard_ loader_make_change(struct loader *loader, const struct mix_changes *before,
                                   struct loader_change *change, struct mix_changes **ret,
                                   struct dl_error *err);
/* whether a list has that checked change: its position is then filled in; */
bool loader_has_change(struct loader *loader, const struct mix_changes *list,
                       struct loader_change *change);
/* plans nothing at or behind the position; UINT64_MAX ends that; */
void loader_hold(struct loader *loader, uint64_t position);
/* ranks wait there for other nodes; true: they have for 30 s, and get `why`; */
bool loader_wait_for_nodes(struct loader *loader, const struct dl_error *why);
/* nodes were given different changes: ranks get `why`; */
void loader_fail_changes(struct loader *loader, const struct dl_error *why);
/* whether an epoch's length depends on what follows there, so that its streams cannot start; */
bool loader_holds_epoch(const struct loader *loader, uint64_t epoch, uint64_t position);
/* adopts the list that all nodes have. If this node has planned otherwise already, the loader
 * breaks. Returns UINT64_MAX; or the position of a change whose sample weights are missing here:
 * the changes before it are in force, and nothing is planned from there on until
 * loader_give_table() has them; call again now and then. The loader also breaks if ranks have
 * waited there for 30 s; */
uint64_t loader_take_changes(struct loader *loader, struct mix_changes *list);
/* gives the list the change's weights, if it lacks them; */
bool loader_give_table(struct mix_changes *list, const struct loader_change *change);
/* the same as loader_take_changes() for a stream about to start there, whose client knows `known`,
 * if it `tells`. -EINVAL, -EBUSY, -ENOENT (it starts behind a change whose weights are missing
 * here) with `err`. */
int _nodiscard_ loader_share_changes(struct loader *loader, const struct stream_params *params,
                                     bool tells, const struct mix_changes *known,
                                     struct mix_changes *list, struct dl_error *err);

/* There are more helpers than before. */
void loader_meet_helpers(struct loader *loader);

/* The daemon ends: nothing more is loaded or delivered, even after releases. */
void loader_halt(struct loader *loader);
/* Nothing more is loaded for it; leases stay. */
void loader_stop(struct loader *loader, struct stream *stream);
/* Stops it, gives its leases back and frees it. NULL is fine. */
void loader_end(struct loader *loader, struct stream *stream);
/* Its client is gone. As loader_end(), or it is parked. */
void loader_lose(struct loader *loader, struct stream *stream);

/* As core_feed(). */
int _nodiscard_ loader_feed(struct loader *loader, struct stream *stream, const uint8_t *indices,
                            uint32_t n, bool end, struct dl_error *err);
/* For a change of the cluster's world: pauses the stream; continues it, up to `limit`. */
void loader_pause(struct loader *loader, struct stream *stream);
void loader_resume(struct loader *loader, struct stream *stream, uint64_t limit);
/*
 * Its client releases its leases on these steps (u64), or (`pin`) keeps them without their credits,
 * and reports how long it has waited for others. False: it has no lease on *ret_unknown, or that is
 * a fault, which cannot be pinned; the steps before it are handled.
 */
bool _nodiscard_ loader_return(struct loader *loader, struct stream *stream, struct dl_span steps,
                               bool pin, uint64_t waited_ns, uint64_t *ret_unknown);

/*
 * Measures how much faster its trainers would be if it cost nothing: headspace.h. `measured`
 * follows. -EAGAIN, -EBUSY (a measurement is running) with `err`.
 */
int _nodiscard_ loader_headspace(struct loader *loader, struct headspace_asker *asker,
                                 uint32_t steps, struct dl_error *err);
/* The asker is gone. Without a call; also fine where it waits for nothing. */
void loader_headspace_leave(struct headspace_asker *asker);

/* Collects finished tasks, hands out new ones, delivers what is due. Call after any change. */
void loader_pump(struct loader *loader);

/*
 * From now on it has `workers`, also while it is read: its batches are the same. -EINVAL: they
 * would not be, as steps are bound to workers; -EAGAIN: it is not open yet; or, the user's limits
 * or memory.limit do not allow that; with `err`.
 */
int _nodiscard_ loader_resize(struct loader *loader, uint32_t workers, struct dl_error *err);
/* Why its number of workers cannot change; NULL: it can. */
const char *loader_fixed_size(const struct loader *loader);
/* The daemon finds its number of workers, from now on or no longer. -EINVAL with `err`: it cannot
 * change. */
int _nodiscard_ loader_set_automatic(struct loader *loader, bool automatic, struct dl_error *err);
bool loader_is_automatic(const struct loader *loader);
/* What it did since the last time, for sizing_decide(); false: it is not open. */
bool loader_look_sizes(struct loader *loader, double cpus, struct sizing_case *ret);
/* Takes what was decided. -EDQUOT: more workers than the user may have. */
int loader_take_size(struct loader *loader, const struct sizing_case *decided);
/* The daemon finds how many of its helpers work. */
bool loader_sizes_helpers(const struct loader *loader);
/* What is decided of them, after what was decided of its own workers. */
void loader_size_helpers(struct loader *loader, const struct sizing_case *own);
/* Others of its user need workers: if the daemon finds how many it has, and nobody reads it, it
 * keeps one, or with `last` none. False: it has none to give. */
bool loader_yield_workers(struct loader *loader, bool last);
/* It is about to be read, or looked at: if it has no worker, one starts, or will as soon as the
 * user's limits allow that: loader_wake_if_read() is called from time to time. */
void loader_wake(struct loader *loader);
/* The same of one that is read and still has none; it tells its readers. */
void loader_wake_if_read(struct loader *loader);
/* How many it can do without, read or not, of those that the daemon has added; and so many go, at
 * most as many, as soon as they have made what they have. */
uint32_t loader_spares(const struct loader *loader);
bool loader_spare_workers(struct loader *loader, uint32_t n);
/* It may be given more work than before, if it was held back. */
void loader_go_on_fair(struct loader *loader);
/* In words, how many workers it has and why. */
void loader_size_words(const struct loader *loader, char ret[static SIZING_WORDS]);

/* For the views. */
/* Samples whose length is known, while lengths are measured; else UINT64_MAX. */
uint64_t loader_measured(const struct loader *loader);
/*
 * Names a worker's task by its tag: "samples 3, 9", "lengths of samples 0 to 63"; *ret_step is the
 * step, or NULL. False if the task is not waited for any more.
 */
bool loader_name_task(const struct loader *loader, const void *tag, const struct step **ret_step,
                      char *text, size_t len);
const struct pool *loader_pool(const struct loader *loader);
const struct core *loader_core(const struct loader *loader);
/* What its workers keep decoded, and the size of the memory for it; false: nothing. */
bool loader_pictures(const struct loader *loader, struct pictures_counts *ret, uint64_t *ret_bytes);
/* Keeps its pictures for the client beyond the loader's end: a host's loader ends with its
 * epoch. */
void loader_share_pictures(const struct loader *loader, struct pictures_list *list);
/* The last ten minutes: until when something is known, ns; a rank's line and the totals as they are
 * then, what was not looked at included. */
const struct lately_book *loader_lately(const struct loader *loader);
uint64_t loader_lately_until(const struct loader *loader, uint64_t now);
void loader_lately_line(const struct lately_rank *rank, uint64_t until, struct lately_line *ret);
void loader_lately_totals(const struct loader *loader, uint64_t until, struct lately_totals *ret);
/* The lengths of its samples, once known; NULL: not known, or not measured. */
const struct lengths_found *loader_lengths(const struct loader *loader);
const struct slow_list *loader_slowest(const struct loader *loader);
uint64_t loader_starved_ns(const struct loader *loader); /* a reader waited for memory */
const char *loader_state(const struct loader *loader);
uint32_t loader_users(const struct loader *loader); /* without those that left */
/* Where the time went lately. */
void loader_verdict(const struct loader *loader, struct verdict *ret);
uint64_t loader_lately_since(const struct loader *loader); /* ns; when the time it is on began */
/* Its verdict at the end of the last epoch, or ""; loader_was() gives a new loader that of its
 * predecessor. */
const char *loader_last_verdict(const struct loader *loader);
void loader_was(struct loader *loader, const char *verdict);

#endif
