#include "daemon/cache/disk_cache.h"

#include "proto/common/array.h"
#include "proto/common/fd_io.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

#define TEMPORARY "new-" /* how the names of files begin that are being written */

enum {
    VERSION = 1,
    NAME_MAX_BYTES = 48, /* of a file's name, with the final NUL */
    HASH_DIGITS = 16,
    ABANDONED_S = 3600, /* a file that is being written for so long, nobody writes any more */
};

/* How the names of files end; others in the directory are not the cache's. */
static const char *const disk_suffixes[] = {".lengths", ".index"};

_Static_assert(sizeof(struct disk_cache_header) == 40, "the format of the file");

static struct disk_cache_header disk_cache_header_of(const struct disk_cache_key *key,
                                                     const void *content, uint64_t bytes)
{
    struct disk_cache_header header = {.magic = "dl",
                                       .version = VERSION,
                                       .uid = key->uid,
                                       .key = key->key,
                                       .bytes = bytes,
                                       .hash = XXH3_64bits(content, bytes)};
    memcpy(header.magic + 2, key->kind, min_u64(strlen(key->kind), sizeof header.magic - 2));
    return header;
}

static void disk_cache_name_of(const struct disk_cache_key *key, char ret[static NAME_MAX_BYTES])
{
    char user[16] = "";

    if (key->is_users)
        snprintf(user, sizeof user, "%" PRIu32 "-", key->uid);
    snprintf(ret, NAME_MAX_BYTES, "%s%016" PRIx64 ".%s", user, key->key, key->kind);
}

/* ---- reading -------------------------------------------------------------------------------- */

int disk_cache_open(const char *dir, const struct disk_cache_key *key)
{
    char name[NAME_MAX_BYTES];
    _cleanup_fd_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_fd_ int fd = -1;
    struct stat st;

    disk_cache_name_of(key, name);
    if (dir_fd >= 0)
        fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -ENOENT;
    return steal_fd(&fd);
}

bool disk_cache_read_header(int fd, struct disk_cache_header *ret)
{
    struct stat st;

    return lseek(fd, 0, SEEK_SET) == 0 && fstat(fd, &st) == 0 &&
           fd_read_all(fd, ret, sizeof *ret) == (int64_t)sizeof *ret &&
           (uint64_t)st.st_size >= sizeof *ret && ret->bytes == (uint64_t)st.st_size - sizeof *ret;
}

bool disk_cache_read(int fd, const struct disk_cache_key *key,
                     const struct disk_cache_header *header, void *out)
{
    if (fd_read_all(fd, out, header->bytes) != (int64_t)header->bytes)
        return false;
    struct disk_cache_header want = disk_cache_header_of(key, out, header->bytes);
    return memcmp(header, &want, sizeof want) == 0;
}

void disk_cache_touch(int fd)
{
    (void)futimens(fd, NULL);
}

/* ---- making room ---------------------------------------------------------------------------- */

struct cache_file {
    char name[NAME_MAX_BYTES];
    uint64_t bytes;
    struct timespec used;
};

struct cache_list {
    struct cache_file *files; /* owned */
    size_t n;
    size_t room;
    uint64_t bytes;
};

/* Sixteen digits of a hash, perhaps behind a user and a dash, and one of the suffixes. */
static bool disk_cache_is_cache_name(const char *name)
{
    const char *dash = strchr(name, '-'), *hash = dash ? dash + 1 : name;

    if (dash && (dash == name || strspn(name, "0123456789") != (size_t)(dash - name)))
        return false;
    if (strlen(name) >= NAME_MAX_BYTES || strspn(hash, "0123456789abcdef") != HASH_DIGITS)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(disk_suffixes); i++) {
        if (strcmp(hash + HASH_DIGITS, disk_suffixes[i]) == 0)
            return true;
    }
    return false;
}

static int disk_cache_keep(struct cache_list *list, const char *name, const struct stat *st)
{
    if (!array_reserve(list->files, list->room, list->n + 1))
        return -ENOMEM;
    struct cache_file *file = &list->files[list->n++];
    size_t len = strlen(name);
    assert(len < sizeof file->name); /* as a cache's name is */
    memcpy(file->name, name, len + 1);
    file->bytes = (uint64_t)st->st_size;
    file->used = st->st_mtim;
    list->bytes += file->bytes;
    return 0;
}

/* Lists the files of the cache, and removes what dead writers left behind. */
static int disk_cache_list_files(int dir_fd, DIR *stream, struct cache_list *list)
{
    time_t now = time(NULL);
    struct dirent *entry;
    int r = 0;

    while (r == 0 && (entry = readdir(stream))) {
        struct stat st;
        bool begun = strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0;
        if ((!begun && !disk_cache_is_cache_name(entry->d_name)) ||
            fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (!begun)
            r = disk_cache_keep(list, entry->d_name, &st);
        else if (st.st_mtim.tv_sec + ABANDONED_S < now)
            (void)unlinkat(dir_fd, entry->d_name, 0);
    }
    return r;
}

/* The one used last comes first. */
static int disk_cache_compare_use(const void *a, const void *b)
{
    const struct cache_file *x = a, *y = b;

    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec > y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec > y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* All but one of that name. Failures are no matter: the next store tries again. */
static uint64_t disk_cache_make_room(const char *dir, uint64_t bytes, const char *but)
{
    struct cache_list list = {0};
    DIR *stream = opendir(dir);
    int dir_fd = stream ? dirfd(stream) : -1;

    if (!stream)
        return 0;
    if (disk_cache_list_files(dir_fd, stream, &list) == 0 && list.n > 0) {
        qsort(list.files, list.n, sizeof *list.files, disk_cache_compare_use);
        for (size_t i = list.n; i-- > 0 && list.bytes > bytes;) {
            const struct cache_file *file = &list.files[i];
            if (strcmp(file->name, but) != 0 && unlinkat(dir_fd, file->name, 0) == 0)
                list.bytes -= file->bytes;
        }
    }
    closedir(stream);
    free(list.files);
    return list.bytes;
}

uint64_t disk_cache_trim(const char *dir, uint64_t bytes)
{
    return disk_cache_make_room(dir, bytes, "");
}

uint64_t disk_cache_bytes(int dir)
{
    struct cache_list list = {0};
    int own = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    DIR *stream = own < 0 ? NULL : fdopendir(own);

    if (!stream) {
        close_fdp(&own);
        return 0;
    }
    rewinddir(stream);
    (void)!disk_cache_list_files(dir, stream, &list);
    closedir(stream);
    free(list.files);
    return list.bytes;
}

/* ---- storing -------------------------------------------------------------------------------- */

int disk_cache_make_dir(const char *dir, struct dl_error *err)
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
        return dl_error_set(err, errno, dir, "the directory for the cache cannot be made: %s",
                            strerror(errno));
    return 0;
}

/* Under a name of its own first. What a crash leaves half written, loading sees by its hash. */
static int disk_cache_write_file(const char *dir, const char *name,
                                 const struct disk_cache_header *header, const void *content)
{
    _cleanup_free_ char *begun = NULL, *path = NULL;
    _cleanup_fd_ int fd = -1;

    if (asprintf(&begun, "%s/" TEMPORARY "XXXXXX", dir) < 0)
        begun = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        path = NULL;
    if (!begun || !path)
        return -ENOMEM;
    fd = mkostemp(begun, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, header, sizeof *header);
    if (r == 0)
        r = fd_write_all(fd, content, header->bytes);
    if (r == 0 && rename(begun, path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(begun);
    return r;
}

int disk_cache_store(const char *dir, const struct disk_cache_key *key, const void *content,
                     uint64_t bytes, const char *what, struct dl_error *err)
{
    const struct disk_cache_header header = disk_cache_header_of(key, content, bytes);
    char name[NAME_MAX_BYTES];
    int r = disk_cache_make_dir(dir, err);

    if (r < 0)
        return r;
    disk_cache_name_of(key, name);
    r = disk_cache_write_file(dir, name, &header, content);
    if (r < 0)
        return dl_error_set(err, -r, dir, "%s cannot be stored there: %s", what, strerror(-r));
    (void)disk_cache_make_room(dir, DISK_CACHE_BYTES, name);
    return 0;
}

void disk_cache_dir(char ret[PATH_MAX])
{
    const char *base = getenv("XDG_CACHE_HOME"), *below = "dloader";

    if (!base || base[0] != '/') {
        base = getenv("HOME");
        below = ".cache/dloader";
    }
    if (!base || base[0] != '/' || snprintf(ret, PATH_MAX, "%s/%s", base, below) >= PATH_MAX)
        ret[0] = '\0';
}
