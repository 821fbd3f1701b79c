#include "daemon/serve/pool/report.h"

#include "daemon/base/memory.h"
#include "proto/common/utf8.h"

static const char cut_mark[] = "[...]\n";

/* C0 but newline and tab, DEL, and C1, which in UTF-8 is C2 80..9F. */
static bool report_is_control(const uint8_t *text, size_t n)
{
    if (n == 1)
        return (text[0] < 0x20 && text[0] != '\n' && text[0] != '\t') || text[0] == 0x7F;
    return n == 2 && text[0] == 0xC2 && text[1] < 0xA0;
}

/* As many bytes as went in. */
static void report_clean(char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        const uint8_t *in = (const uint8_t *)text + at;
        size_t n = utf8_char(in, len - at);

        if (n == 0 || report_is_control(in, n)) {
            n = n ? n : 1;
            memset(text + at, '?', n);
        }
        at += n;
    }
}

/* Copies [first line | mark | end of the rest] of what is too long; how many bytes. */
static size_t report_copy_cut(char *out, const char *text, size_t len)
{
    const char *newline = memchr(text, '\n', REPORT_LINE_MAX);
    size_t line = newline ? (size_t)(newline - text) + 1 : REPORT_LINE_MAX;
    size_t at = line;

    memcpy(out, text, line);
    if (!newline)
        out[line - 1] = '\n';
    memcpy(out + at, cut_mark, sizeof cut_mark - 1);
    at += sizeof cut_mark - 1;
    memcpy(out + at, text + len - (REPORT_MAX - at), REPORT_MAX - at);
    return REPORT_MAX;
}

char *report_read(const void *slot, uint64_t slot_bytes)
{
    struct slot_header header;
    uint64_t begin, room;

    memcpy(&header, slot, sizeof header);
    if (header.error_more == 0 || header.error_off >= slot_bytes)
        return NULL;
    room = slot_bytes - header.error_off;
    if (header.error_len >= room - 1)
        return NULL;
    begin = header.error_off + header.error_len + 1;
    size_t len = (size_t)min_u64(header.error_more, slot_bytes - begin);
    char *out = must_alloc(REPORT_MAX + 1);
    const char *text = (const char *)slot + begin;

    if (len > REPORT_MAX)
        len = report_copy_cut(out, text, len);
    else
        memcpy(out, text, len);
    /* The worker may still write: what counts is the copy. */
    report_clean(out, len);
    out[len] = '\0';
    return out;
}
