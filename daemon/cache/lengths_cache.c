/*
 * Lengths kept on disk. A file is a header and the lengths, in the machine's byte order:
 *
 *   0   8 bytes   "dllength"
 *   8   u32       version; of another byte order it is none
 *   12  u32       0
 *   16  u64       fingerprint
 *   24  u64       number of lengths
 *   32  u64       XXH3-64 of them
 *   40  u32 …     the lengths
 */
#include "daemon/cache/lengths_cache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

#define SUFFIX    ".lengths"
#define TEMPORARY "new-" /* how the names of files begin that are being written */

enum {
    VERSION = 1,
    NAME_DIGITS = 16,
    ABANDONED_S = 3600, /* a file that is being written for so long, nobody writes any more */
};

struct header {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint64_t fingerprint;
    uint64_t n;
    uint64_t hash;
};
_Static_assert(sizeof(struct header) == 40, "the format of the file");

static struct header lengths_cache_header_of(uint64_t fingerprint, uint64_t n,
                                             const uint32_t *lengths)
{
    struct header header = {.magic = {'d', 'l', 'l', 'e', 'n', 'g', 't', 'h'},
                            .version = VERSION,
                            .fingerprint = fingerprint,
                            .n = n,
                            .hash = XXH3_64bits(lengths, n * sizeof *lengths)};
    return header;
}

static void lengths_cache_name_of(uint64_t fingerprint,
                                  char ret[static NAME_DIGITS + sizeof SUFFIX])
{
    snprintf(ret, NAME_DIGITS + sizeof SUFFIX, "%016" PRIx64 SUFFIX, fingerprint);
}

/* ---- loading -------------------------------------------------------------------------------- */

static bool lengths_cache_read_all(int fd, void *out, uint64_t bytes)
{
    uint64_t done = 0;

    while (done < bytes) {
        ssize_t got = read(fd, (char *)out + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (uint64_t)got;
    }
    return true;
}

static bool lengths_cache_has_bytes(int fd, uint64_t bytes)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes;
}

int lengths_cache_load(const char *dir, uint64_t fingerprint, uint64_t n, uint32_t *ret)
{
    char name[NAME_DIGITS + sizeof SUFFIX];
    struct header header, want;
    _cleanup_fd_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_fd_ int fd = -1;
    uint64_t bytes;

    lengths_cache_name_of(fingerprint, name);
    if (dir_fd < 0 || fingerprint == 0 || mul_overflows(n, sizeof *ret, &bytes) ||
        bytes > INT64_MAX - sizeof header)
        return -ENOENT;
    fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || !lengths_cache_has_bytes(fd, sizeof header + bytes) ||
        !lengths_cache_read_all(fd, &header, sizeof header) ||
        !lengths_cache_read_all(fd, ret, bytes))
        return -ENOENT;
    want = lengths_cache_header_of(fingerprint, n, ret);
    if (memcmp(&header, &want, sizeof header) != 0)
        return -ENOENT;
    (void)futimens(fd, NULL); /* it was of use: others go first */
    return 0;
}

/* ---- making room ---------------------------------------------------------------------------- */

struct cache_file {
    char name[NAME_DIGITS + sizeof SUFFIX];
    uint64_t bytes;
    struct timespec used;
};

struct cache_list {
    struct cache_file *files; /* owned */
    size_t n;
    size_t room;
    uint64_t bytes;
};

static bool lengths_cache_is_cache_name(const char *name)
{
    return strlen(name) == NAME_DIGITS + strlen(SUFFIX) &&
           strspn(name, "0123456789abcdef") == NAME_DIGITS &&
           strcmp(name + NAME_DIGITS, SUFFIX) == 0;
}

static int lengths_cache_keep(struct cache_list *list, const char *name, const struct stat *st)
{
    if (list->n == list->room) {
        size_t room = list->room > 0 ? 2 * list->room : 64;
        struct cache_file *files = realloc(list->files, room * sizeof *files);
        if (!files)
            return -ENOMEM;
        list->files = files;
        list->room = room;
    }
    struct cache_file *file = &list->files[list->n++];
    assert(strlen(name) == sizeof file->name - 1); /* as a cache's name is */
    memcpy(file->name, name, sizeof file->name);
    file->bytes = (uint64_t)st->st_size;
    file->used = st->st_mtim;
    list->bytes += file->bytes;
    return 0;
}

/* Lists the files of the cache, and removes what dead writers left behind. */
static int lengths_cache_list_files(int dir_fd, DIR *stream, struct cache_list *list)
{
    time_t now = time(NULL);
    struct dirent *entry;
    int r = 0;

    while (r == 0 && (entry = readdir(stream))) {
        struct stat st;
        bool begun = strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0;
        if ((!begun && !lengths_cache_is_cache_name(entry->d_name)) ||
            fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (!begun)
            r = lengths_cache_keep(list, entry->d_name, &st);
        else if (st.st_mtim.tv_sec + ABANDONED_S < now)
            (void)unlinkat(dir_fd, entry->d_name, 0);
    }
    return r;
}

/* The one used last comes first. */
static int lengths_cache_compare_use(const void *a, const void *b)
{
    const struct cache_file *x = a, *y = b;

    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec > y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec > y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Failures are no matter: the next store tries again. */
static void lengths_cache_make_room(const char *dir, const char *but)
{
    struct cache_list list = {0};
    DIR *stream = opendir(dir);
    int dir_fd = stream ? dirfd(stream) : -1;

    if (!stream)
        return;
    if (lengths_cache_list_files(dir_fd, stream, &list) == 0 && list.n > 0) {
        qsort(list.files, list.n, sizeof *list.files, lengths_cache_compare_use);
        for (size_t i = list.n; i-- > 0 && list.bytes > LENGTHS_CACHE_BYTES;) {
            const struct cache_file *file = &list.files[i];
            if (strcmp(file->name, but) != 0 && unlinkat(dir_fd, file->name, 0) == 0)
                list.bytes -= file->bytes;
        }
    }
    closedir(stream);
    free(list.files);
}

/* ---- storing -------------------------------------------------------------------------------- */

/* The directory, and those it is in. */
static int lengths_cache_make_dir(const char *dir, struct dl_error *err)
{
    _cleanup_free_ char *path = strdup(dir);

    if (!path)
        return dl_error_set(err, ENOMEM, dir, "out of memory");
    for (char *slash = strchr(path + (path[0] == '/'), '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* what goes wrong here, the last one tells */
        *slash = '/';
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return dl_error_set(err, errno, dir,
                            "the directory for lengths of samples cannot be made: %s",
                            strerror(errno));
    return 0;
}

static int lengths_cache_write_all(int fd, const void *data, uint64_t bytes)
{
    uint64_t done = 0;

    while (done < bytes) {
        ssize_t put = write(fd, (const char *)data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        done += (uint64_t)put;
    }
    return 0;
}

/* Under a name of its own first. What a crash leaves half written, loading sees by its hash. */
static int lengths_cache_write_file(const char *dir, const char *name, const struct header *header,
                                    const uint32_t *lengths)
{
    _cleanup_free_ char *begun = NULL, *path = NULL;
    _cleanup_fd_ int fd = -1;
    int r;

    if (asprintf(&begun, "%s/" TEMPORARY "XXXXXX", dir) < 0)
        begun = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        path = NULL;
    if (!begun || !path)
        return -ENOMEM;
    fd = mkostemp(begun, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return -errno;
    r = lengths_cache_write_all(fd, header, sizeof *header);
    if (r == 0)
        r = lengths_cache_write_all(fd, lengths, header->n * sizeof *lengths);
    if (r == 0 && rename(begun, path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(begun);
    return r;
}

int lengths_cache_store(const char *dir, uint64_t fingerprint, uint64_t n, const uint32_t *lengths,
                        struct dl_error *err)
{
    char name[NAME_DIGITS + sizeof SUFFIX];
    int r;

    if (fingerprint == 0)
        return dl_error_set(err, EINVAL, dir, "lengths without a fingerprint are not kept");
    r = lengths_cache_make_dir(dir, err);
    if (r < 0)
        return r;
    struct header header = lengths_cache_header_of(fingerprint, n, lengths);
    lengths_cache_name_of(fingerprint, name);
    r = lengths_cache_write_file(dir, name, &header, lengths);
    if (r < 0)
        return dl_error_set(err, -r, dir,
                            "lengths of %llu samples cannot be stored there: %s; they are measured "
                            "again each time",
                            (unsigned long long)n, strerror(-r));
    lengths_cache_make_room(dir, name);
    return 0;
}

void lengths_cache_dir(char ret[PATH_MAX])
{
    const char *base = getenv("XDG_CACHE_HOME"), *below = "dloader";

    if (!base || base[0] != '/') {
        base = getenv("HOME");
        below = ".cache/dloader";
    }
    if (!base || base[0] != '/' || snprintf(ret, PATH_MAX, "%s/%s", base, below) >= PATH_MAX)
        ret[0] = '\0';
}
