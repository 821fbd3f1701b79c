/*
 * What part of the loop's time something may take that nobody has to have at once, as visitors by
 * HTTP and those who connect: what it took
 * beyond is a debt, which shrinks as time goes by. A little may be owed, so that a single visitor
 * is served at once; who owes more pauses until the debt is small again.
 *
 * Pure: time is passed in.
 */
#ifndef DL_ALLOWANCE_H
#define DL_ALLOWANCE_H

#include "proto/common/base.h"

enum {
    ALLOWANCE_PER_MILLE = 100,           /* of the time */
    ALLOWANCE_OWED_NS = 2 * 1000 * 1000, /* goes on with that much, and no more */
    ALLOWANCE_MOST_NS = 50 * 1000 * 1000 /* is owed: nobody pauses for longer than half a second */
};

/* All zero owes nothing. */
struct allowance {
    uint64_t at_ns;   /* when it was */
    uint64_t debt_ns; /* so much */
};

/* It took so long, up to now. */
void allowance_charge(struct allowance *allowance, uint64_t took_ns, uint64_t now_ns);

/* When it may go on: `now_ns`, or later. */
uint64_t allowance_due(const struct allowance *allowance, uint64_t now_ns);

#endif
