/*
 * Addresses to listen at, as text: 127.0.0.1:9400, [::1]:9400, or the path of a Unix socket, which
 * begins with "/". Pure.
 */
#ifndef DL_ADDRESS_H
#define DL_ADDRESS_H

#include "proto/common/base.h"

#include <netinet/in.h>
#include <sys/socket.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static inline bool address_is_path(const char *text)
{
    return *text == '/';
}

/* -EINVAL for a name, a path, or an address without a port. Port 0 means any free one. */
int _nodiscard_ address_parse(const char *text, union address *ret);

/* Only this machine reaches it. */
bool address_is_local(const union address *address);

socklen_t address_len(const union address *address);

#endif
