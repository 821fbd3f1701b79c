/* What the files share that take the daemon's messages: dispatch.c and stream.c. */
#ifndef DL_CLIENT_DISPATCH_H
#define DL_CLIENT_DISPATCH_H

#include "client/internal.h"

/* Latches -EPROTO. */
#define violated(client, ...) connection_fail(&(client)->conn, EPROTO, "", __VA_ARGS__)

typedef unsigned long long ull; /* for printf */

/* Latches -ENOMEM. */
int no_memory_for(struct dl_client *client, const struct dl_message *msg);

/* The segment's place in the client's table; UINT32_MAX if it has no segment of that number. */
uint32_t client_find_segment(const struct dl_client *client, uint64_t id);

/* 0 or the latched error. */
int _nodiscard_ stream_deliver(struct dl_client *client, const struct dl_message *msg);
int _nodiscard_ stream_fault(struct dl_client *client, const struct dl_message *msg);
int _nodiscard_ stream_warning(struct dl_client *client, const struct dl_message *msg);
int _nodiscard_ stream_finished(struct dl_client *client, const struct dl_message *msg);

#endif
