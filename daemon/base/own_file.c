#include "daemon/base/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* It must belong only to us: other users may be able to write to its directory. */
static int own_file_check(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1 ? 0 : -EPERM;
}

int own_file_open(const char *path, int flags, int *ret)
{
    _cleanup_fd_ int fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    int r = fd < 0 ? -errno : own_file_check(fd);

    if (r == 0)
        *ret = steal_fd(&fd);
    return r;
}
