/*
 * The tables of PROTOCOL.md, from the .def files that the code is made of.
 *
 *   protocol_md FILE            exit 0 when the marked sections of FILE are what they should be;
 *                               else 1, and the lines that differ on standard error
 *   protocol_md --update FILE   rewrites them
 *
 * A section stands between `<!-- begin generated NAME -->` and `<!-- end generated NAME -->`, each
 * alone on its line.
 */
#include "proto/codec.h"
#include "proto/common/base.h"
#include "proto/dtype.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void closep(FILE **file)
{
    if (*file)
        fclose(*file);
}

static const char *direction_text(uint32_t direction)
{
    switch (direction) {
    case FROM_CLIENT:
        return "client → daemon";
    case FROM_DAEMON:
        return "daemon → client";
    case TO_WORKER:
        return "daemon → worker";
    case TO_HELPER:
        return "stand-in → helper";
    case FROM_HELPER:
        return "helper → stand-in";
    default:
        return "worker → daemon";
    }
}

/* Maxima as people write them: the whole range of a width by its name. */
static void print_max(FILE *out, uint64_t max)
{
    if (max == UINT64_MAX)
        fputs("2^64-1", out);
    else if (max == INT64_MAX)
        fputs("2^63-1", out);
    else if (max == UINT32_MAX)
        fputs("2^32-1", out);
    else
        fprintf(out, "%" PRIu64, max);
}

/* The version of the protocol that the message's next fields came with; 0: they were always there.
 */
static int later;

static void print_message(FILE *out, const char *name, uint32_t number, uint32_t direction, int fds,
                          const char *meaning)
{
    later = 0;
    fprintf(out, "### %s (%" PRIu32 ")\n\n%s. %s", name, number, direction_text(direction),
            meaning);
    if (fds > 0)
        fprintf(out, " Carries %d file descriptor%s.", fds, fds == 1 ? "" : "s");
    fputs("\n\n| field | type | maximum | meaning |\n| --- | --- | --- | --- |\n", out);
}

static void print_field(FILE *out, const char *name, const char *type, uint64_t max,
                        const char *meaning)
{
    fprintf(out, "| `%s` | %s | ", name, type);
    if (max > 0)
        print_max(out, max);
    fprintf(out, " | %s", meaning);
    if (later > 0)
        fprintf(out, " (version %d)", later);
    fputs(" |\n", out);
}

static void print_bytes_field(FILE *out, const char *name, uint64_t max, uint32_t unit,
                              const char *meaning)
{
    char type[64];

    snprintf(type, sizeof type, "bytes, a multiple of %" PRIu32, unit);
    print_field(out, name, type, max, meaning);
}

static void print_messages(FILE *out)
{
#define MESSAGE(NAME, name, number, direction, fds, meaning) \
    print_message(out, #NAME, number, direction, fds, meaning);
#define U64(name, field, max, meaning)       print_field(out, #field, "unsigned", max, meaning);
#define STR(name, field, max, meaning)       print_field(out, #field, "text", max, meaning);
#define BIN(name, field, max, unit, meaning) print_bytes_field(out, #field, max, unit, meaning);
#define ANY(name, field, meaning)            print_field(out, #field, "any value", 0, meaning);
#define LATER(name, version)                 later = version;
#define END(name)                            fputc('\n', out);
#include "proto/messages.def"
}

static void print_limits(FILE *out)
{
    fputs("| limit | value | unit | what it bounds |\n| --- | --- | --- | --- |\n", out);
#define LIMIT(name, value, unit, why) \
    fprintf(out, "| `%s` | %" PRIu64 " | %s | %s |\n", #name, (uint64_t)(value), unit, why);
#include "proto/limits.def"
#undef LIMIT
}

static void print_dtypes(FILE *out)
{
    fputs("| number | name | bytes | NumPy | DLPack code |\n| --- | --- | --- | --- | --- |\n",
          out);
#define DTYPE(NAME, number, bytes, name, numpy, dlpack) \
    fprintf(out, "| %d | `%s` | %d | %s | %d |\n", number, name, bytes, numpy, dlpack);
#include "proto/dtype.def"
#undef DTYPE
}

static const struct {
    const char *name;
    void (*print)(FILE *out);
} sections[] = {
    {"messages", print_messages},
    {"limits", print_limits},
    {"dtypes", print_dtypes},
};

static char *read_file(const char *path)
{
    _cleanup_(closep) FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t cap = 0;

    if (!file)
        return NULL;
    if (getdelim(&text, &cap, '\0', file) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Replaces what stands in the section of `text` (consumed); NULL when its marks are missing. */
static char *with_section(char *text, size_t i)
{
    _cleanup_free_ char *old = text;
    char begin[64], end[64], *from, *to, *made = NULL;
    size_t len;

    snprintf(begin, sizeof begin, "<!-- begin generated %s -->\n", sections[i].name);
    snprintf(end, sizeof end, "<!-- end generated %s -->\n", sections[i].name);
    from = strstr(old, begin);
    to = from ? strstr(from, end) : NULL;
    if (!to) {
        fprintf(stderr, "no section between %.*s and %s", (int)strlen(begin) - 1, begin, end);
        return NULL;
    }
    FILE *out = open_memstream(&made, &len);
    if (!out)
        return NULL;
    from += strlen(begin);
    fwrite(old, 1, (size_t)(from - old), out);
    fputc('\n', out);
    sections[i].print(out);
    /* One blank line before the closing mark, whether or not the section ended with one. */
    fflush(out);
    if (len >= 2 && memcmp(made + len - 2, "\n\n", 2) != 0)
        fputc('\n', out);
    fputs(to, out);
    fclose(out);
    return made;
}

static void print_lines(char sign, const char *from, const char *to)
{
    while (from < to) {
        const char *end = memchr(from, '\n', (size_t)(to - from));
        int len = (int)((end ? end : to) - from);
        fprintf(stderr, "%c%.*s\n", sign, len, from);
        from += len + 1;
    }
}

/* From the first line that differs to the last one: what is there, and what should be. */
static void print_difference(const char *is, const char *should)
{
    const char *a = is + strlen(is), *b = should + strlen(should);
    size_t start = 0, line = 1;

    for (size_t i = 0; is[i] && is[i] == should[i]; i++)
        if (is[i] == '\n') {
            start = i + 1;
            line++;
        }
    while (a > is + start && b > should + start && a[-1] == b[-1])
        a--, b--;
    while (*a && *a != '\n')
        a++;
    while (*b && *b != '\n')
        b++;
    fprintf(stderr, "line %zu:\n", line);
    print_lines('-', is + start, a);
    print_lines('+', should + start, b);
}

static int write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");

    if (!file)
        return -errno;
    fputs(text, file);
    return fclose(file) == 0 ? 0 : -errno;
}

int main(int argc, char **argv)
{
    bool update = argc == 3 && strcmp(argv[1], "--update") == 0;

    if (argc != 2 + update) {
        fprintf(stderr, "usage: %s [--update] FILE\n", argv[0]);
        return 2;
    }
    const char *path = argv[1 + update];
    _cleanup_free_ char *is = read_file(path);
    _cleanup_free_ char *should = is ? strdup(is) : NULL;
    if (!should) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    for (size_t i = 0; should && i < ARRAY_SIZE(sections); i++)
        should = with_section(should, i);
    if (!should)
        return 1;
    if (strcmp(is, should) == 0)
        return 0;
    if (update) {
        int r = write_file(path, should);
        if (r < 0)
            fprintf(stderr, "%s: %s\n", path, strerror(-r));
        return r < 0;
    }
    print_difference(is, should);
    fprintf(stderr, "%s differs from the tables; to rewrite it: %s --update %s\n", path, argv[0],
            path);
    return 1;
}
