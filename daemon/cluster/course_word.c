/* What nodes say, as text: lines of a word, such as "round 3 0 1 6:12", for people, too. */
#include "daemon/cluster/course.h"

#include "daemon/serve/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void course_word_add_text(struct dl_buffer *out, const char *text)
{
    must_append(out, text, strlen(text));
}

static void course_word_add_number(struct dl_buffer *out, char mark, uint64_t number)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%c%" PRIu64, mark, number);
    course_word_add_text(out, text);
}

static void course_word_add_point(struct dl_buffer *out, const struct course_point *point)
{
    course_word_add_number(out, ' ', point->pass);
    course_word_add_number(out, ' ', point->epoch);
    for (uint32_t i = 0; i < point->history.n; i++) {
        course_word_add_number(out, ' ', point->history.of[i].world);
        course_word_add_number(out, ':', point->history.of[i].steps);
    }
    course_word_add_text(out, "\n");
}

void course_word_write(const struct course_word *word, struct dl_buffer *out)
{
    course_word_add_text(out, "1\n");
    if (word->last != COURSE_NEW) {
        course_word_add_text(out, "last");
        course_word_add_number(out, ' ', word->last);
        course_word_add_text(out, "\n");
    }
    if (word->says) {
        course_word_add_text(out, "at");
        course_word_add_point(out, &word->at);
    }
    for (uint32_t i = 0; i < word->knows.n; i++) {
        if (!word->knows.of[i].known)
            continue;
        course_word_add_text(out, "round");
        course_word_add_number(out, ' ', word->knows.of[i].number);
        course_word_add_point(out, &word->knows.of[i].begin);
    }
}

static bool course_word_take_text(const char **at, const char *text)
{
    size_t len = strlen(text);

    if (strncmp(*at, text, len) != 0)
        return false;
    *at += len;
    return true;
}

static bool course_word_take_number(const char **at, char mark, uint64_t *ret)
{
    char *end;

    if (**at != mark || (*at)[1] < '0' || (*at)[1] > '9')
        return false;
    errno = 0;
    *ret = strtoull(*at + 1, &end, 10);
    *at = end;
    return errno == 0;
}

static bool course_word_take_point(const char **at, struct course_point *ret)
{
    struct history *history = &ret->history;

    if (!course_word_take_number(at, ' ', &ret->pass) ||
        !course_word_take_number(at, ' ', &ret->epoch))
        return false;
    for (history->n = 0; !course_word_take_text(at, "\n"); history->n++) {
        struct history_stretch *stretch = &history->of[history->n];

        if (history->n == DL_BOUND_HISTORY || !course_word_take_number(at, ' ', &stretch->world) ||
            !course_word_take_number(at, ':', &stretch->steps) || stretch->world == 0 ||
            stretch->world > DL_MAX_WORLD_SIZE || stretch->steps == 0 ||
            (history->n > 0 && stretch[-1].world == stretch->world))
            return false;
    }
    return true;
}

static bool course_word_read_word(const char *at, uint64_t round, struct course_word *ret)
{
    struct course_point begin;
    uint64_t number;

    if (!course_word_take_text(&at, "1\n"))
        return false;
    if (course_word_take_text(&at, "last") &&
        !(course_word_take_number(&at, ' ', &ret->last) && course_word_take_text(&at, "\n") &&
          ret->last < round))
        return false;
    if (course_word_take_text(&at, "at")) {
        ret->says = true;
        if (!course_word_take_point(&at, &ret->at))
            return false;
    }
    while (course_word_take_text(&at, "round")) {
        if (!course_word_take_number(&at, ' ', &number) || number >= round ||
            !course_word_take_point(&at, &begin))
            return false;
        course_learn(&ret->knows, number, &begin);
    }
    return *at == '\0';
}

bool course_word_read(struct dl_span bytes, uint64_t round, struct course_word *ret)
{
    _cleanup_free_ char *text = NULL;

    *ret = (struct course_word){.last = COURSE_NEW};
    if (memchr(bytes.data, '\0', bytes.len))
        return false;
    text = span_dup(bytes);
    return text && course_word_read_word(text, round, ret);
}
