#include "daemon/data/kinds/csv/csv_cell.h"

#include "proto/dtype.h"

#include <errno.h>
#include <locale.h>
#include <math.h>

/* A number with more characters than this is written to be a text. */
enum { CSV_NUMBER_MAX = 400 };

/* ---- cells and rows ------------------------------------------------------------------------- */

/* A quoted cell's closing quote, searched from behind the opening one; or NULL. */
static const uint8_t *csv_cell_close(const uint8_t *at, const uint8_t *end, bool *ret_doubled)
{
    while ((at = memchr(at, '"', (size_t)(end - at)))) {
        if (at + 1 == end || at[1] != '"')
            return at;
        *ret_doubled = true;
        at += 2;
    }
    return NULL;
}

/* Where a cell without quotes ends. */
static const uint8_t *csv_cell_stop(const uint8_t *at, const uint8_t *end, uint8_t separator)
{
    while (at < end && *at != separator && (*at > '\r' || (*at != '\n' && *at != '\r')))
        at++;
    return at;
}

/* Behind the separator or the row's end at `at`. */
static const uint8_t *csv_cell_next(const uint8_t *at, const uint8_t *end)
{
    if (at == end)
        return end;
    return at + 1 + (*at == '\r' && at + 1 < end && at[1] == '\n');
}

const uint8_t *csv_cell_read(const uint8_t *at, const uint8_t *end, uint8_t separator,
                             struct csv_cell *ret)
{
    bool quoted = at < end && *at == '"';
    const uint8_t *stop, *close = NULL;

    *ret = (struct csv_cell){.text = at + quoted};
    if (quoted) {
        close = csv_cell_close(at + 1, end, &ret->doubled);
        if (!close)
            return NULL;
        at = close + 1;
    }
    stop = csv_cell_stop(at, end, separator);
    ret->last = stop == end || *stop != separator;
    ret->bad = quoted && stop > at;
    ret->len = (uint64_t)((quoted ? close : stop) - ret->text);
    return csv_cell_next(stop, end);
}

/* Whether one of eight bytes is `byte`; others of them do not matter. */
static bool csv_any_is(uint64_t eight, uint8_t byte)
{
    const uint64_t ones = UINT64_MAX / 0xFF, x = eight ^ (ones * byte);

    return ((x - ones) & ~x & (ones << 7)) != 0;
}

/* The first quote or end of row; else `end`. In one pass, eight bytes at a time: a file may have
 * only CR, or only LF, and searching for each separately could scan the whole file for every
 * row. */
static const uint8_t *csv_row_mark(const uint8_t *at, const uint8_t *end)
{
    uint64_t eight;

    for (; end - at >= (ptrdiff_t)sizeof eight; at += sizeof eight) {
        memcpy(&eight, at, sizeof eight);
        if (csv_any_is(eight, '\n') || csv_any_is(eight, '\r') || csv_any_is(eight, '"'))
            break;
    }
    while (at < end && *at != '\n' && *at != '\r' && *at != '"')
        at++;
    return at;
}

const uint8_t *csv_row_end(const uint8_t *at, const uint8_t *end, uint8_t separator)
{
    const uint8_t *mark = csv_row_mark(at, end);
    struct csv_cell cell = {.last = false};

    if (mark == end || *mark != '"')
        return csv_cell_next(mark, end);
    while (at && !cell.last)
        at = csv_cell_read(at, end, separator, &cell);
    return at;
}

bool csv_row_is_blank(const uint8_t *at, const uint8_t *end)
{
    return at == end || *at == '\n' || *at == '\r';
}

uint64_t csv_cell_copy(const struct csv_cell *cell, uint8_t *out)
{
    uint64_t len = 0;

    if (!cell->doubled) {
        if (cell->len > 0)
            memcpy(out, cell->text, cell->len);
        return cell->len;
    }
    for (uint64_t i = 0; i < cell->len; i++) {
        out[len++] = cell->text[i];
        i += cell->text[i] == '"';
    }
    return len;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Without the blanks around it. */
static struct csv_cell csv_cell_trim(const struct csv_cell *cell)
{
    struct csv_cell trimmed = *cell;

    while (trimmed.len > 0 && (*trimmed.text == ' ' || *trimmed.text == '\t')) {
        trimmed.text++;
        trimmed.len--;
    }
    while (trimmed.len > 0 &&
           (trimmed.text[trimmed.len - 1] == ' ' || trimmed.text[trimmed.len - 1] == '\t'))
        trimmed.len--;
    return trimmed;
}

static bool csv_cell_is(const struct csv_cell *cell, const char *word)
{
    return cell->len == strlen(word) && strncasecmp((const char *)cell->text, word, cell->len) == 0;
}

static int csv_cell_bool(const struct csv_cell *cell, uint8_t *ret)
{
    *ret = csv_cell_is(cell, "true") || csv_cell_is(cell, "1");
    return *ret || csv_cell_is(cell, "false") || csv_cell_is(cell, "0") ? 0 : -EINVAL;
}

/* Sign and amount. */
static int csv_cell_integer(const struct csv_cell *cell, bool *ret_negative, uint64_t *ret)
{
    uint64_t sign = cell->len > 0 && (*cell->text == '-' || *cell->text == '+'), amount = 0;
    bool over = false;

    for (uint64_t i = sign; i < cell->len; i++) {
        uint8_t digit = (uint8_t)(cell->text[i] - '0');
        if (digit > 9)
            return -EINVAL;
        over |= __builtin_mul_overflow(amount, 10, &amount);
        over |= __builtin_add_overflow(amount, digit, &amount);
    }
    *ret_negative = sign && *cell->text == '-';
    *ret = amount;
    if (cell->len == sign)
        return -EINVAL;
    return over ? -ERANGE : 0;
}

/* [-+]?(digits[.digits] or .digits)([eE][-+]?digits)?, or nan, inf, infinity: strtod() on its own
 * accepts more. */
static bool csv_cell_is_real(const char *text)
{
    static const char digits[] = "0123456789";

    text += *text == '-' || *text == '+';
    if (strcasecmp(text, "nan") == 0 || strcasecmp(text, "inf") == 0 ||
        strcasecmp(text, "infinity") == 0)
        return true;
    size_t whole = strspn(text, digits), part = 0;
    text += whole;
    if (*text == '.')
        part = strspn(text + 1, digits), text += 1 + part;
    if (whole + part == 0)
        return false;
    if (*text != 'e' && *text != 'E')
        return !*text;
    text += 1 + (text[1] == '-' || text[1] == '+');
    size_t power = strspn(text, digits);
    return power > 0 && !text[power];
}

/* Numbers exact in one operation: up to 15 digits and powers of ten up to the 22nd. */
static bool csv_cell_short_real(const struct csv_cell *cell, double *ret)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t i = cell->len > 0 && *cell->text == '-', amount = 0;
    bool negative = i > 0;
    unsigned digits = 0, behind = 0;
    bool point = false;

    if (cell->len > 17)
        return false;
    for (; i < cell->len; i++) {
        uint8_t digit = (uint8_t)(cell->text[i] - '0');
        if (cell->text[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (digit > 9)
            return false;
        amount = 10 * amount + digit;
        digits++;
        behind += point;
    }
    if (digits == 0 || digits > 15)
        return false;
    double number = (double)amount / powers[behind];
    *ret = negative ? -number : number;
    return true;
}

static int csv_cell_real(const struct csv_cell *cell, double *ret)
{
    char text[CSV_NUMBER_MAX + 1];

    if (csv_cell_short_real(cell, ret))
        return 0;
    if (cell->len > CSV_NUMBER_MAX || memchr(cell->text, '\0', cell->len))
        return -EINVAL;
    memcpy(text, cell->text, cell->len);
    text[cell->len] = '\0';
    if (!csv_cell_is_real(text))
        return -EINVAL;
    /* The process's locale may have another decimal point. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return -ENOMEM;
    *ret = strtod_l(text, NULL, c_locale);
    freelocale(c_locale);
    return isinf(*ret) && strpbrk(text, "0123456789") ? -ERANGE : 0;
}

static int csv_cell_put_integer(const struct csv_cell *cell, uint32_t dtype, void *out)
{
    bool is_signed = dtype_numpy(dtype)[0] == 'i', negative;
    size_t bytes = dtype_bytes(dtype);
    uint64_t amount, most = UINT64_MAX >> (64 - 8 * bytes);
    int r = csv_cell_integer(cell, &negative, &amount);

    if (r < 0)
        return r;
    if (is_signed)
        most = (most >> 1) + negative;
    else if (negative)
        most = 0;
    if (amount > most)
        return -ERANGE;
    uint64_t bits = negative ? 0 - amount : amount;
    memcpy(out, &bits, bytes); /* the least significant ones come first */
    return 0;
}

static int csv_cell_put_real(const struct csv_cell *cell, uint32_t dtype, void *out)
{
    double number = 0;
    int r = csv_cell_real(cell, &number);

    if (r < 0)
        return r;
    float narrow = (float)number;
    if (dtype == DL_DTYPE_FLOAT32 && isinf(narrow) && !isinf(number))
        return -ERANGE;
    if (dtype == DL_DTYPE_FLOAT32)
        memcpy(out, &narrow, sizeof narrow);
    else
        memcpy(out, &number, sizeof number);
    return 0;
}

bool csv_has_dtype(uint32_t dtype)
{
    return (dtype >= DL_DTYPE_BOOL && dtype <= DL_DTYPE_INT64) || dtype == DL_DTYPE_FLOAT32 ||
           dtype == DL_DTYPE_FLOAT64;
}

int csv_cell_number(const struct csv_cell *cell, uint32_t dtype, void *out)
{
    struct csv_cell trimmed = csv_cell_trim(cell);

    if (trimmed.len == 0)
        return -ENODATA;
    if (dtype == DL_DTYPE_BOOL)
        return csv_cell_bool(&trimmed, out);
    if (dtype == DL_DTYPE_FLOAT32 || dtype == DL_DTYPE_FLOAT64)
        return csv_cell_put_real(&trimmed, dtype, out);
    return csv_cell_put_integer(&trimmed, dtype, out);
}

/* ---- sorts ---------------------------------------------------------------------------------- */

enum csv_sort csv_cell_sort(const struct csv_cell *cell)
{
    struct csv_cell trimmed = csv_cell_trim(cell);
    uint64_t number;
    double real;

    if (trimmed.len == 0)
        return CSV_EMPTY;
    if (csv_cell_is(&trimmed, "true") || csv_cell_is(&trimmed, "false"))
        return CSV_BOOL;
    int r = csv_cell_put_integer(&trimmed, DL_DTYPE_INT64, &number);
    if (r == 0)
        return CSV_INT;
    if (r == -ERANGE) /* such as a long id, which a float would round */
        return CSV_TEXT;
    return csv_cell_real(&trimmed, &real) == 0 ? CSV_REAL : CSV_TEXT;
}

enum csv_sort csv_sort_join(enum csv_sort a, enum csv_sort b)
{
    enum csv_sort low = a < b ? a : b, high = a < b ? b : a;

    return low == CSV_BOOL && high > CSV_BOOL ? CSV_TEXT : high;
}
