/* Opening, checking and mapping of data files. */
#include "daemon/data/files/source.h"
#include "daemon/data/files/guard.h"
#include "daemon/data/files/reader.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/files/seen.h"
#include "proto/common/fd_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "files are mapped whole: 64-bit only");

/* What `data` of an empty source points to: memcpy of 0 bytes still wants a valid pointer. */
static const uint8_t source_nothing[1];

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Or the root itself, which may be listed. */
bool path_below(const char *path, const char *root)
{
    size_t len = strlen(root);

    while (len > 0 && root[len - 1] == '/')
        len--;
    return strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static bool source_path_allowed(const char *path, const struct data_env *env)
{
    for (uint32_t i = 0; i < env->n_roots; i++) {
        if (path_below(path, env->roots[i]))
            return true;
    }
    return env->n_roots == 0;
}

/* The one that `path` leads to; all as clients see it. */
static int source_refuse_outside(const char *path, const char *resolved, const struct data_env *env,
                                 struct dl_error *err)
{
    const char *more = env->n_roots > 1 ? ", ..." : "";
    char place[PATH_MAX], name[PATH_MAX], root[PATH_MAX];
    bool is_there = strcmp(seen_place(env, path, place), resolved) == 0;

    resolved = seen_name(env, resolved, name);
    if (is_there)
        return dl_error_set(err, EACCES, path,
                            "lies outside the daemon's data_roots (%s%s); move it below one of "
                            "them, or have its directory added",
                            seen_name(env, env->roots[0], root), more);
    return dl_error_set(err, EACCES, path,
                        "links to %s, outside the daemon's data_roots (%s%s); move the file "
                        "below one of them, or have its directory added",
                        resolved, seen_name(env, env->roots[0], root), more);
}

/*
 * Checks the opened file by its descriptor: the name may lead elsewhere by now, and the kernel
 * followed links in it.
 */
static int source_check_roots(int fd, const char *path, const struct data_env *env,
                              struct dl_error *err)
{
    char link[64];
    char resolved[DL_ERROR_MESSAGE_MAX * 4 + 1];
    ssize_t len;

    if (env->n_roots == 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    len = readlink(link, resolved, sizeof resolved - 1);
    if (len < 0)
        return dl_error_set(err, errno, path,
                            "its location is unknown (%s: %s), so data_roots cannot be "
                            "enforced; mount /proc",
                            link, strerror(errno));
    resolved[len] = '\0';
    if (!source_path_allowed(resolved, env))
        return source_refuse_outside(path, resolved, env, err);
    return 0;
}

/* The system's unit hides home directories from the daemon, whatever the permissions. */
static const char *source_home_hint(const char *path)
{
    bool home = strncmp(path, "/home/", 6) == 0 || strncmp(path, "/root/", 6) == 0;

    return home ? "; the system's service sees no home directories, see dloaderd(8)" : "";
}

static int source_say_unopened(const char *path, int code, struct dl_error *err)
{
    switch (code) {
    case ENOENT:
        return dl_error_set(err, code, path,
                            "no such file; a relative path starts from the directory of the "
                            "loader spec");
    case EACCES:
        return dl_error_set(err, code, path,
                            "user %u may not read it; grant read permission on the file and "
                            "search permission on its directories%s",
                            (unsigned)geteuid(), source_home_hint(path));
    default:
        return dl_error_set(err, code, path, "cannot be opened: %s", strerror(code));
    }
}

/*
 * A path outside the roots gets the same error whether or not the file exists: a system daemon must
 * not answer questions about other users' directories.
 */
static int source_refuse_unopened(const char *path, int code, const struct data_env *env,
                                  struct dl_error *err)
{
    char buffer[PATH_MAX];
    const char *place = seen_place(env, path, buffer);

    if (!source_path_allowed(place, env) || (env->n_roots > 0 && strstr(path, "/..")))
        return source_refuse_outside(path, place, env, err);
    /* The sandbox denies reading a link's target outside the roots, but its place is visible. */
    _cleanup_fd_ int fd = code == EACCES ? open(place, O_PATH | O_CLOEXEC) : -1;
    int r = fd >= 0 ? source_check_roots(fd, path, env, err) : 0;
    return r < 0 ? r : source_say_unopened(path, code, err);
}

/* The reader could find this out by itself: it need not be hidden. */
static int source_refuse_reader(const char *path, int code, const struct reader_place *led_to,
                                const struct data_env *env, struct dl_error *err)
{
    char buffer[PATH_MAX];
    const char *place = seen_place(env, path, buffer);

    if (!source_path_allowed(place, env) || (env->n_roots > 0 && strstr(path, "/..")))
        return source_refuse_outside(path, place, env, err);
    /* Outside the roots, the sandbox denies reading. */
    if (code == EACCES && !led_to->denied && !source_path_allowed(led_to->at, env))
        return source_refuse_outside(path, led_to->at, env, err);
    if (led_to->denied)
        return dl_error_set(err, code, path,
                            "user %u, for whom it is opened, may not read it; grant read "
                            "permission on the file and search permission on its directories%s",
                            (unsigned)env->reader->uid, source_home_hint(path));
    return source_say_unopened(path, code, err);
}

static int source_allows_reader(const char *dir, const char *path, const struct data_env *env,
                                struct dl_error *err)
{
    struct reader_place place;
    _cleanup_fd_ int fd = -1;
    char buffer[PATH_MAX];
    int r = reader_find(env->reader, dir, true, &place, &fd);

    if (r < 0)
        return source_refuse_reader(path, -r, &place, env, err);
    return source_path_allowed(place.at, env)
               ? 0
               : source_refuse_outside(path, seen_place(env, path, buffer), env, err);
}

int source_allows(const char *dir, const char *path, const struct data_env *env,
                  struct dl_error *err)
{
    char resolved[PATH_MAX + 1], below[PATH_MAX + 2], buffer[PATH_MAX];

    if (env->n_roots == 0 || source_is_remote(path, env))
        return 0;
    data_turn_to(env, dir);
    dir = seen_place(env, dir, buffer);
    if (env->reader)
        return source_allows_reader(dir, path, env, err);
    if (realpath(dir, resolved)) {
        snprintf(below, sizeof below, "%s/", resolved); /* the root itself is allowed here */
        if (source_path_allowed(below, env))
            return 0;
    }
    return source_refuse_outside(path, seen_place(env, path, buffer), env, err);
}

static int source_check_type(const struct stat *st, const char *path, struct dl_error *err)
{
    if (S_ISDIR(st->st_mode))
        return dl_error_set(err, EISDIR, path, "is a directory; name a data file in it");
    if (!S_ISREG(st->st_mode))
        return dl_error_set(err, EINVAL, path,
                            "is not a regular file; a data file is mapped into memory, so copy "
                            "the data into one");
    return 0;
}

static int source_map_file(int fd, uint64_t bytes, const char *path, struct source *ret,
                           struct dl_error *err)
{
    void *data = (void *)source_nothing;

    if (bytes > 0) {
        data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            return dl_error_set(err, errno, path, "its %llu bytes cannot be mapped: %s", (ull)bytes,
                                strerror(errno));
    }
    *ret = (struct source){.data = data, .bytes = bytes};
    return 0;
}

static int source_open_for_reader(const char *path, int flags, const struct data_env *env, int *ret,
                                  struct dl_error *err)
{
    struct reader_place place;
    char buffer[PATH_MAX];
    int r = reader_open(env->reader, seen_place(env, path, buffer), flags, &place, ret);

    return r < 0 ? source_refuse_reader(path, -r, &place, env, err) : 0;
}

/* NONBLOCK: a FIFO without a writer would block open() for ever. */
static int source_open_plainly(const char *path, int flags, const struct data_env *env, int *ret,
                               struct dl_error *err)
{
    char buffer[PATH_MAX];

    *ret =
        open(seen_place(env, path, buffer), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    return *ret < 0 ? source_refuse_unopened(path, errno, env, err) : 0;
}

static int source_open_checked(const char *path, int flags, const struct data_env *env, int *ret,
                               struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;

    data_turn_to(env, path);
    int r =
        (env->reader ? source_open_for_reader : source_open_plainly)(path, flags, env, &fd, err);

    if (r < 0 || (r = source_check_roots(fd, path, env, err)) < 0)
        return r;
    *ret = steal_fd(&fd);
    return 0;
}

/* ---- remote files --------------------------------------------------------------------------- */

/* -ENOTSUP: this process has no fetcher. */
static int source_check_remote(const char *url, const struct data_env *env, struct dl_error *err)
{
    data_turn_to(env, url);
    if (env->remote)
        return 0;
    return dl_error_set(err, ENOTSUP, url, "%s",
                        env->foreign ? "the daemon fetches files for its own user alone, if "
                                       "it is not root's; start a daemon of your own: dloaderd "
                                       "--private"
                                     : remote_why_none());
}

static int source_map_remote(const char *url, const struct data_env *env, struct source *ret,
                             struct stat *ret_st, struct dl_error *err)
{
    const void *data = NULL;
    int r = source_check_remote(url, env, err);

    *ret = (struct source){0};
    if (r == 0)
        r = remote_map(env->remote, url, &data, &ret->remote, ret_st, err);
    if (r < 0)
        return r;
    ret->data = data ? data : source_nothing;
    ret->bytes = data ? (uint64_t)ret_st->st_size : 0;
    return 0;
}

/* ---- local and remote files ----------------------------------------------------------------- */

static int source_open_regular(const char *path, const struct data_env *env, int *ret_fd,
                               struct stat *ret_st, struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    int r;

    if (source_is_remote(path, env)) {
        r = source_check_remote(path, env, err);
        return r < 0 ? r : remote_open(env->remote, path, ret_fd, ret_st, err);
    }
    if ((r = source_open_checked(path, 0, env, &fd, err)) < 0)
        return r;
    if (fstat(fd, ret_st) < 0)
        return dl_error_set(err, errno, path, "its size cannot be read: %s", strerror(errno));
    if ((r = source_check_type(ret_st, path, err)) < 0)
        return r;
    *ret_fd = steal_fd(&fd);
    return 0;
}

int source_open_file(const char *path, const struct data_env *env, int *ret_fd, uint64_t *ret_bytes,
                     struct dl_error *err)
{
    struct stat st;
    int r = source_open_regular(path, env, ret_fd, &st, err);

    if (r == 0)
        *ret_bytes = (uint64_t)st.st_size;
    return r;
}

int source_read_file(int fd, const char *path, uint8_t *out, uint64_t bytes, uint64_t *ret,
                     struct dl_error *err)
{
    int64_t got = fd_read_all(fd, out, bytes);

    if (got < 0)
        return dl_error_set(err, (int)-got, path, "cannot be read: %s", strerror((int)-got));
    *ret = (uint64_t)got;
    return 0;
}

int source_dir_open(const char *path, const struct data_env *env, struct source_dir *ret,
                    struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    int r;

    *ret = (struct source_dir){0};
    if (source_is_remote(path, env)) {
        if ((r = source_check_remote(path, env, err)) < 0)
            return r;
        /* Each one is another one: no link leads back to it. */
        ret->st.st_ino = XXH3_64bits(path, strlen(path));
        return remote_list(env->remote, path, &ret->entries, &ret->entries_bytes, err);
    }
    if ((r = source_open_checked(path, O_DIRECTORY, env, &fd, err)) < 0)
        return r;
    if (fstat(fd, &ret->st) < 0 || !(ret->dir = fdopendir(fd)))
        return dl_error_set(err, errno, path, "cannot be listed: %s", strerror(errno));
    (void)steal_fd(&fd);
    return 0;
}

struct dirent *source_dir_read(struct source_dir *dir)
{
    errno = 0;
    if (dir->dir)
        return readdir(dir->dir);
    if (dir->at + sizeof(struct remote_name) > dir->entries_bytes)
        return NULL;
    const struct remote_name *entry = (const void *)((const char *)dir->entries + dir->at);
    dir->at += align_up(sizeof *entry + entry->name_bytes + 1, 8);
    dir->entry.d_type = entry->sort == REMOTE_DIRECTORY ? DT_DIR : DT_REG;
    memcpy(dir->entry.d_name, entry->name, entry->name_bytes + 1);
    return &dir->entry;
}

void source_dir_close(struct source_dir *dir)
{
    if (dir->dir)
        closedir(dir->dir);
    if (dir->entries)
        munmap(dir->entries, dir->entries_bytes);
    *dir = (struct source_dir){0};
}

int source_stat(const char *path, bool follow, const struct data_env *env, struct stat *ret)
{
    struct reader_place place;
    _cleanup_fd_ int fd = -1;
    char buffer[PATH_MAX];

    if (source_is_remote(path, env)) {
        int r = source_check_remote(path, env, NULL);
        return r < 0 ? r : remote_stat(env->remote, path, ret);
    }
    data_turn_to(env, path);
    path = seen_place(env, path, buffer);
    if (!env->reader)
        return (follow ? stat : lstat)(path, ret) < 0 ? -errno : 0;
    int r = reader_find(env->reader, path, follow, &place, &fd);
    if (r < 0)
        return r;
    return fstat(fd, ret) < 0 ? -errno : 0;
}

int source_open(const char *path, const struct data_env *env, struct source *ret,
                struct dl_error *err)
{
    struct stat st;

    return source_open_known(path, env, ret, &st, err);
}

int source_open_known(const char *path, const struct data_env *env, struct source *ret,
                      struct stat *ret_st, struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    char place[PATH_MAX];
    int r;

    if (source_is_remote(path, env))
        return source_map_remote(path, env, ret, ret_st, err);
    if ((r = source_open_regular(path, env, &fd, ret_st, err)) < 0)
        return r;
    uint64_t bytes = (uint64_t)ret_st->st_size;
    if ((r = source_map_file(fd, bytes, path, ret, err)) < 0 || bytes == 0 || !env->guard)
        return r;
    ret->guarded = guard_add(env->guard, ret->data, bytes, fd, path, seen_place(env, path, place));
    if (ret->guarded)
        return 0;
    source_close(ret);
    return dl_error_set(err, ENOMEM, path, "out of memory");
}

int source_alloc(uint64_t bytes, const char *path, struct source *ret, uint8_t **ret_memory,
                 struct dl_error *err)
{
    void *memory = (void *)source_nothing;

    if (bytes > 0) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return dl_error_set(err, ENOMEM, path,
                                "needs %llu bytes of memory in each worker, which the system "
                                "does not have; store it as plain .npy, which is mapped instead",
                                (ull)bytes);
        /* Random rows of a large table: fewer TLB misses. A kernel without them is as right. */
        if (bytes >= HUGE_PAGE_BYTES)
            (void)madvise(memory, bytes, MADV_HUGEPAGE);
    }
    *ret = (struct source){.data = memory, .bytes = bytes};
    *ret_memory = memory;
    return 0;
}

void source_freeze(struct source *source)
{
    if (source->bytes > 0)
        (void)mprotect((void *)source->data, source->bytes, PROT_READ);
}

void source_close(struct source *source)
{
    guard_remove(source->guarded);
    remote_unmap(source->remote);
    if (source->bytes > 0 && !source->remote)
        munmap((void *)source->data, source->bytes);
    *source = (struct source){0};
}

bool source_is_gzip(const struct source *source)
{
    return source->bytes >= 2 && source->data[0] == 0x1f && source->data[1] == 0x8b;
}
