/*
 * One shared-memory segment, mapped for as long as anything refers to it, or the private memory of
 * a batch that is made in this process.
 *
 * Only a memfd that can neither shrink nor grow and has the announced size is mapped, so reading
 * cannot raise SIGBUS for lack of file. Its geometry is read once, checked, and used from the copy:
 * the bytes behind `base` stay the daemon's to change.
 *
 * The count is atomic: the client's table, batches, descriptors and, in any thread, DLPack tensors
 * hold references. Everything else is constant after mapping_new().
 */
#ifndef DL_CLIENT_MAPPING_H
#define DL_CLIENT_MAPPING_H

#include "client/pin.h"
#include "proto/common/base.h"
#include "proto/common/error.h"
#include "proto/segment_layout.h"
#include <stdatomic.h>

struct mapping {
    atomic_uint refs;
    struct mapping *next; /* private_memory.spare */
    uint32_t leases;      /* batches in it; only the client's thread */
    bool writable;
    bool is_private; /* `base` was allocated, not mapped */
    uint32_t id;
    uint32_t incarnation; /* dl_client.incarnation when it came */
    struct pin *pin;      /* counted: `base` is page-locked with it; NULL: it is not */
    uint8_t *base;        /* owned: `bytes` of it */
    uint64_t bytes;
    uint64_t slot_bytes;
    uint32_t slots;
};

/*
 * Maps `fd` (stays the caller's), announced as segment `id` of `bytes`. Returns 0 and one
 * reference, -EPROTO when it is not what was announced, or -ENOMEM; `err` says why.
 */
int _nodiscard_ mapping_new(int fd, uint32_t id, uint64_t bytes, bool writable,
                            struct mapping **ret, struct dl_error *err);

/* Private memory of this process as one slot of `bytes`, of undefined content: one reference, or
 * NULL. */
struct mapping *mapping_new_private(uint64_t bytes);

struct mapping *mapping_ref(struct mapping *mapping);
struct mapping *mapping_unref(struct mapping *mapping); /* any thread; NULL is fine; returns NULL */

/* Page-locks it until its end, unless it is locked already: 0, or -EIO with `err`. */
int _nodiscard_ mapping_pin(struct mapping *mapping, struct pin *pin, struct dl_error *err);

/* The slot a descriptor names, or NULL when it lies anywhere but exactly on one. */
const uint8_t *mapping_slot(const struct mapping *mapping, const struct dl_descriptor *descriptor);

struct rank_position;

/* A rank's position in an epoch, which it shares with its daemon: 0 and a mapping of its own,
 * -EPROTO or -ENOMEM. */
int _nodiscard_ mapping_position(int fd, uint64_t bytes, struct rank_position **ret);
void mapping_drop_position(struct rank_position *position); /* NULL is fine */

#endif
