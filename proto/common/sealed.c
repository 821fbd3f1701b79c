#include "proto/common/sealed.h"

#include "proto/common/fd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* From Linux 6.3; older kernels refuse the flag. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { SEALED_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

int sealed_begin(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

int sealed_new(const char *name, const void *data, uint64_t len)
{
    _cleanup_fd_ int fd = sealed_begin(name);
    int r = fd < 0 ? fd : fd_write_all(fd, data, len);

    if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALED_SEALS | F_SEAL_SEAL) < 0)
        r = -errno;
    return r < 0 ? r : steal_fd(&fd);
}

int sealed_memory(const char *name, uint64_t bytes)
{
    _cleanup_fd_ int fd = sealed_begin(name);

    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)bytes) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    return steal_fd(&fd);
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
