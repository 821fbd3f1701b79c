#include "daemon/fetcher/confine.h"

#include "daemon/base/memory.h"
#include "daemon/cache/cache_room.h"
#include "daemon/remote/credentials.h"
#include "daemon/sandbox/sandbox.h"

#include <stdio.h>
#include <sys/stat.h>

/* What resolvers and TLS read: each by itself, and the directories in which files are replaced. */
static const char *const confine_system[] = {
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/var/lib/ca-certificates",
};

struct confining {
    struct confine *confine;
    struct sandbox_files files;
};

static void confine_look(const char *path, struct confine_place *ret)
{
    struct stat st;
    bool there = stat(path, &st) == 0;

    ret->device = there ? st.st_dev : 0;
    ret->inode = there ? st.st_ino : 0;
}

static void confine_watch(struct confine *confine, const char *path)
{
    if (confine->n == CONFINE_PLACES)
        return;
    struct confine_place *place = &confine->places[confine->n++];

    place->path = must_strdup(path);
    confine_look(path, place);
}

/* Files of keys are replaced by new ones: their directory, too, unless all sorts of things are
 * there. */
static void confine_allow_file(void *arg, const char *path)
{
    struct confining *confining = arg;
    const char *slash = strrchr(path, '/'), *home = getenv("HOME");
    _cleanup_free_ char *directory = slash && slash > path ? must_strdup(path) : NULL;

    sandbox_files_allow(&confining->files, path);
    if (directory)
        directory[slash - path] = '\0';
    if (!directory || (home && strcmp(directory, home) == 0)) {
        confine_watch(confining->confine, path);
        return;
    }
    sandbox_files_allow(&confining->files, directory);
    confine_watch(confining->confine, directory);
}

/* The rest of /etc is for anybody to read but root's secrets, which root's process would find. */
static void confine_allow_system(struct sandbox_files *files)
{
    for (size_t i = 0; i < ARRAY_SIZE(confine_system); i++)
        sandbox_files_allow(files, confine_system[i]);
    if (geteuid() != 0)
        sandbox_files_allow(files, "/etc");
}

static const char *confine_getenv(const char *name, void *of)
{
    (void)of;
    return getenv(name);
}

void confine_begin(struct confine *confine, const char *profile_token, const char *cache,
                   bool peers)
{
    static const char *const authorities[] = {"AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"};
    struct confining confining = {.confine = confine};
    _cleanup_free_ char *blocks = NULL;

    *confine = (struct confine){0};
    sandbox_files_begin_online(&confining.files);
    confine_allow_system(&confining.files);
    for (size_t i = 0; i < ARRAY_SIZE(authorities); i++)
        if (getenv(authorities[i]))
            sandbox_files_allow(&confining.files, getenv(authorities[i]));
    remote_each_file(confine_getenv, NULL, confine_allow_file, &confining);
    if (profile_token)
        confine_allow_file(&confining, profile_token);
    if (*cache && asprintf(&blocks, "%s/" CACHE_BLOCKS, cache) > 0)
        sandbox_files_allow_writing(&confining.files, blocks);
    (void)sandbox_files_hold(&confining.files);
    (void)sandbox_calls_online(sandbox_landlock() > 0, peers);
}

void confine_deinit(struct confine *confine)
{
    for (uint32_t i = 0; i < confine->n; i++)
        free(confine->places[i].path);
    confine->n = 0;
}

bool confine_is_stale(const struct confine *confine)
{
    for (uint32_t i = 0; i < confine->n; i++) {
        const struct confine_place *was = &confine->places[i];
        struct confine_place is;

        confine_look(was->path, &is);
        if (is.inode != was->inode || is.device != was->device)
            return true;
    }
    return false;
}
