/*
 * When a request is sent a second time though the first is not answered yet, so that one that hangs
 * holds nobody up for long: when somebody waits for it, and it has taken longer than 95 of 100 of
 * its kind did lately. Not more than one of HEDGE_SHARE requests is, or one each HEDGE_EVERY_NS, so
 * that a store that is slow altogether has hardly more to do for it: the latter since where all
 * wait for one that hangs, no other is sent.
 *
 * Pure: times are given.
 */
#ifndef DL_REMOTE_HEDGE_H
#define DL_REMOTE_HEDGE_H

#include "proto/common/base.h"

enum {
    HEDGE_KINDS = 5, /* lists; and by bytes */
    HEDGE_STEPS = 96,
    HEDGE_SHARE = 20,
    HEDGE_SAVED = 16, /* at once, after a time without any */
    HEDGE_LEAST = 32, /* answers before anything is known of a kind */
    HEDGE_EVERY_NS = 1000 * 1000 * 1000,
};

/* How many answers of a kind took how long: by steps of a fourth of a doubling. */
struct hedge_kind {
    uint32_t counts[HEDGE_STEPS];
    uint32_t n;
};

struct hedge { /* all zero: nothing is known */
    struct hedge_kind kinds[HEDGE_KINDS];
    uint32_t credit;   /* HEDGE_SHARE: one request */
    uint64_t taken_ns; /* the last one without such */
};

/* The kind of a request for `bytes`; 0: for a list. */
unsigned hedge_kind_of(uint64_t bytes);

/* It was answered, whichever time it was sent, so long after it was sent first. */
void hedge_note(struct hedge *hedge, unsigned kind, uint64_t ns);

/* After how long it is sent again; UINT64_MAX: not known. */
uint64_t hedge_after(const struct hedge *hedge, unsigned kind);

/* A request was sent; another one is to be sent a second time. False: there were enough of them for
 * now. */
void hedge_sent(struct hedge *hedge);
bool hedge_take(struct hedge *hedge, uint64_t now_ns);

#endif
