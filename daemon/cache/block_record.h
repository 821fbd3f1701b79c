/* A record of block_store.h: what is in a slot. Pure; any thread. */
#ifndef DL_BLOCK_RECORD_H
#define DL_BLOCK_RECORD_H

#include "daemon/cache/block_store.h"
#include "proto/remote_wire.h"

enum {
    /* A block, and what says which one it is. */
    RECORD_SLOT_BYTES = REMOTE_BLOCK_BYTES + 16 * 1024,
};

/* What precedes the data. */
size_t record_head_bytes(const struct block_name *name);
/* All of it but the hash. */
void record_fill_head(const struct block_name *name, size_t data_bytes, uint8_t *head);
void record_seal(uint8_t *head, size_t head_bytes, struct dl_span data);

/* False: it is damaged, or of another place than `where`. Else *ret_name is borrowed from `where`
 * and from *ret_etag, which is the caller's to free, and *ret_data from the record. Bytes may
 * follow it. */
bool _nodiscard_ record_read(struct dl_span record, struct block_name *ret_name, char **ret_etag,
                             struct dl_span *ret_data, const char *where);

#endif
