/* Shared by desk_fetch.c (an object's blocks) and desk_probe.c (what it is): what is under way. */
#ifndef DL_REMOTE_FETCH_H
#define DL_REMOTE_FETCH_H

#include "daemon/fetcher/desk_private.h"

/* Of one object, under way. */
struct fetch {
    struct desk *desk;
    struct object *object;        /* used */
    struct transfer *transfer;    /* at most one of these three */
    struct kept_task *task;       /* at the disk */
    struct peer_call *call;       /* at another node */
    struct fetch_offer *offer;    /* owned; what that gave of an object that was not known */
    struct chain chain;           /* to whom what the store gives is brought */
    bool unread;                  /* another object's are in its place on the disk */
    bool urgent;                  /* somebody waits for it */
    bool for_disk;                /* what is kept there is not held in memory */
    bool from_disk, from_peer;    /* its blocks came from there */
    uint64_t first, n;            /* blocks; n 0: its first bytes, */
    uint64_t bytes;               /* how many, if its size is not known; */
    uint64_t from, expected;      /* and then these bytes of it, that somebody expects */
    uint64_t turn;                /* asked for then: desk->turn */
    bool anew;                    /* somebody who came later expects to be told what is there */
    struct fetch *prev, *next;    /* object->fetches */
    struct fetch *before, *after; /* desk->fetches */
};

/* The first block of an object that another node has, until the store says whether it is that one.
 */
struct fetch_offer {
    uint64_t bytes;
    char etag[REMOTE_ETAG_MAX];
    int64_t modified;
    size_t len;
    uint8_t data[];
};

/* It is not to be waited for yet. */
struct fetch *fetch_new(struct desk *desk, struct object *object, uint64_t first, uint64_t n,
                        bool urgent);
/* It is not under way any more: who asks now begins another one. */
void fetch_unlink(struct fetch *fetch);
void fetch_free(struct fetch *fetch);

/* Its blocks came from the store, or another node: they are kept, and given to who waits. */
void fetch_keep(struct fetch *fetch, struct dl_span data);

/* Whether a worker waits for these blocks; `n` 0: for what the object is. */
bool fetch_concerns(const struct asker *asker, const struct object *object, uint64_t first,
                    uint64_t n);
/* Those who do get them, or hear why not. */
void fetch_tell_done(struct desk *desk, const struct object *object, uint64_t first, uint64_t n);
void fetch_tell_failed(struct desk *desk, const struct object *object, uint64_t first, uint64_t n,
                       int code, const struct dl_error *err);

#endif
