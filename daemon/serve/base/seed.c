#include "daemon/serve/base/seed.h"

#include <errno.h>
#include <sys/random.h>

int seed_draw(uint64_t *ret, struct dl_error *err)
{
    uint64_t seed;

    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return dl_error_set(err, errno, "seed", "none can be drawn: %s", strerror(errno));
    *ret = seed & ((UINT64_C(1) << 53) - 1);
    return 0;
}
