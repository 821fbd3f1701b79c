/* The inside of the configuration, shared by config.c and config_secrets.c. */
#ifndef DL_CONFIG_PRIVATE_H
#define DL_CONFIG_PRIVATE_H

#include "daemon/base/config.h"

/* A whole file, of which `what` is said in errors; the caller's. */
int _nodiscard_ config_read_text(const char *path, const char *what, char **ret, size_t *ret_len,
                                 struct dl_error *err);

/* config_secrets.c: reads those whose files are named, and checks what needs one. */
int _nodiscard_ config_read_secrets(struct config *config, struct dl_error *err);

#endif
