#include "daemon/data/files/reader.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

enum {
    LINKS_MAX = 40, /* as in the kernel; each ".." counts, too */
    ACL_BYTES_MAX = 65536,
    PROC_PATH = 32,
};

/* ---- what a list says: as the kernel's linux/posix_acl_xattr.h ------------------------------ */

enum {
    ACL_VERSION = 2,
    ACL_OWNER = 0x01,
    ACL_USER = 0x02,
    ACL_OWNING_GROUP = 0x04,
    ACL_GROUP = 0x08,
    ACL_MASK = 0x10,
    ACL_OTHER = 0x20,
    ALL_RIGHTS = 7,
};

struct acl_entry {
    uint16_t tag;
    uint16_t rights;
    uint32_t id;
};
_Static_assert(sizeof(struct acl_entry) == 8, "as it lies in the attribute");

static bool reader_is_in_group(const struct reader *reader, uint32_t gid)
{
    for (uint32_t i = 0; i < reader->n_groups; i++) {
        if (reader->groups[i] == gid)
            return true;
    }
    return false;
}

/* The entries of a list that concern a reader who is not the owner. */
struct acl_found {
    unsigned user;   /* rights of the entry that names the reader */
    unsigned mask;   /* of all but owner and others */
    unsigned other;  /* for users not named */
    bool is_user;    /* there is such an entry */
    bool in_group;   /* one is of a group of the reader's, */
    bool group_does; /* and one of these has all requested rights */
};

static void reader_note_entry(const struct reader *reader, const struct stat *st,
                              const struct acl_entry *entry, unsigned rights,
                              struct acl_found *found)
{
    unsigned has = le16toh(entry->rights);
    uint32_t id = le32toh(entry->id);
    bool matches = false;

    switch (le16toh(entry->tag)) {
    case ACL_USER:
        if (id == reader->uid) {
            found->is_user = true;
            found->user = has;
        }
        break;
    case ACL_OWNING_GROUP:
        matches = reader_is_in_group(reader, st->st_gid);
        break;
    case ACL_GROUP:
        matches = reader_is_in_group(reader, id);
        break;
    case ACL_MASK:
        found->mask = has;
        break;
    case ACL_OTHER:
        found->other = has;
        break;
    default: /* the owner's, which is the mode's */
        break;
    }
    found->in_group = found->in_group || matches;
    found->group_does = found->group_does || (matches && (has & rights) == rights);
}

/* The reader is not the owner. */
static bool reader_may_by_acl(const struct reader *reader, const struct stat *st,
                              const uint8_t *acl, size_t bytes, unsigned rights)
{
    struct acl_found found = {.mask = ALL_RIGHTS};
    uint32_t version;

    if (bytes < sizeof version || (bytes - sizeof version) % sizeof(struct acl_entry) != 0)
        return false;
    memcpy(&version, acl, sizeof version);
    if (le32toh(version) != ACL_VERSION)
        return false;
    for (size_t at = sizeof version; at < bytes; at += sizeof(struct acl_entry)) {
        struct acl_entry entry;
        memcpy(&entry, acl + at, sizeof entry);
        reader_note_entry(reader, st, &entry, rights, &found);
    }
    if (found.is_user)
        return (found.user & found.mask & rights) == rights;
    if (found.in_group)
        return found.group_does && (found.mask & rights) == rights;
    return (found.other & rights) == rights;
}

bool reader_may(const struct reader *reader, const struct stat *st, const void *acl, size_t bytes,
                unsigned rights)
{
    unsigned shift = 0;

    if (st->st_uid == reader->uid)
        shift = 6;
    else if (acl)
        return reader_may_by_acl(reader, st, acl, bytes, rights);
    else if (reader_is_in_group(reader, st->st_gid))
        shift = 3;
    return (st->st_mode >> shift & rights) == rights;
}

/* ---- what was opened ------------------------------------------------------------------------ */

/* Gives access to the attributes of an O_PATH descriptor, and a way to reopen it for reading. */
static void reader_name_fd(int fd, char path[static PROC_PATH])
{
    snprintf(path, PROC_PATH, "/proc/self/fd/%d", fd);
}

/* 0; or -EACCES, or why it is not known. */
static int reader_check(const struct reader *reader, int fd, const struct stat *st, unsigned rights)
{
    char path[PROC_PATH];
    uint8_t few[256];
    _cleanup_free_ uint8_t *many = NULL;
    const uint8_t *acl = few;

    if (st->st_uid == reader->uid) /* the owner's rights come first */
        return reader_may(reader, st, NULL, 0, rights) ? 0 : -EACCES;
    reader_name_fd(fd, path);
    ssize_t n = getxattr(path, "system.posix_acl_access", few, sizeof few);
    if (n < 0 && errno == ERANGE) {
        many = malloc(ACL_BYTES_MAX);
        if (!many)
            return -ENOMEM;
        acl = many;
        n = getxattr(path, "system.posix_acl_access", many, ACL_BYTES_MAX);
    }
    if (n < 0 && errno != ENODATA && errno != EOPNOTSUPP)
        return -errno;
    return reader_may(reader, st, n < 0 ? NULL : acl, n < 0 ? 0 : (size_t)n, rights) ? 0 : -EACCES;
}

/* ---- the way there -------------------------------------------------------------------------- */

struct reader_walk {
    const struct reader *reader;
    struct reader_place *place; /* `at`: the directory whose descriptor is `fd`; "": the root */
    char rest[PATH_MAX];        /* of the path, behind it */
    int fd;                     /* owned */
    unsigned turns;             /* links followed, and ".." */
};

static int reader_walk_begin(struct reader_walk *w)
{
    close_fdp(&w->fd);
    w->place->at[0] = '\0';
    w->fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->fd < 0 ? -errno : 0;
}

/* Begins anew, with `to` in the place of what was walked so far and `rest` behind it. */
static int reader_walk_turn(struct reader_walk *w, const char *directory, const char *to)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/%s%s", directory, to, w->rest);

    if (++w->turns > LINKS_MAX)
        return -ELOOP;
    if (len < 0 || (size_t)len >= sizeof path)
        return -ENAMETOOLONG;
    memcpy(w->rest, path, (size_t)len + 1);
    return reader_walk_begin(w);
}

/* Moves the next name from the rest to `name`; false at the end. *ret_last: it is the last. */
static bool reader_take_name(struct reader_walk *w, char name[static NAME_MAX + 1], bool *ret_last,
                             int *ret_code)
{
    const char *begin = w->rest + strspn(w->rest, "/");
    size_t len = strcspn(begin, "/");

    *ret_code = len > NAME_MAX ? -ENAMETOOLONG : 0;
    if (len == 0 || len > NAME_MAX)
        return false;
    memcpy(name, begin, len);
    name[len] = '\0';
    begin += len;
    *ret_last = *begin == '\0';
    memmove(w->rest, begin, strlen(begin) + 1);
    return true;
}

/* Goes up one directory; its name is known, since the walk contains no links. */
static int reader_walk_up(struct reader_walk *w)
{
    char above[PATH_MAX];
    const char *slash = strrchr(w->place->at, '/');
    int len = slash ? (int)(slash - w->place->at) : 0;

    snprintf(above, sizeof above, "%.*s", len, w->place->at);
    return reader_walk_turn(w, above, "");
}

static int reader_walk_link(struct reader_walk *w, int link)
{
    char target[PATH_MAX], directory[PATH_MAX];
    ssize_t len = readlinkat(link, "", target, sizeof target - 1);

    if (len < 0)
        return -errno;
    if (len == sizeof target - 1)
        return -ENAMETOOLONG;
    target[len] = '\0';
    snprintf(directory, sizeof directory, "%s", target[0] == '/' ? "" : w->place->at);
    return reader_walk_turn(w, directory, target);
}

/* Enters the entry of that name. */
static int reader_walk_into(struct reader_walk *w, int *fd, const char *name)
{
    size_t len = strlen(w->place->at), more = strlen(name);

    if (len + 1 + more >= sizeof w->place->at)
        return -ENAMETOOLONG;
    w->place->at[len] = '/';
    memcpy(w->place->at + len + 1, name, more + 1);
    close_fdp(&w->fd);
    w->fd = steal_fd(fd);
    return 0;
}

/* The reader may look up names in the directory that the walk is at. */
static int reader_may_search(struct reader_walk *w)
{
    struct stat st;

    if (fstat(w->fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    int r = reader_check(w->reader, w->fd, &st, READER_SEARCH);
    w->place->denied = r == -EACCES;
    return r;
}

static int reader_walk_step(struct reader_walk *w, const char *name, bool follow)
{
    struct stat st;
    int r = reader_may_search(w);

    if (r < 0 || strcmp(name, ".") == 0)
        return r;
    if (strcmp(name, "..") == 0)
        return reader_walk_up(w);
    _cleanup_fd_ int next = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 || fstat(next, &st) < 0)
        return -errno;
    return S_ISLNK(st.st_mode) && follow ? reader_walk_link(w, next)
                                         : reader_walk_into(w, &next, name);
}

static int reader_walk(struct reader_walk *w, bool follow)
{
    char name[NAME_MAX + 1];
    bool last = false;
    int r = reader_walk_begin(w), code = 0;

    while (r == 0 && reader_take_name(w, name, &last, &code))
        r = reader_walk_step(w, name, follow || !last);
    if (r == 0)
        r = code;
    /* Slashes behind the last name say that it is a directory. */
    return r == 0 && w->rest[0] == '/' ? reader_may_search(w) : r;
}

int reader_find(const struct reader *reader, const char *path, bool follow,
                struct reader_place *place, int *ret_fd)
{
    struct reader_walk w = {.reader = reader, .place = place, .fd = -1};
    int r;

    *place = (struct reader_place){0};
    if (path[0] != '/')
        return -EINVAL;
    if (strlen(path) >= sizeof w.rest)
        return -ENAMETOOLONG;
    memcpy(w.rest, path, strlen(path) + 1);
    r = reader_walk(&w, follow);
    if (place->at[0] == '\0')
        memcpy(place->at, "/", 2);
    if (r == 0)
        *ret_fd = steal_fd(&w.fd);
    close_fdp(&w.fd);
    return r;
}

int reader_open(const struct reader *reader, const char *path, int flags,
                struct reader_place *place, int *ret_fd)
{
    _cleanup_fd_ int found = -1;
    char name[PROC_PATH];
    struct stat st;
    int r = reader_find(reader, path, true, place, &found);

    if (r < 0)
        return r;
    if (fstat(found, &st) < 0)
        return -errno;
    r = reader_check(reader, found, &st, READER_READ);
    place->denied = r == -EACCES;
    if (r < 0)
        return r;
    /* Opens the very file that was checked, wherever its name leads by now. */
    reader_name_fd(found, name);
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}
