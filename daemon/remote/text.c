#include "daemon/remote/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

void text_deinit(struct text *text)
{
    if (text->bytes.data)
        explicit_bzero(text->bytes.data, text->bytes.cap);
    buffer_deinit(&text->bytes);
    *text = (struct text){0};
}

/* Into a new place where there is no more room: realloc() would leave a copy of a secret behind. */
static bool text_make_room(struct text *text, size_t more)
{
    struct dl_buffer *old = &text->bytes, bytes = {0};

    if (more <= old->cap - old->len)
        return true;
    if (buffer_reserve(&bytes, old->len + max_u64(more, old->len)) < 0)
        return false;
    (void)!buffer_append(&bytes, old->data, old->len);
    if (old->data)
        explicit_bzero(old->data, old->cap);
    buffer_deinit(old);
    *old = bytes;
    return true;
}

void text_add_bytes(struct text *text, const void *bytes, size_t len)
{
    if (text->is_lost)
        return;
    if (!text_make_room(text, len) || buffer_append(&text->bytes, bytes, len) < 0) {
        text_deinit(text);
        text->is_lost = true;
    }
}

void text_add(struct text *text, const char *more)
{
    text_add_bytes(text, more, strlen(more));
}

void text_print(struct text *text, const char *fmt, ...)
{
    char buf[256];
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(buf, sizeof buf, fmt, args);
    va_end(args);
    if (n > 0)
        text_add_bytes(text, buf, min_u64((uint64_t)n, sizeof buf - 1));
    explicit_bzero(buf, sizeof buf);
}

static bool text_is_ascii_alnum(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= 'a' && byte <= 'z');
}

static bool text_is_unreserved(uint8_t byte)
{
    return text_is_ascii_alnum(byte) || (byte && strchr("-._~", byte));
}

static void text_add_encoded(struct text *text, uint8_t byte)
{
    static const char digits[] = "0123456789ABCDEF";
    const char three[3] = {'%', digits[byte >> 4], digits[byte & 15]};

    text_add_bytes(text, three, sizeof three);
}

void text_encode(struct text *text, const char *bytes, bool keep_slash)
{
    for (const uint8_t *at = (const uint8_t *)bytes; *at; at++) {
        if (text_is_unreserved(*at) || (keep_slash && *at == '/'))
            text_add_bytes(text, at, 1);
        else
            text_add_encoded(text, *at);
    }
}

static bool text_is_triplet(const char *at, size_t left)
{
    return left >= 3 && at[0] == '%' && isxdigit((uint8_t)at[1]) && isxdigit((uint8_t)at[2]);
}

void text_encode_lenient(struct text *text, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)bytes[i];

        if (text_is_unreserved(byte) || (byte && strchr("!$&'()*+,;=:@/?", byte)) ||
            text_is_triplet(bytes + i, len - i))
            text_add_bytes(text, bytes + i, 1);
        else
            text_add_encoded(text, byte);
    }
}

char *text_take(struct text *text)
{
    /* A copy without the room to grow in, as there are many that are short and kept. */
    char *taken =
        text->is_lost ? NULL : span_dup((struct dl_span){text->bytes.data, text->bytes.len});

    text_deinit(text);
    return taken;
}

static uint8_t text_digit(char digit)
{
    return (uint8_t)(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
}

bool text_decode(char *bytes, size_t *len, bool plus)
{
    size_t n = *len, out = 0;

    for (size_t i = 0; i < n; i++, out++) {
        if (bytes[i] != '%') {
            bytes[out] = plus && bytes[i] == '+' ? ' ' : bytes[i];
            continue;
        }
        if (!text_is_triplet(bytes + i, n - i))
            return false;
        bytes[out] = (char)(text_digit(bytes[i + 1]) << 4 | text_digit(bytes[i + 2]));
        if (!bytes[out])
            return false;
        i += 2;
    }
    *len = out;
    return true;
}

char *text_copy(const char *from, bool *is_lost)
{
    char *copy = from ? strdup(from) : NULL;

    *is_lost |= from && !copy;
    return copy;
}

void text_wipe(char **secret)
{
    if (*secret)
        explicit_bzero(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

struct dl_span text_trim(struct dl_span text)
{
    while (text.len > 0 && isspace(text.data[0])) {
        text.data++;
        text.len--;
    }
    while (text.len > 0 && isspace(text.data[text.len - 1]))
        text.len--;
    return text;
}

bool text_is_plain(const char *text)
{
    for (; *text; text++)
        if ((uint8_t)*text < 0x20 || *text == 0x7F)
            return false;
    return true;
}
