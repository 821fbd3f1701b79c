/*
 * The fetcher: a process of the daemon's that reads remote objects for its workers, which have no
 * network. It gets a socket for each worker over `control`, and ends when that is closed.
 */
#ifndef DL_REMOTE_SERVICE_H
#define DL_REMOTE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

struct remote_service {
    int control;         /* by which enum fetcher_control comes */
    int page;            /* memory for what is counted (proto/remote_counts.h) */
    bool confined;       /* it closes itself in */
    bool peers;          /* other nodes are to be asked, and may ask */
    uint64_t memory;     /* bytes that are held of what no worker has in use */
    uint64_t linger_ms;  /* without workers it ends after this; UINT64_MAX: never */
    const char *cache;   /* directory of all that is kept on disk; "": no blocks are, */
    uint64_t kept;       /* and how much is, of all */
    char *const *denied; /* NULL behind the last: where no URL leads to, see networks.h */
};

/* Runs until the daemon hangs up. Returns the process's exit status. */
int remote_serve(const struct remote_service *options);

#endif
