/*
 * Segments: the shared memory of a loader's ring.
 *
 * Why one set of segments for each worker incarnation. Clients must never be able to write what
 * another client reads, and modes do not help: any process of the same uid can reopen a memfd
 * through /proc writable. F_SEAL_FUTURE_WRITE does: it prevents new writable mappings, while
 * existing ones keep working. So the daemon maps a segment, the one worker that fills it maps it,
 * and then it is sealed permanently for all others. The price is that a new worker cannot map an
 * old one's segment: it gets new ones, and the old are retired as their last readers let go. The
 * seal is not the only barrier: clients' descriptors are open only for reading, and reopening them
 * for writing takes the owner's rights. The alternative, copying each batch from private to shared
 * memory, costs a second copy. With `memory.writable`, clients of the same user may write, and this
 * one seal is left out.
 *
 * The worker, not the daemon, allocates and touches the memory: it takes milliseconds.
 */
#ifndef DL_SEGMENT_H
#define DL_SEGMENT_H

#include "daemon/serve/ring/slot.h"
#include "proto/common/error.h"
#include "proto/segment_layout.h"

struct segment {
    struct segment *prev, *next; /* worker.segments, then loader.retiring (utlist) */
    struct slot_table slots;
    uint32_t id;        /* unique in the daemon's life, from 1 */
    uint32_t worker;    /* number of the worker that fills it */
    const void *filler; /* which of its incarnations; for comparison only */
    const void *keeper; /* a killed filler that has not ended and still has it; or NULL */
    int fd;             /* owned memfd; once it is active, for reading only, unless `writable` */
    char *base;         /* owned mapping of the whole segment, writable */
    uint64_t bytes;
    uint64_t slot_bytes;
    bool promised; /* its pages may not be there yet */
    bool active;   /* the worker has mapped it and it is sealed */
    bool writable; /* clients may map it writable */
};

/* Creates the memfd, its header and the daemon's mapping. Returns 0 or a negative errno + err. */
int _nodiscard_ segment_new(uint32_t id, uint32_t worker, uint32_t slots, uint64_t slot_bytes,
                            bool writable, struct segment **ret, struct dl_error *err);
struct segment *segment_free(struct segment *segment); /* NULL is fine; returns NULL */

/*
 * Frees it while others may have it: returns a descriptor for segment_is_let_go(), which the caller
 * owns; -1 if no one else has it, or that cannot be found out.
 */
int _nodiscard_ segment_leave(struct segment *segment);
/* Only this descriptor, and what its worker got, keep it open or mapped. */
bool segment_is_let_go(int fd);

/*
 * Once the worker has mapped it: seals it. Failing is fatal for the segment: also if it has another
 * size now, since what was cut off would kill the daemon by SIGBUS.
 */
int _nodiscard_ segment_seal(struct segment *segment, struct dl_error *err);

uint64_t segment_bytes(uint32_t slots, uint64_t slot_bytes);

static inline void *segment_slot(const struct segment *segment, uint32_t slot)
{
    return segment->base + slot_offset(segment->slot_bytes, slot);
}

#endif
