/*
 * One look at the daemon: its views, or why there are none, as bytes that can pass through a pipe.
 * The connection is kept for the next look; after a failure the next one connects again.
 */
#ifndef DLCTL_TOP_LOOK_H
#define DLCTL_TOP_LOOK_H

#include "client/dlctl/top/model.h"

struct dl_client;

struct top_looker {
    const char *socket;       /* borrowed; NULL: the library's choice */
    struct dl_client *client; /* owned; NULL: not connected */
};

void top_looker_deinit(struct top_looker *looker);

/* Looks, which may block for as long as libdlclient waits, and appends what was seen. -ENOMEM. */
int _nodiscard_ top_look(struct top_looker *looker, struct dl_buffer *out);

/* What was seen. */
struct top_seen {
    struct value views[TOP_VIEWS]; /* owned; all null after a failure */
    double at_s;
    struct dl_error failure; /* code 0: none */
};

void top_seen_deinit(struct top_seen *seen);

/*
 * The look that the bytes begin with: 1, and *ret_len of them are done with; 0: there is not all of
 * it yet; -EBADMSG; -ENOMEM. *ret is zeroed before the call.
 */
int _nodiscard_ top_seen_read(const uint8_t *data, size_t len, struct top_seen *ret,
                              size_t *ret_len);

#endif
