#include "daemon/base/admission.h"

static bool admission_fits(const struct admission_claim *claim, uint64_t returned)
{
    uint64_t in_use = claim->in_use - min_u64(claim->in_use, returned);

    return claim->want == 0 ||
           (claim->want <= claim->limit && in_use <= claim->limit - claim->want);
}

static enum admission admission_of(const struct admission_claim *claim, bool waits)
{
    if (admission_fits(claim, 0))
        return ADMISSION_FITS;
    if (admission_fits(claim, claim->returned))
        return ADMISSION_MAKES_WAY;
    return waits && admission_fits(claim, claim->in_use) ? ADMISSION_WAITS : ADMISSION_REFUSED;
}

enum admission admission_decide(const struct admission_claim *claims, size_t n, bool waits)
{
    enum admission worst = ADMISSION_FITS;

    for (size_t i = 0; i < n; i++) {
        enum admission one = admission_of(&claims[i], waits);
        worst = one > worst ? one : worst;
    }
    return worst;
}
