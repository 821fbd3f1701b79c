#include "daemon/data/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

struct guarded {
    struct guarded *prev, *next; /* guard.files */
    struct guard *guard;         /* borrowed */
    uint8_t *data;               /* borrowed mapping */
    uint64_t bytes;
    dev_t device;
    ino_t inode;
    char *path; /* owned */
    /* What reads as zeroes in place of the file, from `low` to `high`; none: both 0. */
    volatile uintptr_t low, high;
};

/* A signal's handler has no other way to its data. */
static struct guard *installed;
static struct sigaction before;

/* ---- the signal ----------------------------------------------------------------------------- */

static struct guarded *guard_find(const struct guard *guard, uintptr_t at)
{
    struct guarded *file;

    DL_FOREACH (guard->files, file) {
        if (at >= (uintptr_t)file->data && at - (uintptr_t)file->data < file->bytes)
            return file;
    }
    return NULL;
}

/* mmap() is none of the functions that POSIX allows here; on Linux it is a system call and no more.
 */
static bool guard_give_zeroes(struct guarded *file, uintptr_t at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = at / page * page;
    int code = errno;
    void *got =
        mmap((void *)begin, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    errno = code;
    if (got == MAP_FAILED)
        return false;
    if (file->high == 0 || begin < file->low)
        file->low = begin;
    if (begin + page > file->high)
        file->high = begin + page;
    file->guard->damaged = 1;
    return true;
}

/* Of any other memory it is what it was: the access is done again, and whoever handled it does. */
static void guard_on_sigbus(int number, siginfo_t *info, void *context)
{
    struct guarded *file = installed ? guard_find(installed, (uintptr_t)info->si_addr) : NULL;

    (void)context;
    if (!file || !guard_give_zeroes(file, (uintptr_t)info->si_addr))
        (void)sigaction(number, &before, NULL);
}

void guard_install(struct guard *guard)
{
    struct sigaction action = {.sa_sigaction = guard_on_sigbus, .sa_flags = SA_SIGINFO};

    if (!installed)
        (void)sigaction(SIGBUS, &action, &before);
    installed = guard;
}

void guard_uninstall(void)
{
    if (installed)
        (void)sigaction(SIGBUS, &before, NULL);
    installed = NULL;
}

/* ---- files ---------------------------------------------------------------------------------- */

struct guarded *guard_add(struct guard *guard, const void *data, uint64_t bytes, int fd,
                          const char *path)
{
    struct guarded *file = calloc(1, sizeof *file);
    struct stat st;

    if (!file || !(file->path = strdup(path)) || fstat(fd, &st) < 0) {
        if (file)
            free(file->path);
        free(file);
        return NULL;
    }
    file->guard = guard;
    file->data = (uint8_t *)(uintptr_t)data;
    file->bytes = bytes;
    file->device = st.st_dev;
    file->inode = st.st_ino;
    DL_APPEND(guard->files, file);
    return file;
}

void guard_remove(struct guarded *file)
{
    if (!file)
        return;
    DL_DELETE(file->guard->files, file);
    free(file->path);
    free(file);
}

/* ---- what became of them -------------------------------------------------------------------- */

static bool guard_is_same(const struct guarded *file, const struct stat *st)
{
    return st->st_dev == file->device && st->st_ino == file->inode;
}

/* Puts the file back where zeroes are. False: it has lost its name, and cannot be opened. */
static bool guard_mend(struct guarded *file, struct stat *ret)
{
    _cleanup_fd_ int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    uintptr_t low = file->low;

    if (fd < 0 || fstat(fd, ret) < 0 || !guard_is_same(file, ret))
        return false;
    if (mmap((void *)low, file->high - low, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
             (off_t)(low - (uintptr_t)file->data)) == MAP_FAILED)
        return false;
    file->low = file->high = 0;
    return true;
}

static int guard_say(const struct guarded *file, uint64_t now, struct dl_error *err)
{
    if (now < file->bytes)
        return dl_error_set(
            err, EIO, file->path,
            "has %llu bytes and had %llu when it was opened: it was truncated during use; write "
            "a new file and rename it to this name, then open the loader again",
            (unsigned long long)now, (unsigned long long)file->bytes);
    return dl_error_set(err, EIO, file->path,
                        "cannot be read any more: the disk failed, or the file was truncated "
                        "during use; check the disk, then open the loader again");
}

int guard_tell(struct guard *guard, struct dl_error *err)
{
    struct guarded *file;
    struct stat st = {0};
    bool all = true;

    DL_FOREACH (guard->files, file) {
        if (file->high == 0)
            continue;
        bool mended = guard_mend(file, &st);
        (void)guard_say(file, mended ? (uint64_t)st.st_size : UINT64_MAX, err);
        all = all && mended;
    }
    /* With zeroes left, nothing that is read can be trusted any more. */
    guard->damaged = !all;
    return -EIO;
}

int guard_look(struct guard *guard, struct dl_error *err)
{
    const struct guarded *file;
    struct stat st;

    DL_FOREACH (guard->files, file) {
        if (stat(file->path, &st) == 0 && guard_is_same(file, &st) &&
            (uint64_t)st.st_size < file->bytes)
            return guard_say(file, (uint64_t)st.st_size, err);
    }
    return 0;
}
