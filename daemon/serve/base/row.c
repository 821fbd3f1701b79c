#include "daemon/serve/base/row.h"

struct row row_begin(struct value *v)
{
    v->type = VALUE_MAP;
    return (struct row){.map = v};
}

struct row row_push(struct value *rows)
{
    struct row row = {0};

    row.r = value_push(rows, &row.map);
    if (row.r == 0)
        row.map->type = VALUE_MAP;
    return row;
}

struct row row_under(struct row *row, const char *key)
{
    struct row inner = {0};

    if (row->r == 0)
        row->r = value_set(row->map, key, &inner.map);
    if (row->r == 0)
        inner.map->type = VALUE_MAP;
    inner.r = row->r;
    return inner;
}

void row_uint(struct row *row, const char *key, uint64_t u)
{
    if (row->r == 0)
        row->r = value_set_uint(row->map, key, u);
}

void row_real(struct row *row, const char *key, double d)
{
    if (row->r == 0)
        row->r = value_set_float(row->map, key, d);
}

void row_seconds(struct row *row, const char *key, uint64_t ns)
{
    row_real(row, key, (double)ns / 1e9);
}

void row_string(struct row *row, const char *key, const char *s)
{
    if (!s)
        row_null(row, key);
    else if (row->r == 0)
        row->r = value_set_string(row->map, key, s);
}

void row_null(struct row *row, const char *key)
{
    struct value *v;

    if (row->r == 0)
        row->r = value_set(row->map, key, &v);
}

void row_uint_if(struct row *row, const char *key, bool is, uint64_t u)
{
    if (is)
        row_uint(row, key, u);
    else
        row_null(row, key);
}

struct value *row_list(struct row *row, const char *key)
{
    struct value *list = NULL;

    if (row->r == 0)
        row->r = value_set(row->map, key, &list);
    if (row->r < 0)
        return NULL;
    list->type = VALUE_ARRAY;
    return list;
}
