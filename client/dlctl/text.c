/* Lines that fit: see text.h. */
#include "client/dlctl/text.h"

#include <sys/ioctl.h>

size_t text_screen_width(void)
{
    struct winsize size = {0};

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 ? TEXT_WIDTH
                                                                           : size.ws_col;
}

static void text_put_bytes(FILE *file, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i],
                      next = i + 1 < len ? (unsigned char)text[i + 1] : 0;
        bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* C1 in UTF-8 */

        fputc(c < 0x20 || c == 0x7f || c1 ? '?' : c, file);
        i += c1;
    }
}

void text_put(FILE *file, const char *text)
{
    text_put_bytes(file, text, strlen(text));
}

static size_t text_columns_of(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

size_t text_columns(const char *text)
{
    return text_columns_of(text, strlen(text));
}

void text_wrap(FILE *file, const char *text, size_t at, size_t indent, size_t width)
{
    bool first = true;

    while (*(text += strspn(text, " "))) {
        size_t len = strcspn(text, " "), columns = text_columns_of(text, len);

        if (!first && at + 1 + columns > width) {
            fprintf(file, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        if (!first)
            fputc(' ', file);
        text_put_bytes(file, text, len);
        at += columns + !first;
        first = false;
        text += len;
    }
    fputc('\n', file);
}
