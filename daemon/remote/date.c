#include "daemon/remote/date.h"

#include <time.h>

/* What strptime() leaves of the text, in `buf`; NULL: it has no such form, or is before 1970. */
static const char *date_scan(struct dl_span text, const char *format, char buf[static 40],
                             struct tm *ret)
{
    if (text.len == 0 || text.len >= 40 || memchr(text.data, '\0', text.len))
        return NULL;
    memcpy(buf, text.data, text.len);
    buf[text.len] = '\0';
    const char *rest = strptime(buf, format, ret);
    return ret->tm_year >= 70 ? rest : NULL;
}

int64_t date_of_http(struct dl_span text)
{
    char buf[40];
    struct tm tm = {0};
    const char *rest = date_scan(text, "%a, %d %b %Y %H:%M:%S GMT", buf, &tm);

    return rest && !*rest ? (int64_t)timegm(&tm) : -1;
}

int64_t date_of_iso(struct dl_span text)
{
    char buf[40];
    struct tm tm = {0};
    const char *rest = date_scan(text, "%Y-%m-%dT%H:%M:%S", buf, &tm);

    if (rest && *rest == '.') /* parts of a second */
        rest += 1 + strspn(rest + 1, "0123456789");
    return rest && strcmp(rest, "Z") == 0 ? (int64_t)timegm(&tm) : -1;
}
