#include "daemon/serve/room.h"

#include "daemon/base/admission.h"
#include "daemon/serve/registry.h"

#include <errno.h>

/* ---- what nobody uses ------------------------------------------------------------------------ */

/* The account's loader that has been unused for longest; those that a job may come back to are
 * last. NULL: all are in use. */
static struct loader *room_find_unused(const struct daemon *d, const struct quota_account *account)
{
    struct loader *found = NULL;
    uint64_t found_since = UINT64_MAX;
    bool found_parked = true;

    for (const struct registered *e = d->loaders; e; e = registered_next(e)) {
        struct loader *loader = registered_loader(e);
        bool parked;
        uint64_t since = loader_unused_since(loader, &parked);

        if (loader_account(loader) != account || since == UINT64_MAX || parked > found_parked ||
            (parked == found_parked && since >= found_since))
            continue;
        found = loader;
        found_since = since;
        found_parked = parked;
    }
    return found;
}

bool room_make_way(const struct daemon *d, const struct quota_account *account)
{
    struct loader *unused = room_find_unused(d, account);

    if (unused)
        loader_give_way(unused);
    return unused != NULL;
}

bool room_yield_workers(const struct daemon *d, const struct quota_account *account, bool last)
{
    for (const struct registered *e = d->loaders; e; e = registered_next(e)) {
        struct loader *loader = registered_loader(e);

        if (loader_account(loader) == account && loader_yield_workers(loader, last))
            return true;
    }
    return false;
}

/* Workers that are about to go. */
static uint64_t room_leaving(const struct daemon *d, const struct quota_account *account)
{
    uint64_t n = 0;

    for (const struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct pool *pool = loader_pool(registered_loader(e));

        if (loader_account(registered_loader(e)) == account && pool)
            n += pool_leaving(pool);
    }
    return n;
}

/* The one to which the daemon has given most has to give some of that, if all together have `n`.
 * False: they have not, or as many are on their way. */
static bool room_share_workers(const struct daemon *d, const struct quota_account *account,
                               uint64_t n)
{
    uint64_t leaving = room_leaving(d, account), all = leaving;
    struct loader *most = NULL;

    for (const struct registered *e = d->loaders; e; e = registered_next(e)) {
        struct loader *loader = registered_loader(e);

        if (loader_account(loader) != account || loader_spares(loader) == 0)
            continue;
        all += loader_spares(loader);
        most = !most || loader_spares(loader) > loader_spares(most) ? loader : most;
    }
    return most && n > leaving && n <= all &&
           loader_spare_workers(most, (uint32_t)min_u64(n - leaving, loader_spares(most)));
}

/* The last worker of a loader that nobody reads; not while others are about to go. */
static bool room_yield_last(const struct daemon *d, const struct quota_account *account)
{
    return room_leaving(d, account) == 0 && room_yield_workers(d, account, true);
}

bool room_spare_worker(const struct daemon *d, const struct quota_account *account)
{
    if (room_leaving(d, account) > 0)
        return false;
    return room_yield_workers(d, account, false) || room_make_way(d, account) ||
           room_share_workers(d, account, 1) || room_yield_last(d, account);
}

/* ---- what it wants --------------------------------------------------------------------------- */

enum {
    ROOM_LOADERS,
    ROOM_WORKERS,
    ROOM_DESCRIPTORS,
    ROOM_BYTES,     /* the user's, */
    ROOM_MEMORY,    /* and all users': what is kept decoded; rings take theirs later */
    ROOM_BANDWIDTH, /* all users' */
    ROOMS
};

struct room {
    struct admission_claim claims[ROOMS];
    struct quota_account *account;
    uint64_t caches; /* bytes */
};

static struct admission_claim room_claim(const struct quota_account *account, enum quota_kind kind,
                                         uint64_t want)
{
    return (struct admission_claim){
        .want = want, .in_use = quota_in_use(account, kind), .limit = quota_limit(account, kind)};
}

/* Bytes of batches in a second, of all loaders. */
static uint64_t room_bandwidth(const struct daemon *d)
{
    uint64_t all = 0, now = uv_hrtime();

    for (const struct registered *e = d->loaders; e; e = registered_next(e))
        all += loader_bandwidth(registered_loader(e), now);
    return all;
}

/* What the account's unused loaders would give back. */
static void room_count_unused(const struct daemon *d, const struct quota_account *account,
                              struct admission_claim *claims)
{
    for (const struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *loader = registered_loader(e);
        const struct pool *pool = loader_pool(loader);
        bool parked;

        if (loader_account(loader) != account || loader_unused_since(loader, &parked) == UINT64_MAX)
            continue;
        claims[ROOM_LOADERS].returned++;
        claims[ROOM_WORKERS].returned += loader_gives_back(loader);
        claims[ROOM_DESCRIPTORS].returned += pool_workers(pool) * POOL_WORKER_DESCRIPTORS;
        claims[ROOM_BYTES].returned += loader_gives_back_bytes(loader);
        claims[ROOM_MEMORY].returned += loader_gives_back_bytes(loader);
    }
}

static struct room room_of(struct daemon *d, struct session *session, const struct dl_spec *spec)
{
    struct quota_account *account = session_account(session);
    const struct payer payer = {account, &d->budget};
    uint64_t caches = 0, files;
    struct room room = {.account = account};

    files = pictures_set_wants(&d->pictures, &spec->dataset, &payer, &caches);
    room.caches = caches;
    room.claims[ROOM_LOADERS] = room_claim(account, QUOTA_LOADERS, 1);
    room.claims[ROOM_WORKERS] = room_claim(account, QUOTA_WORKERS, spec->workers);
    room.claims[ROOM_DESCRIPTORS] = room_claim(
        account, QUOTA_DESCRIPTORS, (uint64_t)spec->workers * POOL_WORKER_DESCRIPTORS + files);
    room.claims[ROOM_BYTES] = room_claim(account, QUOTA_BYTES, caches);
    room.claims[ROOM_MEMORY] = budget_claim(&d->budget, caches);
    if (d->config.limits.bandwidth > 0)
        room.claims[ROOM_BANDWIDTH] = (struct admission_claim){
            .want = 1, .in_use = room_bandwidth(d), .limit = d->config.limits.bandwidth};
    room_count_unused(d, account, room.claims);
    return room;
}

/* ---- the decision ---------------------------------------------------------------------------- */

/* In the words of who is asked for it. 0: there is room. */
static int room_check(struct daemon *d, const struct room *room, struct dl_error *err)
{
    static const enum quota_kind kinds[] = {
        [ROOM_LOADERS] = QUOTA_LOADERS,
        [ROOM_WORKERS] = QUOTA_WORKERS,
        [ROOM_DESCRIPTORS] = QUOTA_DESCRIPTORS,
        [ROOM_BYTES] = QUOTA_BYTES,
    };
    const struct admission_claim *bandwidth = &room->claims[ROOM_BANDWIDTH];

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        int r = room->claims[i].want > 0
                    ? quota_check(room->account, kinds[i], room->claims[i].want, err)
                    : 0;
        if (r < 0)
            return r;
    }
    if (admission_decide(&room->claims[ROOM_MEMORY], 1, false) != ADMISSION_FITS)
        return budget_check(&d->budget, room->caches, "lower dataset.cache", err);
    if (admission_decide(bandwidth, 1, false) == ADMISSION_FITS)
        return 0;
    return dl_error_set(err, EDQUOT, "limits.bandwidth",
                        "all loaders together have loaded %llu bytes of batches a second lately, "
                        "and the limit is %llu; try again later, or raise it in dloaderd.conf",
                        (ull)bandwidth->in_use, (ull)bandwidth->limit);
}

/* Workers that are about to go count as there before long. */
static bool room_waits(const struct daemon *d, const struct room *room)
{
    return d->config.limits.full == CONFIG_FULL_WAIT || room_leaving(d, room->account) > 0;
}

static enum admission room_decide(const struct daemon *d, const struct room *room)
{
    return admission_decide(room->claims, ROOMS, room_waits(d, room));
}

/* Whether something has made way for it. What never fits takes nothing from anybody. */
static bool room_gains(const struct daemon *d, const struct room *room)
{
    const struct admission_claim *workers = &room->claims[ROOM_WORKERS];
    uint64_t wants = workers->want + workers->in_use;

    if (room_decide(d, room) == ADMISSION_MAKES_WAY)
        return room_make_way(d, room->account);
    if (admission_decide(room->claims, ROOMS, true) == ADMISSION_REFUSED || wants <= workers->limit)
        return false;
    return room_yield_workers(d, room->account, false) ||
           room_share_workers(d, room->account,
                              wants - min_u64(wants, workers->limit + workers->returned)) ||
           room_yield_last(d, room->account);
}

int room_make(struct daemon *d, struct session *session, const struct dl_spec *spec,
              struct dl_error *err)
{
    retired_look(&d->retired, session_account(session));
    struct room room = room_of(d, session, spec);
    while (room_gains(d, &room))
        room = room_of(d, session, spec);
    int r = room_check(d, &room, err); /* of all users, too */
    bool refused = room_decide(d, &room) == ADMISSION_REFUSED;
    return r < 0 && !refused && room_waits(d, &room) ? 1 : r;
}
