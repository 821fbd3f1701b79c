#include "proto/common/fd_io.h"

#include <errno.h>

/* The most that one call requests, so that its result fits on every kernel. */
#define FD_IO_STEP ((uint64_t)1 << 30)

/* `at`: from that byte on, by pread(); NULL: from the descriptor's offset on. */
static int64_t fd_io_read(int fd, void *to, uint64_t len, const uint64_t *at)
{
    for (uint64_t done = 0; done < len;) {
        char *rest = (char *)to + done;
        uint64_t step = min_u64(len - done, FD_IO_STEP);
        ssize_t n = at ? pread(fd, rest, step, (off_t)(*at + done)) : read(fd, rest, step);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : (int64_t)done;
        done += (uint64_t)n;
    }
    return (int64_t)len;
}

int64_t fd_read_all(int fd, void *to, uint64_t len)
{
    return fd_io_read(fd, to, len, NULL);
}

int64_t fd_pread_all(int fd, void *to, uint64_t len, uint64_t at)
{
    return fd_io_read(fd, to, len, &at);
}

/* `at`: likewise, by pwrite(). */
static int fd_io_write(int fd, const void *from, uint64_t len, const uint64_t *at)
{
    for (uint64_t done = 0; done < len;) {
        const char *rest = (const char *)from + done;
        uint64_t step = min_u64(len - done, FD_IO_STEP);
        ssize_t n = at ? pwrite(fd, rest, step, (off_t)(*at + done)) : write(fd, rest, step);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENOSPC;
        done += (uint64_t)n;
    }
    return 0;
}

int fd_write_all(int fd, const void *from, uint64_t len)
{
    return fd_io_write(fd, from, len, NULL);
}

int fd_pwrite_all(int fd, const void *from, uint64_t len, uint64_t at)
{
    return fd_io_write(fd, from, len, &at);
}
