/* limits.users: what some users, or control groups, have of their own. */
#include "daemon/base/config_private.h"
#include "daemon/base/memory.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>

static const char own_limits[] =
    "bytes, descriptors, epochs, leases, loaders, overhead, sessions, workers and worlds";

/* ---- names ----------------------------------------------------------------------------------- */

static bool users_is_unit(const char *name)
{
    static const char *const endings[] = {".service", ".scope", ".slice"};
    size_t len = strlen(name);

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        size_t end = strlen(endings[i]);
        if (len > end && strcmp(name + len - end, endings[i]) == 0)
            return true;
    }
    return false;
}

/* False: there is no such user. */
static bool users_find_uid(const char *name, uint32_t *ret)
{
    char *end;
    unsigned long number = strtoul(name, &end, 10);

    if (*name >= '0' && *name <= '9' && !*end && number < UINT32_MAX) {
        *ret = (uint32_t)number;
        return true;
    }
    const struct passwd *entry = getpwnam(name);
    if (entry)
        *ret = entry->pw_uid;
    return entry != NULL;
}

static int users_name(struct config_user *user, const char *path, struct dl_error *err)
{
    user->is_group = *user->name == '/' || users_is_unit(user->name);
    if (user->is_group || users_find_uid(user->name, &user->uid))
        return 0;
    return dl_error_set(err, EINVAL, path,
                        "no user of this machine has that name; write a user's name or number, the "
                        "path of a control group, such as /slurm, or a unit's name");
}

/* ---- what they have -------------------------------------------------------------------------- */

static int users_set_weight(struct config_user *user, const struct config_key *key,
                            const struct value *v, struct dl_error *err)
{
    if (v->type != VALUE_INT || v->integer < 1 || v->integer > CONFIG_WEIGHT_MOST)
        return config_refuse_value(err, key, v, "a weight from 1 to 10000");
    user->weight = (uint64_t)v->integer;
    return 0;
}

/* A user's, and not of all users together, nor of what is not counted by user. */
static bool users_is_own_limit(const char *word)
{
    const char *found = strstr(own_limits, word);
    size_t len = strlen(word);

    return found && len > 3 && (found == own_limits || found[-1] == ' ') &&
           (found[len] == ',' || found[len] == ' ' || !found[len]);
}

static int users_set(struct config_user *user, const char *path, const struct value *v,
                     struct dl_error *err)
{
    char limit[DL_ERROR_PATH_MAX], own[2 * DL_ERROR_PATH_MAX];

    (void)snprintf(own, sizeof own, "%s.%s", path, v->key);
    (void)snprintf(limit, sizeof limit, "limits.%s", v->key);
    const struct config_key *key = config_find_key(limit);
    struct config_key said = {.path = own, .type = key ? key->type : NULL};
    if (strcmp(v->key, "weight") == 0)
        return users_set_weight(user, &said, v, err);
    if (!key || !users_is_own_limit(v->key))
        return dl_error_set(err, EINVAL, own,
                            "a user may have no such setting of its own; those are weight, %s",
                            own_limits);
    return key->type->set((char *)&user->own + (key->offset - offsetof(struct config, limits)),
                          &said, v, err);
}

static int users_add(struct config_users *users, const struct config_key *key,
                     const struct value *v, struct dl_error *err)
{
    char path[DL_ERROR_PATH_MAX];

    (void)snprintf(path, sizeof path, "%s.%s", key->path, v->key);
    if (v->type != VALUE_MAP)
        return dl_error_set(err, EINVAL, path, "%s is not a mapping, such as {weight: 200}",
                            value_type_name(v));
    users->items = must_realloc(users->items, (users->n + 1) * sizeof *users->items);
    struct config_user *user = &users->items[users->n++];
    *user = (struct config_user){.name = must_strdup(v->key)};
    int r = users_name(user, path, err);
    for (uint32_t i = 0; r == 0 && i < v->count; i++)
        r = users_set(user, path, &v->items[i], err);
    return r;
}

int config_set_users(void *at, const struct config_key *key, const struct value *v,
                     struct dl_error *err)
{
    int r = 0;

    if (v->type != VALUE_MAP)
        return config_refuse_value(err, key, v, key->type->right);
    for (uint32_t i = 0; r == 0 && i < v->count; i++)
        r = users_add(at, key, &v->items[i], err);
    return r;
}

static int users_check_one(const struct config_limits *limits, uint32_t i, struct dl_error *err)
{
    const struct config_user *user = &limits->users.items[i], *other = limits->users.items;
    char path[DL_ERROR_PATH_MAX];

    (void)snprintf(path, sizeof path, "limits.users.%s", user->name);
    if (user->is_group && limits->charge != CONFIG_CHARGE_CGROUP)
        return dl_error_set(err, EINVAL, path,
                            "it is a control group, which count with limits.charge: cgroup alone");
    for (; other < user; other++)
        if (!user->is_group && !other->is_group && user->uid == other->uid)
            return dl_error_set(err, EINVAL, path, "it is the same user as %s; name it once",
                                other->name);
    return 0;
}

int config_check_users(const struct config_limits *limits, struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < limits->users.n; i++)
        r = users_check_one(limits, i, err);
    return r;
}

void config_users_deinit(struct config_users *users)
{
    for (uint32_t i = 0; i < users->n; i++)
        free(users->items[i].name);
    free(users->items);
    *users = (struct config_users){0};
}

/* ---- whose they are -------------------------------------------------------------------------- */

/* Where the name ends in the group's path: 0, it is not there. A path is the group's beginning, and
 * a unit's name one of its parts. */
static size_t users_depth_in(const char *name, const char *group)
{
    size_t len = strlen(name), depth = 0;

    while (len > 1 && name[len - 1] == '/')
        len--;
    if (*name == '/')
        return strncmp(group, name, len) == 0 && (!group[len] || group[len] == '/' || len == 1)
                   ? len
                   : 0;
    for (const char *at = group; (at = strchr(at, '/')); at++)
        if (strncmp(at + 1, name, len) == 0 && (!at[1 + len] || at[1 + len] == '/'))
            depth = (size_t)(at - group) + 1 + len;
    return depth;
}

const struct config_user *config_find_user(const struct config_users *users, uint32_t uid,
                                           const char *group)
{
    const struct config_user *found = NULL;
    size_t deepest = 0;

    for (uint32_t i = 0; i < users->n; i++) {
        const struct config_user *user = &users->items[i];
        size_t depth = user->is_group ? users_depth_in(user->name, group) : 0;

        if (depth > deepest || (!user->is_group && user->uid == uid && deepest == 0))
            found = user;
        deepest = max_u64(deepest, depth);
    }
    return found;
}
