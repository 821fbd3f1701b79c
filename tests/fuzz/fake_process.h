/*
 * Workers without processes: what daemon/serve/pool/process.h promises, played by the harness,
 * which says when they do what, and whether they do it right. Linked in place of process.c.
 */
#ifndef DL_FUZZ_FAKE_PROCESS_H
#define DL_FUZZ_FAKE_PROCESS_H

#include "daemon/serve/pool/process.h"

/* All of a harness's workers. */
struct fakes {
    struct process *first; /* utlist, in the order of their beginning */
    uint32_t count;
    bool refuse_next; /* the system has no process left */
};

/* The one in play; process_start() adds to it. */
extern struct fakes fakes;

/* The n-th living worker, in turn; NULL: there is none. */
struct process *fake_pick(uint32_t n);

/* It says that its dataset is open; what that is. */
void fake_ready(struct process *p, const struct dl_msg_w_ready *what);
/* Nothing, unless it was to look at the files. */
void fake_looked(struct process *p, uint64_t identity);
/* What it has found out about files; `fd` is the daemon's from then on. */
void fake_indexed(struct process *p, const struct dl_msg_w_indexed *what, int fd);
/* The slots' size that it should ask for, and what it reads. */
const char *fake_label(const struct process *p);
/* It has mapped the segment it was sent last; else `id`, if that is not 0. */
void fake_mapped(struct process *p, uint32_t id);
void fake_failed(struct process *p, uint32_t segment, int code);

/* Takes the oldest task: false: it has none. The slot, if it is mapped; else NULL. */
struct fake_task {
    struct queue_task record;
    struct slot_header *slot;
    uint64_t slot_bytes;
};
bool fake_take(struct process *p, struct fake_task *ret);
/* Says so; the daemon hears of it at once, or with `late` when it looks. */
void fake_done(struct process *p, const struct queue_done *done, bool late);

bool fake_was_killed(const struct process *p);
bool fake_is_open(const struct process *p); /* the dataset, or it may */
bool fake_is_ready(const struct process *p);
/* It ends, and `p` is gone. */
void fake_exit(struct process *p, int signal);

#endif
