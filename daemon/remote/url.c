#include "daemon/remote/url.h"

#include "daemon/remote/text.h"

#include <ctype.h>

/* Letters, digits and "-._" in the host, or an address in brackets; then a port, or nothing. */
static const char *url_check_host(const char *at, size_t n, size_t *ret_host)
{
    bool is_address = n > 0 && at[0] == '[';
    const char *close = is_address ? memchr(at, ']', n) : NULL;
    size_t host = 0;

    if (is_address) {
        for (host = 1; host < n && (isxdigit((uint8_t)at[host]) || strchr(":.", at[host]));)
            host++;
        if (!close || at + host != close || host < 3)
            return "the address in brackets is none of IPv6";
        host++;
    } else {
        while (host < n && (isalnum((uint8_t)at[host]) || strchr("-._", at[host])))
            host++;
    }
    if (host == 0)
        return "it names no host; write one behind ://";
    if (host < n && at[host] != ':')
        return (uint8_t)at[host] >= 0x80
                   ? "its host has letters that are not ASCII; write it as DNS has it, xn--…"
                   : "its host has a sign that no host's name has";
    *ret_host = host;
    return NULL;
}

/* 0: none is written. */
static const char *url_read_port(const char *at, size_t n, uint32_t *ret)
{
    uint32_t port = 0;

    for (size_t i = 0; i < n; i++) {
        if (at[i] < '0' || at[i] > '9' || i >= 5)
            return "its port is no number of 1 to 65535";
        port = port * 10 + (uint32_t)(at[i] - '0');
    }
    if (n > 0 && (port == 0 || port > 65535))
        return "its port is no number of 1 to 65535";
    *ret = port;
    return NULL;
}

const char *url_split(const char *url, struct url_parts *ret)
{
    bool is_safe = strncmp(url, "https://", 8) == 0;
    struct text origin = {0};
    size_t host = 0;
    uint32_t port = 0;

    if (!is_safe && strncmp(url, "http://", 7) != 0)
        return "it begins neither with https:// nor with http://";
    const char *at = url + (is_safe ? 8 : 7);
    size_t n = strcspn(at, "/?#");

    if (memchr(at, '@', n))
        return "it has a user or a password in it, which others would see; take out what precedes "
               "the @ of the host";
    const char *wrong = url_check_host(at, n, &host);
    if (!wrong && host < n)
        wrong = url_read_port(at + host + 1, n - host - 1, &port);
    if (wrong)
        return wrong;
    text_add(&origin, is_safe ? "https://" : "http://");
    for (size_t i = 0; i < host; i++) {
        char small = (char)tolower((uint8_t)at[i]);

        text_add_bytes(&origin, &small, 1);
    }
    if (port != 0 && port != (is_safe ? 443U : 80U))
        text_print(&origin, ":%u", port);
    ret->origin = text_take(&origin);
    ret->rest = at + n;
    return ret->origin ? NULL : "";
}
