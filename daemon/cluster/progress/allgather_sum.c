#include "daemon/cluster/progress/allgather_sum.h"

#include "daemon/base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define SUM_HEAD "round %" PRIu64 " of %016" PRIx64 "\n"

enum { SUM_HEAD_MAX = 64, NUMBER_MAX = 24 };

uint64_t allgather_sum_checksum(const struct allgather_node *nodes, uint32_t n)
{
    uint64_t sum = n;

    for (uint32_t i = 0; i < n; i++)
        sum = XXH3_64bits_withSeed(&nodes[i].id, sizeof nodes[i].id, sum);
    return sum;
}

/* ---- writing -------------------------------------------------------------------------------- */

struct said {
    const struct dl_buffer *value;
    uint32_t place;
};

static int allgather_sum_compare_values(const struct dl_buffer *a, const struct dl_buffer *b)
{
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return memcmp(a->data, b->data, a->len);
}

static int allgather_sum_compare(const void *a, const void *b)
{
    const struct said *x = a, *y = b;
    int order = allgather_sum_compare_values(x->value, y->value);

    return order != 0 ? order : x->place < y->place ? -1 : 1;
}

static void allgather_sum_put_number(struct dl_buffer *out, char before, uint64_t number)
{
    char text[NUMBER_MAX];
    int len = snprintf(text, sizeof text, "%c%" PRIu64, before, number);

    must_append(out, text, (size_t)len);
}

/* Places that follow one another, from the first on; returns how many. */
static uint32_t allgather_sum_put_range(struct dl_buffer *out, char before, const struct said *said,
                                        uint32_t n)
{
    uint32_t len = 1;

    while (len < n && said[len].place == said[0].place + len)
        len++;
    allgather_sum_put_number(out, before, said[0].place);
    if (len > 1)
        allgather_sum_put_number(out, '-', said[len - 1].place);
    return len;
}

/* The first value, and all that have said the same; returns how many have. */
static uint32_t allgather_sum_put_value(struct dl_buffer *out, const struct said *said, uint32_t n)
{
    char text[NUMBER_MAX];
    uint32_t same = 1;

    while (same < n && allgather_sum_compare_values(said[0].value, said[same].value) == 0)
        same++;
    int len = snprintf(text, sizeof text, "%zu", said[0].value->len);
    must_append(out, text, (size_t)len);
    for (uint32_t i = 0; i < same;)
        i += allgather_sum_put_range(out, i == 0 ? ' ' : ',', said + i, same - i);
    must_append(out, "\n", 1);
    must_append(out, said[0].value->data, said[0].value->len);
    must_append(out, "\n", 1);
    return same;
}

void allgather_sum_write(uint64_t round, uint64_t checksum, const struct dl_buffer *values,
                         uint32_t n, struct dl_buffer *out)
{
    _cleanup_free_ struct said *said = must_alloc(max_u64(n, 1) * sizeof *said);
    char head[SUM_HEAD_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++)
        if (values[i].len > 0)
            said[count++] = (struct said){&values[i], i};
    qsort(said, count, sizeof *said, allgather_sum_compare);
    int len = snprintf(head, sizeof head, SUM_HEAD, round, checksum);
    must_append(out, head, (size_t)len);
    for (uint32_t i = 0; i < count;)
        i += allgather_sum_put_value(out, said + i, count - i);
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool allgather_sum_take(struct dl_span *in, char letter)
{
    if (in->len == 0 || in->data[0] != (uint8_t)letter)
        return false;
    in->data++;
    in->len--;
    return true;
}

/* As it was written: without zeros before it. */
static bool allgather_sum_take_number(struct dl_span *in, uint64_t *ret)
{
    size_t digits = 0;

    *ret = 0;
    while (digits < in->len && in->data[digits] >= '0' && in->data[digits] <= '9')
        if (mul_overflows(*ret, 10, ret) || add_overflows(*ret, in->data[digits++] - '0', ret))
            return false;
    if (digits == 0 || (digits > 1 && in->data[0] == '0'))
        return false;
    in->data += digits;
    in->len -= digits;
    return true;
}

static void allgather_sum_keep(struct dl_buffer *values, uint64_t from, uint64_t to,
                               struct dl_span value)
{
    for (uint64_t i = from; i <= to; i++)
        if (values[i].len == 0)
            must_append(&values[i], value.data, value.len);
}

/* "0-4,6\n", in what is behind `in`, where the value begins. */
static bool allgather_sum_take_places(struct dl_span *in, struct dl_span value,
                                      struct dl_buffer *values, uint32_t n)
{
    uint64_t from, to;

    do {
        if (!allgather_sum_take_number(in, &from))
            return false;
        to = from;
        if (allgather_sum_take(in, '-') && !allgather_sum_take_number(in, &to))
            return false;
        if (from > to || to >= n)
            return false;
        if (values)
            allgather_sum_keep(values, from, to, value);
    } while (allgather_sum_take(in, ','));
    return allgather_sum_take(in, '\n');
}

static bool allgather_sum_take_value(struct dl_span *in, struct dl_buffer *values, uint32_t n)
{
    uint64_t len;

    if (!allgather_sum_take_number(in, &len) || !allgather_sum_take(in, ' '))
        return false;
    struct dl_span places = *in;
    if (!allgather_sum_take_places(in, places, NULL, n) || len == 0 || len > in->len)
        return false;
    const struct dl_span value = {in->data, len};
    in->data += len;
    in->len -= len;
    return allgather_sum_take(in, '\n') && allgather_sum_take_places(&places, value, values, n);
}

enum allgather_sum_age allgather_sum_read(struct dl_span text, uint64_t round, uint64_t checksum,
                                          struct dl_buffer *values, uint32_t n)
{
    char head[SUM_HEAD_MAX] = "", again[SUM_HEAD_MAX], *end;
    uint64_t number, sum;

    if (text.len > 0)
        memcpy(head, text.data, min_u64(text.len, sizeof head - 1));
    if (strncmp(head, "round ", 6) != 0)
        return ALLGATHER_SUM_NONE;
    number = strtoull(head + 6, &end, 10);
    if (strncmp(end, " of ", 4) != 0)
        return ALLGATHER_SUM_NONE;
    sum = strtoull(end + 4, NULL, 16);
    int len = snprintf(again, sizeof again, SUM_HEAD, number, sum);
    if (strncmp(head, again, (size_t)len) != 0)
        return ALLGATHER_SUM_NONE;
    if (number != round)
        return number > round ? ALLGATHER_SUM_LATER : ALLGATHER_SUM_OLD;
    if (sum != checksum)
        return ALLGATHER_SUM_OLD;
    struct dl_span in = {text.data + len, text.len - (size_t)len};
    while (in.len > 0 && allgather_sum_take_value(&in, values, n))
        ;
    return ALLGATHER_SUM_NOW;
}
