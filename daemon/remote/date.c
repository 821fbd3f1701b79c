#include "daemon/remote/date.h"

#include <time.h>

/* What is scanned, as bytes; it moves on past what it finds. */

static bool date_take_number(struct dl_span *at, size_t digits, int *ret)
{
    int n = 0;

    if (at->len < digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        if (at->data[i] < '0' || at->data[i] > '9')
            return false;
        n = 10 * n + (at->data[i] - '0');
    }
    at->data += digits;
    at->len -= digits;
    *ret = n;
    return true;
}

static bool date_take_text(struct dl_span *at, const char *text)
{
    size_t n = strlen(text);

    if (at->len < n || memcmp(at->data, text, n) != 0)
        return false;
    at->data += n;
    at->len -= n;
    return true;
}

static bool date_take_month(struct dl_span *at, int *ret)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

    for (size_t i = 0; i < ARRAY_SIZE(months); i++) {
        if (date_take_text(at, months[i])) {
            *ret = (int)i;
            return true;
        }
    }
    return false;
}

/* "17:50:30". */
static bool date_take_clock(struct dl_span *at, struct tm *tm)
{
    return date_take_number(at, 2, &tm->tm_hour) && date_take_text(at, ":") &&
           date_take_number(at, 2, &tm->tm_min) && date_take_text(at, ":") &&
           date_take_number(at, 2, &tm->tm_sec);
}

/* -1: what was scanned is no time since 1970. */
static int64_t date_of_tm(struct tm *tm, int year)
{
    if (year < 1970 || tm->tm_mon < 0 || tm->tm_mon > 11 || tm->tm_mday < 1 || tm->tm_mday > 31 ||
        tm->tm_hour > 23 || tm->tm_min > 59 || tm->tm_sec > 60)
        return -1;
    tm->tm_year = year - 1900;
    return (int64_t)timegm(tm);
}

int64_t date_of_http(struct dl_span text)
{
    struct tm tm = {0};
    int year = 0;

    if (text.len < 3) /* the day of the week, which the date says anyway */
        return -1;
    struct dl_span at = {text.data + 3, text.len - 3};
    bool is_date = date_take_text(&at, ", ") && date_take_number(&at, 2, &tm.tm_mday) &&
                   date_take_text(&at, " ") && date_take_month(&at, &tm.tm_mon) &&
                   date_take_text(&at, " ") && date_take_number(&at, 4, &year) &&
                   date_take_text(&at, " ") && date_take_clock(&at, &tm) &&
                   date_take_text(&at, " GMT") && at.len == 0;
    return is_date ? date_of_tm(&tm, year) : -1;
}

int64_t date_of_iso(struct dl_span text)
{
    struct dl_span at = text;
    struct tm tm = {0};
    int year = 0, digit;

    bool is_date = date_take_number(&at, 4, &year) && date_take_text(&at, "-") &&
                   date_take_number(&at, 2, &tm.tm_mon) && date_take_text(&at, "-") &&
                   date_take_number(&at, 2, &tm.tm_mday) && date_take_text(&at, "T") &&
                   date_take_clock(&at, &tm);
    tm.tm_mon--;
    if (is_date && date_take_text(&at, "."))
        while (date_take_number(&at, 1, &digit))
            ;
    is_date = is_date && date_take_text(&at, "Z") && at.len == 0;
    return is_date ? date_of_tm(&tm, year) : -1;
}
