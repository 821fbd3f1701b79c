#include "daemon/data/files/seen.h"

#include "daemon/data/files/source.h"

#include <stdio.h>

/* `path` with `to` in the place of `from`, below which it lies. False: it is too long. */
static bool seen_move(const char *path, const char *from, const char *to, char ret[static PATH_MAX])
{
    size_t skip = strlen(from), keep = strlen(to);

    while (skip > 0 && from[skip - 1] == '/')
        skip--;
    while (keep > 0 && to[keep - 1] == '/')
        keep--;
    int len = snprintf(ret, PATH_MAX, "%.*s%s", (int)keep, to, path + skip);
    if (len == 0)
        len = snprintf(ret, PATH_MAX, "/");
    return len > 0 && len < PATH_MAX;
}

/* The deepest root that contains the path; n_roots if no root does. */
static uint32_t seen_find(const struct data_env *env, char *const *names, const char *path)
{
    uint32_t found = env->n_roots;
    size_t deepest = 0;

    for (uint32_t i = 0; i < env->n_roots; i++) {
        const char *name = env->seen_as[i][0] ? names[i] : NULL;

        if (name && path_below(path, name) && (found == env->n_roots || strlen(name) > deepest)) {
            found = i;
            deepest = strlen(name);
        }
    }
    return found;
}

const char *seen_place(const struct data_env *env, const char *path, char ret[static PATH_MAX])
{
    uint32_t i = env->seen_as ? seen_find(env, env->seen_as, path) : env->n_roots;

    if (i == env->n_roots)
        return path;
    if (!seen_move(path, env->seen_as[i], env->roots[i], ret)) {
        memset(ret, 'x', PATH_MAX - 1);
        ret[PATH_MAX - 1] = '\0';
    }
    return ret;
}

const char *seen_name(const struct data_env *env, const char *place, char ret[static PATH_MAX])
{
    uint32_t i = env->seen_as ? seen_find(env, env->roots, place) : env->n_roots;

    if (i == env->n_roots || !seen_move(place, env->roots[i], env->seen_as[i], ret))
        return place;
    return ret;
}
