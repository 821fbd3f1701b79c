#include "daemon/data/files/guard.h"

#include "daemon/data/files/remote.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <utlist.h>

struct guarded {
    struct guarded *prev, *next; /* guard.files or guard.closed */
    struct guard *guard;         /* borrowed */
    uint8_t *data;               /* borrowed mapping */
    uint64_t bytes;
    struct stat opened; /* what it was like */
    struct stat closed; /* in the list of those */
    char *path, *place; /* owned; what it is called, and where it is */
    bool told;          /* that it was written to */
    /* The range, `low` to `high`, in which zeroes replace the file; or both 0. */
    volatile uintptr_t low, high;
};

/* A signal handler can reach only such variables. */
static struct guard *guard_installed;
static struct sigaction guard_before;

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

/* POSIX does not list mmap() as safe in a handler; on Linux it is a plain system call. */
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

/* SIGBUS in other memory goes to the former handler. It is called from here, since it may survive,
 * and the next signal must come here again; without a handler, the access is repeated and ends the
 * process. */
static void guard_hand_on(int number, siginfo_t *info, void *context)
{
    if (guard_before.sa_flags & SA_SIGINFO)
        guard_before.sa_sigaction(number, info, context);
    else if (guard_before.sa_handler != SIG_DFL && guard_before.sa_handler != SIG_IGN)
        guard_before.sa_handler(number);
    else
        (void)sigaction(number, &guard_before, NULL);
}

static void guard_on_sigbus(int number, siginfo_t *info, void *context)
{
    struct guarded *file =
        guard_installed ? guard_find(guard_installed, (uintptr_t)info->si_addr) : NULL;

    if (!file || !guard_give_zeroes(file, (uintptr_t)info->si_addr))
        guard_hand_on(number, info, context);
}

void guard_install(struct guard *guard)
{
    struct sigaction action = {.sa_sigaction = guard_on_sigbus, .sa_flags = SA_SIGINFO};

    if (!guard_installed)
        (void)sigaction(SIGBUS, &action, &guard_before);
    guard_installed = guard;
}

void guard_uninstall(void)
{
    if (guard_installed)
        (void)sigaction(SIGBUS, &guard_before, NULL);
    guard_installed = NULL;
}

/* ---- files ---------------------------------------------------------------------------------- */

static void guard_free(struct guarded *file)
{
    free(file->path);
    free(file->place);
    free(file);
}

static bool guard_is_same(const struct guarded *file, const struct stat *st)
{
    return st->st_dev == file->opened.st_dev && st->st_ino == file->opened.st_ino;
}

/* False if the name no longer leads to this file. */
static bool guard_find_named(const struct guarded *file, struct stat *ret)
{
    return stat(file->place, ret) == 0 && guard_is_same(file, ret);
}

static bool guard_same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/*
 * A writer can reset a file's mtime, but not its ctime. The ctime also changes with mode, owner or
 * links; if one of these has changed, that explains it.
 */
static bool guard_was_written(struct guarded *file, const struct stat *now)
{
    struct stat *then = &file->opened;

    if (now->st_size != then->st_size || !guard_same_time(&now->st_mtim, &then->st_mtim))
        return true;
    if (guard_same_time(&now->st_ctim, &then->st_ctim))
        return false;
    if (now->st_mode == then->st_mode && now->st_uid == then->st_uid &&
        now->st_gid == then->st_gid && now->st_nlink == then->st_nlink)
        return true;
    *then = *now;
    return false;
}

struct guarded *guard_add(struct guard *guard, const void *data, uint64_t bytes, int fd,
                          const char *path, const char *place)
{
    struct guarded *file = calloc(1, sizeof *file);

    if (!file || !(file->path = strdup(path)) || !(file->place = strdup(place)) ||
        fstat(fd, &file->opened) < 0) {
        if (file)
            guard_free(file);
        return NULL;
    }
    file->guard = guard;
    file->data = (uint8_t *)(uintptr_t)data;
    file->bytes = bytes;
    DL_APPEND(guard->files, file);
    return file;
}

void guard_remove(struct guarded *file)
{
    if (!file)
        return;
    DL_DELETE(file->guard->files, file);
    if (!file->told && guard_find_named(file, &file->closed) &&
        guard_was_written(file, &file->closed))
        DL_APPEND(file->guard->closed, file);
    else
        guard_free(file);
}

void guard_deinit(struct guard *guard)
{
    struct guarded *file, *next;

    assert(!guard->files);
    DL_FOREACH_SAFE (guard->closed, file, next)
        guard_free(file);
    guard->closed = NULL;
}

/* ---- what became of them -------------------------------------------------------------------- */

/* Puts the file back where zeroes are. False: it has lost its name, and cannot be opened. */
static bool guard_mend(struct guarded *file, struct stat *ret)
{
    _cleanup_fd_ int fd = open(file->place, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
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
            (ull)now, (ull)file->bytes);
    return dl_error_set(err, EIO, file->path,
                        "cannot be read any more: the disk failed, or the file was truncated "
                        "during use; check the disk, then open the loader again");
}

int guard_tell(struct guard *guard, struct dl_error *err)
{
    struct guarded *file;
    struct stat st = {0};
    bool all = true;

    if (guard->remote)
        (void)remote_tell(guard->remote, err);
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
        if (guard_find_named(file, &st) && (uint64_t)st.st_size < file->bytes)
            return guard_say(file, (uint64_t)st.st_size, err);
    }
    return 0;
}

/* ---- overwriting ---------------------------------------------------------------------------- */

enum { TIME_TEXT = 32 };

static const char *guard_write_time(const struct timespec *time, char text[static TIME_TEXT])
{
    struct tm tm;
    size_t len = gmtime_r(&time->tv_sec, &tm) ? strftime(text, TIME_TEXT, "%F %T", &tm) : 0;

    snprintf(text + len, TIME_TEXT - len, ".%03ldZ", time->tv_nsec / 1000000);
    return text;
}

static void guard_describe(const struct guarded *file, const struct stat *now, struct dl_error *ret)
{
    const struct stat *then = &file->opened;
    char was[TIME_TEXT], is[TIME_TEXT], what[160];

    if (now->st_size != then->st_size)
        snprintf(what, sizeof what, "it has %lld bytes and had %lld", (long long)now->st_size,
                 (long long)then->st_size);
    else if (!guard_same_time(&now->st_mtim, &then->st_mtim))
        snprintf(what, sizeof what, "it was last modified at %s, before at %s",
                 guard_write_time(&now->st_mtim, is), guard_write_time(&then->st_mtim, was));
    else
        snprintf(what, sizeof what,
                 "it was changed at %s, and the time of its modification set back",
                 guard_write_time(&now->st_ctim, is));
    (void)dl_error_set(ret, ESTALE, file->path,
                       "was written to while it is in use: %s; batches may mix its old and new "
                       "contents. Write a new file and rename it to this name, then open the "
                       "loader again",
                       what);
}

/* One that is not mapped any more, and was written to before. */
static bool guard_take_closed(struct guard *guard, struct dl_error *ret)
{
    struct guarded *file = guard->closed;

    if (!file)
        return false;
    DL_DELETE(guard->closed, file);
    guard_describe(file, &file->closed, ret);
    guard_free(file);
    return true;
}

bool guard_find_written(struct guard *guard, struct dl_error *ret)
{
    struct guarded *file;
    struct stat now;

    DL_FOREACH (guard->files, file) {
        if (file->told || !guard_find_named(file, &now) || !guard_was_written(file, &now))
            continue;
        file->told = true;
        guard_describe(file, &now, ret);
        return true;
    }
    return guard_take_closed(guard, ret);
}
