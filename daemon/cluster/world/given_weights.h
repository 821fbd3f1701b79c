/*
 * Changed weights of a shared loader: the store's part and the loader's of what
 * daemon/cluster/progress/given.h says (daemon/docs/weights-agreed.md).
 *
 * In the store lies "given/ID/LOADER/NUMBER/NODE", what a node was given, while it is compared.
 * Where a round begins, lists are behind the reports (reports.c).
 */
#ifndef DL_GIVEN_WEIGHTS_H
#define DL_GIVEN_WEIGHTS_H

#include "daemon/cluster/progress/given.h"

struct members;
struct shared_loader;

enum { GIVEN_TEXT_MAX = 512 };

/* What the loader does for it: see loader.h. */
struct given_weights_ops {
    void (*hold)(void *loader, uint64_t position);
    uint64_t (*take)(void *loader, struct mix_changes *list);
    bool (*wait)(void *loader, const struct dl_error *why);
    void (*fail)(void *loader, const struct dl_error *why);
};

/* The list by which a rank begins that was given a place; borrowed. */
struct mix_changes *given_weights_list(const struct shared_loader *shared);
/* It has begun: until the last of its ranks ends, the loader learns of changes. */
void given_weights_attach(struct shared_loader *shared, void *loader,
                          const struct given_weights_ops *ops);

/* The list with all that was given here; borrowed. */
struct mix_changes *given_weights_latest(const struct shared_loader *shared);
/* Nothing is planned there or behind, until the other nodes have been given the same. */
uint64_t given_weights_hold(const struct shared_loader *shared);
/* 0: a client may give a change; 1: not yet, as what was given before is still compared; ask again
 * on `changed`. -EAGAIN: it takes too long, since `asked` (ns). */
int _nodiscard_ given_weights_wait(struct shared_loader *shared, uint64_t asked,
                                   struct dl_error *err);
/* A client gives the latest list with one more change; `text` says what, for people, and the same
 * on all nodes. -ENOMEM. */
int _nodiscard_ given_weights_give(struct shared_loader *shared, struct mix_changes *list,
                                   const char *text, struct dl_error *err);
/* A client gives again what was given, or weights of samples that the list lacked here. */
void given_weights_again(struct shared_loader *shared);
/* The shared loader that this loader's ranks are in, if there is one alone; *ret_n: how many there
 * are. */
struct shared_loader *given_weights_find(struct members *members, const void *loader,
                                         uint32_t *ret_n);

#endif
