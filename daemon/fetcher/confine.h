/*
 * The fetcher closes itself in before it talks to any server (daemon/sandbox/): it starts nothing,
 * writes no file but what is kept of objects, and reads those alone that its work needs: the
 * system's settings and authorities, and where credentials are.
 *
 * Whatever is renamed or made later below an allowed directory can be read; a directory that was
 * not there cannot. confine_is_stale() says so, and the next process will have it.
 */
#ifndef DL_FETCHER_CONFINE_H
#define DL_FETCHER_CONFINE_H

#include "proto/common/base.h"

#include <sys/types.h>

enum { CONFINE_PLACES = 24 };

struct confine {
    struct confine_place {
        char *path; /* owned */
        dev_t device;
        ino_t inode; /* 0: it was not there */
    } places[CONFINE_PLACES];
    uint32_t n;
};

/* With one thread alone. `profile_token`: a file that the profile names; NULL: none. `cache`: the
 * directory of what is kept, in which files may be written; "": none. `peers`: other nodes may
 * call. What the kernel or the build cannot do is not done. */
void confine_begin(struct confine *confine, const char *profile_token, const char *cache,
                   bool peers);
void confine_deinit(struct confine *confine); /* ends nothing; takes {0} */

/* A place of credentials is another one than it was, or there is one where there was none. */
bool confine_is_stale(const struct confine *confine);

#endif
