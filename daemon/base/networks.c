#include "daemon/base/networks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

enum { BITS = 128, BITS_V4 = 32, NETWORK_TEXT_MAX = INET6_ADDRSTRLEN + 4 };

static const uint8_t networks_mapped[12] = {[10] = 0xff, [11] = 0xff};

static bool network_covers(const struct network *network, const uint8_t address[16])
{
    unsigned whole = network->bits / 8, rest = network->bits % 8;

    return memcmp(network->address, address, whole) == 0 &&
           (rest == 0 || (network->address[whole] ^ address[whole]) >> (8 - rest) == 0);
}

static bool network_has_more_bits(const struct network *network)
{
    for (unsigned i = network->bits; i < BITS; i++)
        if (network->address[i / 8] & 0x80 >> i % 8)
            return true;
    return false;
}

static bool network_parse_address(const char *text, struct network *ret, unsigned *ret_most)
{
    memcpy(ret->address, networks_mapped, sizeof networks_mapped);
    *ret_most = BITS_V4;
    if (inet_pton(AF_INET, text, ret->address + sizeof networks_mapped) == 1)
        return true;
    *ret_most = BITS;
    return inet_pton(AF_INET6, text, ret->address) == 1;
}

/* "ADDRESS/BITS", of `len` characters. */
static bool network_parse(const char *text, size_t len, struct network *ret)
{
    char address[NETWORK_TEXT_MAX], *slash, *end;
    unsigned most;

    if (len >= sizeof address)
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    slash = strchr(address, '/');
    if (!slash || slash[1] < '0' || slash[1] > '9')
        return false;
    *slash = '\0';
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (*end || !network_parse_address(address, ret, &most) || bits > most)
        return false;
    ret->bits = (uint8_t)(bits + BITS - most);
    return !network_has_more_bits(ret);
}

int networks_parse(const char *text, struct networks *networks, const char **ret_wrong)
{
    text += strspn(text, " ");
    while (*text) {
        size_t len = strcspn(text, ",");
        const char *next = text + len + (text[len] == ',');

        *ret_wrong = text;
        while (len > 0 && text[len - 1] == ' ')
            len--;
        if (networks->n == NETWORKS_MAX)
            return -E2BIG;
        if (!network_parse(text, len, &networks->items[networks->n]))
            return -EINVAL;
        networks->n++;
        text = next + strspn(next, " ");
    }
    return 0;
}

static bool networks_cover(const struct networks *networks, const uint8_t address[16])
{
    for (uint32_t i = 0; i < networks->n; i++)
        if (network_covers(&networks->items[i], address))
            return true;
    return false;
}

static bool networks_cover_v4(const struct networks *networks, const uint8_t v4[4])
{
    uint8_t address[16];

    memcpy(address, networks_mapped, sizeof networks_mapped);
    memcpy(address + sizeof networks_mapped, v4, 4);
    return networks_cover(networks, address);
}

static bool networks_cover_v6(const struct networks *networks, const uint8_t address[16])
{
    /* Those that lead to an IPv4 address, and where in them it stands. */
    static const struct {
        struct network network;
        unsigned at;
    } rows[] = {
        {{{0}, 96}, 12},                                  /* ::A.B.C.D */
        {{{0x00, 0x64, 0xff, 0x9b}, 96}, 12},             /* 64:ff9b::A.B.C.D */
        {{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48}, 12}, /* 64:ff9b:1:…:A.B.C.D */
        {{{0x20, 0x02}, 16}, 2},                          /* 2002:AABB:CCDD:: */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (network_covers(&rows[i].network, address) &&
            networks_cover_v4(networks, address + rows[i].at))
            return true;
    return networks_cover(networks, address);
}

bool networks_have(const struct networks *networks, const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return networks_cover_v4(networks,
                                 (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr);
    if (address->sa_family == AF_INET6)
        return networks_cover_v6(networks,
                                 ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr);
    return true;
}
