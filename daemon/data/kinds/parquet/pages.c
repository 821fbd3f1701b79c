#include "daemon/data/kinds/parquet/pages.h"

#include "proto/common/bisect.h"

#include <errno.h>

enum { PLACE_LEAST = 7 }; /* bytes of a PageLocation: three fields, each of two, and the end */

#define PLACE(member) THRIFT_AT(THRIFT_TO_INT, struct parquet_page_place, member)
static const struct thrift_row pages_place_rows[] = {
    [1] = PLACE(at), [2] = PLACE(bytes), [3] = PLACE(first)};

static int pages_read_places(struct thrift *t, const struct thrift_field *field,
                             struct parquet_pages *pages)
{
    uint32_t n = thrift_structs(t, field, PLACE_LEAST);

    if (n == 0 || pages->places)
        t->bad = true;
    if (t->bad)
        return 0;
    pages->places = calloc(n, sizeof *pages->places);
    if (!pages->places)
        return -ENOMEM;
    pages->n = n;
    for (uint32_t i = 0; i < n && !t->bad; i++) {
        pages->places[i].number = i;
        thrift_read(t, pages_place_rows, ARRAY_SIZE(pages_place_rows), &pages->places[i]);
    }
    return 0;
}

/* The pages lie in the chunk one behind another, and have rows of the group, at least one each. */
static bool pages_fit(const struct parquet_pages *pages, const struct parquet_chunk *chunk,
                      uint64_t rows)
{
    uint64_t at = chunk->first, end = chunk->first + chunk->bytes;

    for (uint32_t i = 0; i < pages->n; i++) {
        const struct parquet_page_place *place = &pages->places[i];
        if (place->at < at || place->at >= end || place->bytes > end - place->at ||
            place->first >= rows || (i == 0 ? place->first != 0 : place->first <= place[-1].first))
            return false;
        at = place->at + place->bytes;
    }
    return pages->n > 0;
}

int parquet_pages_read(const uint8_t *file, const struct parquet_chunk *chunk, uint64_t rows,
                       struct parquet_pages *ret)
{
    struct parquet_pages pages = {0};
    struct thrift_field field;
    int r = 0;

    *ret = pages;
    if (chunk->index_bytes == 0) /* then where it would be is anything */
        return 0;
    struct thrift t = thrift_of(file + chunk->index, chunk->index_bytes);
    while (r == 0 && thrift_next(&t, &field)) {
        if (field.id == 1)
            r = pages_read_places(&t, &field, &pages);
        else
            thrift_skip(&t, &field);
    }
    if (r < 0)
        return r;
    if (t.bad || !pages_fit(&pages, chunk, rows))
        parquet_pages_deinit(&pages);
    *ret = pages;
    return 0;
}

void parquet_pages_deinit(struct parquet_pages *pages)
{
    free(pages->places);
    *pages = (struct parquet_pages){0};
}

uint32_t parquet_pages_find(const struct parquet_pages *pages, uint64_t row)
{
    return (uint32_t)bisect_firsts(&pages->places[0].first, sizeof *pages->places, pages->n, row);
}
