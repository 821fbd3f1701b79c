#include "daemon/base/address.h"

#include <arpa/inet.h>
#include <errno.h>

enum { PORT_DIGITS = 5 };

static int address_parse_port(const char *text, in_port_t *ret)
{
    size_t len = strspn(text, "0123456789");

    if (len == 0 || len > PORT_DIGITS || text[len])
        return -EINVAL;
    unsigned long port = strtoul(text, NULL, 10);
    if (port > UINT16_MAX)
        return -EINVAL;
    *ret = htons((uint16_t)port);
    return 0;
}

int address_parse(const char *text, union address *ret)
{
    union address address = {0};
    char host[INET6_ADDRSTRLEN + 2] = "";
    const char *colon = strrchr(text, ':');
    in_port_t port = 0;

    if (!colon || colon == text || (size_t)(colon - text) >= sizeof host ||
        address_parse_port(colon + 1, &port) < 0)
        return -EINVAL;
    memcpy(host, text, (size_t)(colon - text));
    size_t len = strlen(host);
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = port;
        if (inet_pton(AF_INET6, host + 1, &address.v6.sin6_addr) != 1)
            return -EINVAL;
    } else {
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = port;
        if (inet_pton(AF_INET, host, &address.v4.sin_addr) != 1)
            return -EINVAL;
    }
    *ret = address;
    return 0;
}

bool address_is_local(const union address *address)
{
    if (address->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
    return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

socklen_t address_len(const union address *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
}
