/* Services and the private daemons of programs: see find.h. */
#include "client/dlctl/find.h"

#include "client/dlctl/ask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { LISTED_MAX = 512 };

void found_deinit(struct found_all *found)
{
    for (size_t i = 0; i < found->n; i++) {
        free(found->all[i].socket);
        free(found->all[i].program);
    }
    free(found->all);
    *found = (struct found_all){0};
}

/* Whether somebody does, or why not: 0 or a negative errno. */
static int find_listens(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    size_t len = strlen(path);

    if (fd < 0)
        return -errno;
    if (len >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, len + 1);
    /* Where many are waiting to be let in, somebody listens. */
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 && errno != EAGAIN)
        return -errno;
    return 0;
}

/* Consumes what `one` has. */
static int find_add(struct found_all *to, const struct found *one)
{
    struct found *grown =
        one->socket && one->program ? reallocarray(to->all, to->n + 1, sizeof *grown) : NULL;

    if (!grown) {
        free(one->socket);
        free(one->program);
        return -ENOMEM;
    }
    to->all = grown;
    to->all[to->n++] = *one;
    return 0;
}

/* ---- services ------------------------------------------------------------------------------- */

static char *find_in_folder(const char *folder, const char *name)
{
    char *path = NULL;

    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int find_add_service(struct found_all *to, const char *folder)
{
    _cleanup_free_ char *path = find_in_folder(folder, "dloaderd/socket");

    if (!path)
        return -ENOMEM;
    if (find_listens(path) < 0)
        return 0;
    return find_add(to, &(struct found){.socket = steal_ptr(path), .program = strdup("")});
}

/* ---- private ones --------------------------------------------------------------------------- */

/* A folder in which nobody else can put one in the place of another. */
static bool find_is_safe_base(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0) &&
           (!(st.st_mode & (S_IWGRP | S_IWOTH)) || st.st_mode & S_ISVTX);
}

static bool find_is_ours(int fd)
{
    struct stat st, sock;

    return fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & (S_IRWXG | S_IRWXO)) &&
           fstatat(fd, "socket", &sock, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(sock.st_mode) &&
           sock.st_uid == geteuid();
}

/* What the program has left there of itself: {"pid": 4711, "program": "train.py"}. */
static void find_read_owner(int folder, struct found *one)
{
    _cleanup_fd_ int fd = openat(folder, "owner", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    json_t *json = fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
    const char *program = json_string_value(json_object_get(json, "program"));
    json_int_t pid = json_integer_value(json_object_get(json, "pid"));

    one->program = strdup(program ? program : "");
    one->pid = pid > 0 ? (uint64_t)pid : 0;
    json_decref(json);
}

static int find_add_private(struct found_all *to, const char *base, int base_fd, const char *name)
{
    _cleanup_fd_ int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_free_ char *folder = NULL;
    struct found one = {.private = true};

    if (fd < 0 || !find_is_ours(fd))
        return 0;
    folder = find_in_folder(base, name);
    one.socket = folder ? find_in_folder(folder, "socket") : NULL;
    if (one.socket &&
        find_listens(one.socket) < 0) { /* it is about to listen, or its program is dead */
        free(one.socket);
        return 0;
    }
    find_read_owner(fd, &one);
    return find_add(to, &one);
}

static int find_add_below(struct found_all *to, const char *base)
{
    DIR *dir = opendir(base);
    const struct dirent *entry;
    char prefix[32];
    int r = 0;

    if (!dir)
        return 0;
    snprintf(prefix, sizeof prefix, "dloader-%u-", (unsigned)geteuid());
    while (find_is_safe_base(dirfd(dir)) && r == 0 && (entry = readdir(dir)))
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            r = find_add_private(to, base, dirfd(dir), entry->d_name);
    closedir(dir);
    return r;
}

static const char *find_or_else(const char *text, const char *other)
{
    return text && *text ? text : other;
}

/* $XDG_RUNTIME_DIR, or "": it is not set, or another user's, as after su. */
static const char *find_runtime_dir(void)
{
    const char *dir = find_or_else(getenv("XDG_RUNTIME_DIR"), "");
    struct stat st;

    return stat(dir, &st) == 0 && st.st_uid == geteuid() ? dir : "";
}

static int find_compare(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    return x->pid != y->pid ? (x->pid > y->pid) - (x->pid < y->pid) : strcmp(x->socket, y->socket);
}

int find_daemons(struct found_all *ret)
{
    const char *xdg = find_runtime_dir(), *temp = find_or_else(getenv("TMPDIR"), "/tmp");
    struct found_all found = {0};
    size_t services;
    char own[64];
    int r = 0;

    snprintf(own, sizeof own, "/run/user/%u", (unsigned)geteuid());
    if (*xdg)
        r = find_add_service(&found, xdg);
    if (r == 0)
        r = find_add_service(&found, "/run");
    services = found.n;
    if (r == 0)
        r = find_add_below(&found, find_or_else(xdg, own));
    if (r == 0 && strcmp(temp, find_or_else(xdg, own)) != 0)
        r = find_add_below(&found, temp);
    if (r < 0) {
        found_deinit(&found);
        return r;
    }
    if (found.n > services)
        qsort(found.all + services, found.n - services, sizeof *found.all, find_compare);
    *ret = found;
    return 0;
}

/* ---- the one that is meant ------------------------------------------------------------------ */

bool find_is_open(const struct options *o)
{
    const char *env = getenv("DLOADER_SOCKET");

    return !o->socket && !(env && *env);
}

/* --socket says a program, by its pid or its name, which may be that of its script right here. */
static bool find_is_program(const char *socket)
{
    struct stat st;

    return !strchr(socket, '/') && !(stat(socket, &st) == 0 && S_ISSOCK(st.st_mode));
}

static bool find_is_meant(const struct found *one, const char *program)
{
    size_t len = strlen(one->program);
    char pid[24];

    snprintf(pid, sizeof pid, "%" PRIu64, one->pid);
    return one->private &&
           (strcmp(pid, program) == 0 || strcmp(one->program, program) == 0 ||
            (len > 3 && strcmp(one->program + len - 3, ".py") == 0 &&
             strncmp(one->program, program, max_u64(len - 3, strlen(program))) == 0));
}

/* "train.py (pid 4711), eval.py (pid 4720)" of the private ones; only those meant, if that is said.
 * Returns how many. */
static size_t find_list(const struct found_all *found, const char *program,
                        char text[static LISTED_MAX])
{
    size_t n = 0, at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < found->n; i++) {
        const struct found *one = &found->all[i];

        if (!one->private || (program && !find_is_meant(one, program)))
            continue;
        n++;
        if (at >= LISTED_MAX)
            continue;
        at += (size_t)snprintf(text + at, LISTED_MAX - at, "%s", at ? ", " : "");
        if (at < LISTED_MAX && one->pid)
            at += (size_t)snprintf(text + at, LISTED_MAX - at, "%s (pid %" PRIu64 ")",
                                   find_or_else(one->program, "one"), one->pid);
        else if (at < LISTED_MAX)
            at += (size_t)snprintf(text + at, LISTED_MAX - at, "one at %s", one->socket);
    }
    return n;
}

/* The only private one; or of those that `program` means. */
static int find_take_only(struct found_all *found, const char *program, char **ret)
{
    for (size_t i = 0; i < found->n; i++) {
        struct found *one = &found->all[i];

        if (one->private && (!program || find_is_meant(one, program)))
            *ret = steal_ptr(one->socket);
    }
    return 0;
}

static int find_program(struct found_all *found, const char *program, char **ret,
                        struct dl_error *err)
{
    char text[LISTED_MAX];
    size_t n = find_list(found, program, text);

    if (n == 1)
        return find_take_only(found, program, ret);
    if (n > 1)
        return dl_error_set(err, EINVAL, "--socket",
                            "%s: %zu have private daemons: %s; choose one by "
                            "its pid",
                            program, n, text);
    if (find_list(found, NULL, text) == 0)
        return dl_error_set(err, ENOENT, "--socket",
                            "%s: no such socket, and no program of yours has a private daemon",
                            program);
    return dl_error_set(
        err, ENOENT, "--socket",
        "%s: no such socket, and no private daemon of such a program; there are those of %s",
        program, text);
}

/* Whether the verb may be about the private daemon of somebody who was not named: it looks at what
 * is there, and has nothing of its own done. */
static bool find_may_be_private(const struct options *o)
{
    const char *operand = o->verb->operand;
    bool opens = operand && strcmp(operand, "SPEC|NAME") == 0 && operand_is_file(o->operand);

    return o->verb->daemon != DAEMON_SERVICE && !opens;
}

static int find_choose(const struct options *o, struct found_all *found, char **ret,
                       struct dl_error *err)
{
    char text[LISTED_MAX];
    size_t n = find_list(found, NULL, text);

    if (found->n > 1 && o->verb->daemon == DAEMON_ALL)
        return 0;
    /* Which service is asked is the library's choice; or it says what there is to be said. */
    if (n == 0 || !found->all[0].private)
        return 0;
    if (!find_may_be_private(o))
        return dl_error_set(err, ENOENT, "--socket",
                            "no service is running; there are private daemons, of %s: %s uses one "
                            "only if it is named by its pid or script",
                            text, o->verb->name);
    if (n == 1)
        return find_take_only(found, NULL, ret);
    return dl_error_set(
        err, EINVAL, "--socket",
        "%zu programs of yours have private daemons: %s; choose one by its pid or script, "
        "as in --socket %" PRIu64,
        n, text, found->all[found->n - 1].pid);
}

int find_socket(const struct options *o, char **ret, struct dl_error *err)
{
    _cleanup_(found_deinit) struct found_all found = {0};

    *ret = NULL;
    if (o->socket ? !find_is_program(o->socket) : !find_is_open(o))
        return 0;
    if (find_daemons(&found) < 0)
        return dl_error_set(err, ENOMEM, "--socket", "out of memory");
    return o->socket ? find_program(&found, o->socket, ret, err) : find_choose(o, &found, ret, err);
}
