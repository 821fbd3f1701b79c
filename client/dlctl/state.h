/* Files with the state of an epoch (struct state_token). */
#ifndef DLCTL_STATE_H
#define DLCTL_STATE_H

#include "client/dlclient.h"
#include "proto/mix_changes.h"
#include "proto/state_token.h"

struct state_file {
    uint8_t *bytes; /* owned */
    size_t len;     /* 0: none */
};
void state_file_deinit(struct state_file *file);

/* The file's bytes, whatever they mean: 0 or a negative errno with `err`. */
int _nodiscard_ state_file_read(const char *path, struct state_file *ret, struct dl_error *err);

/* Whole or not at all: what is there stays until all of the new one is. */
int _nodiscard_ state_file_write(const char *path, const struct state_file *state,
                                 struct dl_error *err);

/* The token in a state's bytes, what the dataset says behind it (borrowed), and changed weights
 * (the caller's; NULL: none). Errors name `path`. */
int _nodiscard_ state_split(const char *path, struct dl_span *state, struct dl_span *ret_list,
                            struct mix_changes **ret_changes, struct state_token *ret,
                            struct dl_error *err);

#endif
