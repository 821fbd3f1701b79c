/* Addresses that only this machine reaches, as text: 127.0.0.1:9400 or [::1]:9400. Pure. */
#ifndef DL_LOOPBACK_H
#define DL_LOOPBACK_H

#include "proto/common/base.h"

#include <netinet/in.h>
#include <sys/socket.h>

union loopback {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* -EINVAL: it is another machine's, a name, or has no port. Port 0 stands for any that is free. */
int _nodiscard_ loopback_parse(const char *text, union loopback *ret);

socklen_t loopback_len(const union loopback *address);

#endif
