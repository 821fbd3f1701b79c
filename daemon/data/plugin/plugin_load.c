/* Finding, judging and loading the library of a plug-in, and reading its table. */
#include "daemon/data/plugin/plugin_private.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
    WRITABLE_BY_OTHERS = S_IWGRP | S_IWOTH,
    /* Bytes; no table will ever have as many: a size above it is garbage. */
    PLUGIN_TABLE_MAX = 4096,
    /* What the first version of the table had. */
    PLUGIN_TABLE_LEAST = offsetof(struct dl_plugin, collate) + sizeof(void (*)(void)),
};

/* ---- where it lies -------------------------------------------------------------------------- */

/* The allowed directory that contains `path`; or NULL. */
static const char *plugin_load_allowed_dir(const char *path, const struct data_env *env)
{
    for (uint32_t i = 0; i < env->n_plugins; i++) {
        if (path_below(path, env->plugins[i]))
            return env->plugins[i];
    }
    return NULL;
}

static int plugin_load_refuse_outside(const char *path, const char *resolved,
                                      const struct data_env *env, struct dl_error *err)
{
    const char *more = env->n_plugins > 1 ? ", ..." : "";

    if (strcmp(path, resolved) == 0)
        return dl_error_set(err, EACCES, path,
                            "lies outside the daemon's plugins (%s%s); move the plug-in below "
                            "one of them, or have its directory added",
                            env->plugins[0], more);
    return dl_error_set(err, EACCES, path,
                        "links to %s, outside the daemon's plugins (%s%s); move the plug-in "
                        "below one of them, or have its directory added",
                        resolved, env->plugins[0], more);
}

static int plugin_load_find(const char *path, const struct data_env *env,
                            char resolved[static PATH_MAX], struct dl_error *err)
{
    if (!path || path[0] != '/')
        return dl_error_set(err, EINVAL, path, "is not the absolute path of a plug-in");
    if (env->n_plugins == 0)
        return dl_error_set(err, EACCES, path,
                            "this daemon may load no plug-ins; have its directory added to "
                            "plugins in dloaderd.conf, or start a private daemon by dloaderd "
                            "--private");
    if (!realpath(path, resolved)) {
        /* Whether there is something outside is nothing that the daemon answers. */
        int code = errno;
        if (!plugin_load_allowed_dir(path, env) || strstr(path, "/.."))
            return plugin_load_refuse_outside(path, path, env, err);
        return dl_error_set(err, code, path, "the plug-in cannot be found: %s", strerror(code));
    }
    return plugin_load_allowed_dir(resolved, env)
               ? 0
               : plugin_load_refuse_outside(path, resolved, env, err);
}

/* ---- ownership ------------------------------------------------------------------------------ */

static int plugin_load_check_file(const char *path, struct dl_error *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return dl_error_set(err, errno, path, "the plug-in cannot be checked: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return dl_error_set(err, EINVAL, path, "is not a file; name the plug-in's shared library");
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return dl_error_set(err, EPERM, path,
                            "belongs to user %u; it must belong to root or to user %u, who runs "
                            "it",
                            (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & WRITABLE_BY_OTHERS)
        return dl_error_set(err, EPERM, path,
                            "its group or others may write to it (mode %04o), so that anyone's "
                            "code could run; chmod go-w it",
                            (unsigned)st.st_mode & 07777);
    return 0;
}

/* In a directory with the sticky bit, users cannot replace others' files. */
static int plugin_load_check_dir(const char *path, const char *dir, struct dl_error *err)
{
    struct stat st;

    if (stat(dir, &st) < 0)
        return dl_error_set(err, errno, path, "its directory %s cannot be checked: %s", dir,
                            strerror(errno));
    if ((st.st_mode & WRITABLE_BY_OTHERS) && !(st.st_mode & S_ISVTX))
        return dl_error_set(err, EPERM, path,
                            "its group or others may write to the directory %s (mode %04o), so "
                            "that anyone's code could run; chmod go-w it",
                            dir, (unsigned)st.st_mode & 07777);
    return 0;
}

/* The file, and all directories from its own up to the allowed one; where the file itself is
 * allowed, up to the root directory. */
static int plugin_load_check_trust(const char *resolved, const struct data_env *env,
                                   struct dl_error *err)
{
    const char *allowed = plugin_load_allowed_dir(resolved, env);
    size_t top = strcmp(allowed, resolved) == 0 ? 1 : strlen(allowed);
    char dir[PATH_MAX];
    int r = plugin_load_check_file(resolved, err);

    snprintf(dir, sizeof dir, "%s", resolved);
    while (r == 0) {
        char *slash = strrchr(dir, '/');
        slash[slash == dir] = '\0'; /* of the root directory the slash stays */
        r = plugin_load_check_dir(resolved, dir, err);
        if (strlen(dir) <= top || slash == dir)
            break;
    }
    return r;
}

/* ---- its table ------------------------------------------------------------------------------ */

static int plugin_load_check_version(const struct plugin *p, const struct dl_plugin *table,
                                     struct dl_error *err)
{
    static const char zeros[PLUGIN_TABLE_MAX];

    if (!table || (uintptr_t)table % _Alignof(struct dl_plugin) != 0)
        return dl_error_set(err, EINVAL, p->path,
                            "dl_plugin_entry() returns %p instead of a "
                            "table",
                            (const void *)table);
    if (table->abi != DL_PLUGIN_ABI)
        return dl_error_set(err, EINVAL, p->path,
                            "was built for version %u of the plug-in interface, and this is "
                            "version %u; build it with this dloaderd's <dloader-plugin.h>",
                            table->abi, (unsigned)DL_PLUGIN_ABI);
    if (table->size < PLUGIN_TABLE_LEAST || table->size > PLUGIN_TABLE_MAX)
        return dl_error_set(err, EINVAL, p->path,
                            "declares a table of %u bytes instead of %u or more; set .size = "
                            "sizeof(struct dl_plugin)",
                            table->size, (unsigned)PLUGIN_TABLE_LEAST);
    if (table->size > sizeof *table && memcmp(table + 1, zeros, table->size - sizeof *table) != 0)
        return dl_error_set(err, EINVAL, p->path,
                            "has functions of a later dloaderd; install that release, or build "
                            "the plug-in with this one's <dloader-plugin.h>");
    return 0;
}

static int plugin_load_check_role(const struct plugin *p, enum plugin_role role,
                                  struct dl_error *err)
{
    const struct dl_plugin *t = &p->table;
    const char *missing = NULL;

    if (role == PLUGIN_DATASET && t->get && t->iterate)
        return dl_error_set(err, EINVAL, p->path,
                            "has both get() and iterate(); a dataset is either map-style or "
                            "iterable");
    if (role == PLUGIN_DATASET && !t->get && !t->iterate)
        return dl_error_set(err, EINVAL, p->path,
                            "has neither get() nor iterate(), so it is not a dataset%s",
                            t->collate ? "; it collates: name it in collate.path" : "");
    if (!t->open)
        missing = "open";
    else if (role == PLUGIN_COLLATE && !t->collate)
        missing = "collate";
    else if (role == PLUGIN_DATASET && t->get && !t->length)
        missing = "length";
    else if (role == PLUGIN_DATASET && t->iterate && !t->next)
        missing = "next";
    else if (role == PLUGIN_DATASET && t->iterate && !t->iter_close)
        missing = "iter_close";
    else if (role == PLUGIN_DATASET && t->save_state && !t->load_state)
        missing = "load_state";
    else if (role == PLUGIN_DATASET && t->load_state && !t->save_state)
        missing = "save_state";
    if (missing)
        return dl_error_set(err, EINVAL, p->path, "its table lacks the function %s()", missing);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* dlerror() begins with the path, which the error has already. */
static int plugin_load_refuse_library(const char *path, struct dl_error *err)
{
    const char *why = dlerror();
    size_t len = strlen(path);

    if (!why)
        why = "the loader does not say why";
    if (strncmp(why, path, len) == 0 && why[len] == ':')
        why += len + 1 + strspn(why + len + 1, " ");
    return dl_error_set(err, EINVAL, path, "cannot be loaded as a plug-in: %s", why);
}

int plugin_load(struct plugin *p, const char *path, enum plugin_role role, struct dl_error *err)
{
    const struct dl_plugin *(*entry)(void);
    char resolved[PATH_MAX];
    int r;

    if ((r = plugin_load_find(path, p->env, resolved, err)) < 0 ||
        (r = plugin_load_check_trust(resolved, p->env, err)) < 0)
        return r;
    p->path = strdup(resolved);
    if (!p->path)
        return dl_error_set(err, ENOMEM, path, "out of memory");
    p->library = dlopen(p->path, RTLD_NOW | RTLD_LOCAL);
    if (!p->library)
        return plugin_load_refuse_library(p->path, err);
    void *symbol = dlsym(p->library, "dl_plugin_entry");
    if (!symbol)
        return plugin_load_refuse_library(p->path, err);
    memcpy(&entry, &symbol, sizeof entry); /* the same size by POSIX, though not by ISO C */
    const struct dl_plugin *table = entry();
    if ((r = plugin_load_check_version(p, table, err)) < 0)
        return r;
    memcpy(&p->table, table, min_u64(table->size, sizeof p->table));
    return plugin_load_check_role(p, role, err);
}
