#include "daemon/serve/ring/budget.h"

#include "proto/common/clock.h"

#include <assert.h>
#include <errno.h>

/* What was read, and did not suffice, stays good for so long: loaders that wait for memory ask
 * again and again. */
enum { READ_NS = 20 * 1000 * 1000 };

void budget_init(struct budget *budget, const struct config_share *share)
{
    *budget = (struct budget){.share = share};
}

uint64_t budget_ceiling(const struct config_share *share, uint64_t total)
{
    return share->per_cent ? total / 100 * share->per_cent : share->bytes;
}

static void budget_read(struct budget *b)
{
    uint64_t now = clock_ns();

    if (b->read_ns != 0 && now - b->read_ns < READ_NS)
        return;
    if (b->look)
        b->look(b->looker);
    available_read("", &b->available);
    b->left = b->available.bytes - min_u64(b->available.bytes, b->promised);
    b->read_ns = now;
}

static int budget_refuse(const struct budget *b, uint64_t bytes, const char *remedy,
                         struct dl_error *err)
{
    const struct available *a = &b->available;

    if (a->pressure)
        return dl_error_set(
            err, ENOMEM, "memory",
            "%llu bytes are wanted, and processes waited for memory in %u %% of the "
            "last 10 s (%s); %s, or give the daemon more memory",
            (ull)bytes, a->pressure, a->place, remedy);
    return dl_error_set(err, ENOMEM, "memory",
                        "%llu bytes are wanted, and %llu are available: %s has %llu, of which %llu "
                        "are used, %llu promised and %llu kept for others; %s, or give the "
                        "daemon more memory",
                        (ull)bytes, (ull)b->left, a->place, (ull)a->limit, (ull)a->used,
                        (ull)b->promised, (ull)a->reserve, remedy);
}

int budget_check(struct budget *b, uint64_t bytes, const char *remedy, struct dl_error *err)
{
    budget_read(b);
    uint64_t ceiling = budget_ceiling(b->share, b->available.total);
    if (bytes > ceiling || b->in_use > ceiling - bytes)
        return dl_error_set(
            err, EDQUOT, "limits.memory",
            "%llu more would exceed the limit of %llu for the loaders of all users, "
            "which use %llu; close loaders, %s, or raise limits.memory in "
            "dloaderd.conf",
            (ull)bytes, (ull)ceiling, (ull)b->in_use, remedy);
    return bytes > b->left ? budget_refuse(b, bytes, remedy, err) : 0;
}

struct admission_claim budget_claim(struct budget *b, uint64_t bytes)
{
    budget_read(b);
    uint64_t limit = budget_ceiling(b->share, b->available.total);
    uint64_t room = min_u64(limit - min_u64(b->in_use, limit), b->left);

    return (struct admission_claim){.want = bytes, .in_use = limit - room, .limit = limit};
}

int budget_take(struct budget *b, uint64_t bytes, const char *remedy, struct dl_error *err)
{
    int r = budget_check(b, bytes, remedy, err);

    if (r < 0)
        return r;
    b->left -= bytes;
    b->in_use += bytes;
    b->promised += bytes;
    b->read_ns = 0;
    return 0;
}

bool budget_would_take(const struct budget *b, uint64_t bytes, uint64_t returned)
{
    uint64_t ceiling = budget_ceiling(b->share, b->available.total);

    return bytes <= ceiling && b->in_use - min_u64(b->in_use, returned) <= ceiling - bytes &&
           bytes <= b->left + returned;
}

void budget_settle(struct budget *b, uint64_t bytes)
{
    assert(b->promised >= bytes);
    b->promised -= bytes;
}

void budget_return(struct budget *b, uint64_t bytes)
{
    assert(b->in_use >= bytes && b->in_use - bytes >= b->promised);
    b->in_use -= bytes;
    b->read_ns = 0;
}
