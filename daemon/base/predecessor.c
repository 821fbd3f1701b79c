#include "daemon/base/predecessor.h"

#include "daemon/base/memory.h"
#include "daemon/base/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char PREDECESSOR_BOOT[] = "/proc/sys/kernel/random/boot_id";

/* A boot_id has 36 bytes; each number with its separator, 17. */
enum {
    BOOT_BYTES = 36,
    NUMBER_BYTES = 17,
    PREDECESSOR_LINE_BYTES = BOOT_BYTES + 1 + 3 * NUMBER_BYTES
};

struct predecessor {
    int fd;     /* owned, with the lock */
    char *path; /* owned */
};

static int predecessor_read_boot(char ret[static BOOT_BYTES + 1])
{
    _cleanup_fd_ int fd = open(PREDECESSOR_BOOT, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, ret, BOOT_BYTES);

    if (got < 0)
        return -errno;
    ret[BOOT_BYTES] = '\0';
    return got == BOOT_BYTES && strlen(ret) == BOOT_BYTES ? 0 : -EPROTO;
}

/* What this file's line has to be on this kernel for that node. */
static int predecessor_line(int fd, uint64_t id, char ret[static PREDECESSOR_LINE_BYTES + 1])
{
    char boot[BOOT_BYTES + 1];
    struct stat st;
    int r = predecessor_read_boot(boot);

    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0)
        return -errno;
    (void)snprintf(ret, PREDECESSOR_LINE_BYTES + 1,
                   "%s %016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\n", boot, (uint64_t)st.st_dev,
                   (uint64_t)st.st_ino, id);
    return 0;
}

/* 0 if the content is not such a line. */
static uint64_t predecessor_read(int fd, const char line[static PREDECESSOR_LINE_BYTES + 1])
{
    enum { BEFORE = PREDECESSOR_LINE_BYTES - NUMBER_BYTES };
    char there[PREDECESSOR_LINE_BYTES + 2] = "";
    ssize_t got = pread(fd, there, PREDECESSOR_LINE_BYTES + 1, 0);
    char *end;

    if (got != PREDECESSOR_LINE_BYTES || memcmp(there, line, BEFORE) != 0)
        return 0;
    uint64_t id = strtoull(there + BEFORE, &end, 16);
    return end == there + PREDECESSOR_LINE_BYTES - 1 && *end == '\n' ? id : 0;
}

static int predecessor_write(int fd, const char line[static PREDECESSOR_LINE_BYTES + 1])
{
    ssize_t done = pwrite(fd, line, PREDECESSOR_LINE_BYTES, 0);

    if (done != PREDECESSOR_LINE_BYTES)
        return done < 0 ? -errno : -ENOSPC;
    return ftruncate(fd, PREDECESSOR_LINE_BYTES) < 0 ? -errno : 0;
}

/* A process's lock, not a descriptor's: a forked worker that has not called exec() yet does not
 * hold it. */
static int predecessor_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_SETLK, &whole) == 0)
        return 0;
    return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

/* A former holder may have removed the file before we locked it: then the next daemon would not
 * find it, and what we read does not count. */
static bool predecessor_is_named(int fd, const char *path)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

static int predecessor_take(const char *path, int *ret)
{
    for (;;) {
        _cleanup_fd_ int fd = -1;
        int r = own_file_open(path, 0, &fd);

        if (r == 0)
            r = predecessor_lock(fd);
        if (r < 0)
            return r;
        if (predecessor_is_named(fd, path)) {
            *ret = steal_fd(&fd);
            return 0;
        }
    }
}

int predecessor_open(const char *path, uint64_t id, struct predecessor **ret, uint64_t *ret_before,
                     struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    char line[PREDECESSOR_LINE_BYTES + 1];
    uint64_t before = 0;
    int r = predecessor_take(path, &fd);

    *ret = NULL;
    *ret_before = 0;
    if (r == 0)
        r = predecessor_line(fd, id, line);
    if (r == 0) {
        before = predecessor_read(fd, line);
        r = predecessor_write(fd, line);
    }
    if (r < 0)
        return dl_error_set(err, -r, path,
                            "cannot record here, for the next daemon, which node this one is: %s; "
                            "if this daemon is killed, the other nodes wait for its heartbeat",
                            r == -EBUSY ? "another process has locked it" : strerror(-r));
    *ret = must_alloc(sizeof **ret);
    **ret = (struct predecessor){.fd = steal_fd(&fd), .path = must_strdup(path)};
    *ret_before = before == id ? 0 : before;
    return 0;
}

void predecessor_forget(struct predecessor *predecessor)
{
    if (predecessor)
        (void)unlink(predecessor->path);
}

struct predecessor *predecessor_close(struct predecessor *predecessor)
{
    if (!predecessor)
        return NULL;
    close_fdp(&predecessor->fd);
    free(predecessor->path);
    free(predecessor);
    return NULL;
}
