/* The worker of a helper's end, as its daemon has it: a process, queues, and slots for LINK_AHEAD
 * tasks. */
#ifndef DL_HELPER_FAR_WORKER_H
#define DL_HELPER_FAR_WORKER_H

#include "daemon/helper/far_python.h"
#include "daemon/helper/link.h"
#include "proto/fdpass.h"
#include "proto/queue.h"
#include "proto/segment_layout.h"

/* One slot, in a segment of its own. */
struct far_slot {
    uint32_t id; /* of the segment; 0: none */
    uint64_t slot_bytes;
    char *base;  /* owned mapping of the segment */
    bool mapped; /* the worker has it, too */
    bool busy;   /* it has a task's bytes, or a batch's */
};

struct far_worker {
    int pid; /* 0: `python` has forked it */
    struct far_python python;
    int sock;                     /* owned */
    int task_bell, done_bell;     /* owned */
    int queues_fd;                /* owned; until the worker has it */
    struct worker_queues *queues; /* owned mapping */
    struct frame_reader reader;
    struct far_slot slots[LINK_AHEAD];
    uint32_t next_segment;
    uint64_t memory; /* that all slots may take */
};

/* What it is: the program that this process is, as `program`; or, unless NULL, forked by a host of
 * that interpreter, which takes its time. `object`: as in far_python_start(). */
struct far_worker_kind {
    const char *program, *interpreter;
    int object;
    const struct data_progress *progress;
};

/* All zero, then this. Negative errno, perhaps with `err`. */
int _nodiscard_ far_worker_start(struct far_worker *worker, const struct far_worker_kind *kind,
                                 uint64_t memory, struct dl_error *err);
/* Kills it. Fine on one that was not started, or has ended. */
void far_worker_deinit(struct far_worker *worker);
/* Reaps it, which has ended: how, in words. */
void far_worker_obituary(struct far_worker *worker, char *ret, size_t room);

/* Before that, of one that reads URLs, or what is served: `fd`, borrowed, leads to who gives it. */
int _nodiscard_ far_worker_offer(struct far_worker *worker, int fd, uint64_t version);

/* Likewise W_PICTURES or W_IDS, as it came, with the arena, borrowed. */
int _nodiscard_ far_worker_keep(const struct far_worker *worker, const struct dl_message *msg,
                                int fd);

/* After that: what of them is far away can be fetched before their task's turn. */
int _nodiscard_ far_worker_expect(struct far_worker *worker, struct dl_span indices);

/* Samples that it says took long, to the other end: before the batch that has them. */
int _nodiscard_ far_worker_tell_slow(const struct far_worker *worker, struct link *link);

/* W_FORGET, as it came. */
int _nodiscard_ far_worker_forget(struct far_worker *worker, const struct dl_message *msg);

/* As W_OPEN without its descriptors. */
int _nodiscard_ far_worker_open(struct far_worker *worker, struct dl_msg_w_open *msg);

/* A free slot of exactly that size, now busy; *ret is its number. -EBUSY: no slot is free; -ENOMEM:
 * all of that size would take more than the helper lends. */
int _nodiscard_ far_worker_take(struct far_worker *worker, uint64_t slot_bytes, uint32_t *ret);

static inline char *far_slot_at(const struct far_worker *worker, uint32_t slot)
{
    return worker->slots[slot].base + SEGMENT_HEADER_BYTES;
}

/* The worker has mapped a segment; -EPROTO: none of these. */
int _nodiscard_ far_worker_mapped(struct far_worker *worker, uint64_t id);

#endif
