/* Files with the state of an epoch (struct state_token). */
#ifndef DLCTL_STATE_H
#define DLCTL_STATE_H

#include "client/dlclient.h"
#include "proto/common/error.h"

struct state_file {
    uint8_t *bytes; /* owned */
    size_t len;     /* 0: there is none */
};
void state_file_deinit(struct state_file *file);

/* The file's bytes, whatever they mean: 0 or a negative errno with `err`. */
int _nodiscard_ state_file_read(const char *path, struct state_file *ret, struct dl_error *err);

/* Whole or not at all: what is there stays until all of the new one is. */
int _nodiscard_ state_file_write(const char *path, const struct state_file *state,
                                 struct dl_error *err);

#endif
