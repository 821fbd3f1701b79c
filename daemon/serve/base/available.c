#include "daemon/serve/base/available.h"

#include "proto/common/fd_io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum {
    AVAILABLE_TEXT_MAX =
        16 * 1024, /* more than any of these files have but mountinfo, which is read by line */
    /* Per cent of the last 10 s in which processes waited for memory: from here on it is worse
     * spent on batches that are loaded ahead. */
    PRESSURE_MOST = 40,
    RESERVE_LEAST_MIB = 8,
};

#define RESERVE_LEAST ((uint64_t)RESERVE_LEAST_MIB << 20)
#define RESERVE_MOST  ((uint64_t)1 << 30)
#define RESERVE_PART  16                  /* of the limit */
#define NO_LIMIT      ((uint64_t)1 << 60) /* v1 has a number for "no limit" */
#define NOT_THERE     UINT64_MAX

/* ---- files ---------------------------------------------------------------------------------- */

/* The file's name; "", which opens nothing, if it is too long. */
static void available_join(const char *dir, const char *name, char ret[static PATH_MAX])
{
    int len = snprintf(ret, PATH_MAX, "%s%s", dir, name);

    if (len < 0 || len >= PATH_MAX)
        *ret = '\0';
}

static bool available_read_text(const char *dir, const char *name,
                                char text[static AVAILABLE_TEXT_MAX])
{
    char path[PATH_MAX];
    int64_t len = 0;

    available_join(dir, name, path);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        len = fd_read_all(fd, text, AVAILABLE_TEXT_MAX - 1);
    text[len > 0 ? len : 0] = '\0';
    return len > 0;
}

/* The number behind `key` at the beginning of a line; NOT_THERE. */
static uint64_t available_find(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && (line[len] == ' ' || line[len] == ':'))
            return strtoull(line + len + 1, NULL, 10);
    }
    return NOT_THERE;
}

/* A group's file with one number; NOT_THERE also for "max". */
static uint64_t available_read_number(const char *dir, const char *name)
{
    char text[AVAILABLE_TEXT_MAX];

    if (!available_read_text(dir, name, text) || *text < '0' || *text > '9')
        return NOT_THERE;
    return strtoull(text, NULL, 10);
}

/* ---- what leaves least ---------------------------------------------------------------------- */

static void available_name_place(struct available *least, const char *dir, const char *name)
{
    char path[PATH_MAX];

    available_join(dir, name, path);
    (void)snprintf(least->place, sizeof least->place, "%.*s", AVAILABLE_PLACE_MAX - 1, path);
}

/* `dir` and `name`: the file that has the limit. */
static void available_consider(struct available *least, uint64_t limit, uint64_t used,
                               const char *dir, const char *name)
{
    uint64_t reserve = max_u64(limit / RESERVE_PART, RESERVE_LEAST);
    uint64_t left = limit > used ? limit - used : 0;

    reserve = min_u64(reserve, RESERVE_MOST);
    least->total = min_u64(least->total, limit);
    left -= min_u64(left, reserve);
    if (left >= least->bytes)
        return;
    least->bytes = left;
    least->limit = limit;
    least->used = used;
    least->reserve = reserve;
    available_name_place(least, dir, name);
}

static void available_consider_pressure(struct available *least, const char *dir, const char *name)
{
    static const char some[] = "some avg10=";
    char text[AVAILABLE_TEXT_MAX];

    if (least->pressure || !available_read_text(dir, name, text) ||
        strncmp(text, some, sizeof some - 1) != 0)
        return;
    unsigned long per_cent = strtoul(text + sizeof some - 1, NULL, 10);
    if (per_cent < PRESSURE_MOST)
        return;
    least->bytes = 0;
    least->pressure = (unsigned)per_cent;
    available_name_place(least, dir, name);
}

/* `idle`: pages of files used only once. Half of the active ones can be reclaimed, too. */
static uint64_t available_reclaimable(const char *dir, const char *idle, const char *busy)
{
    char text[AVAILABLE_TEXT_MAX];

    if (!available_read_text(dir, "/memory.stat", text))
        return 0;
    uint64_t inactive = available_find(text, idle), active = available_find(text, busy);
    return (inactive == NOT_THERE ? 0 : inactive) + (active == NOT_THERE ? 0 : active / 2);
}

static void available_consider_unified(struct available *least, const char *dir)
{
    uint64_t max = available_read_number(dir, "/memory.max");
    uint64_t high = available_read_number(dir, "/memory.high");
    uint64_t used = available_read_number(dir, "/memory.current");

    if (min_u64(max, high) != NOT_THERE && used != NOT_THERE) {
        uint64_t files = available_reclaimable(dir, "inactive_file", "active_file");
        available_consider(least, min_u64(max, high), used - min_u64(used, files), dir,
                           max < high ? "/memory.max" : "/memory.high");
    }
    available_consider_pressure(least, dir, "/memory.pressure");
}

static void available_consider_v1(struct available *least, const char *dir)
{
    uint64_t limit = available_read_number(dir, "/memory.limit_in_bytes");
    uint64_t used = available_read_number(dir, "/memory.usage_in_bytes");

    if (limit >= NO_LIMIT || used == NOT_THERE)
        return;
    uint64_t files = available_reclaimable(dir, "total_inactive_file", "total_active_file");
    available_consider(least, limit, used - min_u64(used, files), dir, "/memory.limit_in_bytes");
}

/* ---- where the groups are ------------------------------------------------------------------- */

struct mount_point {
    char root[PATH_MAX]; /* the group that is mounted at */
    char path[PATH_MAX]; /* this */
};

static bool available_has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += len)
        if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

/* ID PARENT DEVICE ROOT PATH OPTIONS [TAG...] - TYPE SOURCE OPTIONS */
static bool available_parse_mount(const char *line, bool unified, struct mount_point *ret)
{
    const char *behind = strstr(line, " - ");
    char type[32], options[1024];

    _Static_assert(PATH_MAX == 4096, "the widths below");
    return behind && sscanf(behind + 3, "%31s %*s %1023s", type, options) == 2 &&
           strcmp(type, unified ? "cgroup2" : "cgroup") == 0 &&
           (unified || available_has_word(options, "memory")) &&
           sscanf(line, "%*s %*s %*s %4095s %4095s", ret->root, ret->path) == 2;
}

static bool available_find_mount(const char *root, bool unified, struct mount_point *ret)
{
    char path[PATH_MAX];
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    bool found = false;

    available_join(root, "/proc/self/mountinfo", path);
    FILE *file = fopen(path, "re");
    while (file && !found && getline(&line, &room, file) > 0)
        found = available_parse_mount(line, unified, ret);
    if (file)
        (void)fclose(file);
    return found;
}

/* The group and those above it. */
static void available_consider_groups(struct available *least, const char *root, const char *group,
                                      bool unified)
{
    struct mount_point mount;
    char top[PATH_MAX], dir[PATH_MAX];

    if (!available_find_mount(root, unified, &mount))
        return;
    available_join(root, mount.path, top);
    if (!*top)
        return;
    size_t skip = strcmp(mount.root, "/") == 0 ? 0 : strlen(mount.root);
    /* For a group outside of the mount, only the groups above both are visible. */
    bool seen = strncmp(group, mount.root, skip) == 0 && strncmp(group, "/..", 3) != 0;
    available_join(top, seen ? group + skip : "", dir);
    for (size_t len = strlen(dir); len >= strlen(top); len--) {
        if (dir[len] != '/' && dir[len] != '\0')
            continue;
        bool is_group = dir[len] != '\0' || len == 0 || dir[len - 1] != '/';
        dir[len] = '\0';
        if (is_group)
            (unified ? available_consider_unified : available_consider_v1)(least, dir);
    }
}

/* NUMBER:CONTROLLERS:PATH, of the unified hierarchy 0::PATH */
static void available_consider_membership(struct available *least, const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(++controllers, ':') : NULL;

    if (!path)
        return;
    *path++ = '\0';
    if (*controllers == '\0' || available_has_word(controllers, "memory"))
        available_consider_groups(least, root, path, *controllers == '\0');
}

static void available_consider_machine(struct available *least, const char *root)
{
    char text[AVAILABLE_TEXT_MAX];

    if (!available_read_text(root, "/proc/meminfo", text))
        return;
    uint64_t total = available_find(text, "MemTotal"), left = available_find(text, "MemAvailable");
    if (total != NOT_THERE && left != NOT_THERE)
        available_consider(least, total * 1024, (total - min_u64(total, left)) * 1024,
                           "MemAvailable of ", "/proc/meminfo");
}

void available_read(const char *root, struct available *ret)
{
    char text[AVAILABLE_TEXT_MAX], *rest = text, *line;

    *ret = (struct available){.bytes = NOT_THERE, .total = NOT_THERE};
    available_consider_machine(ret, root);
    if (available_read_text(root, "/proc/self/cgroup", text))
        while ((line = strsep(&rest, "\n")))
            available_consider_membership(ret, root, line);
    available_consider_pressure(ret, root, "/proc/pressure/memory");
}
