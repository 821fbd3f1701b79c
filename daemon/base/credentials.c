#include "daemon/base/credentials.h"

#include "daemon/base/memory.h"

#include <errno.h>

enum { USER_AND_GROUP = 2, GROUPS_AT_ONCE = 32 };

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

int credentials_peer(int sock, struct ucred *ret, struct dl_error *err)
{
    socklen_t len = sizeof *ret;

    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, ret, &len) < 0 ? credentials_fail(err) : 0;
}

/* When the buffer is too small, the kernel returns the size that all groups need. A kernel that
 * does not know the option reports no groups. */
static int credentials_read_groups(int sock, struct credentials **c, struct dl_error *err)
{
    socklen_t room = GROUPS_AT_ONCE * sizeof(gid_t);
    int r = getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, (*c)->ids + USER_AND_GROUP, &room);

    if (r < 0 && errno == ERANGE) {
        free(*c);
        *c = credentials_new(USER_AND_GROUP + room / (uint32_t)sizeof(gid_t));
        r = getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, (*c)->ids + USER_AND_GROUP, &room);
        if (r < 0)
            return credentials_fail(err);
    }
    (*c)->n = USER_AND_GROUP + (r < 0 ? 0 : room / (uint32_t)sizeof(gid_t));
    return 0;
}

int credentials_read(int sock, const struct ucred *peer, struct credentials **ret,
                     struct dl_error *err)
{
    _cleanup_free_ struct credentials *c = credentials_new(USER_AND_GROUP + GROUPS_AT_ONCE);
    int r = credentials_read_groups(sock, &c, err);

    if (r < 0)
        return r;
    c->ids[0] = peer->uid;
    c->ids[1] = peer->gid;
    qsort(c->ids + USER_AND_GROUP, c->n - USER_AND_GROUP, sizeof c->ids[0],
          credentials_compare_ids);
    *ret = steal_ptr(c);
    return 0;
}

bool credentials_equal(const struct credentials *a, const struct credentials *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof a->ids[0]) == 0;
}

struct credentials *credentials_copy(const struct credentials *original)
{
    struct credentials *c = original ? credentials_new(original->n) : NULL;

    if (c)
        memcpy(c->ids, original->ids, original->n * sizeof c->ids[0]);
    return c;
}
