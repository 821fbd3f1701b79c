/* In the place of npz.c, where libzip was not there. */
#include "client/dlctl/batch/npz.h"

#include <errno.h>

int npz_begin(const char *path, struct npz **ret, struct dl_error *err)
{
    return dl_error_set(err, ENOTSUP, path,
                        "this dlctl was built without libzip, as the wheel's is: use that of "
                        "Debian's package dlctl, or of a build where libzip-dev is installed");
}

bool npz_has(struct npz *npz, const char *name)
{
    return false;
}

int npz_add(struct npz *npz, const char *name, const struct npz_array *array, struct dl_error *err)
{
    return -ENOTSUP;
}

int npz_end(struct npz *npz, struct dl_error *err)
{
    return -ENOTSUP;
}

struct npz *npz_discard(struct npz *npz)
{
    return NULL;
}
