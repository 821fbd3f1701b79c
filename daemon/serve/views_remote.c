/* The view `remote`: what is asked of the stores that remote files lie in, and what is held of
 * them. */
#include "daemon/serve/views_private.h"

#include "daemon/serve/pool/remotes.h"

#include <math.h>

/* Null where there is no whole. */
static void views_remote_add_share(struct row *row, const char *key, uint64_t part, uint64_t whole)
{
    row_real(row, key, whole ? (double)part / (double)whole : NAN);
}

int view_remote(const struct daemon *d, struct value *ret)
{
    struct row row = row_begin(ret);
    uint64_t counts[REMOTE_COUNTS], given;
    int pid;

    remotes_look(d->remotes, counts, &pid);
    row_uint_if(&row, "pid", pid, (uint64_t)pid);
    for (int i = 0; i < REMOTE_COUNTS; i++)
        row_uint(&row, remote_count_key(i), counts[i]);
    given = counts[REMOTE_FROM_STORE] + counts[REMOTE_FROM_PEERS] + counts[REMOTE_FROM_DISK] +
            counts[REMOTE_FROM_MEMORY];
    views_remote_add_share(&row, "hit_share", given - counts[REMOTE_FROM_STORE], given);
    views_remote_add_share(&row, "throttled_share", counts[REMOTE_THROTTLED],
                           counts[REMOTE_REQUESTS]);
    return row.r;
}
