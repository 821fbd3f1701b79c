/*
 * Accord: one list of changed weights (proto/mix_changes.h) of a loader, for all nodes that read it
 * in the cluster's world. Pure. Why it holds is argued in daemon/docs/weights-agreed.md.
 *
 * The list lies in the store as one value, which nodes change by compare-and-set. A change is made
 * in three steps:
 *
 *   ask     one node writes that it wants to change the weights, from which position on
 *   say     each node that sees this plans nothing at or behind that position from now on, and
 *           then says how far it has planned: its reach
 *   decide  the node that asked has heard the reach of all nodes of the round, and writes the list
 *           with the change, behind all of them; or that nothing changes (withdraws)
 *
 * Nodes hold until they see a value with a greater number. Others withdraw what was asked by a node
 * that is not in the round any more, or that takes too long: compare-and-set lets one of both win.
 *
 * A node plans nothing of a round before it has read the value in it. Where all nodes of a round
 * are new to the loader, what the store has of it is of an earlier run: the first of them to
 * write begins the list anew, with what its ranks have brought.
 */
#ifndef DL_ACCORD_H
#define DL_ACCORD_H

#include "proto/mix_changes.h"

/* In the store. */
struct accord_value {
    uint64_t number;          /* one more with each value written; 0: no value */
    uint64_t born;            /* the round in which the list was begun */
    uint64_t asker;           /* node that wants to change it; 0: none does; */
    uint64_t asked;           /* from that position on; 0: the first that is possible */
    struct mix_changes *list; /* counted */
};

void accord_value_deinit(struct accord_value *value);

/* A line of text, and behind it the list's bytes: "1 NUMBER BORN ASKER ASKED". -ENOMEM. */
int _nodiscard_ accord_value_write(const struct accord_value *value, struct dl_buffer *ret);
/* -EINVAL: these are no such bytes; -ENOMEM. */
int _nodiscard_ accord_value_read(struct dl_span bytes, struct accord_value *ret);

/* A node's reach, as it says it: digits. */
enum { ACCORD_REACH_MAX = 24 };
void accord_reach_write(uint64_t reach, char ret[static ACCORD_REACH_MAX]);
bool _nodiscard_ accord_reach_read(struct dl_span text, uint64_t *ret);

enum accord_do {
    ACCORD_NOTHING, /* until something happens */
    ACCORD_READ,    /* the value */
    ACCORD_WRITE,   /* `ret`, in the place of `token` */
    ACCORD_SAY,     /* how far this node has planned, once it holds; the asker reads all */
};

/* What becomes of a change that this node was asked for. */
enum accord_mine {
    ACCORD_IDLE,
    ACCORD_WANTED, /* it is to be written that it is asked for */
    ACCORD_ASKED,  /* it was; the nodes say their reach */
    ACCORD_HEARD,  /* all have: `decided` is to be written */
    /* Its end, which accord_forget() makes IDLE again: */
    ACCORD_DONE,
    ACCORD_DROPPED, /* withdrawn, by this node or by another one */
    ACCORD_RACED,   /* another node had asked for one, which is decided by now */
    ACCORD_LATE,    /* what this node knew was old, but nobody else asks: it may ask again */
};

/* Zero, but for `self`: it knows nothing. */
struct accord {
    uint64_t self; /* the node's id; never 0 */
    bool in;       /* a round, where the loader's beginning in it is known: */
    uint64_t round;
    uint64_t entered, called; /* how many it was in, now and when the store was called last */
    bool read;                /* the value was, since it is in */
    bool fresh;              /* it may begin a list: in a round all nodes were new to the loader, */
    uint64_t since;          /* lately in this one: lists that were born before do not count; */
    bool brought;            /* what such a list is to begin with is known, */
    struct mix_changes *own; /* counted: this */
    uint64_t token;          /* the store's, of what lies there */
    struct accord_value seen; /* the latest value that was */
    bool lost;                /* the store has less than that */
    uint64_t said;            /* number of the latest value that this node has said its reach for */
    enum accord_mine mine;
    uint64_t wanted;             /* the position; */
    uint64_t wanted_at;          /* the number of the value that there was then; */
    struct mix_changes *before;  /* counted: likewise the list; */
    bool called_since;           /* what the store answers is not older than the wish; */
    bool rivalled;               /* by such an answer another node's request was open */
    struct mix_changes *decided; /* counted; HEARD: the list */
};

void accord_deinit(struct accord *accord);

/* The loader's beginning in that round is known; `fresh`: all nodes are new to it. */
void accord_enter(struct accord *accord, uint64_t round, bool fresh);
/* Nothing is in the store, and has been empty for so long that no node there can know what it was:
 * the node that was to begin the list is gone. So this one does. */
void accord_give_up(struct accord *accord);
/* The round is over. What is held is held on. */
void accord_leave(struct accord *accord);
/* What a rank that is about to begin knows of; the first one counts. */
void accord_bring(struct accord *accord, struct mix_changes *list);
/* The list that ranks read by is known: seen.list, up to accord_hold(). */
bool accord_is_known(const struct accord *accord);
/* Nothing is planned at or behind that position; UINT64_MAX: no such position. */
uint64_t accord_hold(const struct accord *accord);

/* The list is known, and no change of this node's is on its way, nor to be withdrawn yet. */
bool accord_may_ask(const struct accord *accord);
/* A change is wanted, where there may be one. */
void accord_ask(struct accord *accord, uint64_t position);
/* ASKED: all reaches are known, and the round is the same: the list that follows from them. */
void accord_hear(struct accord *accord, struct mix_changes *list);
/* Its end was heard; or it is not wanted any more: one that was asked for is withdrawn. */
void accord_forget(struct accord *accord);

/* What is to be done next. `asker_is_there`: the node seen.asker is in the round, and has not taken
 * too long. Of `ret` nothing has to be freed, and it is good until the next call. */
enum accord_do accord_next(const struct accord *accord, bool asker_is_there,
                           struct accord_value *ret);
/* The store is called. */
void accord_call(struct accord *accord);
/* Its answer to READ or WRITE: what is there (number 0: nothing), which is consumed. */
void accord_seen(struct accord *accord, uint64_t token, struct accord_value *value);
/* A WRITE was answered by an error: it may have been done, or not. */
void accord_failed(struct accord *accord);
/* The reach was said for the value of that number. */
void accord_said(struct accord *accord, uint64_t number);

#endif
