/* HTML and SVG: see sheet.h. */
#include "client/dlctl/sheet/sheet.h"

#include "client/dlctl/render.h"
#include "client/dlctl/text.h"

#include <math.h>

enum { WIDTH = 600, HEIGHT = 120, BAR = 14, LABEL = 150 };

/* A file takes no script, whatever it says. */
static const char sheet_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<style>\n"
    ":root { color-scheme: light dark; --line: #0b62c4; --soft: #525b66; }\n"
    "@media (prefers-color-scheme: dark) { :root { --line: #6cb0ff; --soft: #a3adb8; } }\n"
    "body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto; padding: 0 "
    "1rem; }\n"
    "h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 1.8rem; }\n"
    "table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }\n"
    "caption, figcaption { text-align: left; color: var(--soft); }\n"
    "th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: "
    "1px solid var(--soft); } th { white-space: nowrap; }\n"
    "figure { margin: .8rem 0; } svg { width: 100%; max-width: 600px; height: auto; }\n"
    "svg path { fill: none; stroke: var(--line); stroke-width: 1.5; } svg rect { fill: "
    "var(--line); }\n"
    "svg text { fill: currentColor; font-size: 11px; } svg .axis { stroke: var(--soft); }\n"
    "pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid var(--soft); padding: "
    ".5rem; }\n"
    "div { overflow-x: auto; } p { overflow-wrap: anywhere; }\n"
    "@media print { h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }\n"
    "</style>\n";

/* Text as text; what no document may hold becomes '?'. */
static void sheet_put(FILE *file, const char *text)
{
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if (c == '<')
            fputs("&lt;", file);
        else if (c == '>')
            fputs("&gt;", file);
        else if (c == '&')
            fputs("&amp;", file);
        else if (c == '"')
            fputs("&quot;", file);
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
            fputc('?', file);
        else
            fputc(c, file);
    }
}

static void sheet_put_in(FILE *file, const char *tag, const char *text)
{
    fprintf(file, "<%s>", tag);
    sheet_put(file, text);
    fprintf(file, "</%s>\n", tag);
}

void sheet_begin(FILE *file, const char *title)
{
    fputs(sheet_head, file);
    sheet_put_in(file, "title", title);
    fputs("</head>\n<body>\n<main>\n", file);
    sheet_put_in(file, "h1", title);
}

void sheet_end(FILE *file)
{
    fputs("</main>\n</body>\n</html>\n", file);
}

void sheet_heading(FILE *file, const char *text)
{
    sheet_put_in(file, "h2", text);
}

void sheet_paragraph(FILE *file, const char *text)
{
    sheet_put_in(file, "p", text);
}

void sheet_preformatted(FILE *file, const char *text)
{
    sheet_put_in(file, "pre", text);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* What render.h prints of it, as text. */
static void sheet_put_value(FILE *file, const char *key, const struct value *v)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    FILE *memory = open_memstream(&text, &len);

    if (!memory)
        return;
    if (v)
        render_inline(memory, key, v);
    else
        render_title(memory, key);
    if (fclose(memory) == 0)
        sheet_put(file, text);
}

static bool sheet_is_meant(const struct value *row, const char *loader)
{
    const struct value *name = value_get(row, "loader");

    return row->type == VALUE_MAP &&
           (!loader || (name && name->type == VALUE_STRING && strcmp(name->string, loader) == 0));
}

static bool sheet_has_key(const struct value *rows, const char *loader, const char *key)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct value *v = value_get(&rows->items[i], key);

        if (sheet_is_meant(&rows->items[i], loader) && v && v->type != VALUE_NULL &&
            !((v->type == VALUE_ARRAY || v->type == VALUE_MAP) && v->count == 0))
            return true;
    }
    return false;
}

enum { KEYS_MAX = 24 };

/* The keys of the columns that somebody has; the first row's, where none are named. */
static size_t sheet_choose_keys(const struct value *rows, const char *loader,
                                const char *const *keys, const char *ret[static KEYS_MAX])
{
    const struct value *first = NULL;
    size_t n = 0;

    for (uint32_t i = 0; i < rows->count && !first; i++)
        if (sheet_is_meant(&rows->items[i], loader))
            first = &rows->items[i];
    for (uint32_t i = 0; first && n < KEYS_MAX; i++) {
        const char *key = keys ? keys[i] : i < first->count ? first->items[i].key : NULL;

        if (!key)
            break;
        if (sheet_has_key(rows, loader, key))
            ret[n++] = key;
    }
    return n;
}

bool sheet_table(FILE *file, const char *caption, const struct value *rows, const char *loader,
                 const char *const *keys)
{
    const char *columns[KEYS_MAX];
    size_t n = rows->type == VALUE_ARRAY ? sheet_choose_keys(rows, loader, keys, columns) : 0;

    if (n == 0)
        return false;
    fputs("<div><table>", file);
    sheet_put_in(file, "caption", caption);
    fputs("<thead><tr>", file);
    for (size_t k = 0; k < n; k++) {
        fputs("<th scope=\"col\">", file);
        sheet_put_value(file, columns[k], NULL);
        fputs("</th>", file);
    }
    fputs("</tr></thead>\n<tbody>\n", file);
    for (uint32_t i = 0; i < rows->count; i++) {
        if (!sheet_is_meant(&rows->items[i], loader))
            continue;
        fputs("<tr>", file);
        for (size_t k = 0; k < n; k++) {
            static const struct value nothing = {.type = VALUE_NULL};
            const struct value *v = value_get(&rows->items[i], columns[k]);

            fputs("<td>", file);
            sheet_put_value(file, columns[k], v ? v : &nothing);
            fputs("</td>", file);
        }
        fputs("</tr>\n", file);
    }
    fputs("</tbody></table></div>\n", file);
    return true;
}

/* ---- charts --------------------------------------------------------------------------------- */

struct sheet_range {
    double low, mean, high; /* NAN: nothing is known */
};

static struct sheet_range sheet_range_of(const double values[static SHEET_BINS])
{
    struct sheet_range range = {NAN, NAN, NAN};
    double sum = 0;
    size_t n = 0;

    for (size_t i = 0; i < SHEET_BINS; i++) {
        if (isnan(values[i]))
            continue;
        range.low = fmin(range.low, values[i]); /* of NAN and a number, the number */
        range.high = fmax(range.high, values[i]);
        sum += values[i];
        n++;
    }
    range.mean = n ? sum / (double)n : NAN;
    return range;
}

static void sheet_put_real(FILE *file, const char *key, double d)
{
    const struct value v = {.type = VALUE_FLOAT, .number = d};

    sheet_put_value(file, key, &v);
}

/* Points that are known, joined; a gap where one is not. */
static void sheet_put_line(FILE *file, const double values[static SHEET_BINS], double high)
{
    bool pen = false;

    fputs("<path d=\"", file);
    for (size_t i = 0; i < SHEET_BINS; i++) {
        if (isnan(values[i])) {
            pen = false;
            continue;
        }
        double x = (double)i * WIDTH / (SHEET_BINS - 1);
        double y = HEIGHT - 2 - (high > 0 ? values[i] / high : 0) * (HEIGHT - 20);
        fprintf(file, "%c%.1f %.1f", pen ? 'L' : 'M', x, y);
        /* A point by itself is seen, too. */
        if (!pen && (i + 1 == SHEET_BINS || isnan(values[i + 1])))
            fprintf(file, "h2");
        pen = true;
    }
    fputs("\"/>", file);
}

void sheet_chart(FILE *file, const char *caption, const char *key,
                 const double values[static SHEET_BINS], double seconds)
{
    struct sheet_range range = sheet_range_of(values);

    if (isnan(range.mean))
        return;
    fputs("<figure><figcaption>", file);
    sheet_put(file, caption);
    fputs(": ", file);
    sheet_put_real(file, key, range.mean);
    fputs(" on average, from ", file);
    sheet_put_real(file, key, range.low);
    fputs(" to ", file);
    sheet_put_real(file, key, range.high);
    fprintf(file, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH,
            HEIGHT + 16);
    sheet_put(file, caption);
    fprintf(file, "\"><line class=\"axis\" x1=\"0\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", HEIGHT - 2,
            WIDTH, HEIGHT - 2);
    sheet_put_line(file, values, range.high);
    fputs("<text x=\"0\" y=\"11\">", file);
    sheet_put_real(file, key, range.high);
    fprintf(file,
            "</text><text x=\"0\" y=\"%d\">0</text><text x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">",
            HEIGHT + 12, WIDTH, HEIGHT + 12);
    sheet_put_real(file, "_s", seconds);
    fputs("</text></svg></figure>\n", file);
}

void sheet_bars(FILE *file, const char *caption, const struct value *rows, const char *label,
                const char *value)
{
    double most = 0;
    int y = 0;

    for (uint32_t i = 0; rows->type == VALUE_ARRAY && i < rows->count; i++)
        most = fmax(most, value_real(value_get(&rows->items[i], value)));
    if (!(most > 0))
        return;
    fputs("<figure><figcaption>", file);
    sheet_put(file, caption);
    fprintf(file, "</figcaption><svg viewBox=\"0 0 %d %u\" role=\"img\" aria-label=\"", WIDTH,
            rows->count * (BAR + 4));
    sheet_put(file, caption);
    fputs("\">", file);
    for (uint32_t i = 0; i < rows->count; i++, y += BAR + 4) {
        const struct value *name = value_get(&rows->items[i], label);
        const struct value *v = value_get(&rows->items[i], value);

        if (!name || !v)
            continue;
        fprintf(file, "<text x=\"0\" y=\"%d\">", y + BAR - 3);
        sheet_put_value(file, label, name);
        fputs(": ", file);
        sheet_put_value(file, value, v);
        fprintf(file, "</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", LABEL, y,
                fmax(0, value_real(v)) / most * (WIDTH - LABEL), BAR);
    }
    fputs("</svg></figure>\n", file);
}
