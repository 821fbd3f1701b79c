/*
 * The objects a client has sent and no loader has taken yet: the pickles of Python datasets. Each
 * is a memfd that nobody can change any more, so that what a worker reads is what the client sent,
 * and no truncation kills a worker in the middle of it.
 *
 * Bounded: where one more comes, the oldest goes. Main thread only.
 */
#ifndef DL_OBJECTS_H
#define DL_OBJECTS_H

#include "proto/error.h"

enum { OBJECTS_MAX = 16 };

struct object {
    uint64_t number;
    int fd;              /* owned; -1: it was no good */
    struct dl_error why; /* then */
};

struct objects {
    struct object *items; /* owned array of OBJECTS_MAX, in the order of arrival; NULL: none came */
    uint32_t n;
};

void objects_deinit(struct objects *objects);

/* Consumes `fd`. One that is no good is remembered as such: who asks for it hears why. */
void objects_add(struct objects *objects, uint64_t number, int fd);

/*
 * The descriptor of that number, which then is the caller's and no object any more. -ENOENT: there
 * is none, -EINVAL: it was no good; with `err` at dataset.pickle.
 */
int _nodiscard_ objects_take(struct objects *objects, uint64_t number, int *ret_fd,
                             struct dl_error *err);

#endif
