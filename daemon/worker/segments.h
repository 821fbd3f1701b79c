/* The segments that a worker has mapped, and the slots in them. */
#ifndef DL_WORKER_SEGMENTS_H
#define DL_WORKER_SEGMENTS_H

#include "proto/codec.h"
#include "proto/queue.h"

struct segment {
    uint32_t id;
    uint32_t slots;
    uint64_t slot_bytes;
    uint64_t bytes;
    void *base; /* owned mapping */
};

/*
 * Allocates the segment's memory now, so that running out of it is an answer here and not a
 * SIGBUS in the middle of a batch, and maps it with every page present: first touch of shared
 * memory costs many times the copy into it.
 */
int _nodiscard_ segment_map(int fd, struct segment *segment, struct dl_error *err);

/* The segment of a message, as another one of the array. -ENOMEM without `err`: for the array. */
int _nodiscard_ segments_add(struct segment **segments, uint32_t *n,
                             const struct dl_msg_w_segment *msg, int fd, struct dl_error *err);
/* Unmaps one, if it is there. */
void segments_drop(struct segment *segments, uint32_t *n, uint64_t id);

/* The task's slot in one of `n` segments, of *ret_bytes; NULL: none has it. */
void *segments_find_slot(const struct segment *segments, uint32_t n, const struct queue_task *task,
                         uint64_t *ret_bytes);

#endif
