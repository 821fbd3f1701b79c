/*
 * The last ten minutes of a loader, for later inspection: what was delivered, and how much of its
 * time each rank waited, in bins of ten seconds. A rank's line spans epochs. Pure.
 *
 * A client reports a wait when it is over, and the daemon looks every ten seconds or when something
 * happens. So a reported wait is spread over the time since the last look, and the excess over the
 * time before. A rank that has no batch and got none since the last look is presumed to wait; its
 * next report counts that much less.
 */
#ifndef DL_LATELY_H
#define DL_LATELY_H

#include "daemon/base/quota.h"
#include "proto/limits.h"

#include <uthash.h>

enum {
    LATELY_BINS = 60,
    LATELY_RANKS = 4096, /* of a loader, the most that have a line */
};
#define LATELY_BIN_NS  ((uint64_t)10 * 1000000000)
#define LATELY_UNIT_NS ((uint64_t)200000) /* what a bin counts: 65,535 of these are 13 s */
#define LATELY_KEEP_NS ((uint64_t)3600 * 1000000000) /* for an abandoned line */

/* ---- one rank -------------------------------------------------------------------------------- */

/* All zero: nothing is known. Bin n is at n % LATELY_BINS, for the last ones, up to `bin`. */
struct lately_line {
    uint64_t bin;
    uint16_t waited[LATELY_BINS], read[LATELY_BINS];
};

/* The rank read from `from` to `to`, ns, and waited that long, then or before. */
void lately_line_add(struct lately_line *line, uint64_t from, uint64_t to, uint64_t waited_ns);

/* Of bin `bin`, ns; false if it did not read then, or the bin is too old. */
bool lately_line_at(const struct lately_line *line, uint64_t bin, uint64_t *ret_read,
                    uint64_t *ret_waited);

/* What was known of a stream when it was looked at last; all zero: it has just begun. */
struct lately_mark {
    uint64_t at_ns, waited_ns, delivered;
    uint64_t presumed_ns; /* counted as waiting, not yet reported by the client */
};

struct lately_look {
    uint64_t begun_ns, now;
    uint64_t waited_ns, delivered; /* since it has begun */
    bool empty;                    /* it has no batch, none is ready, and more will come */
};
void lately_line_look(struct lately_line *line, struct lately_mark *mark,
                      const struct lately_look *look);

/* ---- of a loader as a whole ------------------------------------------------------------------ */

struct lately_totals {
    uint64_t first, bin;                      /* first: of the first look */
    uint64_t at_ns, batches_then, bytes_then; /* at the last look */
    uint32_t batches[LATELY_BINS];
    uint64_t bytes[LATELY_BINS];
};
/* `batches`, `bytes`: delivered in all. What came since the last look is spread over the time. */
void lately_totals_look(struct lately_totals *totals, uint64_t now, uint64_t batches,
                        uint64_t bytes);
bool lately_totals_at(const struct lately_totals *totals, uint64_t bin, uint64_t *ret_batches,
                      uint64_t *ret_bytes);

/* ---- all ranks of a loader ------------------------------------------------------------------- */

struct stream;

struct lately_key {
    char job[DL_BOUND_NAME_BYTES + 1];
    const void *owner; /* of a rank without a job: only compared; NULL: the owner is gone */
    uint64_t rank, world;
    uint32_t sharer;
};

struct lately_rank {
    UT_hash_handle hh; /* lately_book.ranks */
    struct lately_key key;
    struct lately_line line;
    uint64_t at_ns;              /* last continued */
    const struct stream *stream; /* borrowed: continues it now; or NULL */
};

/* All zero, but for the account, which may be NULL. */
struct lately_book {
    struct quota_account *account; /* borrowed: pays QUOTA_OVERHEAD for each rank */
    struct lately_rank *ranks;     /* owned; in the order of their coming */
    struct lately_totals totals;
};

/*
 * The rank's line, which `stream` continues from now on; unused fields of the key must be zero.
 * NULL: too many lines, or the user may not have another.
 */
struct lately_rank *lately_book_join(struct lately_book *book, const struct lately_key *key,
                                     const struct stream *stream, uint64_t now);
/* The stream has ended; it is not looked at any more. NULL is fine. */
void lately_rank_leave(struct lately_rank *rank, const struct stream *stream);
/* Drops lines abandoned for LATELY_KEEP_NS. */
void lately_book_tidy(struct lately_book *book, uint64_t now);
/* No stream has a rank of it any more. */
void lately_book_deinit(struct lately_book *book);

#endif
