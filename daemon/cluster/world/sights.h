/*
 * What nodes in front see of the others' heartbeats, for all. They look at them again and again
 * (rendezvous.h), and say in the store whose is late: each under a key of its own, by another text
 * after each look. A node that needs to know now, as at an epoch's end, reads one of these until it
 * differs from before: then it was written meanwhile. So no node has to read all heartbeats itself,
 * which at an epoch's end all would do at once.
 *
 * Among few nodes, or beside releases that do not know of it, each looks itself. So does a node to
 * which those in front say nothing new.
 */
#ifndef DL_SIGHTS_H
#define DL_SIGHTS_H

#include "proto/common/bytes.h"

/* Of no more nodes each looks itself. Names of nodes that are late, at most; of more all are. */
enum { SIGHTS_NODES_MAX = 16, SIGHTS_LATE_MAX = 64 };

struct members;

struct sights {
    /* Of a node in front: */
    uint64_t told_ns; /* the look that was told last */
    uint64_t told;    /* how many were */
    uint64_t token;   /* of what the store has */
    bool telling;
    /* Of one that reads: */
    uint32_t whose;        /* which of those in front; all of them: of none */
    uint32_t same;         /* reads one after another that found nothing new */
    bool asking;           /* the store, */
    uint64_t asked_ns;     /* at last then; */
    uint64_t read_ns;      /* and then it answered at last; 0: never, */
    struct dl_buffer text; /* this */
    uint64_t seen_ns;      /* what is late is not older than this; 0: nothing was read */
    uint64_t late[SIGHTS_LATE_MAX];
    uint32_t n_late; /* more than there is room for: all are */
};

/* Each poll_ns: a node in front tells what it has seen since. */
void sights_tick(struct members *m);
/* Another round: other nodes may be in front. */
void sights_enter_round(struct members *m);
/* This node needs to know: it reads, or looks itself. At most once in each poll_ns; `changed` comes
 * when something is known. */
void sights_ask(struct members *m);
/* When what is known was seen at the earliest, by uv_hrtime(); 0: nothing is. */
uint64_t sights_seen_ns(const struct members *m);
/* By then, that node's heartbeat was late. */
bool sights_is_late(const struct members *m, uint64_t id);
void sights_deinit(struct members *m);

#endif
