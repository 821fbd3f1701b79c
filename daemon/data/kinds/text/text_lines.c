#include "daemon/data/kinds/text/text_lines.h"
#include "daemon/data/files/remote.h"
#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>

struct line_group {
    uint64_t begin;        /* of its first line, in the text */
    uint64_t offsets : 60; /* of its distances, in `packed` */
    uint64_t width : 4;    /* bytes of each */
};

/* A distance is read as 8 bytes, whatever its width. */
enum { PACKED_SLACK = 8 };

static const uint8_t byte_order_mark[] = {0xEF, 0xBB, 0xBF};

/* Appends n lines, 1..LINE_GROUP, that begin at begins[]. */
static int text_lines_add_group(struct line_table *table, const uint64_t *begins, unsigned n)
{
    uint64_t farthest = begins[n - 1] - begins[0];
    unsigned width = 1;

    if (!array_reserve(table->groups, table->groups_room, table->n_groups + 1) ||
        !array_reserve(table->packed, table->packed_room,
                       table->packed_bytes + (uint64_t)LINE_GROUP * 8 + PACKED_SLACK))
        return -ENOMEM;
    while (width < 8 && farthest >> (8 * width))
        width++;
    uint8_t *out = table->packed + table->packed_bytes;
    for (unsigned i = 0; i < n; i++) {
        uint64_t distance = begins[i] - begins[0];
        memcpy(out + (size_t)i * width, &distance, 8);
    }
    table->groups[table->n_groups++] =
        (struct line_group){.begin = begins[0], .offsets = table->packed_bytes, .width = width};
    table->packed_bytes += (uint64_t)n * width;
    table->n += n;
    return 0;
}

static bool text_lines_is_blank(const uint8_t *text, const uint8_t *end)
{
    while (text < end && (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n'))
        text++;
    return text == end;
}

static const uint8_t *text_lines_next(const void *context, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *lf = memchr(at, '\n', (size_t)(end - at));

    return lf ? lf + 1 : end;
}

/* The same for plain text, where a lone CR ends a line, too. */
static const uint8_t *text_lines_next_plain(const void *context, const uint8_t *at,
                                            const uint8_t *end)
{
    const uint8_t *next = text_lines_next(context, at, end);
    const uint8_t *cr = memchr(at, '\r', (size_t)(next - at));

    return !cr || (cr + 2 == next && cr[1] == '\n') ? next : cr + 1;
}

static int text_lines_find_lines(struct line_table *table, const struct line_rule *rule,
                                 uint64_t *ret_bad)
{
    const uint8_t *text = table->text, *at = text, *end = text + table->bytes;
    uint64_t begins[LINE_GROUP];
    unsigned n = 0;
    int r = 0;

    if (table->bytes >= sizeof byte_order_mark &&
        memcmp(at, byte_order_mark, sizeof byte_order_mark) == 0)
        at += sizeof byte_order_mark;
    while (at < end && r == 0) {
        const uint8_t *next = rule->next(rule->context, at, end);

        *ret_bad = (uint64_t)(at - text);
        if (!next)
            return -EINVAL;
        if (!table->skip_blank || !rule->is_blank(at, next))
            begins[n++] = (uint64_t)(at - text);
        if (n == LINE_GROUP) {
            r = text_lines_add_group(table, begins, n);
            n = 0;
        }
        at = next;
    }
    return r == 0 && n > 0 ? text_lines_add_group(table, begins, n) : r;
}

/* Gives back what was reserved too much. */
static void text_lines_trim(struct line_table *table)
{
    void *packed, *groups;

    if (table->n == 0)
        return;
    packed = realloc(table->packed, table->packed_bytes + PACKED_SLACK);
    if (packed)
        table->packed = packed;
    groups = realloc(table->groups, table->n_groups * sizeof *table->groups);
    if (groups)
        table->groups = groups;
}

static int text_lines_make(struct line_table table, const struct line_rule *rule,
                           struct line_table *ret, uint64_t *ret_bad)
{
    int r = text_lines_find_lines(&table, rule, ret_bad);

    if (r < 0) {
        line_table_deinit(&table);
        return r;
    }
    text_lines_trim(&table);
    *ret = table;
    return 0;
}

int line_table_make(const uint8_t *text, uint64_t bytes, bool skip_blank, struct line_table *ret)
{
    const struct line_rule rule = {.next = skip_blank ? text_lines_next : text_lines_next_plain,
                                   .is_blank = text_lines_is_blank};
    uint64_t bad;

    return text_lines_make(
        (struct line_table){.text = text, .bytes = bytes, .skip_blank = skip_blank}, &rule, ret,
        &bad);
}

int line_table_make_by(const uint8_t *text, uint64_t bytes, const struct line_rule *rule,
                       struct line_table *ret, uint64_t *ret_bad)
{
    return text_lines_make((struct line_table){.text = text, .bytes = bytes, .skip_blank = true},
                           rule, ret, ret_bad);
}

void line_table_deinit(struct line_table *table)
{
    free(table->groups);
    free(table->packed);
    *table = (struct line_table){0};
}

static uint64_t text_lines_begin_of(const struct line_table *table, uint64_t i)
{
    const struct line_group *group = &table->groups[i / LINE_GROUP];
    unsigned width = group->width;
    uint64_t distance;

    memcpy(&distance, table->packed + group->offsets + i % LINE_GROUP * width, sizeof distance);
    if (width < 8)
        distance &= (UINT64_C(1) << (8 * width)) - 1;
    return group->begin + distance;
}

uint64_t line_begin(const struct line_table *table, uint64_t i)
{
    assert(i < table->n);
    return text_lines_begin_of(table, i);
}

struct line line_at(const struct line_table *table, uint64_t i)
{
    assert(i < table->n);
    uint64_t begin = text_lines_begin_of(table, i);
    uint64_t end = i + 1 < table->n ? text_lines_begin_of(table, i + 1) : table->bytes;
    const uint8_t *text = table->text, *lf;

    /* Between this line and the next there may be blank ones. */
    if (table->skip_blank && (lf = memchr(text + begin, '\n', end - begin)))
        end = (uint64_t)(lf - text) + 1;
    if (end > begin && text[end - 1] == '\n') {
        end--;
        if (end > begin && text[end - 1] == '\r')
            end--;
    } else if (!table->skip_blank && end > begin && text[end - 1] == '\r') {
        end--;
    }
    return (struct line){.text = text + begin, .bytes = end - begin};
}

void line_expect(const struct line_table *table, uint64_t i)
{
    enum { MOST = 512 };
    uint64_t begin = text_lines_begin_of(table, i);
    uint64_t end = i + 1 < table->n ? text_lines_begin_of(table, i + 1) : table->bytes;

    for (uint64_t at = begin; at < min_u64(end, begin + MOST); at += CACHE_LINE)
        __builtin_prefetch(table->text + at);
    __builtin_prefetch(table->text + end - 1);
    remote_expect(table->text + begin, end - begin);
}

uint64_t line_number(const struct line_table *table, uint64_t i)
{
    const uint8_t *at = table->text, *line = at + text_lines_begin_of(table, i);
    uint64_t number = 1;

    if (!table->skip_blank)
        return i + 1;
    while (at < line && (at = memchr(at, '\n', (size_t)(line - at)))) {
        number++;
        at++;
    }
    return number;
}
