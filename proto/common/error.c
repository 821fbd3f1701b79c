/*
 * Fills a dl_error. Whatever the input (a file name of arbitrary bytes, a plug-in's words), the
 * resulting texts are UTF-8 on one line: they always fit a message and a terminal.
 */
#include "proto/common/error.h"

#include "proto/common/open_files.h"
#include "proto/common/url.h"
#include "proto/common/utf8.h"
#include <errno.h>
#include <stdio.h>

/* C0, DEL, and C1, which in UTF-8 is C2 80..9F: all that a terminal would obey. */
static bool error_is_control(const uint8_t *text, size_t n)
{
    if (n == 1)
        return text[0] < 0x20 || text[0] == 0x7F;
    return n == 2 && text[0] == 0xC2 && text[1] < 0xA0;
}

/*
 * Copies what fits `size` with the final NUL, whole characters only. As many bytes come out as went
 * in, so the cut at `size` always falls before a cut that vsnprintf() made further on.
 */
static void error_copy_clean(char *out, size_t size, const char *text)
{
    const uint8_t *in = (const uint8_t *)text;
    size_t len = strlen(text), at = 0;

    while (at < len) {
        size_t n = utf8_char(in + at, len - at);
        bool bad = n == 0 || error_is_control(in + at, n);

        n = n ? n : 1;
        if (at + n >= size)
            break;
        if (bad)
            memset(out + at, '?', n);
        else
            memcpy(out + at, in + at, n);
        at += n;
    }
    out[at] = '\0';
}

/* Only once: another process may already have appended it. */
static void error_append_remedy(char *text, size_t size, int code)
{
    char remedy[OPEN_FILES_REMEDY_MAX];
    size_t len = strlen(text);

    if (!strstr(text, "; RLIMIT_NOFILE of ") && !strstr(text, "fs.file-max"))
        (void)snprintf(text + len, size - len, "%s", open_files_remedy(code, remedy));
}

int dl_error_set(struct dl_error *err, int code, const char *path, const char *fmt, ...)
{
    /* One character more than fits, so that the cut falls in error_copy_clean(). */
    char text[DL_ERROR_MESSAGE_MAX + 4];
    va_list args;

    if (code <= 0) /* as a peer may send it; a failure must not come out as success */
        code = EIO;
    if (!err)
        return -code;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0)
        text[0] = '\0';
    va_end(args);
    url_hide_secrets(text);
    error_append_remedy(text, sizeof text, code);

    /* `path` and the arguments may be this very error's own texts. */
    char place[DL_ERROR_PATH_MAX];
    error_copy_clean(place, sizeof place, path ? path : "");
    err->code = code;
    memcpy(err->path, place, sizeof place);
    url_hide_secrets(err->path);
    error_copy_clean(err->message, sizeof err->message, text);
    return -code;
}
