/*
 * Memory of the daemon's own book-keeping. One policy for all code in the daemon, the cluster's
 * included: running out of it ends the process. A daemon that cannot keep its books must not
 * continue half alive; the service manager restarts it, and clients reconnect.
 *
 * What a client, or a peer of a TCPStore, can make large (segments, plans, values, receive buffers)
 * is charged, bounded and checked instead, and the request refused with -ENOMEM. libdlclient, which
 * runs in other programs' processes, and workers always return -ENOMEM.
 */
#ifndef DL_MEMORY_H
#define DL_MEMORY_H

#include "proto/codec.h"
#include "proto/common/array.h"

void *must_alloc(size_t size); /* zeroed */
void *must_realloc(void *mem, size_t size);
/* Room for `need` items, as array_reserve(). */
#define must_reserve(array, room, need) \
    (void)must_have(array_reserve(array, room, need) ? (void *)&(array) : NULL)
char *must_strdup(const char *text);
void must_append(struct dl_buffer *buf, const void *data, size_t len);

/* What others have allocated for the daemon: NULL ends it, too. */
void *must_have(void *mem);

#endif
