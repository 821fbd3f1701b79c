/* What the daemon does until a loader is open, shown: it finds images, indexes shards, takes
 * lengths. */
#ifndef DLCTL_OPENING_H
#define DLCTL_OPENING_H

#include "client/dlctl/options.h"
#include "client/dlctl/run/progress.h"

struct opening { /* stays where it is from begin to end */
    struct progress shown;
    bool quiet;
    char what[80]; /* "": nothing took long yet */
};

/* Loaders that this client opens from now on. */
void opening_begin(struct opening *opening, struct dl_client *client, const struct options *o);
/* Shows no more; again is fine. */
void opening_end(struct opening *opening);

#endif
