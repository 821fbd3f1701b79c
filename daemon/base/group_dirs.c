#include "daemon/base/group_dirs.h"

#include "proto/common/fd_io.h"

#include <fcntl.h>
#include <stdio.h>

/* ---- files ---------------------------------------------------------------------------------- */

void group_join(const char *dir, const char *name, char ret[static PATH_MAX])
{
    int len = snprintf(ret, PATH_MAX, "%s%s", dir, name);

    if (len < 0 || len >= PATH_MAX)
        *ret = '\0';
}

bool group_read_text(const char *dir, const char *name, char text[static GROUP_TEXT_MAX])
{
    char path[PATH_MAX];
    int64_t len = 0;

    group_join(dir, name, path);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        len = fd_read_all(fd, text, GROUP_TEXT_MAX - 1);
    text[len > 0 ? len : 0] = '\0';
    return len > 0;
}

uint64_t group_read_number(const char *dir, const char *name)
{
    char text[GROUP_TEXT_MAX];

    if (!group_read_text(dir, name, text) || *text < '0' || *text > '9')
        return GROUP_NO_NUMBER;
    return strtoull(text, NULL, 10);
}

/* ---- where the groups are ------------------------------------------------------------------- */

/* Whom to tell of which groups. */
struct group_visit {
    const char *root, *controller;
    void (*visit)(void *context, const char *dir, bool unified);
    void *context;
};

struct mount_point {
    char root[PATH_MAX]; /* the group that is mounted at */
    char path[PATH_MAX]; /* this */
};

static bool group_has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += len)
        if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

/* ID PARENT DEVICE ROOT PATH OPTIONS [TAG...] - TYPE SOURCE OPTIONS */
static bool group_parse_mount(const char *line, const char *controller, bool unified,
                              struct mount_point *ret)
{
    const char *behind = strstr(line, " - ");
    char type[32], options[1024];

    _Static_assert(PATH_MAX == 4096, "the widths below");
    return behind && sscanf(behind + 3, "%31s %*s %1023s", type, options) == 2 &&
           strcmp(type, unified ? "cgroup2" : "cgroup") == 0 &&
           (unified || group_has_word(options, controller)) &&
           sscanf(line, "%*s %*s %*s %4095s %4095s", ret->root, ret->path) == 2;
}

static bool group_find_mount(const struct group_visit *v, bool unified, struct mount_point *ret)
{
    char path[PATH_MAX];
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    bool found = false;

    group_join(v->root, "/proc/self/mountinfo", path);
    FILE *file = fopen(path, "re");
    while (file && !found && getline(&line, &room, file) > 0)
        found = group_parse_mount(line, v->controller, unified, ret);
    if (file)
        (void)fclose(file);
    return found;
}

/* The group and those above it. */
static void group_visit_all(const struct group_visit *v, const char *group, bool unified)
{
    struct mount_point mount;
    char top[PATH_MAX], dir[PATH_MAX];

    if (!group_find_mount(v, unified, &mount))
        return;
    group_join(v->root, mount.path, top);
    if (!*top)
        return;
    size_t skip = strcmp(mount.root, "/") == 0 ? 0 : strlen(mount.root);
    /* For a group outside of the mount, only the groups above both are visible. */
    bool seen = strncmp(group, mount.root, skip) == 0 && strncmp(group, "/..", 3) != 0;
    group_join(top, seen ? group + skip : "", dir);
    for (size_t len = strlen(dir); len >= strlen(top); len--) {
        if (dir[len] != '/' && dir[len] != '\0')
            continue;
        bool is_group = dir[len] != '\0' || len == 0 || dir[len - 1] != '/';
        dir[len] = '\0';
        if (is_group)
            v->visit(v->context, dir, unified);
    }
}

/* NUMBER:CONTROLLERS:PATH, of the unified hierarchy 0::PATH */
static void group_visit_membership(const struct group_visit *v, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(++controllers, ':') : NULL;

    if (!path)
        return;
    *path++ = '\0';
    if (*controllers == '\0' || group_has_word(controllers, v->controller))
        group_visit_all(v, path, *controllers == '\0');
}

void group_dirs_visit(const char *root, const char *controller,
                      void (*visit)(void *context, const char *dir, bool unified), void *context)
{
    const struct group_visit v = {root, controller, visit, context};
    char text[GROUP_TEXT_MAX], *rest = text, *line;

    if (group_read_text(root, "/proc/self/cgroup", text))
        while ((line = strsep(&rest, "\n")))
            group_visit_membership(&v, line);
}
