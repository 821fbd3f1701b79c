#include "daemon/serve/pool/deaths.h"

enum { PAUSE_MS = 50 };

bool deaths_add(struct deaths *deaths, uint64_t well_ns, uint64_t *ret_pause_ms)
{
    uint32_t forgiven = (uint32_t)min_u64(well_ns / DEATHS_FORGIVEN_EACH_NS, deaths->count);
    uint32_t count = deaths->count - forgiven;

    deaths->count = count + 1;
    if (deaths->count > DEATHS_MAX)
        return false;
    *ret_pause_ms = count == 0 ? 0 : (uint64_t)PAUSE_MS << (count - 1);
    return true;
}
