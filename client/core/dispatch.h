/* What the files share that take the daemon's messages: dispatch.c and stream.c. */
#ifndef DL_CLIENT_DISPATCH_H
#define DL_CLIENT_DISPATCH_H

#include "client/core/core.h"

/* Latches -EPROTO. */
#define violated(client, ...) connection_fail(&(client)->conn, EPROTO, "", __VA_ARGS__)

/* 0 or the latched error. */
int _nodiscard_ stream_deliver(struct dl_client *client, const struct received *in);
int _nodiscard_ stream_fault(struct dl_client *client, const struct received *in);
int _nodiscard_ stream_warning(struct dl_client *client, const struct received *in);
int _nodiscard_ stream_finished(struct dl_client *client, const struct received *in);

#endif
