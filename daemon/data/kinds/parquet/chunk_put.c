/* From the levels and values of a page to the elements of a column. */
#include "daemon/data/base/decimal.h"
#include "daemon/data/kinds/parquet/chunk_pages.h"

#include <errno.h>

static void chunk_convert(const struct parquet_column *c, const uint8_t *from, uint64_t n,
                          uint8_t *to)
{
    enum { JULIAN_1970 = 2440588 };
    const int64_t day_ns = INT64_C(86400) * 1000000000;

    for (uint64_t i = 0; i < n; i++, from += c->width, to += c->bytes) {
        if (c->convert == PARQUET_NANOSECONDS) {
            uint64_t of_day;
            uint32_t day;
            memcpy(&of_day, from, sizeof of_day);
            memcpy(&day, from + 8, sizeof day);
            of_day += ((uint64_t)day - JULIAN_1970) * (uint64_t)day_ns;
            memcpy(to, &of_day, sizeof of_day);
        } else {
            memcpy(to, from, c->bytes);
        }
    }
}

/* Decimal numbers, which are big-endian where they are bytes. */
static int chunk_put_decimals(struct chunk_decoding *d, const struct parquet_encoded *e,
                              uint64_t first)
{
    const struct parquet_column *c = d->column;
    bool is_bytes = c->type == PARQUET_BYTE_ARRAY || c->type == PARQUET_FIXED_BYTES;
    uint64_t each = c->width ? c->width : sizeof(struct parquet_slice);
    uint8_t *to = d->values.fixed + first * c->bytes, *raw = chunk_scratch(&d->raw, e->n * each);
    struct parquet_slice *slices = c->width ? NULL : (void *)raw;
    struct dl_error why = {0};
    int r = raw ? chunk_decode(d, e, c->width ? raw : NULL, slices) : chunk_no_memory(d);

    for (uint64_t i = 0; r == 0 && i < e->n; i++, to += c->bytes) {
        struct parquet_slice one =
            slices ? slices[i] : (struct parquet_slice){raw + i * each, c->width};
        r = decimal_element(one.data, one.bytes, is_bytes, c->scale, c->dtype, to, &why);
        if (r < 0)
            return chunk_refuse(d, why.code, why.message);
    }
    return r;
}

/* The values that are there, from element `first` on: as they become, without gaps. */
static int chunk_put_values(struct chunk_decoding *d, const struct parquet_encoded *e,
                            uint64_t first)
{
    const struct parquet_column *c = d->column;
    uint8_t *to = d->values.fixed ? d->values.fixed + first * c->bytes : NULL, *raw = to;
    int r;

    if (c->convert == PARQUET_TO_NUMBER)
        return chunk_put_decimals(d, e, first);
    if (c->sort != PARQUET_NUMBER && c->width == 0)
        return chunk_decode(d, e, NULL, d->values.slices + first);
    if (c->sort == PARQUET_NUMBER && c->convert == PARQUET_AS_IS)
        return chunk_decode(d, e, raw, NULL);
    if (c->sort == PARQUET_NUMBER)
        raw = chunk_scratch(&d->raw, e->n * c->width);
    else
        raw = chunk_keep(d, e->n * c->width);
    if (!raw)
        return chunk_no_memory(d);
    r = chunk_decode(d, e, raw, NULL);
    if (r < 0)
        return r;
    if (c->sort == PARQUET_NUMBER)
        chunk_convert(c, raw, e->n, to);
    for (uint64_t i = 0; c->sort != PARQUET_NUMBER && i < e->n; i++)
        d->values.slices[first + i] =
            (struct parquet_slice){.data = raw + i * c->width, .bytes = c->width};
    return 0;
}

/* The number of elements that a definition level stands for: one; or 0 for an empty list; or those
 * of missing lists of a fixed size. UINT64_MAX: too many to count. */
static uint64_t chunk_places(const struct parquet_column *c, uint8_t def)
{
    uint64_t n = 1;

    if (def >= parquet_column_least(c))
        return 1;
    for (uint32_t depth = 0; depth < c->max_rep; depth++)
        if (def < c->list_def[depth] && mul_overflows(n, c->sizes[depth], &n))
            return UINT64_MAX;
    return n;
}

/* Spreads `there` values without gaps to where their levels place them, from the last one on. */
static void chunk_spread(struct chunk_decoding *d, const struct chunk_levels *levels,
                         uint64_t first, uint64_t n, uint64_t there)
{
    const struct parquet_column *c = d->column;
    uint8_t *fixed = d->values.fixed ? d->values.fixed + first * c->bytes : NULL;
    struct parquet_slice *slices = d->values.slices ? d->values.slices + first : NULL;
    uint64_t to = n, from = there;

    for (uint32_t i = levels->n; i-- > 0;) {
        bool valid = levels->def[i] == c->max_def;
        for (uint64_t more = chunk_places(c, levels->def[i]); more-- > 0;) {
            to--;
            from -= valid;
            d->values.defs[first + to] = levels->def[i];
            if (slices)
                slices[to] =
                    valid ? slices[from] : (struct parquet_slice){.data = (const uint8_t *)""};
            else if (valid)
                memmove(fixed + to * c->bytes, fixed + from * c->bytes, c->bytes);
            else
                memset(fixed + to * c->bytes, 0, c->bytes);
        }
    }
}

/* Makes levels, marking all present elements at first. */
static int chunk_mark_defs(struct chunk_decoding *d, uint8_t **defs, uint64_t room, uint8_t there)
{
    if (*defs)
        return 0;
    *defs = malloc(max_u64(room, 1));
    if (!*defs)
        return chunk_no_memory(d);
    memset(*defs, there, room);
    d->values.bytes += room;
    return 0;
}

/* ---- lists ---------------------------------------------------------------------------------- */

int chunk_reserve_lists(struct chunk_decoding *d, struct parquet_lists *lists, uint64_t more)
{
    uint64_t room = lists->n + more, *offsets;
    uint8_t *defs;

    if (lists->offsets && room <= lists->room)
        return 0;
    room = max_u64(room, 2 * lists->room);
    offsets = reallocarray(lists->offsets, room + 1, sizeof *offsets);
    if (!offsets)
        return chunk_no_memory(d);
    if (!lists->offsets)
        offsets[0] = 0;
    lists->offsets = offsets;
    defs = lists->defs ? realloc(lists->defs, room) : NULL;
    if (lists->defs && !defs)
        return chunk_no_memory(d);
    if (defs)
        memset(defs + lists->room, UINT8_MAX, room - lists->room);
    lists->defs = defs;
    d->values.bytes += (room - lists->room) * (sizeof *offsets + (defs != NULL));
    lists->room = room;
    return 0;
}

/* The last list of a depth has `n` elements more. */
static void chunk_extend_list(struct chunk_decoding *d, uint32_t depth, uint64_t n)
{
    struct parquet_lists *lists = &d->values.lists[depth];

    lists->offsets[lists->n] += n;
}

/* A list of a depth begins, without elements so far. */
static int chunk_begin_list(struct chunk_decoding *d, uint32_t depth, uint8_t def)
{
    struct parquet_lists *lists = &d->values.lists[depth];
    uint64_t at = lists->n++;

    lists->offsets[at + 1] = lists->offsets[at];
    if (def + 1 >= d->column->list_def[depth])
        return 0;
    int r = chunk_mark_defs(d, &lists->defs, lists->room, UINT8_MAX);
    if (r == 0)
        lists->defs[at] = def;
    return r;
}

/* The lists that begin at a depth have no elements; with a fixed size, their missing elements are
 * filled in, which are lists in turn. */
static int chunk_fill_lists(struct chunk_decoding *d, uint32_t depth, uint8_t def)
{
    const struct parquet_column *c = d->column;
    uint64_t n = c->sizes[depth];
    int r = 0;

    for (chunk_extend_list(d, depth, n); r == 0 && n > 0 && ++depth < c->max_rep;) {
        uint64_t each = c->sizes[depth];
        if (add_overflows(d->filled, n, &d->filled) || d->filled > PARQUET_VALUES_ALLOWED / 16)
            return chunk_damaged(d, "it has implausibly many lists that are null");
        r = chunk_reserve_lists(d, &d->values.lists[depth], n);
        for (uint64_t i = 0; r == 0 && i < n; i++) {
            r = chunk_begin_list(d, depth, def);
            chunk_extend_list(d, depth, each);
        }
        if (mul_overflows(n, each, &n))
            return chunk_damaged(d, "it has implausibly many lists that are null");
    }
    return r;
}

/* An element at depth `rep`, and the lists that begin with it, as far as `def` says that they have
 * elements. */
static int chunk_put_element(struct chunk_decoding *d, uint8_t rep, uint8_t def)
{
    const struct parquet_column *c = d->column;
    uint32_t depth = rep;
    int r = 0;

    if (rep > d->open || (rep > 0 && def < c->list_def[rep - 1]))
        return chunk_damaged(d, "its levels do not form lists");
    if (rep == 0 && d->rows++ == d->place->rows)
        return chunk_damaged(d, "it has more rows than the group");
    if (rep > 0)
        chunk_extend_list(d, depth - 1, 1);
    for (; depth < c->max_rep; depth++) {
        r = chunk_reserve_lists(d, &d->values.lists[depth], 1);
        if (r == 0)
            r = chunk_begin_list(d, depth, def);
        if (r < 0 || def < c->list_def[depth])
            break;
        chunk_extend_list(d, depth, 1);
    }
    d->open = depth;
    return r < 0 || depth == c->max_rep ? r : chunk_fill_lists(d, depth, def);
}

/* Where lists begin and end in what the page has. */
static int chunk_put_lists(struct chunk_decoding *d, const struct chunk_levels *levels)
{
    const uint8_t most = d->column->max_rep, least = parquet_column_least(d->column);
    struct parquet_lists *lists = d->values.lists;
    int r = 0;

    for (uint32_t depth = 1; r == 0 && depth < most; depth++)
        r = chunk_reserve_lists(d, &lists[depth], levels->n);
    for (uint32_t i = 0; i < levels->n && r == 0;) {
        uint32_t begin = i;
        /* Most levels continue an innermost list. */
        while (d->open == most && i < levels->n && levels->rep[i] == most &&
               levels->def[i] >= least)
            i++;
        lists[most - 1].offsets[lists[most - 1].n] += i - begin;
        if (i < levels->n) {
            r = chunk_put_element(d, levels->rep[i], levels->def[i]);
            i++;
        }
    }
    return r;
}

int chunk_put(struct chunk_decoding *d, const struct chunk_levels *levels,
              struct parquet_encoded *e)
{
    const struct parquet_column *c = d->column;
    uint64_t first = d->values.n, n = 0;
    int r = 0;

    e->n = 0;
    for (uint32_t i = 0; levels->def && i < levels->n; i++) {
        e->n += levels->def[i] == c->max_def;
        n += levels->def[i] >= parquet_column_least(c);
    }
    for (uint32_t i = 0; c->has_sizes && i < levels->n; i++)
        if (levels->def[i] < parquet_column_least(c) &&
            add_overflows(n, chunk_places(c, levels->def[i]), &n))
            n = UINT64_MAX;
    if (!levels->def)
        e->n = n = levels->n;
    if (add_overflows(first, n, &n))
        n = UINT64_MAX;
    r = chunk_reserve_values(d, n);
    n -= first;
    if (r < 0)
        return r;
    if (levels->rep)
        r = chunk_put_lists(d, levels);
    if (r == 0)
        r = chunk_put_values(d, e, first);
    if (r == 0 && e->n < n)
        r = chunk_mark_defs(d, &d->values.defs, d->room, c->max_def);
    if (r < 0)
        return r;
    if (e->n < n)
        chunk_spread(d, levels, first, n, e->n);
    else if (d->values.defs)
        memset(d->values.defs + first, c->max_def, n);
    d->values.n += n;
    return 0;
}
