/*
 * Requests to where remote objects are: signed, sent, repeated where that may help. How many are
 * under way at once is bounded by what the link carries (depth.h), of a host that throttles by what
 * it serves (host_limit.h); of the others those go first that somebody waits for.
 *
 * What is repeated: an answer that says so (503, 429, ...), a connection that is refused or breaks
 * off, a body that is shorter than its header says; of that, only the rest is asked for
 * (partial.h). After TRANSFER_TRIES it is an error. What takes longer than others while somebody
 * waits for it is sent a second time meanwhile (hedge.h).
 *
 * Main thread only. Callbacks come from the loop, never from inside a call; after transfer_cancel()
 * none comes.
 */
#ifndef DL_REMOTE_TRANSFERS_H
#define DL_REMOTE_TRANSFERS_H

#include "daemon/base/networks.h"
#include "daemon/remote/answer.h"
#include "daemon/remote/request.h"
#include "proto/remote_counts.h"

#include <uv.h>

enum {
    TRANSFER_BYTES_MAX = 4 << 20, /* of a part of an object */
    TRANSFER_TRIES = 8,
};

struct transfers;
struct transfer;

struct transfer_result {
    int code; /* 0, or a negative errno as remote_refusal() has them: `err` */
    const struct dl_error *err;
    const struct remote_headers *headers;
    struct dl_span body;
};

/* All borrowed until it is done. */
struct transfer_order {
    const struct remote_place *place;
    const struct remote_page *page; /* a page of the list; NULL: bytes of the object, */
    uint64_t first, last;           /* these, both included; not more than TRANSFER_BYTES_MAX */
    uint64_t total;                 /* of the object, or REMOTE_UNKNOWN */
    const char *etag;               /* "": not known */
    /* NULL or "", or an ETag: whether the object is another one by now is all that is asked. It is
     * not: the answer has status 304; else these are bytes of the other one. */
    const char *unless;
    bool urgent;                                                     /* somebody waits for it */
    void (*done)(void *owner, const struct transfer_result *result); /* the last call of it */
    void *owner;
};

/* Reads settings and credentials of the process's environment. `tally`: where it counts, borrowed;
 * `denied`: where no URL leads to. */
int _nodiscard_ transfers_new(uv_loop_t *loop, struct remote_tally *tally,
                              const struct networks *denied, struct transfers **ret,
                              struct dl_error *err);
struct transfers *transfers_free(
    struct transfers *transfers); /* nothing is under way. NULL: fine */

/* A negative errno: settings or credentials are such that nothing can be asked. */
int _nodiscard_ transfers_check(const struct transfers *transfers, struct dl_error *err);
/* Settings are others by now, which takes a new process; other keys are taken. */
bool transfers_are_stale(struct transfers *transfers);
/* A file that the profile names, with an identity's token; NULL: none. */
const char *transfers_identity_file(const struct transfers *transfers);

const struct remote_settings *transfers_settings(const struct transfers *transfers);
/* Where this process counts; the desk, too. */
struct remote_tally *transfers_tally(const struct transfers *transfers);
/* Writes there which hosts throttle now. */
void transfers_tell(const struct transfers *transfers);

/* Of an object that is not known more is asked for than most have: what is thought to come. */
uint64_t transfers_guess(const struct transfers *transfers, uint64_t asked);
/* Whether one that nobody needs soon may be begun: it would be sent at once, and those that are
 * needed could be, too. */
bool transfers_have_room(const struct transfers *transfers);
struct transfer *transfers_begin(struct transfers *transfers, const struct transfer_order *order);
/* Somebody waits for it now. */
void transfer_hurry(struct transfer *transfer);
/* NULL is fine; returns NULL. */
struct transfer *transfer_cancel(struct transfer *transfer);

#endif
