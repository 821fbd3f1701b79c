#include "daemon/remote/date.h"

#include <stdio.h>
#include <time.h>

enum { DATE_MAX = 40 };

/* What was scanned, if it is a time between 1970 and 9999. */
static int64_t date_of_tm(struct tm *tm, int year, int month)
{
    if (year < 1970 || year > 9999 || month < 0 || month > 11 || tm->tm_mday < 1 ||
        tm->tm_mday > 31 || tm->tm_hour < 0 || tm->tm_hour > 23 || tm->tm_min < 0 ||
        tm->tm_min > 59 || tm->tm_sec < 0 || tm->tm_sec > 60)
        return -1;
    tm->tm_year = year - 1900;
    tm->tm_mon = month;
    return (int64_t)timegm(tm);
}

static bool date_copy(struct dl_span text, char ret[DATE_MAX])
{
    if (text.len >= DATE_MAX)
        return false;
    if (text.len > 0)
        memcpy(ret, text.data, text.len);
    ret[text.len] = '\0';
    return true;
}

int64_t date_of_http(struct dl_span text)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char buf[DATE_MAX], month[4] = "";
    struct tm tm = {0};
    int year, used = 0;

    if (!date_copy(text, buf) ||
        sscanf(buf, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", &tm.tm_mday, month, &year,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &used) != 6 ||
        used == 0 || buf[used])
        return -1;
    const char *at = strstr(months, month);
    return strlen(month) == 3 && at && (at - months) % 3 == 0
               ? date_of_tm(&tm, year, (int)(at - months) / 3)
               : -1;
}

int64_t date_of_iso(struct dl_span text)
{
    char buf[DATE_MAX];
    struct tm tm = {0};
    int year, month, used = 0;

    if (!date_copy(text, buf) ||
        sscanf(buf, "%4d-%2d-%2dT%2d:%2d:%2d%n", &year, &month, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &used) != 6)
        return -1;
    if (buf[used] == '.') {
        used++;
        used += (int)strspn(buf + used, "0123456789");
    }
    return strcmp(buf + used, "Z") == 0 ? date_of_tm(&tm, year, month - 1) : -1;
}
