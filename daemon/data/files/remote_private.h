/* Shared by remote.c and remote_map.c. */
#ifndef DL_DATA_REMOTE_PRIVATE_H
#define DL_DATA_REMOTE_PRIVATE_H

#include "daemon/data/files/remote.h"

/* A block that can be read. */
struct remote_ready {
    struct remote_map *map; /* NULL: not any more */
    uint64_t block;
};

/* Files that were asked for and are not opened yet; a power of 2. */
enum { REMOTE_EXPECTED_MAX = 4096 };

struct remote {
    int sock;            /* owned */
    pid_t pid;           /* whose it is: no copy's that this process forks */
    struct guard *guard; /* borrowed */
    struct remote_map *maps;
    /* A ring; the oldest is the next to go. What a sample in hand points to comes again when it is
     * read. */
    struct remote_ready *ready; /* owned; NULL: nothing was mapped yet */
    uint32_t window;            /* length of `ready` */
    uint32_t next_ready;
    uint64_t waited_ns; /* for answers */
    /* Hashes of URLs, each at a place of its own; 0: none. */
    uint64_t expected[REMOTE_EXPECTED_MAX];
    bool ahead;                         /* for later */
    uint64_t said[REMOTE_EXPECTED_MAX]; /* likewise; since then: of URLs, and blocks */
    /* Of the block that could not be fetched last. */
    struct remote_answer failed;
};

/* Async-signal-safe, all three. */
int remote_send(struct remote *remote, const struct remote_question *question); /* -errno */
/* Whether it was noted; notes it. */
bool remote_note(uint64_t table[static REMOTE_EXPECTED_MAX], uint64_t hash);
/* `ret_fd`: -1, or what came with it. Without a fetcher this process cannot go on, and ends: the
 * daemon starts another one, which repeats its step. */
void remote_ask(struct remote *remote, const struct remote_question *question,
                struct remote_answer *ret, int *ret_fd);

/* Opens it to be mapped: the descriptor is the caller's, also after an error. */
int remote_open_pages(struct remote *remote, const char *url, struct remote_answer *ret,
                      int *ret_fd, struct stat *ret_st, struct dl_error *err);

#endif
