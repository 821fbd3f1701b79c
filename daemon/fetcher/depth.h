/*
 * How much of what is needed later is to be under way at once: what the link carries until an
 * answer comes, twice, so that more comes while there is more to have. That is bandwidth times
 * latency: the most bytes that came in a slice of the last seconds, times the shortest time until
 * an answer began. What waits behind what we asked for ourselves makes latency no longer. Bytes are
 * noted as they come: answers that share a link end together, and would seem to have come at once.
 *
 * Pure: times are given, of any clock that only goes forward.
 */
#ifndef DL_REMOTE_DEPTH_H
#define DL_REMOTE_DEPTH_H

#include "proto/common/base.h"

enum {
    DEPTH_REQUESTS = 96, /* at 20 ms to an answer and 100 KiB an object these fill 2 Gbit/s */
    DEPTH_REQUESTS_MOST = 512,
    /* Others wait behind what is on its way: this is 2 Gbit/s for a sixteenth of a second. */
    DEPTH_BYTES = 16 << 20,
    DEPTH_BYTES_MOST = 256 << 20,
    DEPTH_SLICE_MS = 100,
    DEPTH_SLICES = 16,
};

struct depth { /* all zero: nothing is known */
    uint64_t bytes[DEPTH_SLICES];
    uint64_t slice;    /* the present one, as counted from the clock's 0 */
    uint64_t least_ns; /* 0: not known */
    uint64_t each;     /* bytes of a whole answer, lately */
};

/* An answer begins, `took_ns` after its request; some bytes of it came; it is whole. */
void depth_note_begin(struct depth *depth, uint64_t took_ns);
void depth_note_came(struct depth *depth, uint64_t now_ns, uint64_t bytes);
void depth_note_whole(struct depth *depth, uint64_t bytes);

/* Requests, of all kinds; and bytes that have not come. Of the former twice as many as these bytes
 * are: of answers that share the link most have come in part. */
uint32_t depth_requests(const struct depth *depth);
uint64_t depth_bytes(const struct depth *depth);

#endif
