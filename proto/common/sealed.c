#include "proto/common/sealed.h"

#include "proto/common/fd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { SEALED_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

int sealed_new(const char *name, const void *data, uint64_t len)
{
    _cleanup_fd_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, data, len);
    if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALED_SEALS | F_SEAL_SEAL) < 0)
        r = -errno;
    return r < 0 ? r : steal_fd(&fd);
}

int sealed_size(int fd, uint64_t *ret)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & SEALED_SEALS) != SEALED_SEALS)
        return -EINVAL;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size <= 0)
        return -EINVAL;
    *ret = (uint64_t)st.st_size;
    return 0;
}
