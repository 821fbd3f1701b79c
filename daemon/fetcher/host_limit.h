/*
 * How many requests a host is sent at once where it throttles: 503, 429, SlowDown. As long as it
 * does not, any number; then as many as it serves, which is found as TCP finds a link's rate: fewer
 * by the share that it refuses, but by half at most, and one more after each round without. One of
 * HOST_LIMIT_CHANCE that is refused is chance: large stores refuse this share at any rate.
 * A host that says when to come again is sent nothing until then.
 *
 * Pure: times are given, of any clock that only goes forward.
 */
#ifndef DL_REMOTE_HOST_LIMIT_H
#define DL_REMOTE_HOST_LIMIT_H

#include "proto/common/base.h"

enum {
    HOST_LIMIT_CHANCE = 32,
    HOST_LIMIT_CLOSED_S = 30, /* it is believed for so long at most */
};

struct host_limit {      /* all zero: it does not throttle */
    uint32_t at_once;    /* 0: any number */
    uint32_t running;    /* requests that are sent and not answered */
    uint32_t peak;       /* most of them in this round */
    uint32_t n, refused; /* answers in this round */
    uint64_t lowered_ns; /* what was sent earlier says nothing of the number that is sent now */
    uint64_t opens_ns;
};

/* 0: now. */
uint64_t host_limit_opens_after(const struct host_limit *limit, uint64_t now_ns);
bool host_limit_has_room(const struct host_limit *limit, uint64_t now_ns);

void host_limit_sent(struct host_limit *limit);
/* It is under way no more, whatever became of it. */
void host_limit_ended(struct host_limit *limit);

struct host_answer {
    uint64_t sent_ns;
    bool refused;    /* the host asks for fewer requests */
    int64_t after_s; /* and for none for so long; 0: it does not say */
};

/* Before it has ended. `most`: a host that serves that many at once counts as one that does not
 * throttle. */
void host_limit_answered(struct host_limit *limit, const struct host_answer *answer,
                         uint64_t now_ns, uint32_t most);

#endif
