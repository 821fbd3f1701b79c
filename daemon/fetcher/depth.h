/*
 * How much of what is needed later is to be under way at once: what the link carries until an
 * answer comes, twice, so that more comes while there is more to have. That is bandwidth times
 * latency: the most bytes that came in a slice of the last seconds, times the shortest time that an
 * answer has taken. What waits behind what we asked for ourselves makes latency no longer.
 *
 * Pure: times are given, of any clock that only goes forward.
 */
#ifndef DL_REMOTE_DEPTH_H
#define DL_REMOTE_DEPTH_H

#include "proto/common/base.h"

enum {
    DEPTH_REQUESTS = 96, /* at 20 ms to an answer and 100 KiB an object these fill 2 Gbit/s */
    DEPTH_REQUESTS_MOST = 384,
    /* Others wait behind what is on its way: this is 2 Gbit/s for an eighth of a second. */
    DEPTH_BYTES = 32 << 20,
    DEPTH_BYTES_MOST = 256 << 20,
    DEPTH_SLICE_MS = 100,
    DEPTH_SLICES = 16,
};

struct depth { /* all zero: nothing is known */
    uint64_t bytes[DEPTH_SLICES];
    uint64_t slice;    /* the present one, as counted from the clock's 0 */
    uint64_t least_ns; /* 0: not known */
    uint64_t each;     /* bytes of an answer, lately */
};

/* An answer of `bytes` came, `took_ns` after its request. */
void depth_note(struct depth *depth, uint64_t now_ns, uint64_t took_ns, uint64_t bytes);

/* Requests, of all kinds; and bytes. */
uint32_t depth_requests(const struct depth *depth);
uint64_t depth_bytes(const struct depth *depth);

#endif
