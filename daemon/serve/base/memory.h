/*
 * Memory of the daemon's own book-keeping. The one policy of all that runs in the daemon, the
 * cluster's part included: running out of it ends the process. A daemon that cannot keep its books
 * must not go on half alive; the service manager restarts it, and clients come back.
 *
 * What a client, or a peer of a TCPStore, can make large (segments, plans, values, buffers of what
 * was received) is charged, bounded and checked instead, and refused with -ENOMEM to whoever wants
 * it. libdlclient, which lives in others' processes, and workers return -ENOMEM always.
 */
#ifndef DL_MEMORY_H
#define DL_MEMORY_H

#include "proto/codec.h"

void *must_alloc(size_t size); /* zeroed */
void *must_realloc(void *mem, size_t size);
char *must_strdup(const char *text);
void must_append(struct dl_buffer *buf, const void *data, size_t len);

/* What others have allocated for the daemon: NULL ends it, too. */
void *must_have(void *mem);

#endif
