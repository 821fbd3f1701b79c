/*
 * What the daemon dies of. While it works for a client it remembers the request as a number, its
 * *key*. If it crashes, its last act is to append that key to a file, which the next daemon reads.
 * A key that killed two daemons within an hour is refused by the third, so that a fatal spec costs
 * the other users only two short pauses.
 *
 * Only crashes are noted, that is signals that a process causes itself: SIGSEGV, SIGBUS, SIGILL,
 * SIGFPE and SIGABRT, which failed assertions raise, as does the service manager's watchdog when a
 * daemon hangs. SIGKILL blames no key, nor does an orderly exit, which also removes the file: so
 * restarting the daemon forgives. Each thread has its own key.
 *
 * One per process.
 */
#ifndef DL_BLAME_H
#define DL_BLAME_H

#include "proto/common/error.h"

#include <sys/types.h>

enum {
    BLAME_DEATHS = 2,        /* deaths after which a key is refused, */
    BLAME_SECONDS = 60 * 60, /* this long after each death */
    BLAME_MAX = 256,         /* deaths that are remembered: the last ones */
};

/* As it stands in the file. */
struct blame_death {
    uint64_t key;
    uint64_t time; /* seconds since 1970 */
};

/* Opens or creates the file at `path`, reads it, and notes crashes there from now on. 0, or a
 * negative errno with `err`: crashes are not noted. */
int _nodiscard_ blame_open(const char *path, struct dl_error *err);
/* The daemon ends in order: the file goes. Nothing is done if it is not open. */
void blame_close(void);

/* The key of a request by `uid`, of type `kind`, with this content. */
uint64_t blame_key(uid_t uid, uint32_t kind, const void *data, size_t len);
/* Sets what this thread works on from now on, 0: no request; returns the former key. */
uint64_t blame_swap(uint64_t key);
uint64_t blame_at(void); /* what it is at */
void blame_backp(const uint64_t *before);
/* A declaration: this thread is at that up to the end of the block, and then at what it was before.
 */
#define BLAMING(key) _cleanup_(blame_backp) _unused_ uint64_t blame_before = blame_swap(key)

/* 0; or -EPERM with `err`: the daemon has died of it too often. `what` is its name for people. */
int _nodiscard_ blame_check(uint64_t key, const char *what, struct dl_error *err);

/* The deaths of those `n` that are of `key` and count at `now`; *ret_last: the time of the last. */
uint32_t blame_count(const struct blame_death *deaths, size_t n, uint64_t key, uint64_t now,
                     uint64_t *ret_last);

#endif
