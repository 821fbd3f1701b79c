/*
 * The client's machine: what a session's objects are, and what the daemon's messages and the
 * program's calls do to them. It waits for nothing, and has no socket: messages for the daemon are
 * queued in `conn`.
 */
#ifndef DL_CLIENT_CORE_H
#define DL_CLIENT_CORE_H

#include "client/core/connection.h"
#include "client/core/step_set.h"
#include "client/dlclient.h"
#include "client/mapping.h"
#include "client/view.h"

#include "proto/state_token.h"

enum {
    CLIENT_SEGMENTS_MAX = 4096, /* mapped at once; a process has about 65,000 mappings in all */
    EPOCH_FAULTS_MAX = 1024, /* waiting in one epoch that belong to no step: they use no credit */
    EPOCH_DETAIL_MAX = 4 * 1024 * 1024, /* bytes of their reports; above it only the gist is kept */
    CLIENT_POLL_TURNS = 64,             /* reads a call that must not block does at most */
};

#define NS_PER_S        1000000000ULL
#define DEADLINE_NONE   UINT64_MAX
#define CONNECT_TIMEOUT (10 * NS_PER_S)
#define REQUEST_TIMEOUT (30 * NS_PER_S)
#define OPEN_TIMEOUT    (600 * NS_PER_S) /* the workers open the dataset: it may be unpacked */
#define PATIENCE        (30 * NS_PER_S)  /* with a daemon that is away, by default */

static inline uint64_t deadline_of(uint64_t now, uint64_t timeout_ns)
{
    uint64_t deadline;

    return add_overflows(now, timeout_ns, &deadline) ? DEADLINE_NONE : deadline;
}

/* The answer a blocked call waits for. */
struct call {
    uint64_t request; /* 0 with `answer` WELCOME; `answer` 0: no call waits */
    enum message_number answer;
    bool done;
    bool has_more;            /* INFO continues the rows of the answer before */
    uint32_t next;            /* the first row that INFO leaves out; 0: it has the last one */
    bool is_repeat;           /* what was open before: the answer must be the same */
    struct dl_error refused;  /* code 0: granted */
    struct dl_loader *loader; /* borrowed: filled by OPENED; NULL: closed meanwhile */
    struct dl_epoch *epoch;   /* borrowed: filled by STARTED; NULL: ended meanwhile */
};

/* A Python host that was handed to the daemon, kept to be handed to the next one. */
struct brought_host {
    struct brought_host *next;
    uint64_t number;
    int channel;     /* owned */
    uint32_t has_it; /* the incarnation of the daemon that was last sent it; UINT32_MAX: not sent
                        again */
};

/* How far a client has come with reconnecting; see away.c. */
enum away { AWAY_NOT, AWAY_CONNECTING, AWAY_GREETING, AWAY_OPENING, AWAY_STARTING };

struct reconnect {
    char *path;        /* owned; of the daemon's socket; NULL: it cannot reconnect */
    char *agent;       /* owned; of HELLO */
    uint64_t life;     /* the daemon's, from WELCOME */
    uint64_t ended;    /* the life of the daemon that ended the session; 0: we left it */
    uint64_t patience; /* ns; 0: it never reconnects */
    enum away away;
    uint64_t deadline; /* when another daemon must have answered */
    uint64_t due;      /* OPENING, STARTING: when the answer must have come */
    uint64_t pause;    /* after the next try that fails */
    uint64_t next_try;
    uint64_t
        armed; /* of that, what the timer in the socket's place knows; 0: the socket is there */
    struct call call;      /* the answer it waits for */
    struct dl_error cause; /* why the session ended, or the last try failed */
    int watch;             /* owned; returned by dl_client_fd(): an epoll of `fd`; may be -1 */
};

/* A stream stopped while the daemon may still have batches of it on the way. */
struct stopped {
    uint32_t stream;
    uint64_t request; /* an answer to a later request proves that nothing more comes */
};

struct dl_client {
    /* Borrowed from `reclaim`, which outlives the client while tensors exist; may be -1. While the
     * client is away and not connected, a timer in the socket's place. */
    int fd;
    struct connection conn;
    struct reconnect reconnect;
    uint32_t incarnation;       /* counts the daemons it was connected to */
    struct brought_host *hosts; /* owned; brought, but not taken by an open loader */
    struct call call;
    bool wants_writable, wants_automatic;
    bool has_seed; /* for loaders whose spec has no seed: */
    uint64_t seed;
    uint64_t call_timeout; /* overrides the timeouts above when not 0; for tests */
    struct dl_error error; /* the last failure */
    char error_text[DL_ERROR_PATH_MAX + DL_ERROR_MESSAGE_MAX + 2];
    char *detail;              /* owned: the whole report of the last error; may be NULL */
    struct dl_loader *loaders; /* owned; dl_loader.next */
    struct mapping **segments; /* owned, counted; announced and not retired */
    uint32_t n_segments, cap_segments;
    struct stopped *stopped; /* owned */
    uint32_t n_stopped, cap_stopped;
    struct dl_batch *batches;      /* owned: in the user's hands; dl_batch.next/prev */
    struct dl_batch *tensor_owned; /* borrowed: held only by tensors; dl_batch.next/prev */
    struct dl_batch *pool;         /* owned: unused; dl_batch.next */
    struct reclaim *reclaim;       /* counted */
    struct pin *pin;         /* counted: segments that come are page-locked with it; or NULL */
    struct dl_buffer answer; /* of the last query */
    struct {
        /* NULL: no reports */
        void (*tell)(void *data, uint64_t done, uint64_t all, const char *what);
        void *data;
    } progress;
    void *module; /* owned handle of dlclient-local.so; NULL until it is needed */
    const struct local_table *table; /* the module's */
};

/* The memory of a loader whose batches are made in this process. */
struct private_memory {
    struct mapping *spare; /* owned, mapping.next: unused ones */
    uint64_t bytes;        /* of all there are, in use or not */
    uint64_t limit;        /* memory.limit */
    uint64_t slot_bytes;   /* what the next one shall have */
};

struct dl_loader {
    struct dl_loader *next;
    struct dl_client *client; /* borrowed: outlives it */
    struct dl_epoch *epochs;  /* owned; dl_epoch.next */
    uint32_t id;
    uint32_t credits;        /* the daemon's choice */
    uint32_t n_tensor_owned; /* batches that only tensors hold */
    uint32_t extra_leases;   /* beyond the current batches': pinned, or kept by tensors */
    uint64_t held_bytes;     /* of their slots */
    bool closed;             /* by the user; sent to the daemon once `n_tensor_owned` is 0 */
    bool needs_open;         /* its daemon is gone, and the next one has not opened it yet */
    bool iterable;           /* its steps may leave numbers out */
    bool in_order;           /* batches come in the order of their steps */
    bool drop_last;
    uint32_t replicas;           /* ranks that read the same batches, by the spec */
    bool wants_writable;         /* dl_client_set_writable(), when it was opened */
    bool wants_automatic;        /* the same of dl_client_set_automatic() */
    struct module_loader *local; /* owned; NULL: the loader is the daemon's */
    struct private_memory memory;
    struct dl_buffer spec;      /* of a remote one: for OPEN, now and after a reconnect */
    char *base;                 /* owned; the same */
    struct brought_host *hosts; /* owned; that the spec names */
    char *name;                 /* owned */
    struct {
        uint32_t local, rank, world; /* of the rank started last; world 0: not started yet */
    } former;                        /* in the cluster's world */
    uint64_t length, batch_size, seed, fingerprint;
    struct state_identity identity; /* what states know it by */
    struct {
        struct dl_buffer list; /* as in CHANGED */
        bool known;            /* the list is complete, as far as the client knows */
        uint32_t sent_to;      /* of samples: 1 + the incarnation whose daemon has the tables, */
        uint64_t from;         /* for epochs from this one on */
    } weights;                 /* changed ones, of a mixture or of samples */
};

struct fault {
    int code;
    bool final;    /* nothing comes behind it */
    char *path;    /* owned */
    char *message; /* owned */
    char *detail;  /* owned; may be NULL */
    size_t detail_len;
    uint32_t incarnation; /* of the client: the daemon that sent it */
};

/* What next() will hand out: a batch, or a fault in its place. */
struct entry {
    struct dl_descriptor descriptor;
    struct mapping *mapping; /* counted; NULL for a fault */
    const uint8_t *slot;     /* inside the mapping */
    struct fault *fault;     /* owned; NULL for a batch */
};

/* The indices of a step, kept until its batch has arrived: another daemon may have to make it. */
struct fed {
    struct fed *next;
    size_t n;
    uint64_t indices[]; /* little-endian */
};

/* The client as the sampler: the order that it has fed. */
struct feed {
    bool on;             /* this epoch is fed */
    bool ended;          /* nothing follows */
    bool end_sent;       /* and the daemon has been sent the end */
    uint32_t n_buffered; /* indices of a batch that is not complete yet */
    uint64_t *batch;     /* owned; NULL until first used */
    size_t cap;          /* places there: batch.size, or what a step of keys has needed */
    uint64_t steps;      /* that the user has fed */
    uint64_t ahead;      /* sent to this daemon, and not arrived */
    /* Owned list of the steps from `first_buffered` on, counted from the epoch's first. */
    struct fed *head, *tail;
    struct fed *unsent; /* borrowed: the first in it that was not sent; NULL: all were */
    uint64_t first_buffered;
};

/* The dataset's state after a batch of one worker. */
struct saved_state {
    uint8_t *bytes; /* owned; a record of proto/dataset_state.h; may be NULL */
    size_t len;
    uint64_t after; /* good from this step on */
};

/* The states of an iterable dataset that can save them. */
struct saved_states {
    struct worker_saved_states {
        struct saved_state latest, before;
    } * workers;        /* owned; NULL: no state so far */
    bool loss_reported; /* the user was warned that a state cannot be kept */
};

/* Where an epoch's stream is. */
enum epoch_phase {
    EPOCH_RUNNING,  /* a daemon has it, and sends */
    EPOCH_AWAY,     /* its daemon is gone; the next one must start it */
    EPOCH_OVER,     /* the daemon sends nothing more for it; of a local one: all was made */
    EPOCH_ENDING,   /* it is over, but the daemon, another one, has yet to see that */
    EPOCH_LEFT,     /* it is over, and its daemon is gone */
    EPOCH_UNWANTED, /* the same, and the next daemon does not start it */
};

/* What changes that; phase.c has what becomes of it. */
enum epoch_event {
    EPOCH_ENDED,    /* its last message has come, or none can */
    EPOCH_LOST,     /* the daemon is gone */
    EPOCH_TAKEN_UP, /* another one has started it */
    EPOCH_REFUSED,  /* another one has not, and is not needed */
    EPOCH_DROPPED,  /* its stream is stopped, and no other follows */
    EPOCH_ANEW,     /* its stream is stopped, and it is started in another world */
    EPOCH_EVENTS,
};

struct epoch_rules {
    bool is_over;       /* nothing more comes for next() */
    bool daemon_has_it; /* the daemon knows it by its number, */
    bool daemon_sends;  /* and may send something for it */
};

/* What next() has come to. */
enum epoch_outcome {
    EPOCH_OPEN,
    EPOCH_HAD_ALL, /* it returned DL_END */
    EPOCH_BROKEN,  /* a fault was the stream's last word */
    EPOCH_CUT,     /* the same, but what has arrived is dropped and `cut` returned */
};

/* Where batches may pass others: which steps have come, and in which order; see came.c. */
struct came {
    uint64_t from;          /* steps that had come before the first of the journal, */
    struct passed begin;    /* and which */
    struct journal journal; /* of those that came since then */
    uint64_t count;         /* steps that have come by now, */
    struct passed now;      /* and which */
    bool lost;              /* the order is not known: it did not fit, or there was no memory */
    struct dl_buffer led;   /* owned; the order in which others are to come, */
    uint64_t led_from;      /* once this many have come */
    uint8_t passed[PASSED_BYTES]; /* for START */
};

/* A mark (proto/history.h), and the first step that may resume by it. */
struct marked {
    struct lazy_mark mark;
    uint64_t step;
};

struct dl_epoch {
    struct dl_epoch *next;
    struct dl_loader *loader; /* borrowed: outlives it */
    uint32_t stream;
    enum epoch_phase phase;
    enum epoch_outcome outcome;
    bool resumed; /* from a former daemon */
    uint32_t rank, world;
    uint32_t replica, replicas; /* among readers of the same batches; replicas 0: alone */
    bool cluster;               /* both are what the nodes have agreed on, */
    uint32_t priority;          /* enum dl_priority */
    uint64_t expected_steps;    /* as its user says; 0: not known */
    enum dl_follow follow;      /* also when they do it anew, */
    bool world_over;            /* the user knows that it is over, */
    uint32_t left_out;          /* enum dl_left_out */
    uint32_t changes;           /* which they did so often, */
    uint32_t local_rank;        /* for this rank of the daemon's node */
    bool length_reported;       /* of a local one: it has more samples than the dataset says */
    struct fault *cut;          /* owned; NULL: no fault, or returned already */
    struct rank_position *used; /* owned; shared with the daemon; NULL: it does not ask */
    char *job;                  /* owned; "": no job */
    uint64_t number, steps, samples;
    uint64_t first; /* requested in START */
    uint64_t begun; /* steps that the rank had before; mostly the same number */
    struct came came;
    struct history before;            /* what other world sizes had of the epoch */
    struct marked marks[2];           /* of what was given out: the last one comes first */
    struct saved_states saved_states; /* after the batches that next() gave out */
    uint64_t position;                /* behind the last step that next() gave out; else `begun`;
                                         where batches pass others: how many the rank had */
    uint64_t expected;                /* no step below it comes any more: each of them has */
    struct step_set arrived;          /* not in order: steps above it that have arrived */
    uint64_t delivered;               /* steps that came, as batch or fault */
    uint64_t received;                /* of them, those that next() gave out */
    struct local_pass *local;         /* owned; NULL: a stream of the daemon's */
    uint64_t made;                    /* of a local one: samples */
    struct feed feed;

    uint32_t credits;
    uint32_t lent;     /* credits in use, once the daemon has read all that we sent */
    uint32_t unsent;   /* credits that the pending lists below return when sent */
    uint32_t flush_at; /* pending steps that are sent without waiting for a better moment */
    uint32_t n_releases, n_pins;
    uint32_t n_former_returned; /* leases of gone daemons released since the last report ... */
    uint64_t lowest_former;     /* ... the lowest of their steps; UINT64_MAX: no such lease */
    uint32_t n_feeds;           /* steps fed that lie in the connection's output */
    bool hurried;               /* the user asked for this batch right after the last one */
    uint64_t given_ns;          /* when the last batch was given out */
    uint64_t *releases, *pins;  /* owned: flush_at each; steps, little-endian */

    struct entry *entries;     /* owned ring */
    uint32_t head, count, cap; /* cap: a power of two */
    uint32_t faults;           /* among the entries */
    size_t detail_bytes;       /* of their reports */
    uint64_t failed; /* the step of the last fault that next() gave out; else UINT64_MAX */

    struct dl_batch *current; /* borrowed: the next next() releases it; NULL also if pinned */
    struct view *view;        /* counted: the tree checked last */
    struct view *slice;       /* counted: the rows taken last of it, or of another */
    char *warning;            /* owned: the latest, not yet read by the user; may be NULL */
    char *warning_shown;      /* owned: the one dl_epoch_warning() gave out */
    uint64_t wait_ns;
    uint64_t wait_reported_ns; /* of that, the daemon knows */
};

/*
 * `refs` counts the user (one, until the batch is released) and every DLPack tensor. The thread
 * that drops the last reference ends the lease: the client's thread at once, others through
 * `reclaim`.
 */
struct dl_batch {
    struct dl_batch *next, *prev; /* client.batches, tensor_owned or pool: one at a time */
    struct dl_batch *dropped;     /* reclaim's list */
    struct dl_client *client;     /* borrowed; dangles once the client is closed */
    struct dl_epoch *epoch;       /* borrowed; NULL once the epoch has ended */
    struct dl_loader *loader;     /* borrowed; outlives it unless the client is closed */
    struct reclaim *reclaim;      /* counted once the batch was ever exported, else NULL */
    struct mapping *mapping;      /* counted */
    struct mapping *withheld;     /* counted; a detached batch's slot until its release; or NULL */
    struct view *view;            /* counted; NULL once the user gave the batch back */
    const uint8_t *slot;
    const uint64_t *indices;
    const struct slot_planned *planned; /* NULL: the batch is not measured in tokens */
    uint64_t planned_bytes;
    uint64_t step;
    uint32_t samples;
    uint32_t repeated;
    uint32_t stream;
    uint64_t generation; /* of the slot */
    bool pinned;         /* PIN was queued: the credit is back, the lease stays */
    bool detached;       /* `mapping` is a private copy of the slot, and the lease is back */
    bool tensor_owned;   /* the user gave it back, but tensors hold it; never a detached one */
    atomic_uint refs;
};

/* ---- session.c ---- */

/* Sets the last error's text and returns -code; does not latch. */
int client_fail(struct dl_client *client, int code, const char *path, const char *fmt, ...)
    _printf_(4, 5);
int client_fail_with(struct dl_client *client, const struct dl_error *err);

/* The latched error as the last error; returns its -errno. */
int client_fatal(struct dl_client *client);

/* Queues a message; failures are latched. */
void client_send(struct dl_client *client, const struct dl_message *msg);

/* Latches -ENOMEM. */
int no_memory_for(struct dl_client *client, const struct dl_message *msg);

/* For dl_epoch_warning(), in place of one that was not read. Without memory it is lost. */
void epoch_set_warning(struct dl_epoch *epoch, const char *text);

struct dl_epoch *client_find_epoch(struct dl_client *client, uint32_t stream);
/* The segment's place in the client's table; UINT32_MAX if it has no segment of that number. */
uint32_t client_find_segment(const struct dl_client *client, uint64_t id);

/* ---- phase.c ---- */

const struct epoch_rules *epoch_rules_of(const struct dl_epoch *epoch);
void epoch_apply(struct dl_epoch *epoch, enum epoch_event event);

static inline void epoch_drop_position(struct dl_epoch *epoch)
{
    mapping_drop_position(epoch->used);
    epoch->used = NULL;
}

static inline bool client_is_away(const struct dl_client *client)
{
    return client->reconnect.away != AWAY_NOT;
}

/* Is the slot of that mapping one that a daemon which is there has lent? */
static inline bool client_has_lease(const struct dl_client *client, const struct mapping *mapping)
{
    return mapping->incarnation == client->incarnation;
}

/* ---- requests.c ---- */

struct dl_message client_hello_message(const char *agent);

/* OPEN of the loader, once more or for the first time, and the call for its answer. */
struct dl_message loader_open_message(struct dl_loader *loader);

/* The mark by which the epoch may resume at that step; a batch that is given out has one. */
struct lazy_mark epoch_mark_at(const struct dl_epoch *epoch, uint64_t step);
void epoch_note_mark(struct dl_epoch *epoch, uint64_t step, struct lazy_mark mark);
/* START from that step on, and the call for its answer. */
struct dl_message epoch_start_message(struct dl_epoch *epoch, uint64_t step,
                                      uint8_t before[static HISTORY_BYTES]);

/* Queues it behind what the daemon must know before: the dataset's own states, the rank's former
 * place, changed weights. As connection_send(). */
int _nodiscard_ epoch_queue_start(struct dl_epoch *epoch, const struct dl_message *start);

/* The stream is not needed here: sends STOP, and releases batches on their way unseen. */
void client_stop_stream(struct dl_client *client, uint32_t stream);

/* Drops the epoch's stream and its batches that the user has not received; the others become the
 * client's. */
void epoch_leave_stream(struct dl_epoch *epoch);
void epoch_disown(struct dl_epoch *epoch); /* the batches that outlive it */

/* ---- dispatch.c ---- */

/* A message of the daemon's. */
struct received {
    struct dl_message msg;
    int fd; /* owned until client_dispatch(); -1 unless the message carries one */
    uint64_t now;
};

/* Does what the message says; consumes its descriptor. 0 or the latched error. */
int _nodiscard_ client_dispatch(struct dl_client *client, const struct received *in);

/* ---- stream.c ---- */

/* The epoch ends here with an error, and nothing more of it is given out. */
int _nodiscard_ epoch_cut(struct dl_epoch *epoch, const struct dl_error *err);

/* ---- queue.c ---- */

int _nodiscard_ epoch_push(struct dl_epoch *epoch, const struct entry *entry); /* consumes it */
struct entry epoch_pop(struct dl_epoch *epoch); /* of those that there are; the caller's */
void entry_deinit(struct entry *entry);
/* It uses a credit, which the daemon that is there has lent: a batch, or a step's fault. */
bool entry_is_lent(const struct dl_client *client, const struct entry *entry);
/* It uses a credit that a daemon lent which is gone. */
bool entry_is_former_lease(const struct dl_client *client, const struct entry *entry);
struct fault *fault_free(struct fault *fault); /* NULL is fine; returns NULL */

/* ---- leases.c ---- */

/* Adds a step to the pending pins or releases; `credit`: it gives one back. */
void epoch_queue_pin(struct dl_epoch *epoch, uint64_t step);
void epoch_queue_release(struct dl_epoch *epoch, uint64_t step, bool credit);
void epoch_queue_pending(struct dl_epoch *epoch);    /* as messages */
void client_queue_pending(struct dl_client *client); /* of all epochs */
void client_release_step(struct dl_client *client, uint32_t stream, uint64_t step);

/* The lowest unreleased step of the epoch that a former daemon lent; UINT64_MAX: no such lease, or
 * the epoch has no job. For START. */
uint64_t former_leases_lowest(struct dl_epoch *epoch);
/* One of them was released. */
void former_leases_note_returned(struct dl_epoch *epoch);
/* Queues FORMER_LEASE where the lowest step has changed. */
void former_leases_report(struct dl_epoch *epoch);

/* ---- came.c ---- */

/* The order in which its steps come is not theirs, and is kept. */
bool came_is_kept(const struct dl_epoch *epoch);
/* The rank has had `count` steps: those in `passed`. -ENOMEM. */
int _nodiscard_ came_begin(struct dl_epoch *epoch, uint64_t count, const struct passed *passed);
/* A step of an epoch that is not in order has come. */
void came_note(struct dl_epoch *epoch, uint64_t step);
/* Which steps had come once `count` of them had. False: not known. */
bool came_at(const struct dl_epoch *epoch, uint64_t count, struct passed *ret);
/* Steps are to come in the order of a journal whose first one came when `from` had, these. After
 * came_begin(), of what they lead to. -ENOMEM, -E2BIG. */
int _nodiscard_ came_lead(struct dl_epoch *epoch, uint64_t from, const struct passed *begin,
                          struct dl_span runs);
/* What is left of it for another daemon. -ENOMEM. */
int _nodiscard_ came_follow_on(struct dl_epoch *epoch);
void came_deinit(struct came *came);

/* ---- feed.c ---- */

/* Feeding stops while the daemon has this much unread; one step is far smaller. */
enum { FEED_OUTPUT_MAX = CONNECTION_OUTPUT_MAX / 4 };

/* Of an epoch that is fed. All fed steps were received: the user must feed before anything can
 * arrive. */
bool feed_is_due(const struct dl_epoch *epoch);

/* A step has arrived; and those below epoch->expected are not needed any more. */
void feed_arrived(struct dl_epoch *epoch);
/* Sends another daemon all steps that have not arrived. */
void feed_rewind(struct dl_epoch *epoch);
/* Sends as many unsent steps as the daemon may have. */
void feed_catch_up(struct dl_epoch *epoch);
/* Releases, pins and fed steps may wait, and be sent together. */
bool feed_may_wait(const struct dl_epoch *epoch);
void feed_deinit(struct feed *feed);

/* ---- saved_states.c ---- */

/* Keeps the state in the slot of an iterable dataset's batch that is given out: 0, or -EPROTO, not
 * latched. Without memory it is not kept, and nothing else fails. */
int _nodiscard_ saved_states_note(struct dl_epoch *epoch, const struct entry *entry,
                                  const struct slot_header *header);
/* Takes over a list that stood behind a state; records of other ranks are left out. */
int _nodiscard_ saved_states_take(struct dl_epoch *epoch, struct dl_span list);
/* Appends the list for a state at `step`; nothing if it is empty. -ENOMEM. */
int _nodiscard_ saved_states_write(const struct dl_epoch *epoch, uint64_t step,
                                   struct dl_buffer *ret);
/* Queues them for the daemon, before START. */
void saved_states_queue(struct dl_epoch *epoch);
/* The state of worker 0; may be empty. */
struct dl_span saved_states_first(const struct dl_epoch *epoch);
void saved_states_deinit(struct dl_epoch *epoch);

/* ---- weights.c ---- */

/* What the daemon says is in force. -ENOMEM. */
int _nodiscard_ weights_set(struct dl_loader *loader, struct dl_span list);
/* Borrowed; may be empty. */
struct dl_span weights_of(const struct dl_loader *loader);
/* Of the place that the options name: their state's, or the loader's, if those are the same and
 * perhaps some that came since. Borrowed of either. */
struct dl_span weights_for(const struct dl_loader *loader, const struct dl_epoch_options *o);
/* For the start of an epoch: takes over the list of a state; where the order begins, the list is
 * empty. */
int _nodiscard_ weights_take(struct dl_loader *loader, const struct dl_epoch_options *o);
void weights_send(struct dl_loader *loader); /* before START */

/* ---- away.c ---- */

/* The session's end is not the client's. */
bool client_may_reconnect(const struct dl_client *client);

/* The stream of bytes ended, or `why` (may be NULL) was the daemon's last word: the client is away
 * from now on, and 0; or the latched error. */
int _nodiscard_ client_lost(struct dl_client *client, const struct dl_error *why, uint64_t now);

/* What a client that is away cannot do here. */
struct errand {
    enum {
        ERRAND_NONE,
        ERRAND_DIAL,   /* connect: away_dialed() */
        ERRAND_HOSTS,  /* queue `hosts` for the new daemon: away_brought_hosts() */
        ERRAND_TABLES, /* queue the tables of weights that `epoch` needs: away_brought_tables() */
    } kind;
    struct brought_host **hosts; /* borrowed, as all of it */
    struct dl_loader *loader;    /* whose they are; NULL: no loader's */
    struct dl_epoch *epoch;
};

/* Does what it can: 1, 0 when there was nothing or *ret is to be done, or the latched error. */
int _nodiscard_ away_turn(struct dl_client *client, uint64_t now, struct errand *ret);

/* How an errand went; they return as away_turn(). `connected`: a socket is there. `r`, `ended`: of
 * hosts_send(). `err`: code 0 for tables that are queued. */
int _nodiscard_ away_dialed(struct dl_client *client, bool connected, uint64_t now);
int _nodiscard_ away_brought_hosts(struct dl_client *client, struct dl_loader *loader, int r,
                                   uint64_t ended, uint64_t now);
int _nodiscard_ away_brought_tables(struct dl_client *client, struct dl_epoch *epoch,
                                    const struct dl_error *err, uint64_t now);

/* When away_turn() is due even if nothing arrives. */
uint64_t away_wake(const struct dl_client *client);

/* Answers to a client that is away. 0, or the latched error. */
int _nodiscard_ away_opened(struct dl_client *client, const struct dl_msg_opened *opened);
int _nodiscard_ away_started(struct dl_client *client, const struct dl_msg_started *started);

#endif
