/*
 * Changed weights of a shared loader: this node's part in agreeing on one list of them
 * (daemon/cluster/progress/accord.h, daemon/docs/weights-agreed.md). The value is read now and
 * then, and more often while nodes agree on something; the loader learns what to hold, and which
 * list it has.
 *
 * In the store lie "changes/ID/LOADER", the value, and "reach/ID/LOADER/NUMBER-ROUND/NODE" while
 * a change is being agreed on.
 */
#ifndef DL_SHARED_WEIGHTS_H
#define DL_SHARED_WEIGHTS_H

#include "daemon/cluster/progress/accord.h"

struct members;
struct shared_loader;

/* What the loader does for it: see loader.h. */
struct shared_weights_ops {
    uint64_t (*planned)(const void *loader);
    void (*hold)(void *loader, uint64_t position);
    uint64_t (*take)(void *loader, struct mix_changes *list);
};

/* A rank is about to begin, whose client knows of `known`: 0: the list, borrowed; 1: it is not
 * known yet; since `asked` (ns) it is waited for. -ETIMEDOUT. */
int _nodiscard_ shared_weights_list(struct shared_loader *shared, struct mix_changes *known,
                                    uint64_t asked, struct mix_changes **ret, struct dl_error *err);
/* It has begun: until the last of its ranks ends, the loader learns what nodes agree on. */
void shared_weights_attach(struct shared_loader *shared, void *loader,
                           const struct shared_weights_ops *ops);

/* Who asks for a change: both are only compared. */
struct shared_weights_asker {
    const void *session;
    uint64_t request;
    uint64_t asked; /* ns */
};

/* A step, and its position in the order. */
struct shared_weights_place {
    uint64_t epoch, step, position;
};

enum shared_weights_turn {
    SHARED_WEIGHTS_FREE,   /* it may ask: shared_weights_ask() */
    SHARED_WEIGHTS_WAIT,   /* and `changed` says when to look again */
    SHARED_WEIGHTS_DECIDE, /* all nodes have said how far they are: shared_weights_decide() */
    SHARED_WEIGHTS_DONE,   /* as below, once: the change is in force, at *ret_place; */
    SHARED_WEIGHTS_FAILED, /* nothing changes, for this reason */
    SHARED_WEIGHTS_OTHER,  /* another node's change has come first; */
    SHARED_WEIGHTS_LATE,   /* it was over before this one was asked for: both until one looks again
                              behind shared_weights_forget() */
};

/* Where the asker's change stands. ret_place->position, with DECIDE: no node has planned that one,
 * or any behind it. */
enum shared_weights_turn shared_weights_look(struct shared_loader *shared,
                                             const struct shared_weights_asker *asker,
                                             struct shared_weights_place *ret_place,
                                             struct dl_error *err);
void shared_weights_ask(struct shared_loader *shared, const struct shared_weights_asker *asker,
                        uint64_t position);
/* OTHER, LATE: the list that was in force when the change was asked for; borrowed. */
struct mix_changes *shared_weights_before(const struct shared_loader *shared);
/* OTHER, LATE: it is not wanted any more, or is about to be asked for again. */
void shared_weights_forget(struct shared_loader *shared);
/* The list with the change at that place. NULL: nothing changes after all, and the asker waits no
 * longer. */
void shared_weights_decide(struct shared_loader *shared, struct mix_changes *list,
                           const struct shared_weights_place *place);
/* The list has weights of samples that it lacked: tells the loader again. */
void shared_weights_again(struct shared_loader *shared);
/* Nothing is planned there or behind, while nodes agree; UINT64_MAX: there is no such position. */
uint64_t shared_weights_hold_position(const struct shared_loader *shared);
/* The list that is in force; borrowed. */
struct mix_changes *shared_weights_in_force(const struct shared_loader *shared);
/* The shared loader that this loader's ranks are in, or that was asked already, if there is one
 * alone; *ret_n: how many there are. */
struct shared_loader *shared_weights_find(struct members *members, const void *loader,
                                          const struct shared_weights_asker *asker,
                                          uint32_t *ret_n);

#endif
