/*
 * What the programs by hand share: commands on standard input, a line each, and a backend as the
 * environment says.
 */
#ifndef DL_TESTS_PROBE_H
#define DL_TESTS_PROBE_H

#include "daemon/cluster/store/backend.h"

struct probe_input {
    uv_pipe_t pipe;
    char line[65536];
    size_t len;
    void (*command)(void *owner, char *line);
    void (*ended)(void *owner); /* the loop is to become empty */
    void *owner;
};

/* 0, or a negative errno. */
int _nodiscard_ probe_input_open(uv_loop_t *loop, struct probe_input *input);

/*
 * PROBE_BACKEND, etcd or c10d, at PROBE_ENDPOINTS, with PROBE_TIMEOUT_MS; etcd with PROBE_USER,
 * PROBE_PASSWORD, PROBE_CA, PROBE_CERT, PROBE_KEY and PROBE_KEEP_S; c10d with PROBE_HOSTING: no,
 * auto or yes.
 */
int _nodiscard_ probe_backend(uv_loop_t *loop, struct backend **ret, struct dl_error *err);

#endif
