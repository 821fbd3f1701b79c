#include "proto/common/fd_io.h"

#include <errno.h>

/* What one call is asked for, so that what it did fits its result on every kernel. */
#define FD_IO_STEP ((uint64_t)1 << 30)

int64_t fd_read_all(int fd, void *to, uint64_t len)
{
    for (uint64_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)to + done, min_u64(len - done, FD_IO_STEP));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : (int64_t)done;
        done += (uint64_t)n;
    }
    return (int64_t)len;
}

int64_t fd_pread_all(int fd, void *to, uint64_t len, uint64_t at)
{
    for (uint64_t done = 0; done < len;) {
        ssize_t n =
            pread(fd, (char *)to + done, min_u64(len - done, FD_IO_STEP), (off_t)(at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : (int64_t)done;
        done += (uint64_t)n;
    }
    return (int64_t)len;
}

int fd_write_all(int fd, const void *from, uint64_t len)
{
    for (uint64_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)from + done, min_u64(len - done, FD_IO_STEP));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENOSPC;
        done += (uint64_t)n;
    }
    return 0;
}
