/*
 * Networks of IP addresses, as text: "169.254.0.0/16, fe80::/10". Pure.
 */
#ifndef DL_NETWORKS_H
#define DL_NETWORKS_H

#include "proto/common/base.h"

#include <sys/socket.h>

enum { NETWORKS_MAX = 64 };

struct networks {
    uint32_t n;
    struct network {
        uint8_t address[16]; /* IPv4 as ::ffff:A.B.C.D; 0 beyond `bits` */
        uint8_t bits;        /* of the 128 */
    } items[NETWORKS_MAX];
};

/* Adds the networks in the text, separated by commas; may be "". -EINVAL: one is not ADDRESS/BITS,
 * or its address has bits set beyond BITS; -E2BIG. *ret_wrong is then where it begins in `text`. */
int _nodiscard_ networks_parse(const char *text, struct networks *networks, const char **ret_wrong);

/* An IPv4 address counts in each of its forms: also inside an IPv6 one that leads to it (mapped,
 * NAT64, 6to4). Addresses other than IPv4 and IPv6 are in every network. */
bool networks_have(const struct networks *networks, const struct sockaddr *address);

#endif
