/*
 * Blocks of remote objects on a disk, in a directory that one process has at a time. It saves
 * fetching, and may be damaged, full or gone at any time: what is read from it is what was written,
 * or nothing.
 *
 * Two files. In `blocks` each block has a slot, sparse and of one size, with a record: a hash of
 * all of it, which object it is of (where that is, its ETag, size and time), and the block's bytes.
 * In `index` each slot has an entry with the key of its block, so that the records need not be read
 * when the store is opened. The record is written before its entry, and nothing waits for the disk:
 * what a process has written stays when it is killed. After a loss of power either file may lack
 * anything; entry and record have a hash each, and what does not fit is dropped.
 *
 * By the key, a hash, a block is only found: whether it is the one, the record says in full.
 *
 * What blocks on the disk is done by jobs: begun and ended by the thread that has the store, run by
 * any thread.
 */
#ifndef DL_BLOCK_STORE_H
#define DL_BLOCK_STORE_H

#include "daemon/cache/block_shelf.h"
#include "daemon/cache/placement.h"
#include "proto/common/bytes.h"
#include "proto/common/error.h"

enum {
    STORE_GONE_MOST = 64, /* blocks that go for one that comes */
};

/* How a block is kept (placement.h). */
enum store_terms {
    STORE_BY_ORDER, /* instead of those that come after it */
    STORE_IF_ROOM,  /* where nothing has to go that others look for here */
    STORE_COPY,     /* by order, and others do not look for it here */
};

struct block_store;

/* Which block of what. Texts are borrowed. */
struct block_name {
    const char *where; /* all that says which object is meant */
    uint64_t block;
    /* Which object is there. One with neither an ETag nor a time is not kept. */
    const char *etag; /* "": it has none */
    int64_t modified; /* -1: not known */
    uint64_t bytes;   /* of the object */
};

/* `dir`: a descriptor, which stays the caller's; `limit`: bytes. What is there beyond it goes.
 * -EBUSY: another process has it; -EPERM: others may write to it. `err` names the file. */
int _nodiscard_ block_store_open(int dir, uint64_t limit, struct block_store **ret,
                                 struct dl_error *err);
/* No job is under way. NULL is fine; returns NULL. */
struct block_store *block_store_close(struct block_store *store);

/* Which blocks come first is as this says from now on; borrowed, and to be said again whenever it
 * has changed. NULL: any are as good as others. */
void block_store_place(struct block_store *store, const struct placement *placement);

/* Bytes that it may have from now on: what is there beyond them goes, but what is being read or
 * written when others come. Of a disk that is full, no more than there are. */
void block_store_limit(struct block_store *store, uint64_t limit);

/* As long as the store is. */
const struct shelf *block_store_shelf(const struct block_store *store);

/* Whether it may be there: by its key alone. */
bool block_store_has(const struct block_store *store, const char *where, uint64_t block);
/* Of a block that is there, what its owner last said; 0: nothing since the store was opened. */
uint64_t block_store_checked(const struct block_store *store, const char *where, uint64_t block);
void block_store_check(struct block_store *store, const char *where, uint64_t block,
                       uint64_t checked);
/* Whether one that comes would be kept, as far as that is known without its bytes. */
bool block_store_wants(struct block_store *store, const char *where, uint64_t block);
/* Bytes that can still be kept before something goes that other nodes look for here. */
uint64_t block_store_room(const struct block_store *store);
/* Bytes that a block takes of it. */
uint64_t block_store_taken(const struct block_name *name);
/* Others look for it here from now on, if it was kept as a copy, and there is room; until the store
 * is opened again. False: it is not there, or there is no room. */
bool block_store_own(struct block_store *store, const char *where, uint64_t block);
/* It is of no use any more. */
void block_store_drop(struct block_store *store, const char *where, uint64_t block);

/* ---- reading -------------------------------------------------------------------------------- */

struct block_read {
    struct block_name name; /* once it has run well: what its record says, borrowed from it */
    struct dl_span data;    /* likewise */
    bool good;
    /* The store's: */
    const struct block_store *store;
    const char *where; /* borrowed until it has run */
    uint64_t block;
    uint32_t slot, bytes;
    uint8_t *record; /* owned */
    char *etag;      /* owned */
};

/* False: it is not there. */
bool _nodiscard_ block_read_begin(struct block_store *store, const char *where, uint64_t block,
                                  struct block_read *ret);
void block_read_run(struct block_read *read); /* any thread */
/* Frees what it has. A record that is damaged is dropped. */
void block_read_end(struct block_store *store, struct block_read *read);

/* ---- writing -------------------------------------------------------------------------------- */

struct block_write {
    const struct block_store *store;
    struct dl_span data; /* borrowed until it ends */
    uint8_t *head;       /* owned; of the record: what precedes the data */
    size_t head_bytes;
    uint64_t key;
    uint32_t point, bytes; /* of the slot's entry: other threads don't see the shelf */
    uint32_t slot;
    bool copy;
    bool if_room;
    bool replaces;   /* another record is in its slot */
    uint32_t n_gone; /* further slots that go for it */
    uint32_t gone[STORE_GONE_MOST];
    int r; /* once it has run: 0, or -errno. -ESTALE: the files were removed */
};

/* False: it is not to be kept. Asked for each block that was not there. */
bool _nodiscard_ block_write_begin(struct block_store *store, const struct block_name *name,
                                   struct dl_span data, enum store_terms terms,
                                   struct block_write *ret);
void block_write_run(struct block_write *write); /* any thread */
/* Found from now on, if it went well. Of a disk that is full the limit falls to what is there. */
void block_write_end(struct block_store *store, struct block_write *write);

#endif
