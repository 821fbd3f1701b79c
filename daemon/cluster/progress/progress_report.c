/* Reports of nodes as text: lines such as "round 3 0 1 6:12", which people can read, too. */
#include "daemon/cluster/progress/progress.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void progress_report_add_text(struct dl_buffer *out, const char *text)
{
    must_append(out, text, strlen(text));
}

static void progress_report_add_number(struct dl_buffer *out, char mark, uint64_t number)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%c%" PRIu64, mark, number);
    progress_report_add_text(out, text);
}

void progress_point_write(const struct progress_point *point, struct dl_buffer *out)
{
    progress_report_add_number(out, ' ', point->pass);
    progress_report_add_number(out, ' ', point->epoch);
    for (uint32_t i = 0; i < point->history.n; i++) {
        progress_report_add_number(out, ' ', point->history.stretches[i].world);
        progress_report_add_number(out, ':', point->history.stretches[i].steps);
    }
    progress_report_add_text(out, "\n");
}

void progress_report_write(const struct progress_report *report, struct dl_buffer *out)
{
    progress_report_add_text(out, "1\n");
    if (report->last != PROGRESS_NO_ROUND) {
        progress_report_add_text(out, "last");
        progress_report_add_number(out, ' ', report->last);
        progress_report_add_text(out, "\n");
    }
    if (report->has_point) {
        progress_report_add_text(out, "at");
        progress_point_write(&report->point, out);
    }
    for (uint32_t i = 0; i < report->known.n; i++) {
        if (!report->known.rounds[i].known)
            continue;
        progress_report_add_text(out, "round");
        progress_report_add_number(out, ' ', report->known.rounds[i].number);
        progress_point_write(&report->known.rounds[i].begin, out);
    }
}

bool progress_take_text(const char **at, const char *text)
{
    size_t len = strlen(text);

    if (strncmp(*at, text, len) != 0)
        return false;
    *at += len;
    return true;
}

static bool progress_report_take_number(const char **at, char mark, uint64_t *ret)
{
    char *end;

    if (**at != mark || (*at)[1] < '0' || (*at)[1] > '9')
        return false;
    errno = 0;
    *ret = strtoull(*at + 1, &end, 10);
    *at = end;
    return errno == 0;
}

bool progress_point_read(const char **at, struct progress_point *ret)
{
    struct history *history = &ret->history;

    if (!progress_report_take_number(at, ' ', &ret->pass) ||
        !progress_report_take_number(at, ' ', &ret->epoch))
        return false;
    for (history->n = 0; !progress_take_text(at, "\n"); history->n++) {
        struct history_stretch *stretch = &history->stretches[history->n];

        if (history->n == DL_BOUND_HISTORY ||
            !progress_report_take_number(at, ' ', &stretch->world) ||
            !progress_report_take_number(at, ':', &stretch->steps) || stretch->world == 0 ||
            stretch->world > DL_MAX_WORLD_SIZE || stretch->steps == 0 ||
            (history->n > 0 && stretch[-1].world == stretch->world))
            return false;
    }
    return true;
}

static bool progress_report_parse(const char *at, uint64_t round, struct progress_report *ret)
{
    struct progress_point begin;
    uint64_t number;

    if (!progress_take_text(&at, "1\n"))
        return false;
    if (progress_take_text(&at, "last") && !(progress_report_take_number(&at, ' ', &ret->last) &&
                                             progress_take_text(&at, "\n") && ret->last < round))
        return false;
    if (progress_take_text(&at, "at")) {
        ret->has_point = true;
        if (!progress_point_read(&at, &ret->point))
            return false;
    }
    while (progress_take_text(&at, "round")) {
        if (!progress_report_take_number(&at, ' ', &number) || number >= round ||
            !progress_point_read(&at, &begin))
            return false;
        progress_learn(&ret->known, number, &begin);
    }
    return *at == '\0';
}

bool progress_report_read(struct dl_span bytes, uint64_t round, struct progress_report *ret)
{
    _cleanup_free_ char *text = NULL;

    *ret = (struct progress_report){.last = PROGRESS_NO_ROUND};
    if (memchr(bytes.data, '\0', bytes.len))
        return false;
    text = span_dup(bytes);
    return text && progress_report_parse(text, round, ret);
}
