/* The inside of the configuration, shared by config.c, config_secrets.c and config_users.c. */
#ifndef DL_CONFIG_PRIVATE_H
#define DL_CONFIG_PRIVATE_H

#include "daemon/base/config.h"

#include "proto/value.h"

struct config_key;

/* What the values of a type are. */
struct config_type {
    /* Refuses what is not `right`; of words, one of `right`. */
    int (*set)(void *at, const struct config_key *key, const struct value *v, struct dl_error *err);
    const char *right;
    /* Of a list: the same of one item. */
    int (*add)(struct config_dirs *list, const struct config_key *key, const struct value *item,
               struct dl_error *err);
};

struct config_key {
    const char *path;
    const struct config_type *type;
    size_t offset;
    const char *initial;
};

/* The one at that path, or NULL. */
const struct config_key *config_find_key(const char *path);
/* -EINVAL with `err`, which says that `v` is not `right`. */
int config_refuse_value(struct dl_error *err, const struct config_key *key, const struct value *v,
                        const char *right);

/* A whole file, of which `what` is said in errors; the caller's. */
int _nodiscard_ config_read_text(const char *path, const char *what, char **ret, size_t *ret_len,
                                 struct dl_error *err);

/* config_secrets.c: reads those whose files are named, and checks what needs one. */
int _nodiscard_ config_read_secrets(struct config *config, struct dl_error *err);

/* config_users.c: of a type whose values are what some users have of their own. */
int config_set_users(void *at, const struct config_key *key, const struct value *v,
                     struct dl_error *err);
/* Once all is read. */
int _nodiscard_ config_check_users(const struct config_limits *limits, struct dl_error *err);
void config_users_deinit(struct config_users *users);

#endif
