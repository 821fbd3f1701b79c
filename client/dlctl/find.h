/*
 * Which daemons somebody can ask: the user's own service, the system's, and the private ones of the
 * user's programs, which lie in folders `dloader-UID-…` where a program of the same environment
 * puts them: below $XDG_RUNTIME_DIR, or else /run/user/UID, and below $TMPDIR, or else /tmp. A
 * folder counts if it and its socket are this user's, nobody else may enter it, and nobody else can
 * have put it there.
 */
#ifndef DLCTL_FIND_H
#define DLCTL_FIND_H

#include "client/dlctl/options.h"

struct found {
    char *socket; /* owned; somebody listens there */
    char *
        program; /* owned; whose private daemon it is, "train.py"; "": a service, or nobody knows */
    uint64_t pid; /* the program's; 0: likewise */
    bool private;
};

struct found_all {
    struct found *all; /* owned; services first, then programs by their pids */
    size_t n;
};
void found_deinit(struct found_all *found);

/* 0 or -ENOMEM. */
int _nodiscard_ find_daemons(struct found_all *ret);

/*
 * The socket that the options mean, in *ret: owned; NULL: the library's choice. -EINVAL with `err`:
 * there are several to choose from; -ENOENT: none.
 */
int _nodiscard_ find_socket(const struct options *o, char **ret, struct dl_error *err);

/* Nobody has said which one: neither --socket nor $DLOADER_SOCKET. */
bool find_is_open(const struct options *o);

#endif
