#include "daemon/serve/base/credentials.h"

#include "daemon/serve/base/memory.h"

#include <errno.h>
#include <sys/socket.h>

enum { USER_AND_GROUP = 2 };

static struct credentials *credentials_new(uint32_t n)
{
    struct credentials *c = must_alloc(sizeof *c + n * sizeof c->ids[0]);

    c->n = n;
    return c;
}

static int credentials_compare_ids(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int credentials_fail(struct dl_error *err)
{
    return dl_error_set(err, errno, "", "the peer's credentials cannot be read: %s",
                        strerror(errno));
}

int credentials_read(int sock, struct credentials **ret, struct dl_error *err)
{
    struct ucred peer;
    socklen_t len = sizeof peer, room = 0;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return credentials_fail(err);
    /* Says how much room it takes. Where the kernel knows of none, the client has none. */
    if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, NULL, &room) < 0 && errno != ERANGE)
        room = 0;
    _cleanup_free_ struct credentials *c =
        credentials_new(USER_AND_GROUP + room / (uint32_t)sizeof(gid_t));
    c->ids[0] = peer.uid;
    c->ids[1] = peer.gid;
    if (room > 0 && getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, c->ids + USER_AND_GROUP, &room) < 0)
        return credentials_fail(err);
    qsort(c->ids + USER_AND_GROUP, c->n - USER_AND_GROUP, sizeof c->ids[0],
          credentials_compare_ids);
    *ret = steal_ptr(c);
    return 0;
}

bool credentials_equal(const struct credentials *a, const struct credentials *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof a->ids[0]) == 0;
}

struct credentials *credentials_copy(const struct credentials *of)
{
    struct credentials *c = of ? credentials_new(of->n) : NULL;

    if (c)
        memcpy(c->ids, of->ids, of->n * sizeof c->ids[0]);
    return c;
}
