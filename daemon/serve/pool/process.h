/*
 * One worker process as the daemon sees it: started, spoken to, watched, reaped. It knows nothing
 * of batches. What it reports is untrusted: checked for form here, for sense by the pool.
 *
 * It is a child of the daemon, or of a Python host (host.h): the two differ in how it is started
 * and killed and in who reaps it.
 *
 * Main thread only. Callbacks come from the loop, never from inside a call; after process_free()
 * none comes.
 */
#ifndef DL_PROCESS_H
#define DL_PROCESS_H

#include "daemon/base/credentials.h"
#include "daemon/serve/pool/host.h"
#include "daemon/serve/pool/python.h"
#include "daemon/serve/ring/segment.h"
#include "proto/codec.h"
#include "proto/queue.h"
#include "proto/sandbox.h"

#include <uv.h>

struct index_list;
struct pictures_list;
struct remotes;

struct process;

struct process_events {
    void (*opening)(void *owner, const struct dl_msg_w_opening *what);
    /* `fd` is the owner's to close. */
    void (*indexed)(void *owner, const struct dl_msg_w_indexed *what, int fd);
    void (*ready)(void *owner, const struct dl_msg_w_ready *what);
    /* segment 0: the dataset could not be opened. */
    void (*failed)(void *owner, uint32_t segment, const struct dl_error *err);
    void (*mapped)(void *owner, uint32_t segment);
    /* What its files are recognised by; 0: not known. */
    void (*looked)(void *owner, uint64_t identity);
    void (*completed)(void *owner); /* process_take_done() has something */
    /* It is gone and reaped; the queues can still be read. `cause` says how, with its last words.
     */
    void (*exited)(void *owner, int signal, const char *cause);
};

struct process_options {
    uv_loop_t *loop;
    const char *path;                     /* of dloader-worker */
    struct hosts *hosts;                  /* where python_runs() */
    const struct python_run *python;      /* borrowed for the call */
    uint32_t number;                      /* of this worker in its loader */
    uint32_t workers;                     /* in the loader */
    struct dl_span spec;                  /* canonical, packed */
    struct dl_span roots;                 /* array of strings, packed */
    struct dl_span seen_as;               /* likewise */
    struct dl_span plugins;               /* likewise */
    const struct pictures_list *pictures; /* borrowed for the call */
    const struct index_list *indexes;     /* likewise */
    struct remotes *remotes;              /* borrowed for the call; NULL: no file is remote */
    uint64_t loader;                      /* its number there */
    const char *cache;                    /* the directory on disk; "": none */
    const struct config *config;          /* likewise */
    enum sandbox_level sandbox;
    bool looks;                          /* at the files, just before it opens them */
    bool foreign;                        /* opened by another user than the daemon's, */
    const struct credentials *reader;    /* this one; borrowed for the call */
    const char *helper;                  /* its address: this is a stand-in; NULL: a worker */
    const char *label;                   /* loader's name, for the log, */
    uid_t uid;                           /* and its user */
    const struct process_events *events; /* borrowed, static */
    void *owner;
};

/* It waits for process_open(). */
int _nodiscard_ process_start(const struct process_options *options, struct process **ret,
                              struct dl_error *err);
/* Has it open the dataset, by the same options; once. */
void process_open(struct process *process, const struct process_options *options);

/* Kills it if it lives, gives everything back once the loop has let go. NULL is fine. */
struct process *process_free(struct process *process);

/* From now on `owner` hears of it. */
void process_hand_over(struct process *process, const struct process_events *events, void *owner);

/* Also of one that has just ended. 0: a host has not started it yet. */
int process_pid(const struct process *process);
void process_kill(struct process *process);

void process_send_segment(struct process *process, const struct segment *segment);
void process_send_unmap(struct process *process, uint32_t segment);
void process_send_forget(struct process *process, uint32_t stream);
/* Samples of tasks that will come, to it or others; `anew`: those it heard of before may never. */
void process_send_expect(struct process *process, bool anew, struct dl_span indices);
/* Asks how the files of the spec, packed, are now. */
void process_send_look(struct process *process, struct dl_span spec);

/* Queues a task; process_ring() then wakes the worker if it sleeps. False: the queue is full. */
bool _nodiscard_ process_put_task(struct process *process, const struct queue_task *task);
void process_ring(struct process *process);

/* The next completion. After it has returned false the worker rings when there is more. */
bool _nodiscard_ process_take_done(struct process *process, struct queue_done *ret);
/* What it has noted before the last completion that was taken, or since. False: nothing. */
bool _nodiscard_ process_take_note(struct process *process, struct dl_error *ret);
/* The file that it turned to last, and a number that changes with it; "": not known. Its word. Only
 * while it opens the dataset: then the memory is for notes. */
uint32_t process_read_place(const struct process *process, char ret[static DL_ERROR_PATH_MAX]);
bool _nodiscard_ process_take_slow(struct process *process, struct slow_sample *ret);
/* The time of its slow samples that it had not told before. */
uint64_t process_take_slow_ns(struct process *process);
/* Likewise: how long it waited for remote files. */
uint64_t process_take_remote_ns(struct process *process);
/* Likewise, of a stand-in: what went over the network, which is added to `total`. */
void process_take_way(struct process *process, struct way *total);

#endif
