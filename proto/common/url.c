#include "proto/common/url.h"

#include "proto/common/base.h"

#include <ctype.h>
#include <string.h>

static bool url_is_scheme(char c)
{
    return isalnum((uint8_t)c) || strchr("+-.", c) != NULL;
}

/* Where what began at `at` ends. */
static char *url_end(char *at)
{
    while ((uint8_t)*at > ' ' && !strchr("\"<>", *at))
        at++;
    return at;
}

/* Puts a star in the place of [from, to); the text's end moves up. Where it ends now. */
static char *url_cut(char *from, char *to)
{
    if (from == to)
        return to;
    *from = '*';
    memmove(from + 1, to, strlen(to) + 1);
    return from + 1;
}

/* Of "USER:PASSWORD@HOST": from there on. `alone`: there may be a user without a password. */
static char *url_hide_user(char *authority, bool alone)
{
    char *end = url_end(authority), *slash = authority + strcspn(authority, "/?#");
    char *at = memrchr(authority, '@', (size_t)((slash < end ? slash : end) - authority));

    if (!at || (!alone && !memchr(authority, ':', (size_t)(at - authority))))
        return authority;
    return url_cut(authority, at);
}

static void url_hide_query(char *at)
{
    char *query = at + strcspn(at, "?"), *end = url_end(at);

    if (query >= end)
        return;
    while (end > query + 1 && strchr(":;,.)]}'`", end[-1]))
        end--;
    (void)url_cut(query + 1, end);
}

/* The scheme is [begin, end): case does not matter. */
static bool url_scheme_is(const char *begin, const char *end, const char *scheme)
{
    size_t n = strlen(scheme);

    return (size_t)(end - begin) == n && strncasecmp(begin, scheme, n) == 0;
}

void url_hide_secrets(char *text)
{
    for (char *colon = text; (colon = strstr(colon, "://")) != NULL;) {
        char *scheme = colon, *rest = colon + 3;

        while (scheme > text && url_is_scheme(scheme[-1]))
            scheme--;
        /* "hf://gpt2@main/..." is a revision. */
        rest = url_hide_user(rest, !url_scheme_is(scheme, colon, "hf"));
        if (url_scheme_is(scheme, colon, "http") || url_scheme_is(scheme, colon, "https"))
            url_hide_query(rest);
        colon += 3;
    }
}
