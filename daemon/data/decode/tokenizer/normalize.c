#include "daemon/data/decode/tokenizer/normalize.h"

#include "daemon/data/decode/tokenizer/chars.h"

#include <utf8proc.h>

/* A text on its way: each step reads `from` and appends to `to`. */
struct normalizing {
    const struct normalize_step *step;
    const uint8_t *from;
    size_t n;
    struct growing_bytes *to;
    bool *begins;
};

/* Texts behind others grow; what a file's replacements make of one is not without bounds. */
enum { NORMAL_BYTES_MAX = INT32_MAX / 2 };

/* ---- steps ---------------------------------------------------------------------------------- */

static int normalize_form(const struct normalizing *n)
{
    static const int options[] = {
        [NORMALIZE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [NORMALIZE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [NORMALIZE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [NORMALIZE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *form = NULL;
    utf8proc_ssize_t bytes =
        utf8proc_map(n->from, (utf8proc_ssize_t)n->n, &form, options[n->step->kind]);

    if (bytes < 0)
        return bytes == UTF8PROC_ERROR_NOMEM ? -ENOMEM : -E2BIG;
    int r = growing_bytes_add(n->to, form, (size_t)bytes);
    free(form);
    return r;
}

static int normalize_add_char(struct growing_bytes *to, uint32_t c)
{
    uint8_t bytes[4];

    return growing_bytes_add(to, bytes, char_encode(c, bytes));
}

static int normalize_lowercase(const struct normalizing *n)
{
    int r = 0;

    for (size_t at = 0, bytes; r == 0 && at < n->n; at += bytes) {
        (void)char_classes_at(n->from + at, &bytes);
        uint32_t c = utf8_decode(n->from + at, bytes);
        if (c == 0x130) /* the one that becomes two: i and a dot above */
            r = growing_bytes_add(n->to, "i\u0307", 3);
        else
            r = normalize_add_char(n->to, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
    }
    return r;
}

static int normalize_strip_left(const struct normalizing *n)
{
    size_t at = 0, bytes;

    while (at < n->n && char_classes_at(n->from + at, &bytes) & CHAR_SPACE)
        at += bytes;
    *n->begins &= at == 0;
    return growing_bytes_add(n->to, n->from + at, n->n - at);
}

static int normalize_strip_right(const struct normalizing *n)
{
    size_t end = n->n, bytes;

    while (end > 0) {
        size_t last = end - char_bytes_before(n->from, end);
        if (!(char_classes_at(n->from + last, &bytes) & CHAR_SPACE))
            break;
        end = last;
    }
    return growing_bytes_add(n->to, n->from, end);
}

static int normalize_without(const struct normalizing *n, uint8_t classes)
{
    int r = 0;

    for (size_t at = 0, bytes; r == 0 && at < n->n; at += bytes) {
        if (char_classes_at(n->from + at, &bytes) & classes)
            *n->begins &= n->to->n > 0;
        else
            r = growing_bytes_add(n->to, n->from + at, bytes);
    }
    return r;
}

static int normalize_clean(const struct normalizing *n)
{
    int r = 0;

    for (size_t at = 0, bytes; r == 0 && at < n->n; at += bytes) {
        uint8_t classes = char_classes_at(n->from + at, &bytes);
        uint32_t c = utf8_decode(n->from + at, bytes);
        bool blank = c == '\t' || c == '\n' || c == '\r';
        if (c == 0 || c == 0xFFFD || (classes & CHAR_OTHER && !blank))
            *n->begins &= n->to->n > 0;
        else if (classes & CHAR_SPACE)
            r = growing_bytes_add(n->to, " ", 1);
        else
            r = growing_bytes_add(n->to, n->from + at, bytes);
    }
    return r;
}

/* The ranges of BERT's tokenizer; the last but two begins where Hugging Face's has it. */
static bool normalize_is_ideograph(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static int normalize_ideographs(const struct normalizing *n)
{
    int r = 0;

    for (size_t at = 0, bytes; r == 0 && at < n->n; at += bytes) {
        (void)char_classes_at(n->from + at, &bytes);
        bool apart = normalize_is_ideograph(utf8_decode(n->from + at, bytes));
        if (apart)
            r = growing_bytes_add(n->to, " ", 1);
        if (r == 0)
            r = growing_bytes_add(n->to, n->from + at, bytes);
        if (r == 0 && apart)
            r = growing_bytes_add(n->to, " ", 1);
    }
    return r;
}

static bool normalize_is_nmt_control(uint32_t c)
{
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
}

static bool normalize_is_nmt_space(uint32_t c)
{
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
}

static int normalize_nmt(const struct normalizing *n)
{
    int r = 0;

    for (size_t at = 0, bytes; r == 0 && at < n->n; at += bytes) {
        (void)char_classes_at(n->from + at, &bytes);
        uint32_t c = utf8_decode(n->from + at, bytes);
        if (normalize_is_nmt_control(c))
            *n->begins &= n->to->n > 0;
        else if (normalize_is_nmt_space(c))
            r = growing_bytes_add(n->to, " ", 1);
        else
            r = growing_bytes_add(n->to, n->from + at, bytes);
    }
    return r;
}

static int normalize_prepend(const struct normalizing *n)
{
    int r = n->n > 0 ? growing_bytes_add(n->to, n->step->text, strlen(n->step->text)) : 0;

    return r < 0 ? r : growing_bytes_add(n->to, n->from, n->n);
}

/* The next place of what is replaced. 1; 0: no more; or a negative errno. */
static int normalize_find(const struct normalizing *n, size_t from, size_t *start, size_t *end)
{
    const struct normalize_step *step = n->step;

    if (step->pattern)
        return pattern_find(step->pattern, n->from, n->n, from, start, end);
    size_t bytes = strlen(step->from);
    const uint8_t *found =
        bytes > 0 ? memmem(n->from + from, n->n - from, step->from, bytes) : NULL;
    if (!found)
        return 0;
    *start = (size_t)(found - n->from);
    *end = *start + bytes;
    return 1;
}

static int normalize_replace(const struct normalizing *n)
{
    size_t done = 0, at = 0, start, end, bytes, text = strlen(n->step->text);
    bool any = false;
    int r = 0;

    while (at <= n->n && (r = normalize_find(n, at, &start, &end)) > 0) {
        if (start == end && any && start == done) { /* empty, right behind another: none */
            bytes = 1;
            if (at < n->n)
                (void)char_classes_at(n->from + at, &bytes);
            at += bytes;
            continue;
        }
        any = true;
        *n->begins &= start > 0 || text > 0 || start == end;
        if ((r = growing_bytes_add(n->to, n->from + done, start - done)) < 0 ||
            (r = growing_bytes_add(n->to, n->step->text, text)) < 0)
            return r;
        if (n->to->n > NORMAL_BYTES_MAX)
            return -E2BIG;
        done = at = end;
    }
    return r < 0 ? r : growing_bytes_add(n->to, n->from + done, n->n - done);
}

static int normalize_step(const struct normalizing *n)
{
    switch (n->step->kind) {
    case NORMALIZE_LOWERCASE:
        return normalize_lowercase(n);
    case NORMALIZE_STRIP_LEFT:
        return normalize_strip_left(n);
    case NORMALIZE_STRIP_RIGHT:
        return normalize_strip_right(n);
    case NORMALIZE_WITHOUT_MARKS:
        return normalize_without(n, CHAR_MARK);
    case NORMALIZE_WITHOUT_NONSPACING:
        return normalize_without(n, CHAR_NONSPACING);
    case NORMALIZE_CLEAN:
        return normalize_clean(n);
    case NORMALIZE_IDEOGRAPHS:
        return normalize_ideographs(n);
    case NORMALIZE_NMT:
        return normalize_nmt(n);
    case NORMALIZE_PREPEND:
        return normalize_prepend(n);
    case NORMALIZE_CHARSMAP:
        return charsmap_apply(n->step->map, n->from, n->n, n->to);
    case NORMALIZE_REPLACE:
        return normalize_replace(n);
    default:
        return normalize_form(n);
    }
}

/* What ASCII stays under: it has no marks, and is its own normal form. */
static bool normalize_is_idle(enum normalize_kind kind, bool ascii)
{
    return ascii && (kind <= NORMALIZE_NFKD || kind == NORMALIZE_WITHOUT_MARKS ||
                     kind == NORMALIZE_WITHOUT_NONSPACING || kind == NORMALIZE_IDEOGRAPHS);
}

int normalize(struct normalizer *normalizer, const uint8_t *text, size_t n, const uint8_t **ret,
              size_t *ret_n, bool *begins)
{
    bool ascii = normalizer->n > 0 && char_all_ascii(text, n);
    unsigned turn = 0;

    for (unsigned i = 0; i < normalizer->n; i++) {
        const struct normalize_step *step = &normalizer->steps[i];
        struct growing_bytes *to = &normalizer->text[turn];
        if (normalize_is_idle(step->kind, ascii))
            continue;
        to->n = 0;
        int r = growing_bytes_reserve(to, n + 1);
        if (r == 0)
            r = normalize_step(&(struct normalizing){
                .step = step, .from = text, .n = n, .to = to, .begins = begins});
        if (r < 0 || to->n > NORMAL_BYTES_MAX)
            return r < 0 ? r : -E2BIG;
        text = to->data;
        n = to->n;
        turn = !turn;
        ascii = ascii && (!step->text || char_all_ascii(text, n));
    }
    *ret = text;
    *ret_n = n;
    return 0;
}
